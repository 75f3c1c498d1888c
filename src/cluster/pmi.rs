//! The PMI-1 wire protocol that MPICH's Hydra and Flux speak to what they start: lines of
//! `key=value` words (MPICH 4.0, `pmi/simple/simple_pmi.c`). Only the texts; no descriptor.

use anyhow::{Context as _, Result, ensure};

/// The key under which global rank 0 leaves its address for all.
pub(super) const ADDRESS_KEY: &str = "fabric-main-address";

/// What is asked of the process manager.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command<'a> {
    Init,
    /// The name of the job's table of keys.
    TableName,
    Put {
        table: &'a str,
        key: &'a str,
        value: &'a str,
    },
    /// Waits until all ranks have come here; what was put before can be got after.
    Barrier,
    Get {
        table: &'a str,
        key: &'a str,
    },
    /// Hydra takes the end of a rank that has spoken PMI, but not said this, for a crash. After
    /// it no other program of this rank can speak PMI.
    Finalize,
}

impl Command<'_> {
    /// The line to send.
    pub(super) fn line(self) -> String {
        match self {
            Self::Init => "cmd=init pmi_version=1 pmi_subversion=1\n".to_owned(),
            Self::TableName => "cmd=get_my_kvsname\n".to_owned(),
            Self::Put { table, key, value } => {
                format!("cmd=put kvsname={table} key={key} value={value}\n")
            }
            Self::Barrier => "cmd=barrier_in\n".to_owned(),
            Self::Get { table, key } => format!("cmd=get kvsname={table} key={key}\n"),
            Self::Finalize => "cmd=finalize\n".to_owned(),
        }
    }

    /// The `cmd` of the answer.
    fn answer(self) -> &'static str {
        match self {
            Self::Init => "response_to_init",
            Self::TableName => "my_kvsname",
            Self::Put { .. } => "put_result",
            Self::Barrier => "barrier_out",
            Self::Get { .. } => "get_result",
            Self::Finalize => "finalize_ack",
        }
    }

    /// What the answer's line says: a table's name, a value, or nothing.
    pub(super) fn read(self, line: &str) -> Result<String> {
        let wrong = || format!("`{}` was answered by `{}`", self.line().trim(), line.trim());
        ensure!(field(line, "cmd") == Some(self.answer()), wrong());
        ensure!(field(line, "rc").is_none_or(|it| it == "0"), wrong());
        let wanted = match self {
            Self::TableName => "kvsname",
            Self::Get { .. } => "value",
            _ => return Ok(String::new()),
        };
        Ok(field(line, wanted).with_context(wrong)?.to_owned())
    }
}

/// A value ends at a blank; that of `value` may hold blanks and ends the line.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let line = line.trim_end_matches(['\n', '\0']);
    let start = if line.starts_with(key) && line[key.len()..].starts_with('=') {
        key.len() + 1
    } else {
        line.find(&format!(" {key}="))? + key.len() + 2
    };
    let rest = &line[start..];
    Some(if key == "value" {
        rest.trim_end()
    } else {
        rest.split(' ').next()?
    })
}

/// Where each rank is, from `PMI_process_mapping`: `(vector,(0,2,4),(2,1,1))` means that from
/// node 0 on 2 nodes have 4 ranks each, then from node 2 on 1 node has 1 rank; the blocks are
/// gone through again until all `size` ranks have a node. `None` where it is something else.
pub(super) fn places(mapping: &str, size: u32) -> Option<Vec<u32>> {
    let blocks = mapping.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let blocks: Vec<_> = blocks
        .split_inclusive(')')
        .map(block)
        .collect::<Option<_>>()?;
    let round: Vec<u32> = blocks
        .iter()
        .flat_map(|&(first, nodes, ranks)| {
            (first..first.saturating_add(nodes)).flat_map(move |node| (0..ranks).map(move |_| node))
        })
        .take(size as usize)
        .collect();
    (!round.is_empty()).then(|| round.into_iter().cycle().take(size as usize).collect())
}

/// `(first node, nodes, ranks on each)`.
fn block(text: &str) -> Option<(u32, u32, u32)> {
    let inner = text
        .trim_start_matches(',')
        .strip_prefix('(')?
        .strip_suffix(')')?;
    let numbers: Vec<u32> = inner
        .split(',')
        .map(|it| it.trim().parse().ok())
        .collect::<Option<_>>()?;
    match numbers[..] {
        [first, nodes, ranks] => Some((first, nodes, ranks)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let name = Command::TableName
            .read("cmd=my_kvsname kvsname=kvs_7_0\n")
            .unwrap();
        assert_eq!(name, "kvs_7_0");
        let get = Command::Get {
            table: "kvs_7_0",
            key: "k",
        };
        assert_eq!(get.line(), "cmd=get kvsname=kvs_7_0 key=k\n");
        let answer = "cmd=get_result rc=0 msg=success value=host1 x\n";
        assert_eq!(get.read(answer).unwrap(), "host1 x");
        assert!(Command::Barrier.read("cmd=barrier_out\n").is_ok());
    }

    #[test]
    fn failures_show_what_was_asked_and_answered() {
        let get = Command::Get {
            table: "t",
            key: "k",
        };
        let error = get.read("cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
        assert_eq!(
            error.unwrap_err().to_string(),
            "`cmd=get kvsname=t key=k` was answered by \
             `cmd=get_result rc=-1 msg=key_not_found value=unknown`"
        );
        assert!(get.read("cmd=barrier_out\n").is_err());
    }

    #[test]
    fn mappings_place_every_rank() {
        assert_eq!(places("(vector,(0,2,2))", 4), Some(vec![0, 0, 1, 1]));
        assert_eq!(places("(vector,(0,2,1))", 4), Some(vec![0, 1, 0, 1]));
        assert_eq!(
            places("(vector,(0,1,3),(1,2,1))", 5),
            Some(vec![0, 0, 0, 1, 2])
        );
        assert_eq!(
            places("(vector,(0,4000000000,4000000000))", 2),
            Some(vec![0, 0])
        );
        assert_eq!(places("(vector,(0,0,0))", 2), None);
        assert_eq!(places("(matrix,(0,1,1))", 2), None);
        assert_eq!(places("", 2), None);
    }
}
