//! `--dry-run`: the plan in words.

use std::fmt::Write;

use super::worker::{Plan, World};
use crate::cli::Entry;
use crate::source::Source;
use crate::topology::LocalRank;

/// The whole plan as lines of text: what would run where with which variables, and why.
pub(crate) fn describe(plan: &Plan) -> String {
    let world = assumed_world(plan);
    let mut text = String::new();
    let workers = plan.local_world_size.value;
    let nodes = plan.num_nodes.value;
    let facts = [
        ("cluster", plan.cluster.to_owned()),
        ("nodes", sourced(&nodes, &plan.num_nodes.source)),
        (
            "node rank",
            sourced(&plan.node_rank.value, &plan.node_rank.source),
        ),
        (
            "main address",
            sourced(&plan.main_address.value, &plan.main_address.source),
        ),
        ("main port", port(plan)),
        (
            "workers here",
            sourced(&workers, &plan.local_world_size.source),
        ),
        (
            match plan.entry {
                Entry::Script | Entry::Module => "interpreter",
                Entry::Program => "program",
            },
            format!("{} ({})", plan.program.display(), plan.program_source),
        ),
        (
            "grace period",
            format!("{} s", plan.settings.grace.as_secs_f64()),
        ),
    ];
    for (name, value) in facts {
        let _ = writeln!(text, "{name:<14}{value}");
    }
    let cwd = plan
        .cwd
        .iter()
        .map(|it| ("directory", it.display().to_string()));
    let limit = plan.settings.limit.iter();
    let limit = limit.map(|it| ("time limit", format!("{} s", it.as_secs_f64())));
    for (name, value) in cwd.chain(limit).chain([("command", command(plan))]) {
        let _ = writeln!(text, "{name:<14}{value}");
    }
    let removed: Vec<_> = plan
        .removed()
        .iter()
        .map(|it| it.display().to_string())
        .collect();
    if !removed.is_empty() {
        let _ = writeln!(
            text,
            "{:<14}{} (an outer launcher's)",
            "removed",
            removed.join(" ")
        );
    }
    text.push_str(&options(plan));
    text.push_str("\nvariables of every worker\n");
    for (name, value) in plan.common_exports(&world) {
        let _ = writeln!(text, "  {name}={}", value.display());
    }
    for rank in 0..workers {
        let _ = writeln!(text, "\nvariables of local rank {rank}{}", cpus(plan, rank));
        for (name, value) in plan.own_environment(&world, LocalRank(rank)) {
            let _ = writeln!(text, "  {}={}", name.display(), value.display());
        }
    }
    text
}

/// What was set of our own options, and where.
fn options(plan: &Plan) -> String {
    let mut text = String::new();
    for (at, it) in plan.said.iter().enumerate() {
        let label = if at == 0 { "options" } else { "" };
        let value = quoted(&it.text.to_string_lossy());
        let source = match &it.source {
            Source::Flag(_) => String::new(),
            source => format!(" ({source})"),
        };
        let _ = writeln!(text, "{label:<14}{} {value}{source}", it.flag);
    }
    text
}

fn cpus(plan: &Plan, rank: u32) -> String {
    let bound = plan.bound.as_ref();
    bound.map_or_else(String::new, |it| {
        format!(", bound to CPUs {}", it.cpus[rank as usize])
    })
}

/// The world as it will be if every node has as many workers as this one.
fn assumed_world(plan: &Plan) -> World {
    let workers = plan.local_world_size.value;
    World {
        first_rank: workers.saturating_mul(plan.node_rank.value.0),
        world_size: workers.saturating_mul(plan.num_nodes.value),
        port: plan.main_port.value,
        error_dir: Some(plan.machine.temp.join("torchelastic_XXXXXX")),
    }
}

fn sourced(value: &impl std::fmt::Display, source: &Source) -> String {
    format!("{value} ({source})")
}

fn port(plan: &Plan) -> String {
    let port = sourced(&plan.main_port.value, &plan.main_port.source);
    let free = plan.main_port.source == Source::Default && plan.num_nodes.value == 1;
    if free {
        format!("{port}; a free one if it is taken")
    } else {
        port
    }
}

/// As one would type it in a shell.
fn command(plan: &Plan) -> String {
    let words = plan
        .arguments
        .iter()
        .map(|it| quoted(&it.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "%+,-./:=@_".contains(it);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("train.py"), "train.py");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
