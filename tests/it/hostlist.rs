//! Host lists against the real thing: `scontrol show hostnames` of Slurm.

use std::fs;
use std::process::Command;

use proptest::prelude::*;

use parser::HostList;

/// The parser itself: nothing in it is seen from outside the program.
#[path = "../../src/cluster/hostlist.rs"]
mod parser;

const CONFIGURATION: &str = "ClusterName=test\n\
    SlurmctldHost=localhost\n\
    NodeName=localhost\n\
    PartitionName=all Nodes=ALL\n";

/// What real lists have been seen to look like, and what they could. (Not: a blank within
/// brackets, which Slurm 22.05 counts as one more digit to pad to.)
const LISTS: &[&str] = &[
    "127.0.0.1",
    "alpha",
    "alpha,beta",
    "alpha beta gamma",
    "host[22]",
    "host[5-9,1]",
    "host[001-003]",
    "host[08-11]",
    "host[8-11]",
    "a[1-3]b[4-5]",
    "host-[0-3]-[1-2]",
    "r[1-2]n[01-04],x1",
    "rack[0-63]_blade[0-41]",
    "gpu-[001-002],login1",
    "n[1],m[3-4]",
    "1.2.3.[089,100-110]",
    "alpha, host[5-9], gamma",
    "a[0-1][2-3]",
    "[1-3]",
    "gpu-a100-[1-2]",
    "host{1..3}",
    "ip-10-0-[1-2]-[3-4]",
    "c[1-2]-[10,12]",
    "a[1-3],",
    "  a",
    "a,,b",
];

/// `scontrol` with a configuration of its own; it needs no daemon for this.
struct Scontrol(tempfile::TempDir);

impl Scontrol {
    fn new() -> Self {
        let found = Command::new("scontrol").arg("--version").output();
        assert!(
            found.is_ok(),
            "scontrol is not installed: run tests/engines/install"
        );
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("slurm.conf"), CONFIGURATION).unwrap();
        Self(folder)
    }

    fn expand(&self, list: &str) -> Vec<String> {
        let output = Command::new("scontrol")
            .env("SLURM_CONF", self.0.path().join("slurm.conf"))
            .args(["show", "hostnames", list])
            .output()
            .unwrap();
        assert!(output.status.success(), "{list}: {output:?}");
        let names = String::from_utf8(output.stdout).unwrap();
        names.lines().map(str::to_owned).collect()
    }
}

fn expand(list: &str) -> Vec<String> {
    let hosts = HostList::parse(list).unwrap();
    (0..).map_while(|it| hosts.nth(it)).collect()
}

#[test]
fn known_lists_expand_as_slurm_expands_them() {
    let scontrol = Scontrol::new();
    for list in LISTS {
        assert_eq!(expand(list), scontrol.expand(list), "{list}");
    }
}

#[test]
fn any_list_expands_as_slurm_expands_it() {
    let scontrol = Scontrol::new();
    proptest!(|(list in lists())| {
        prop_assert_eq!(expand(&list), scontrol.expand(&list));
    });
}

fn lists() -> impl Strategy<Value = String> {
    let separated = (
        item(),
        prop_oneof![Just(","), Just(", "), Just(" "), Just(",,")],
    );
    prop::collection::vec(separated, 1..4).prop_map(|it| {
        it.iter()
            .map(|(item, separator)| format!("{item}{separator}"))
            .collect()
    })
}

/// Slurm 22.05 refuses text after the last bracket, so none is made here.
fn item() -> impl Strategy<Value = String> {
    let piece = ("[a-z][a-z0-9-]{0,4}", ranges()).prop_map(|(text, ranges)| text + &ranges);
    let brackets = prop::collection::vec(piece, 1..3).prop_map(|it| it.concat());
    prop_oneof!["[a-z][a-z0-9-]{0,6}", brackets]
}

fn ranges() -> impl Strategy<Value = String> {
    let range = (0..120_u32, 0..9_u32, 1..5_usize).prop_map(|(low, more, width)| match more {
        0 => format!("{low:0width$}"),
        more => format!("{low:0width$}-{:0width$}", low + more),
    });
    prop::collection::vec(range, 1..4).prop_map(|it| format!("[{}]", it.join(",")))
}
