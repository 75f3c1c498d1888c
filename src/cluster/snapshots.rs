//! What is detected in every environment under `tests/clusters`: captured from real engines,
//! and (in `documented`) put together from engines' sources where none could be run.
//!
//! Comment lines of such a file: `# uname NAME`, `# num-nodes N`, `# node-rank`, `# pid N`.

use std::fmt::{Display, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use super::detect::detect;
use super::facts::{Asked, Cluster, Seat, Share};
use super::surroundings::Surroundings;
use crate::environ::Environ;
use crate::source::Sourced;

#[test]
fn every_environment_is_detected_as_expected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clusters");
    let mut found = String::new();
    for folder in [root.clone(), root.join("documented")] {
        for path in environments(&folder) {
            found += &snapshot(&path, &root);
        }
    }
    let expected = root.join("expected.txt");
    let known = fs::read_to_string(&expected).unwrap_or_default();
    if known != found {
        let actual = std::env::temp_dir().join("fabric-clusters-found.txt");
        fs::write(&actual, &found).unwrap();
        panic!("diff {} {}", expected.display(), actual.display());
    }
}

fn environments(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let mut paths: Vec<_> = entries
        .filter(|it| it.extension().is_some_and(|it| it == "env"))
        .collect();
    paths.sort();
    assert!(paths.len() > 50, "{}", folder.display());
    paths
}

/// A paragraph about one environment.
fn snapshot(path: &Path, root: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let environ: Environ = text.lines().filter_map(|it| it.split_once('=')).collect();
    let comment = |name: &str| {
        text.lines()
            .find_map(|it| it.strip_prefix(name))
            .map(str::trim)
    };
    let names = [
        "SLURMD_NODENAME",
        "PMIX_HOSTNAME",
        "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
        "HOSTNAME",
        "SLURM_SUBMIT_HOST",
    ];
    let named = names.iter().find_map(|it| environ.text(it));
    let asked = Asked {
        num_nodes: comment("# num-nodes").map(|it| it.parse().unwrap()),
        node_rank: comment("# node-rank").is_some(),
        ..Asked::default()
    };
    let pid = comment("# pid").or_else(|| environ.text("SLURM_TASK_PID"));
    let surroundings = Surroundings {
        environ: &environ,
        asked: &asked,
        hostname: comment("# uname").or(named).unwrap_or("unknown"),
        pid: pid.map_or(1, |it| it.parse().unwrap()),
        cpus: &|| (2, 2),
        read: &|path| {
            let file = root
                .join("documented/files")
                .join(path.file_name().unwrap());
            let file = file
                .to_str()
                .unwrap()
                .replace("1600000000.", "")
                .replace("1239206877.", "");
            fs::read_to_string(file).map_err(|_| "no such file".to_owned())
        },
    };
    let name = path.file_stem().unwrap().to_str().unwrap();
    match detect(&surroundings) {
        Ok(cluster) => format!("{name}: {}\n", described(&cluster, &asked)),
        Err(error) => format!("{name}\n    refused: {error:#}\n"),
    }
}

fn described(cluster: &Cluster, asked: &Asked) -> String {
    let number = shown(cluster.num_nodes.as_ref());
    let mut text = format!(
        "{}{}, node {} of {number}, main {}:{}",
        cluster.name,
        if cluster.body {
            " (not started by it)"
        } else {
            ""
        },
        shown(cluster.node_rank.as_ref()),
        shown(cluster.main_address.as_ref()),
        shown(cluster.main_port.as_ref()),
    );
    match cluster.share(asked, None) {
        Ok(Share::Node) => text += ", starts a node",
        Ok(Share::Rank { seat, leads }) => text += &rank(&seat, leads),
        Err(error) => write!(text, "\n    refused: {error:#}").unwrap(),
    }
    if let Some(inquiry) = cluster.inquiry {
        write!(text, "\n    asks: {inquiry:?}").unwrap();
    }
    for note in &cluster.notes {
        write!(text, "\n    note: {note}").unwrap();
    }
    text
}

fn rank(seat: &Seat, leads: bool) -> String {
    format!(
        ", starts rank {} of {}, local {} of {}{}",
        seat.global_rank.value,
        seat.world_size.value,
        seat.local_rank.value,
        seat.local_world_size.value,
        if leads { ", leads" } else { "" }
    )
}

fn shown<T: Display>(fact: Option<&Sourced<T>>) -> String {
    fact.map_or("?".to_owned(), |it| it.value.to_string())
}
