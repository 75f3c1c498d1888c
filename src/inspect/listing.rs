//! Running launches for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::reading::{Reading, Seen, Share, State};
use crate::report::{Paint, bytes, harmless, ranks, span};

/// Columns of the whole.
const WIDTH: usize = 80;

/// One block for each launch: a headline, and a line for each worker.
pub(crate) fn text(seen: &[Seen], paint: Paint) -> String {
    if seen.is_empty() {
        return "no launch of yours runs on this machine\n".to_owned();
    }
    let blocks: Vec<String> = seen.iter().map(|it| block(it, paint)).collect();
    blocks.join("\n")
}

fn block(seen: &Seen, paint: Paint) -> String {
    let with_gpus = seen.readings.iter().any(|it| !it.gpus.is_empty());
    let mut text = paint.bold(&headline(seen)) + "\n";
    if seen.launch.workers.is_empty() {
        return text + "    waits for the other nodes\n";
    }
    text.push_str("    rank      pid  state       cpu      memory");
    text.push_str(if with_gpus {
        "  gpu  gpu memory   busy\n"
    } else {
        "\n"
    });
    for (worker, reading) in seen.launch.workers.iter().zip(&seen.readings) {
        let _ = write!(text, "  {:>6}  {:>7}  ", worker.rank, worker.pid);
        line(&mut text, reading);
    }
    text
}

/// `4711  train.py, node 0 of 2, ranks 0-3 of 8, for 3 min 5 s`: whole but for a long path's beginning.
fn headline(Seen { launch, age, .. }: &Seen) -> String {
    let numbers: Vec<u32> = launch.workers.iter().map(|it| it.rank).collect();
    let mut rest = String::new();
    if launch.num_nodes > 1 {
        rest.push_str(&format!(
            ", node {} of {}",
            launch.node_rank, launch.num_nodes
        ));
    }
    if !numbers.is_empty() {
        rest.push_str(&format!(", {}", ranks(&numbers)));
    }
    if launch.num_nodes > 1 && !numbers.is_empty() {
        rest.push_str(&format!(" of {}", launch.world_size));
    }
    rest.push_str(&format!(", for {}", span(*age)));
    let room = WIDTH.saturating_sub(8 + rest.chars().count()).max(12);
    format!("{:<8}{}{rest}", launch.id, ending(&launch.script, room))
}

/// The last `room` characters, which of a path tell most, fit for a terminal.
fn ending(script: &str, room: usize) -> String {
    let shown = harmless(script).replace(['\n', '\t'], "?");
    match shown.chars().count().checked_sub(room) {
        None | Some(0) => shown,
        Some(extra) => "...".chars().chain(shown.chars().skip(extra + 3)).collect(),
    }
}

fn line(text: &mut String, reading: &Reading) {
    let state = reading.state.name();
    if reading.state == State::Ended {
        let _ = writeln!(text, "{state}");
        return;
    }
    let memory = bytes(reading.memory);
    let _ = write!(text, "{state:<7}  {:>4.0} %  {memory:>10}", reading.cpu);
    let (first, others) = match reading.gpus.split_first() {
        Some((first, others)) => (gpu(first), others),
        None => (String::new(), Default::default()),
    };
    let _ = writeln!(text, "{first}");
    for it in others {
        let _ = writeln!(text, "{:46}{}", "", gpu(it));
    }
}

fn gpu(share: &Share) -> String {
    let memory = share.memory.map_or_else(|| "?".to_owned(), bytes);
    let busy = share
        .busy
        .map_or_else(|| "?".to_owned(), |it| it.to_string());
    format!("  {:>3}  {memory:>10}  {busy:>3} %", share.gpu)
}

/// A list of objects; memory in bytes, CPU and GPU use in percent, ages in seconds.
pub(crate) fn json(seen: &[Seen]) -> String {
    let launches: Vec<Value> = seen.iter().map(launch).collect();
    format!("{:#}\n", Value::Array(launches))
}

fn launch(seen: &Seen) -> Value {
    let it = &seen.launch;
    let workers = it.workers.iter().zip(&seen.readings);
    let workers = workers.map(|(worker, reading)| {
        json!({
            "rank": worker.rank,
            "pid": worker.pid,
            "state": reading.state.name(),
            "cpu_percent": (f64::from(reading.cpu) * 10.0).round() / 10.0,
            "memory_bytes": reading.memory,
            "gpus": reading.gpus.iter().map(share).collect::<Vec<_>>(),
        })
    });
    json!({
        "id": it.id,
        "script": it.script,
        "node_rank": it.node_rank,
        "num_nodes": it.num_nodes,
        "world_size": it.world_size,
        "age_seconds": seen.age.as_secs(),
        "workers": workers.collect::<Vec<_>>(),
    })
}

fn share(share: &Share) -> Value {
    json!({"gpu": share.gpu, "memory_bytes": share.memory, "busy_percent": share.busy})
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::launch::{Launch, Worker};
    use super::*;

    fn reading(state: State, gpus: &[u32]) -> Reading {
        let share = |gpu: &u32| Share {
            gpu: *gpu,
            memory: Some(10 << 30),
            busy: Some(87),
        };
        Reading {
            state,
            cpu: 98.4,
            memory: 1_288_490_189,
            gpus: gpus.iter().map(share).collect(),
        }
    }

    fn seen(script: &str, num_nodes: u32, readings: Vec<Reading>) -> Seen {
        let worker = |nth: u32| Worker {
            rank: 4 + nth,
            pid: 4713 + nth as i32,
            born: 7,
        };
        Seen {
            launch: Launch {
                id: 4711,
                script: script.to_owned(),
                node_rank: 1,
                num_nodes,
                world_size: 8,
                workers: (0..readings.len() as u32).map(worker).collect(),
                ..Launch::default()
            },
            age: Duration::from_secs(185),
            readings,
        }
    }

    const PLAIN: Paint = Paint { on: false };

    #[test]
    fn every_worker_has_a_line() {
        let readings = vec![reading(State::Running, &[]), reading(State::Ended, &[])];
        let expected = "\
4711    train.py, ranks 4, 5, for 3 min 5 s
    rank      pid  state       cpu      memory
       4     4713  running    98 %     1.2 GiB
       5     4714  ended
";
        assert_eq!(text(&[seen("train.py", 1, readings)], PLAIN), expected);
    }

    #[test]
    fn gpus_have_columns_where_there_are_any() {
        let expected = "\
4711    train.py, node 1 of 2, rank 4 of 8, for 3 min 5 s
    rank      pid  state       cpu      memory  gpu  gpu memory   busy
       4     4713  stopped    98 %     1.2 GiB    0      10 GiB   87 %
                                                  1      10 GiB   87 %
";
        let readings = vec![reading(State::Stopped, &[0, 1])];
        assert_eq!(text(&[seen("train.py", 2, readings)], PLAIN), expected);
    }

    #[test]
    fn a_launch_without_workers_waits() {
        let expected = "\
4711    train.py, node 1 of 2, for 3 min 5 s
    waits for the other nodes
";
        assert_eq!(text(&[seen("train.py", 2, vec![])], PLAIN), expected);
    }

    #[test]
    fn a_long_path_is_cut_at_its_beginning() {
        let script = format!("{}/experiments/\ttrain.py", "deep/".repeat(30));
        let text = text(&[seen(&script, 2, vec![])], PLAIN);
        let headline = text.lines().next().unwrap();
        assert_eq!(headline.chars().count(), WIDTH, "{headline}");
        assert!(
            headline.contains("/experiments/?train.py, node 1"),
            "{headline}"
        );
        assert!(headline.starts_with("4711    ..."), "{headline}");
    }

    #[test]
    fn no_launch_is_said() {
        assert_eq!(
            text(&[], PLAIN),
            "no launch of yours runs on this machine\n"
        );
        assert_eq!(json(&[]), "[]\n");
    }

    #[test]
    fn programs_get_bare_numbers() {
        let json = json(&[seen("train.py", 1, vec![reading(State::Running, &[3])])]);
        let value: Value = serde_json::from_str(&json).unwrap();
        let worker = &value[0]["workers"][0];
        assert_eq!(value[0]["id"], 4711);
        assert_eq!(value[0]["age_seconds"], 185);
        assert_eq!(worker["cpu_percent"], 98.4);
        assert_eq!(worker["memory_bytes"], 1_288_490_189);
        assert_eq!(worker["gpus"][0]["gpu"], 3);
    }
}
