//! Whether this launcher starts all workers of its node, or is one of several there.
//!
//! An engine may start one launcher a node (`srun --ntasks-per-node=1 fabric run --devices 4`)
//! or one a worker (`srun --ntasks-per-node=4 fabric run`). Nothing says which is meant, but
//! the numbers do: tasks per node against devices. Numbers that fit neither would train the
//! same thing several times over, so they are refused, and on every node alike.

use anyhow::{Result, bail, ensure};

use super::facts::{Asked, Cluster, Share, Tasks};

impl Cluster {
    /// Decides what to start. `workers` is what `--devices` comes to on this node, or `None`
    /// where it was not given or leaves the number open (`auto`).
    ///
    /// A given `--node-rank` describes the nodes whatever the engine says: with it a launcher
    /// starts its node's workers. Refuses numbers that do not fit each other, and a job of
    /// several nodes that has no main address.
    pub(crate) fn share(&self, asked: &Asked, workers: Option<u32>) -> Result<Share> {
        if asked.node_rank {
            return Ok(Share::Node);
        }
        self.check_num_nodes(asked)?;
        let share = match &self.tasks {
            Some(tasks) => self.choose(tasks, workers)?,
            None => Share::Node,
        };
        self.check_meeting(asked, &share)?;
        Ok(share)
    }

    fn choose(&self, tasks: &Tasks, workers: Option<u32>) -> Result<Share> {
        let fits = |workers| workers == tasks.fewest && workers == tasks.most;
        if tasks.most == 1 {
            return Ok(Share::Node);
        }
        if let Some(workers) = workers.filter(|it| !fits(*it)) {
            bail!("{}", self.misfit(tasks, workers));
        }
        let seat = tasks.seat.clone();
        let leads = match &self.node_rank {
            Some(node) => node.value.0 == 0 && seat.local_rank.value.0 == 0,
            None => seat.global_rank.value.0 == 0,
        };
        Ok(Share::Rank { seat, leads })
    }

    /// Both numbers and both ways out.
    fn misfit(&self, tasks: &Tasks, workers: u32) -> String {
        let launchers = match (tasks.fewest, tasks.most) {
            (fewest, most) if fewest == most => format!("{most} launchers on each node"),
            (fewest, most) => format!("{fewest} to {most} launchers on a node"),
        };
        let how = |number: u32| tasks.how.replace("{n}", &number.to_string());
        format!(
            "{} started {launchers} ({}), but `--devices` asks for {workers} workers: start one \
             launcher per node (`{}`) or one per worker (`{}`)",
            self.name,
            tasks.seat.local_world_size.source,
            how(1),
            how(workers)
        )
    }

    fn check_num_nodes(&self, asked: &Asked) -> Result<()> {
        let (Some(asked), Some(known)) = (asked.num_nodes, &self.num_nodes) else {
            return Ok(());
        };
        ensure!(
            asked == i64::from(known.value),
            "`--num-nodes` is {asked}, but {} started this on {} ({}): leave `--num-nodes` out, \
             or give `--node-rank` too, or say `--cluster none`",
            self.name,
            nodes(known.value),
            known.source
        );
        Ok(())
    }

    /// Launchers that have to meet need to know where, and which node they are.
    fn check_meeting(&self, asked: &Asked, share: &Share) -> Result<()> {
        let several = match (&self.num_nodes, &self.tasks) {
            (Some(nodes), _) => nodes.value > 1,
            (None, Some(tasks)) => tasks.seat.world_size.value > tasks.seat.local_world_size.value,
            (None, None) => false,
        };
        if !several {
            return Ok(());
        }
        if self.main_address.is_none() && !asked.main_address {
            let why = self.unanswered.as_deref().unwrap_or("no variable does");
            bail!(
                "{} does not tell on which host rank 0 runs ({why}): give `--main-address HOST`",
                self.name
            );
        }
        ensure!(
            *share != Share::Node || self.node_rank.is_some(),
            "{} does not tell which node this is: give `--node-rank`",
            self.name
        );
        Ok(())
    }
}

/// "1 node", "2 nodes".
pub(super) fn nodes(number: u32) -> String {
    match number {
        1 => "1 node".to_owned(),
        _ => format!("{number} nodes"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Seat;
    use super::super::variables::derived;
    use super::*;
    use crate::topology::{GlobalRank, LocalRank, NodeRank};

    /// The first task of the last node, of `counts` tasks on each.
    fn cluster(counts: &[u32]) -> Cluster {
        let (own, world) = (*counts.last().unwrap(), counts.iter().sum::<u32>());
        let mut cluster = Cluster::named("Slurm");
        cluster.tasks = Some(Tasks {
            seat: Seat {
                local_rank: derived(LocalRank(0), "T"),
                local_world_size: derived(own, "T"),
                global_rank: derived(GlobalRank(world - own), "T"),
                world_size: derived(world, "T"),
            },
            fewest: *counts.iter().min().unwrap(),
            most: *counts.iter().max().unwrap(),
            how: "srun --ntasks-per-node={n}",
        });
        cluster.num_nodes = Some(derived(counts.len() as u32, "T"));
        cluster.node_rank = Some(derived(NodeRank(counts.len() as u32 - 1), "T"));
        cluster.main_address = Some(derived("n0".to_owned(), "T"));
        cluster
    }

    #[track_caller]
    fn chosen(counts: &[u32], workers: Option<u32>) -> &'static str {
        match cluster(counts).share(&Asked::default(), workers).unwrap() {
            Share::Node => "node",
            Share::Rank { leads: true, .. } => "leading rank",
            Share::Rank { leads: false, .. } => "rank",
        }
    }

    #[track_caller]
    fn refused(cluster: &Cluster, asked: &Asked, workers: Option<u32>, why: &str) {
        let error = cluster.share(asked, workers).unwrap_err().to_string();
        assert_eq!(error, why);
    }

    #[test]
    fn one_task_a_node_starts_whatever_devices_says() {
        assert_eq!(chosen(&[1, 1], Some(4)), "node");
        assert_eq!(chosen(&[1, 1], None), "node");
        assert_eq!(chosen(&[1], Some(1)), "node");
    }

    #[test]
    fn as_many_tasks_as_devices_are_one_rank_each() {
        assert_eq!(chosen(&[2, 2], Some(2)), "rank");
        assert_eq!(chosen(&[2, 2], None), "rank");
        assert_eq!(chosen(&[2], Some(2)), "leading rank");
        assert_eq!(chosen(&[3, 1, 1], None), "rank");
    }

    #[test]
    fn other_numbers_are_refused_on_every_node() {
        let why = "Slurm started 2 launchers on each node (from T), but `--devices` asks for 3 \
                   workers: start one launcher per node (`srun --ntasks-per-node=1`) or one per \
                   worker (`srun --ntasks-per-node=3`)";
        refused(&cluster(&[2, 2]), &Asked::default(), Some(3), why);
        for counts in [[3, 1], [1, 3]] {
            let error = cluster(&counts).share(&Asked::default(), Some(3));
            let text = error.unwrap_err().to_string();
            assert!(
                text.starts_with("Slurm started 1 to 3 launchers on a node"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_given_node_rank_is_believed() {
        let asked = Asked {
            num_nodes: Some(8),
            node_rank: true,
            ..Asked::default()
        };
        assert_eq!(
            cluster(&[2, 2]).share(&asked, Some(3)).unwrap(),
            Share::Node
        );
    }

    #[test]
    fn another_number_of_nodes_is_refused() {
        let asked = Asked {
            num_nodes: Some(4),
            ..Asked::default()
        };
        let why = "`--num-nodes` is 4, but Slurm started this on 2 nodes (from T): leave \
                   `--num-nodes` out, or give `--node-rank` too, or say `--cluster none`";
        refused(&cluster(&[1, 1]), &asked, None, why);
        let asked = Asked {
            num_nodes: Some(2),
            ..Asked::default()
        };
        assert_eq!(cluster(&[1, 1]).share(&asked, None).unwrap(), Share::Node);
    }

    #[test]
    fn several_nodes_need_a_main_address() {
        let mut cluster = cluster(&[2, 2]);
        cluster.main_address = None;
        cluster.unanswered = Some("PMI: closed".to_owned());
        let why = "Slurm does not tell on which host rank 0 runs (PMI: closed): give \
                   `--main-address HOST`";
        refused(&cluster, &Asked::default(), None, why);
        let asked = Asked {
            main_address: true,
            ..Asked::default()
        };
        assert!(cluster.share(&asked, None).is_ok());
    }
}
