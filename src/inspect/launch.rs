//! A running launch as it shows itself to others: plain data, and the JSON that carries it.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::agent::Pid;

/// The layout of the JSON; whoever reads another does not guess.
const VERSION: u64 = 1;

/// What a launcher tells of its launch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Launch {
    /// The launcher's process id, which is also the number by which people call the launch.
    pub(crate) id: Pid,
    /// When the launcher was started, in clock ticks since boot: with the id, its identity.
    pub(crate) born: u64,
    pub(crate) script: String,
    pub(crate) node_rank: u32,
    pub(crate) num_nodes: u32,
    pub(crate) world_size: u32,
    /// Whole seconds that its workers get to end, rounded up.
    pub(crate) grace: u64,
    pub(crate) workers: Vec<Worker>,
}

/// A worker of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Worker {
    /// Its rank in the world.
    pub(crate) rank: u32,
    pub(crate) pid: Pid,
    /// As of [`Launch::born`].
    pub(crate) born: u64,
}

impl Launch {
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let workers = self.workers.iter();
        let workers = workers.map(|it| json!({"rank": it.rank, "pid": it.pid, "born": it.born}));
        let value = json!({
            "version": VERSION,
            "id": self.id,
            "born": self.born,
            "script": self.script,
            "node_rank": self.node_rank,
            "num_nodes": self.num_nodes,
            "world_size": self.world_size,
            "grace": self.grace,
            "workers": workers.collect::<Vec<_>>(),
        });
        value.to_string().into_bytes()
    }

    /// # Errors
    /// It is not what `to_json` writes; another version of fabric may write something else.
    pub(crate) fn from_json(bytes: &[u8]) -> Result<Self> {
        let value: Value = serde_json::from_slice(bytes)?;
        let version = number::<u64>(&value, "version")?;
        anyhow::ensure!(version == VERSION, "version {version} is not understood");
        let script = value["script"].as_str().context("no script")?;
        let workers = value["workers"].as_array().context("no workers")?;
        Ok(Self {
            id: number(&value, "id")?,
            born: number(&value, "born")?,
            script: script.to_owned(),
            node_rank: number(&value, "node_rank")?,
            num_nodes: number(&value, "num_nodes")?,
            world_size: number(&value, "world_size")?,
            grace: number(&value, "grace")?,
            workers: workers.iter().map(worker).collect::<Result<_>>()?,
        })
    }
}

fn worker(value: &Value) -> Result<Worker> {
    Ok(Worker {
        rank: number(value, "rank")?,
        pid: number(value, "pid")?,
        born: number(value, "born")?,
    })
}

fn number<T: TryFrom<u64>>(value: &Value, name: &str) -> Result<T> {
    let number = value[name].as_u64().and_then(|it| T::try_from(it).ok());
    number.with_context(|| format!("no number `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            id: 4711,
            born: 99,
            script: "a \"b\"\n.py".to_owned(),
            node_rank: 1,
            num_nodes: 2,
            world_size: 8,
            grace: 30,
            workers: vec![Worker {
                rank: 4,
                pid: 4713,
                born: 100,
            }],
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        assert_eq!(Launch::from_json(&launch().to_json()).unwrap(), launch());
    }

    #[test]
    fn what_somebody_else_wrote_is_refused() {
        for text in ["", "{}", "[]", r#"{"version": 2}"#, r#"{"version": 1}"#] {
            assert!(Launch::from_json(text.as_bytes()).is_err(), "{text}");
        }
        let negative = String::from_utf8(launch().to_json()).unwrap();
        let negative = negative.replace("4713", "-4713");
        assert!(Launch::from_json(negative.as_bytes()).is_err());
    }
}
