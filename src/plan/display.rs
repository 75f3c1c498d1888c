//! `--dry-run`: the plan in words.

use std::ffi::OsStr;
use std::fmt::{Display, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::worker::{Plan, World};
use crate::cli::{Entry, Isolation, Request};
use crate::source::{Source, Sourced};
use crate::topology::LocalRank;

/// Columns of the names of facts.
const LABEL: usize = 14;

/// The whole plan as lines of text: what would run where with which variables, and why; the command and the
/// variables as a shell takes them. `request` says where the settings of the run came from.
pub(crate) fn describe(request: &Request, plan: &Plan) -> String {
    let mut text = String::new();
    for (name, value) in facts(plan).into_iter().chain(settings(request, plan)) {
        let _ = writeln!(text, "{name:<LABEL$}{value}");
    }
    let world = assumed_world(plan);
    let removed = plan.removed(&world);
    if !removed.is_empty() {
        let removed = removed.join(" ");
        let _ = writeln!(text, "{:<LABEL$}{removed} (an outer launcher's)", "removed");
    }
    text.push_str(&options(request));
    variables(&mut text, plan, &world);
    for hint in &plan.hints {
        let _ = writeln!(text, "\nhint: {hint}");
    }
    text
}

/// What was decided, each with its name and where it came from.
pub(crate) fn facts(plan: &Plan) -> Vec<(&'static str, String)> {
    let interpreter = plan.program.display();
    let hardware = plan
        .hardware
        .as_deref()
        .unwrap_or("whatever a worker finds");
    vec![
        ("cluster", cluster(plan)),
        ("nodes", sourced(&plan.num_nodes)),
        ("node rank", sourced(&plan.node_rank)),
        ("main address", sourced(&plan.main_address)),
        ("main port", port(plan)),
        ("workers here", sourced(&plan.local_world_size)),
        ("devices", hardware.to_owned()),
        (
            match plan.entry {
                Entry::Script | Entry::Module => "interpreter",
                Entry::Program => "program",
            },
            format!("{interpreter} ({})", plan.program_source),
        ),
        ("command", command(plan)),
    ]
}

/// What was set of our own options, in the order in which it was read.
fn options(request: &Request) -> String {
    let mut text = String::new();
    let others = request.said.iter().filter(|it| it.flag != "--dry-run");
    for (at, it) in others.enumerate() {
        let label = if at == 0 { "options" } else { "" };
        let _ = write!(text, "{label:<LABEL$}{} {}", it.flag, quoted(&it.text));
        let _ = match &it.source {
            Source::Flag(_) => writeln!(text),
            source => writeln!(text, " ({source})"),
        };
    }
    text
}

fn settings(request: &Request, plan: &Plan) -> Vec<(&'static str, String)> {
    let seconds = |it: &Sourced<Duration>| format!("{} s ({})", it.value.as_secs_f64(), it.source);
    let grace = Sourced {
        value: plan.settings.grace,
        source: match request.shutdown_timeout.value == plan.settings.grace {
            true => request.shutdown_timeout.source.clone(),
            false => Source::Derived(format!("how long {} waits before it kills", plan.cluster)),
        },
    };
    let handled = &request.signals_to_handle;
    let names: Vec<_> = handled.value.iter().map(ToString::to_string).collect();
    let leftovers = match request.keep_daemons {
        true => "kept after success (--keep-daemons)".to_owned(),
        false => format!("ended after {}", seconds(&request.linger)),
    };
    let limit = match request.timeout.value {
        Duration::ZERO => format!("none ({})", request.timeout.source),
        _ => seconds(&request.timeout),
    };
    let mut settings = vec![
        (
            "signals",
            format!("{} ({})", names.join(","), handled.source),
        ),
        ("grace period", seconds(&grace)),
        ("time limit", limit),
        ("leftovers", leftovers),
    ];
    if let Some(cwd) = &request.cwd {
        let directory = format!("{} ({})", cwd.value.display(), cwd.source);
        settings.push(("directory", directory));
    }
    if let Some(Isolation::Pid) = request.isolate {
        settings.push(("isolation", "a PID namespace (--isolate)".to_owned()));
    }
    settings
}

fn variables(text: &mut String, plan: &Plan, world: &World) {
    text.push_str("\nvariables of every worker, besides your own\n");
    for told in plan.told_exports(world) {
        let assignment = format!("{}={}", told.name, quoted(&told.value));
        let _ = match told.note.as_str() {
            "" => writeln!(text, "  {assignment}"),
            note => writeln!(text, "  {assignment:<40} # {note}"),
        };
    }
    text.push_str("\nvariables of each worker\n");
    for rank in 0..plan.workers() {
        let own = plan.own_environment(world, LocalRank(rank)).into_iter();
        let own = own.map(|(name, value)| format!(" {}={}", name.display(), quoted(&value)));
        let _ = writeln!(text, " {}", own.collect::<String>());
        if let Some(bound) = &plan.bound {
            let _ = writeln!(text, "    on CPUs {}", bound.cpus[rank as usize]);
        }
    }
    if plan.place.count > 1 {
        text.push_str(
            "  # ranks and sizes as they are if every launcher starts as many workers as this one\n",
        );
    }
}

/// The world as it will be if every node has as many workers as this one.
fn assumed_world(plan: &Plan) -> World {
    let (first_rank, world_size) = plan.even_world();
    World {
        attempt: 0,
        first_rank,
        world_size,
        first_role_rank: first_rank,
        role_world_size: world_size,
        port: plan.main_port.value,
        error_dir: Some(plan.machine.temp.join("torchelastic_XXXXXX")),
    }
}

/// The environment around us, and the part that it gave this launcher where it started several.
fn cluster(plan: &Plan) -> String {
    let Some(seat) = &plan.seat else {
        return plan.cluster.to_owned();
    };
    let (rank, world) = (sourced(&seat.global_rank), sourced(&seat.world_size));
    let leads = if plan.place.leads {
        ", serves the store"
    } else {
        ""
    };
    format!(
        "{}, one launcher per worker: rank {rank} of {world}{leads}",
        plan.cluster
    )
}

fn sourced<T: Display>(it: &Sourced<T>) -> String {
    format!("{} ({})", it.value, it.source)
}

fn port(plan: &Plan) -> String {
    let port = sourced(&plan.main_port);
    let free = plan.main_port.source == Source::Default && plan.num_nodes.value == 1;
    if free {
        format!("{port}; a free one if it is taken")
    } else {
        port
    }
}

/// As one would type it in a shell.
fn command(plan: &Plan) -> String {
    let words = plan.arguments.iter().map(|it| quoted(it));
    words.collect::<Vec<_>>().join(" ")
}

/// A word as bash, zsh and ksh read it; one line whatever is in it.
fn quoted(word: &OsStr) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "%+,-./:=@_".contains(it);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if !text.contains(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => format!("$'{}'", word.as_bytes().escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::resolve;
    use super::super::sample;
    use super::*;

    #[track_caller]
    fn check(request: &Request, workers: u32, variables: &[(&str, &str)], expected: &str) {
        let plan = resolve(sample::given(request, workers, variables)).unwrap();
        let text = describe(request, &plan);
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn a_plain_run() {
        check(
            &sample::request(2),
            2,
            &[],
            "\
cluster       plain machine
nodes         1 (default)
node rank     0 (default)
main address  127.0.0.1 (default)
main port     29400 (default); a free one if it is taken
workers here  2 (--devices)
devices       whatever a worker finds
interpreter   /venv/bin/python3 (VIRTUAL_ENV)
command       /venv/bin/python3 -u train.py --lr 0.1
signals       SIGTERM,SIGINT (default)
grace period  30 s (default)
time limit    none (default)
leftovers     ended after 5 s (default)

variables of every worker, besides your own
  LT_CLI_USED=1
  LT_DEVICES=2
  LT_NUM_NODES=1
  LT_ACCELERATOR=cpu
  MASTER_ADDR=127.0.0.1
  MASTER_PORT=29400
  WORLD_SIZE=2
  LOCAL_WORLD_SIZE=2
  GROUP_RANK=0
  GROUP_WORLD_SIZE=1
  NODE_RANK=0
  ROLE_NAME=default
  ROLE_WORLD_SIZE=2
  TORCHELASTIC_RUN_ID=none
  TORCHELASTIC_RESTART_COUNT=0
  TORCHELASTIC_MAX_RESTARTS=0
  TORCHELASTIC_USE_AGENT_STORE=True
  TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT
  TORCH_NCCL_ASYNC_ERROR_HANDLING=1
  OMP_NUM_THREADS=4                        # CPUs divided by workers
  PYTORCH_NVML_BASED_CUDA_CHECK=1
  TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor_jo

variables of each worker
  RANK=0 LOCAL_RANK=0 ROLE_RANK=0 TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_XXXXXX/error_0.json
  RANK=1 LOCAL_RANK=1 ROLE_RANK=1 TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_XXXXXX/error_1.json
",
        );
    }

    #[test]
    fn values_that_are_not_obvious_say_where_they_come_from() {
        let mut request = sample::request(2);
        request.shutdown_timeout.source = Source::Variable("PET_SHUTDOWN_TIMEOUT".into());
        request.keep_daemons = true;
        request.num_nodes = crate::integer::Integer::parse("2");
        request.node_rank = crate::integer::Integer::parse("1");
        let variables = [
            ("LT_CLI_USED", "1"),
            ("LT_STRATEGY", "fsdp"),
            ("LT_PRECISION", "16"),
            ("OMP_NUM_THREADS", "3"),
            ("MASTER_ADDR", "elsewhere"),
            ("NODE_RANK", "1"),
        ];
        check(
            &request,
            2,
            &variables,
            "\
cluster       plain machine
nodes         2 (--num-nodes)
node rank     1 (--node-rank)
main address  127.0.0.1 (default)
main port     29400 (default)
workers here  2 (--devices)
devices       whatever a worker finds
interpreter   /venv/bin/python3 (VIRTUAL_ENV)
command       /venv/bin/python3 -u train.py --lr 0.1
signals       SIGTERM,SIGINT (default)
grace period  30 s (PET_SHUTDOWN_TIMEOUT)
time limit    none (default)
leftovers     kept after success (--keep-daemons)
removed       LT_STRATEGY LT_PRECISION (an outer launcher's)

variables of every worker, besides your own
  LT_CLI_USED=1
  LT_DEVICES=2
  LT_NUM_NODES=2
  LT_ACCELERATOR=cpu
  MASTER_ADDR=127.0.0.1                    # instead of your `elsewhere`
  MASTER_PORT=29400
  WORLD_SIZE=4
  LOCAL_WORLD_SIZE=2
  GROUP_RANK=1
  GROUP_WORLD_SIZE=2
  NODE_RANK=1
  ROLE_NAME=default
  ROLE_WORLD_SIZE=4
  TORCHELASTIC_RUN_ID=none
  TORCHELASTIC_RESTART_COUNT=0
  TORCHELASTIC_MAX_RESTARTS=0
  TORCHELASTIC_USE_AGENT_STORE=True
  TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT
  TORCH_NCCL_ASYNC_ERROR_HANDLING=1
  OMP_NUM_THREADS=3                        # yours, kept
  PYTORCH_NVML_BASED_CUDA_CHECK=1
  TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor_jo

variables of each worker
  RANK=2 LOCAL_RANK=0 ROLE_RANK=2 TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_XXXXXX/error_0.json
  RANK=3 LOCAL_RANK=1 ROLE_RANK=3 TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_XXXXXX/error_1.json
  # ranks and sizes as they are if every launcher starts as many workers as this one
",
        );
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let check = |word: &[u8], expected| {
            assert_eq!(quoted(OsStr::from_bytes(word)), expected);
        };
        check(b"train.py", "train.py");
        check(b"", "''");
        check(b"a b", "'a b'");
        check(b"it's", r"'it'\''s'");
        check("\u{e9}t\u{e9}".as_bytes(), "'\u{e9}t\u{e9}'");
        check(b"two\nlines, it's \xff", r"$'two\nlines, it\'s \xff'");
    }
}
