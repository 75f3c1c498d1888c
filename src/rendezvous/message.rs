//! The texts that launchers leave for each other, as JSON.
//!
//! Unknown fields are ignored and a missing one makes the whole text unreadable (`None`), so that a
//! stranger's bytes are never taken for a message.

use std::time::Duration;

use serde_json::{Value, json};

use super::event::{Cause, Node, Party};
use crate::topology::{GlobalRank, NodeRank};

/// The most workers of one node that are believed; guards the sums against nonsense.
const MOST_WORKERS: u64 = 1 << 16;

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

fn number(value: &Value, name: &str) -> Option<u32> {
    u32::try_from(value.get(name)?.as_u64()?).ok()
}

fn workers(value: &Value) -> Option<u32> {
    let count = value.get("local_world_size")?.as_u64()?;
    (1..=MOST_WORKERS).contains(&count).then_some(count as u32)
}

fn parse(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok()
}

impl Party {
    /// What a launcher says when it asks to join.
    pub(crate) fn to_hello(&self) -> String {
        json!({
            "node": self.node.0,
            "num_nodes": self.num_nodes,
            "local_world_size": self.local_world_size,
            "host": self.host,
            "role": self.role,
            "run_id": self.run_id,
            "launcher": self.launcher,
            "max_restarts": self.max_restarts,
            "script": self.script,
            "token": self.token,
        })
        .to_string()
    }

    /// The party that said so.
    pub(crate) fn from_hello(bytes: &[u8]) -> Option<Self> {
        let value = parse(bytes)?;
        Some(Self {
            node: NodeRank(number(&value, "node")?),
            num_nodes: number(&value, "num_nodes")?,
            local_world_size: workers(&value)?,
            host: text(&value, "host")?,
            role: text(&value, "role")?,
            run_id: text(&value, "run_id")?,
            launcher: text(&value, "launcher")?,
            max_restarts: u16::try_from(number(&value, "max_restarts")?).ok()?,
            script: text(&value, "script")?,
            identical: false,
            token: text(&value, "token"),
        })
    }
}

/// The host's answer to a hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The secret of the run, and the number of the next piece of news.
    Welcome { token: String, news: u64 },
    /// Why not, with both sides' values.
    Refused(String),
}

impl Verdict {
    /// As text.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Welcome { token, news } => json!({"token": token, "news": news}).to_string(),
            Self::Refused(why) => json!({"refused": why}).to_string(),
        }
    }

    /// From text.
    pub(crate) fn from_json(bytes: &[u8]) -> Option<Self> {
        let value = parse(bytes)?;
        if let Some(why) = text(&value, "refused") {
            return Some(Self::Refused(why));
        }
        Some(Self::Welcome {
            token: text(&value, "token")?,
            news: value.get("news")?.as_u64()?,
        })
    }
}

/// What the host tells all launchers of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// A sentence that says who is missing.
    Waiting(String),
    /// A sentence that everybody should know.
    Notice(String),
    /// Every node is there; the name of node 0. Each node's ranks are under a key of its own, so that what all
    /// read does not grow with their number.
    Ready(String),
    /// All workers of all nodes are to be ended and started again.
    Restarting(Cause),
    Aborted(Cause),
    /// The workers of every node have ended well.
    Done,
}

impl News {
    /// As text.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Waiting(sentence) => json!({"waiting": sentence}),
            Self::Ready(host) => json!({"ready": host}),
            Self::Restarting(cause) => json!({"restarting": cause.to_value()}),
            Self::Aborted(cause) => json!({"aborted": cause.to_value()}),
            Self::Notice(sentence) => json!({"notice": sentence}),
            Self::Done => json!({"done": true}),
        }
        .to_string()
    }

    /// From text.
    pub(crate) fn from_json(bytes: &[u8]) -> Option<Self> {
        let value = parse(bytes)?;
        if let Some(sentence) = text(&value, "waiting") {
            return Some(Self::Waiting(sentence));
        }
        if let Some(sentence) = text(&value, "notice") {
            return Some(Self::Notice(sentence));
        }
        if let Some(host) = text(&value, "ready") {
            return Some(Self::Ready(host));
        }
        if let Some(cause) = value.get("restarting") {
            return Cause::from_value(cause).map(Self::Restarting);
        }
        if let Some(cause) = value.get("aborted") {
            return Cause::from_value(cause).map(Self::Aborted);
        }
        value.get("done").map(|_| Self::Done)
    }
}

/// What a launcher tells the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mail {
    Failed(Cause),
    /// All workers of this node have ended well.
    Finished,
    /// All workers of this node have ended, so that they can be started again.
    Cleared,
}

impl Mail {
    /// As text.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Failed(cause) => json!({"failed": cause.to_value()}).to_string(),
            Self::Finished => json!({"finished": true}).to_string(),
            Self::Cleared => json!({"cleared": true}).to_string(),
        }
    }

    /// From text.
    pub(crate) fn from_json(bytes: &[u8]) -> Option<Self> {
        let value = parse(bytes)?;
        if let Some(cause) = value.get("failed") {
            return Cause::from_value(cause).map(Self::Failed);
        }
        if value.get("cleared").is_some() {
            return Some(Self::Cleared);
        }
        value.get("finished").map(|_| Self::Finished)
    }
}

impl Node {
    /// What torch's agents write about themselves, with the node rank they claim.
    pub(crate) fn to_role_info(&self, node: NodeRank) -> String {
        let Self {
            local_world_size,
            role,
            ..
        } = self;
        json!({"role": role, "rank": node.0, "local_world_size": local_world_size}).to_string()
    }

    /// `host` is what is known of the machine otherwise.
    pub(crate) fn from_role_info(bytes: &[u8], host: String) -> Option<Self> {
        let value = parse(bytes)?;
        Some(Self {
            host,
            local_world_size: workers(&value)?,
            role: text(&value, "role")?,
        })
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        json!({
            "node": self.node.0,
            "host": self.host,
            "rank": self.rank.map(|it| it.0),
            "exit_code": self.exit_code,
            "message": self.message,
            "lived_ms": self.lived.map(|it| it.as_millis() as u64),
        })
    }

    fn from_value(value: &Value) -> Option<Self> {
        Some(Self {
            node: NodeRank(number(value, "node")?),
            host: text(value, "host")?,
            rank: number(value, "rank").map(GlobalRank),
            exit_code: u8::try_from(number(value, "exit_code")?).ok()?,
            message: text(value, "message")?,
            lived: value
                .get("lived_ms")
                .and_then(Value::as_u64)
                .map(Duration::from_millis),
        })
    }
}

/// The four numbers that node 0 assigns to a node, ours as torch's: base, world size, and the same within the role.
pub(crate) fn ranks_to_json(ranks: [u32; 4]) -> String {
    let [base, world, role_base, role_world] = ranks;
    format!("[{base}, {world}, {role_base}, {role_world}]")
}

/// The same, read back.
pub(crate) fn ranks_from_json(bytes: &[u8]) -> Option<[u32; 4]> {
    let value = parse(bytes)?;
    let numbers = value
        .as_array()?
        .iter()
        .map(|it| u32::try_from(it.as_u64()?).ok());
    numbers.collect::<Option<Vec<u32>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause() -> Cause {
        Cause {
            node: NodeRank(1),
            host: "gpu-002".into(),
            rank: None,
            exit_code: 137,
            message: "SIGKILL \"killed\"\n".into(),
            lived: Some(Duration::from_millis(2500)),
        }
    }

    fn node() -> Node {
        let (host, role) = ("gpu-002".into(), "default".into());
        Node {
            host,
            local_world_size: 4,
            role,
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for news in [
            News::Waiting("for godot".into()),
            News::Notice("no more".into()),
            News::Ready("gpu-000".into()),
            News::Aborted(cause()),
            News::Restarting(cause()),
            News::Done,
        ] {
            assert_eq!(News::from_json(news.to_json().as_bytes()), Some(news));
        }
        for mail in [Mail::Failed(cause()), Mail::Finished, Mail::Cleared] {
            assert_eq!(Mail::from_json(mail.to_json().as_bytes()), Some(mail));
        }
        for verdict in [
            Verdict::Welcome {
                token: "t".into(),
                news: 3,
            },
            Verdict::Refused("no".into()),
        ] {
            assert_eq!(
                Verdict::from_json(verdict.to_json().as_bytes()),
                Some(verdict)
            );
        }
    }

    #[test]
    fn torchs_texts_are_read_and_written() {
        let python = br#"{"role": "default", "rank": 1, "local_world_size": 4}"#;
        assert_eq!(Node::from_role_info(python, "gpu-002".into()), Some(node()));
        let ours = node().to_role_info(NodeRank(1));
        assert_eq!(
            Node::from_role_info(ours.as_bytes(), "gpu-002".into()),
            Some(node())
        );
        assert_eq!(ranks_to_json([1, 2, 1, 2]), "[1, 2, 1, 2]");
        assert_eq!(ranks_from_json(b"[1, 2, 1, 2]"), Some([1, 2, 1, 2]));
    }

    #[test]
    fn nonsense_is_no_message() {
        for bytes in [
            &b""[..],
            b"{}",
            b"[]",
            b"null",
            b"{\"failed\": {}}",
            b"\xff",
        ] {
            assert_eq!(Mail::from_json(bytes), None);
            assert_eq!(News::from_json(bytes), None);
            assert_eq!(Verdict::from_json(bytes), None);
            assert_eq!(Party::from_hello(bytes), None);
            assert_eq!(ranks_from_json(bytes), None);
        }
        let none = br#"{"role": "default", "rank": 1, "local_world_size": 0}"#;
        assert_eq!(Node::from_role_info(none, "h".into()), None);
    }
}
