//! `--dry-run`: the plan in words.

use std::fmt::Write;

use super::worker::{Plan, World};
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
        ("launchers", launchers(plan)),
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
            "interpreter",
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
    let _ = writeln!(text, "{:<14}{}", "command", command(plan));
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
    text.push_str("\nvariables of every worker\n");
    for (name, value) in plan.common_exports(&world) {
        let _ = writeln!(text, "  {name}={}", value.display());
    }
    for rank in 0..plan.workers() {
        let _ = writeln!(
            text,
            "\nvariables of local rank {}",
            plan.local_rank(LocalRank(rank))
        );
        for (name, value) in plan.own_environment(&world, LocalRank(rank)) {
            let _ = writeln!(text, "  {}={}", name.display(), value.display());
        }
    }
    text
}

/// The world as it will be if every node has as many workers as this one.
fn assumed_world(plan: &Plan) -> World {
    let (first_rank, world_size) = plan.even_world();
    World {
        first_rank,
        world_size,
        port: plan.main_port.value,
        error_dir: Some(plan.machine.temp.join("torchelastic_XXXXXX")),
    }
}

/// How the launchers of this run share the work.
fn launchers(plan: &Plan) -> String {
    let Some(seat) = &plan.seat else {
        return "one per node".to_owned();
    };
    let (rank, world) = (&seat.global_rank, &seat.world_size);
    let leads = if plan.place.leads {
        "; serves the store"
    } else {
        ""
    };
    format!(
        "one per worker: this is rank {} ({}) of {} ({}){leads}",
        rank.value, rank.source, world.value, world.source
    )
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
