//! `--virtual-local-rank`: every worker sees one device, its own, and finds it under number 0.
//!
//! The values are those of torch 2.15 (`_set_local_rank_env` in `torch/distributed/elastic/agent/server/local_elastic_agent.py`), but
//! that a list such as `--devices 1,3` counts here: torchrun, which knows only how many, would give out 0 and 1.

use crate::environ::Environ;
use crate::topology::LocalRank;

const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const HIP: &str = "HIP_VISIBLE_DEVICES";

/// What each worker is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnDevices {
    /// CUDA_VISIBLE_DEVICES of each worker.
    pub(crate) names: Vec<String>,
    /// HIP_VISIBLE_DEVICES, which decides on AMD's devices, was set and has to say the same.
    pub(crate) hip: bool,
}

/// One device for the worker of each local rank: of those that the variables list, else by number. `devices` are the selected ones
/// by local rank. Where there is one worker of several and a list of one, an engine has chosen already.
///
/// # Errors
/// The list is too short, named with its variable.
pub(super) fn own_devices(
    ranks: &[LocalRank],
    devices: Option<&[u32]>,
    environ: &Environ,
) -> Result<OwnDevices, String> {
    let hip = environ.text(HIP).is_some();
    let variable = if hip { HIP } else { CUDA };
    let list = environ.get(variable).map(|it| it.to_string_lossy());
    let parts: Option<Vec<&str>> = list
        .as_ref()
        .map(|it| it.split(',').map(str::trim).collect());
    let name = |rank: &LocalRank| {
        let selected = devices.and_then(|it| it.get(rank.0 as usize));
        let index = selected.copied().unwrap_or(rank.0);
        match (&parts, ranks) {
            (None, _) => Some(index.to_string()),
            (Some(parts), [LocalRank(1..)]) if parts.len() == 1 => Some(parts[0].to_owned()),
            (Some(parts), _) => parts.get(index as usize).map(|it| (*it).to_owned()),
        }
    };
    let names: Option<Vec<String>> = ranks.iter().map(name).collect();
    let names = names.ok_or_else(|| {
        let (list, last) = (list.unwrap_or_default(), ranks.len().saturating_sub(1));
        let last = ranks.get(last).map_or(0, |it| it.0);
        format!("`{variable}={list}` lists no device of its own for local rank {last}")
    });
    Ok(OwnDevices { names: names?, hip })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(set: &[(&str, &str)], devices: Option<&[u32]>, expected: Result<&[&str], &str>) {
        let environ = set.iter().copied().collect();
        let names =
            own_devices(&[LocalRank(0), LocalRank(1)], devices, &environ).map(|it| it.names);
        let expected = expected.map(|it| it.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(names, expected.map_err(str::to_owned));
    }

    #[test]
    fn each_gets_one_of_the_list() {
        check(&[], None, Ok(&["0", "1"]));
        check(&[], Some(&[3, 1]), Ok(&["3", "1"]));
        check(&[(CUDA, "7, 5,4")], None, Ok(&["7", "5"]));
        check(
            &[(CUDA, "GPU-a,GPU-b,GPU-c")],
            Some(&[2, 0]),
            Ok(&["GPU-c", "GPU-a"]),
        );
    }

    #[test]
    fn amds_variable_wins_unless_it_is_empty() {
        let (cuda, hip) = ((CUDA, "1,2"), (HIP, "5,6"));
        check(&[cuda, hip], None, Ok(&["5", "6"]));
        check(&[cuda, (HIP, "")], None, Ok(&["1", "2"]));
        let environ = [cuda, hip].into_iter().collect();
        assert!(own_devices(&[LocalRank(0)], None, &environ).unwrap().hip);
    }

    #[test]
    fn a_short_list_is_refused() {
        let text = "`CUDA_VISIBLE_DEVICES=3` lists no device of its own for local rank 1";
        check(&[(CUDA, "3")], None, Err(text));
    }

    #[test]
    fn one_of_several_launchers_takes_what_it_was_given() {
        let one = |list: &str| {
            let environ = [(CUDA, list)].into_iter().collect();
            own_devices(&[LocalRank(2)], Some(&[0]), &environ).map(|it| it.names.concat())
        };
        assert_eq!(one("5"), Ok("5".to_owned()));
        assert_eq!(one("4,5,6,7"), Ok("6".to_owned()));
        assert!(one("4,5").is_err());
    }
}
