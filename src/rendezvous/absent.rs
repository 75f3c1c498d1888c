//! Which ranks the others wait for, told from the keys they wait for.
//!
//! When a process group starts, each rank waits for one key of every other: with gloo the key ends in the
//! rank (`.../default_pg/0//cpu//0/2`), with NCCL everybody waits for what rank 0 writes
//! (`.../default_pg/0//cuda//0`), in all of torch 2.1 to 2.15.

use std::collections::BTreeMap;

/// A sentence about the ranks that are waited for under the given keys; none where nobody waits.
pub(crate) fn sentence<'a>(awaited: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut waiting = BTreeMap::new();
    for rank in awaited.filter_map(rank_of) {
        *waiting.entry(rank).or_insert(0) += 1;
    }
    let parts = waiting.iter().map(|(rank, count)| match count {
        1 => format!("1 process waits for rank {rank}"),
        count => format!("{count} processes wait for rank {rank}"),
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("in the process group, {}", parts.join(", ")))
}

fn rank_of(key: &[u8]) -> Option<u32> {
    let (_, group) = std::str::from_utf8(key).ok()?.split_once("default_pg/")?;
    match group.rsplit_once("//cpu//") {
        Some((_, place)) => place.rsplit_once('/')?.1.parse().ok(),
        None => group.contains("//cuda//").then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keys: &[&str], expected: Option<&str>) {
        assert_eq!(
            sentence(keys.iter().map(|it| it.as_bytes())).as_deref(),
            expected
        );
    }

    #[test]
    fn the_awaited_ranks_are_named() {
        let (two, five) = ("/default_pg/0//cpu//0/2", "/default_pg/0//1//cpu//0/5");
        let story = "in the process group, 2 processes wait for rank 2, 1 process waits for rank 5";
        check(&[two, five, two], Some(story));
        let old = "//worker/attempt_0/default_pg/0//cuda//0";
        check(
            &[old],
            Some("in the process group, 1 process waits for rank 0"),
        );
        check(
            &[
                "/default_pg/0//cpu//0",
                "/none/torchelastic/x",
                "/mine/0//cpu//0/1",
            ],
            None,
        );
        check(&[], None);
    }
}
