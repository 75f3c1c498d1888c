//! What a cluster environment says about this launcher: plain data.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::source::{Source, Sourced};
use crate::topology::{GlobalRank, LocalRank, NodeRank};

/// The facts of one cluster environment; `None` where it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// The name people know it by, such as "Slurm" or "plain machine".
    pub(crate) name: &'static str,
    /// Present where the engine itself numbers what it starts; it may start several a node.
    pub(crate) tasks: Option<Tasks>,
    /// An allocation whose engine did not start this launcher: a batch script, a shell.
    pub(crate) body: bool,
    pub(crate) num_nodes: Option<Sourced<u32>>,
    pub(crate) node_rank: Option<Sourced<NodeRank>>,
    /// A host name or address without a port; `None` where there is nobody to meet.
    pub(crate) main_address: Option<Sourced<String>>,
    pub(crate) main_port: Option<Sourced<u16>>,
    /// How long the engine waits between its SIGTERM and its SIGKILL, where that is fixed.
    pub(crate) kill_after: Option<Duration>,
    /// What only the engine itself can be asked for.
    pub(crate) inquiry: Option<Inquiry>,
    /// Why the inquiry had no answer.
    pub(crate) unanswered: Option<String>,
    /// Lines for the user: what looks wrong, and the way out.
    pub(crate) notes: Vec<String>,
}

/// The engine's numbering of its tasks, of which this launcher is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tasks {
    pub(crate) seat: Seat,
    /// Of all nodes, the smallest number of tasks on one; where only this node's number is
    /// known, that.
    pub(crate) fewest: u32,
    /// Of all nodes, the largest.
    pub(crate) most: u32,
    /// How one asks the engine for `{n}` tasks on each node.
    pub(crate) how: &'static str,
}

/// The place of a launcher that is one of several on its node: it starts one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) local_rank: Sourced<LocalRank>,
    pub(crate) local_world_size: Sourced<u32>,
    pub(crate) global_rank: Sourced<GlobalRank>,
    pub(crate) world_size: Sourced<u32>,
}

/// What this launcher has to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// All workers of this node; launchers meet one per node.
    Node,
    /// The one worker of this seat; launchers meet one per worker. `leads`: it runs on the
    /// main address and serves the store there, which need not be global rank 0's launcher.
    Rank { seat: Seat, leads: bool },
}

impl Share {
    /// The local ranks of the workers that this launcher starts, if a node has so many.
    pub(crate) fn local_ranks(&self, workers: u32) -> Vec<LocalRank> {
        match self {
            Self::Node => (0..workers).map(LocalRank).collect(),
            Self::Rank { seat, .. } => vec![seat.local_rank.value],
        }
    }
}

/// A question to the engine, beyond what its variables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inquiry {
    /// The PMI-1 wire protocol on the descriptor that `PMI_FD` names.
    Pmi { descriptor: i32 },
    /// PMIx, through the engine's own library.
    Pmix,
}

/// What the command line said that bears on the cluster; `None` where it said nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'a> {
    /// `--cluster`: a name of [`choices`](super::choices).
    pub(crate) cluster: Option<&'a str>,
    /// `--cluster-map`.
    pub(crate) cluster_map: Option<&'a str>,
    /// `--num-nodes`.
    pub(crate) num_nodes: Option<i64>,
    /// Whether there was a `--node-rank`: whoever gives it describes all nodes himself.
    pub(crate) node_rank: bool,
    /// Whether there was a `--main-address`.
    pub(crate) main_address: bool,
}

impl Seat {
    /// Refuses ranks beyond their sizes: such facts are of two engines, or edited.
    pub(super) fn check(&self) -> Result<()> {
        check_index(
            "local rank",
            self.local_rank.value.0,
            &self.local_rank.source,
            &self.local_world_size,
        )?;
        check_index(
            "rank",
            self.global_rank.value.0,
            &self.global_rank.source,
            &self.world_size,
        )
    }
}

fn check_index(what: &str, index: u32, source: &Source, size: &Sourced<u32>) -> Result<()> {
    ensure!(
        index < size.value,
        "{what} {index} ({source}) of {} ({})",
        size.value,
        size.source
    );
    Ok(())
}

impl Cluster {
    /// An environment that says nothing yet.
    pub(crate) fn named(name: &'static str) -> Self {
        Self {
            name,
            tasks: None,
            body: false,
            num_nodes: None,
            node_rank: None,
            main_address: None,
            main_port: None,
            kill_after: None,
            inquiry: None,
            unanswered: None,
            notes: Vec::new(),
        }
    }

    /// A machine without a scheduler: it says nothing.
    pub(crate) fn plain() -> Self {
        Self::named("plain machine")
    }

    /// On one node launchers meet over loopback, whatever the node is called. A lone launcher
    /// has nobody to meet, so it needs neither that nor a port that others could work out.
    pub(super) fn settled_on_one_node(mut self) -> Self {
        if self.num_nodes.as_ref().is_none_or(|it| it.value > 1) {
            return self;
        }
        if self.tasks.as_ref().is_some_and(|it| it.most > 1) {
            let source = Source::Derived("one node".to_owned());
            self.main_address = Some(Sourced::new("127.0.0.1".to_owned(), source));
            return self;
        }
        self.main_address = None;
        let derived = |it: &Sourced<u16>| matches!(it.source, Source::Derived(_));
        self.main_port = self.main_port.filter(|it| !derived(it));
        self
    }
}
