//! The names under which launchers leave word for each other in the store, torch's and our own.
//!
//! Torch's agents of static rendezvous use those under `/<run id>/torchelastic/`: with a slash before
//! the node rank since torch 2.4, without one and with `.FIN` marks before
//! (`torch/distributed/elastic/agent/server/api.py`, `utils/store.py`, torch 2.1 to 2.15). The two sets do
//! not clash, so both are published and either is accepted. Ours are under `/fabric/`, whatever the run id, so that who
//! comes from another run can be told; and those that can end a run under a secret token, so that a stranger who finds the
//! port cannot do so by accident.

use std::fmt::Display;

use crate::topology::NodeRank;

/// The counter that every client of torch raises by one when it joins.
pub(crate) const JOINED: &str = "init/";

/// The names of one run.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    run: String,
}

/// What a name that a client has set is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Topic<'a> {
    /// A launcher of ours asks to join, under a number of its own choice.
    Hello(&'a str),
    /// A launcher of ours has something to say.
    Mail(NodeRank),
    /// An agent of torch has come, or one of ours at a foreign host.
    RoleInfo(NodeRank),
    /// One more client of torch has come.
    Joined,
    /// One more agent has reached the exit barrier (torch 2.4 and later).
    Exits,
    /// This agent has (before 2.4).
    Exit(NodeRank),
}

impl Keys {
    /// The names of run `run_id`.
    pub(crate) fn new(run_id: &str) -> Self {
        let run = format!("/{run_id}");
        Self { run }
    }

    fn elastic(&self, name: impl Display) -> String {
        format!("{}/torchelastic/{name}", self.run)
    }

    fn own(name: impl Display) -> String {
        format!("/fabric/{name}")
    }

    /// What has to be watched to learn of every topic.
    pub(crate) fn watched(&self) -> [String; 2] {
        [self.elastic(""), Self::own("")]
    }

    /// What all keys begin with that are the launchers' own, and not their workers'.
    pub(crate) fn of_launchers(&self) -> [String; 4] {
        let main = format!("{}/MASTER_", self.run);
        [self.elastic(""), Self::own(""), main, JOINED.into()]
    }

    /// What an agent writes about itself, since torch 2.4.
    pub(crate) fn role_info(&self, node: NodeRank) -> String {
        self.elastic(format_args!("role_info/{node}"))
    }

    /// The same before 2.4.
    pub(crate) fn old_role_info(&self, node: NodeRank) -> String {
        self.elastic(format_args!("role_info{node}"))
    }

    /// Where node 0 writes the ranks of a node, since torch 2.4.
    pub(crate) fn assigned_ranks(&self, node: NodeRank) -> String {
        self.elastic(format_args!("assigned_ranks/{node}"))
    }

    /// The counter of the exit barrier, and the key that opens it.
    pub(crate) fn exits(&self) -> String {
        self.elastic("agent/terminal_state/num_members")
    }

    /// What opens the exit barrier for those who wait at it.
    pub(crate) fn last_exit(&self) -> String {
        self.elastic("agent/terminal_state/last_member")
    }

    /// Where an agent says before 2.4 that its workers have ended.
    pub(crate) fn old_exit(&self, node: NodeRank) -> String {
        self.elastic(format_args!("agent/terminal_state{node}"))
    }

    /// The mark by which agents of torch before 2.4 say that they have read what stood at `key`.
    pub(crate) fn fin(key: &str) -> String {
        format!("{key}.FIN")
    }

    /// Where node 0 writes the main address, before 2.4.
    pub(crate) fn main_address(&self) -> String {
        format!("{}/MASTER_ADDR", self.run)
    }

    /// Where node 0 writes the main port, before 2.4.
    pub(crate) fn main_port(&self) -> String {
        format!("{}/MASTER_PORT", self.run)
    }

    /// There from the start where the host is a launcher of ours.
    pub(crate) fn host(&self) -> String {
        Self::own("host")
    }

    /// Where a launcher of ours asks to join.
    pub(crate) fn hello(&self, nonce: &str) -> String {
        Self::own(format_args!("hello/{nonce}"))
    }

    /// The answer to a hello.
    pub(crate) fn verdict(&self, nonce: &str) -> String {
        Self::own(format_args!("verdict/{nonce}"))
    }

    /// Where a launcher of ours leaves what it has to say.
    pub(crate) fn mail(&self, token: &str, node: NodeRank) -> String {
        Self::own(format_args!("{token}/from/{node}"))
    }

    /// Where the host writes the ranks of a node for a launcher of ours.
    pub(crate) fn ranks(token: &str, node: NodeRank) -> String {
        Self::own(format_args!("{token}/ranks/{node}"))
    }

    /// Where the host tells all launchers of ours the next thing.
    pub(crate) fn news(&self, token: &str, number: u64) -> String {
        Self::own(format_args!("{token}/news/{number}"))
    }

    /// What a key is about, where it is of any interest to the host.
    pub(crate) fn topic<'a>(&self, key: &'a [u8], token: &str) -> Option<Topic<'a>> {
        if key == JOINED.as_bytes() {
            return Some(Topic::Joined);
        }
        let key = std::str::from_utf8(key).ok()?;
        if let Some(nonce) = key.strip_prefix("/fabric/hello/") {
            return Some(Topic::Hello(nonce));
        }
        if let Some(secret) = key
            .strip_prefix("/fabric/")
            .and_then(|it| it.strip_prefix(token))
        {
            return number(secret.strip_prefix("/from/")?).map(Topic::Mail);
        }
        let name = key
            .strip_prefix(&*self.run)?
            .strip_prefix("/torchelastic/")?;
        if let Some(node) = name.strip_prefix("role_info") {
            return number(node.strip_prefix('/').unwrap_or(node)).map(Topic::RoleInfo);
        }
        match name.strip_prefix("agent/terminal_state")? {
            "/num_members" => Some(Topic::Exits),
            node => number(node).map(Topic::Exit),
        }
    }
}

fn number(text: &str) -> Option<NodeRank> {
    text.parse().ok().map(NodeRank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, expected: Option<Topic>) {
        assert_eq!(
            Keys::new("none").topic(key.as_bytes(), "t0ken"),
            expected,
            "{key}"
        );
    }

    #[test]
    fn names_are_those_of_torch() {
        let keys = Keys::new("none");
        let node = NodeRank(3);
        assert_eq!(keys.role_info(node), "/none/torchelastic/role_info/3");
        assert_eq!(keys.old_role_info(node), "/none/torchelastic/role_info3");
        let exit = "/none/torchelastic/agent/terminal_state";
        assert_eq!(keys.exits(), format!("{exit}/num_members"));
        assert_eq!(Keys::fin(&keys.old_exit(node)), format!("{exit}3.FIN"));
        assert_eq!(keys.main_port(), "/none/MASTER_PORT");
    }

    #[test]
    fn topics_are_told_apart() {
        let node = NodeRank(3);
        check(
            "/none/torchelastic/role_info/3",
            Some(Topic::RoleInfo(node)),
        );
        check("/none/torchelastic/role_info3", Some(Topic::RoleInfo(node)));
        check("/none/torchelastic/role_info3.FIN", None);
        check(
            "/none/torchelastic/agent/terminal_state/num_members",
            Some(Topic::Exits),
        );
        check("/none/torchelastic/agent/terminal_state/last_member", None);
        check(
            "/none/torchelastic/agent/terminal_state3",
            Some(Topic::Exit(node)),
        );
        check("/none/torchelastic/assigned_ranks/3", None);
        check("/fabric/hello/abc", Some(Topic::Hello("abc")));
        check("/fabric/t0ken/from/3", Some(Topic::Mail(node)));
        check("/fabric/other/from/3", None);
        check("/other/torchelastic/role_info/3", None);
        check("init/", Some(Topic::Joined));
    }
}
