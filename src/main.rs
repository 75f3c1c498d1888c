//! `fabric`: starts one training process per device and watches over them.

mod status;
mod topology;
mod source;
mod integer;
mod environ;
mod accelerator;
mod cluster;
mod cli;
mod plan;
mod rendezvous;
mod agent;
mod report;
mod inspect;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};

use accelerator::DeviceRequest;
use agent::{Exit, Inherited, Start};
use cli::{Command, Request};
use cluster::Cluster;
use environ::Environ;
use inspect::doctor;
use plan::{Files, Given, Interpreter, Machine, Plan};
use topology::NodeRank;

fn main() -> ExitCode {
    let inherited = Inherited::reset();
    let environ = Environ::of_this_process();
    let words: Vec<OsString> = std::env::args_os().collect();
    let own = words.iter().skip(1).cloned();
    let terminal = report::terminal_width();
    let done = match cli::parse(own, &environ, terminal, &cli::look_at) {
        Err(usage) => {
            report::complain(&usage.text);
            return ExitCode::from(cli::EXIT_USAGE);
        }
        Ok(Command::Show(text)) => {
            report::say(&text);
            Ok(Exit::Code(0))
        }
        Ok(Command::Consolidate(words)) => Err(hand_over(&words, &environ)),
        Ok(Command::Ps(asked)) => list(&asked, &environ),
        Ok(Command::Doctor(asked)) => Ok(examine(&asked, environ)),
        Ok(Command::Stop(asked)) => inspect::stop(&asked).map(|text| {
            report::say(&text);
            Exit::Code(0)
        }),
        Ok(Command::Run(request)) => launch(&request, environ, &inherited, &words),
    };
    match done {
        Ok(Exit::Code(code)) => ExitCode::from(code),
        Ok(Exit::Signal(signal)) => {
            agent::die_by(signal);
            // Only PID 1 of a container is still here.
            ExitCode::from(128 + signal.0 as u8)
        }
        Err(error) => {
            report::complain(&format!("fabric: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// `fabric run`: decide, then do.
fn launch(
    request: &Request,
    environ: Environ,
    inherited: &Inherited,
    words: &[OsString],
) -> Result<Exit> {
    report::start_log(request.verbosity, &environ);
    let plan = decide(request, environ)?;
    if request.dry_run {
        report::say(&plan::describe(&plan));
        return Ok(Exit::Code(0));
    }
    let first_rank = plan.local_world_size.value * plan.node_rank.value.0;
    let mut reporter = report::Reporter::new(&plan, first_rank);
    let mut board = inspect::Board::new(&plan, first_rank);
    reporter.give_hints();
    let hosted = (plan.node_rank.value == NodeRank(0))
        .then(|| agent::host(&plan))
        .transpose()?;
    if let Some(hosted) = &hosted {
        reporter.tell_port(hosted);
    }
    let start = Start {
        inherited,
        argument_bytes: words.iter().map(|it| it.len() + 1).sum(),
        server: hosted.map(|it| it.server),
    };
    let outcome = agent::run(&plan, start, &mut |it| {
        reporter.hear(it);
        board.hear(it);
    })?;
    reporter.sum_up(&outcome);
    Ok(outcome.exit())
}

/// `fabric ps`.
fn list(asked: &cli::Ps, environ: &Environ) -> Result<Exit> {
    let output = report::output(environ);
    let screen = inspect::Screen {
        print: &mut |text| report::say(text),
        paint: output.paint,
        clears: output.clears,
    };
    inspect::ps(asked, screen).map(|()| Exit::Code(0))
}

/// `fabric doctor`: the same decisions as for a launch, and then a look around instead of a start.
fn examine(asked: &cli::Doctor, environ: Environ) -> Exit {
    let output = report::output(&environ);
    let (plan, refusal) = match decide(&asked.request, environ.clone()) {
        Ok(plan) => (Some(plan), None),
        Err(error) => {
            let modest = asked.request.on_one_cpu();
            (
                decide(&modest, environ.clone()).ok(),
                Some(format!("{error:#}")),
            )
        }
    };
    let facts = doctor::gather(doctor::Case {
        request: &asked.request,
        environ,
        refusal,
        plan,
    });
    let found = doctor::examine(&facts);
    report::say(&match asked.json {
        true => doctor::json(&found),
        false => doctor::text(&found, output.paint),
    });
    Exit::Code(u8::from(doctor::count(&found, doctor::Level::Bad) > 0))
}

/// Everything about what to launch.
fn decide(request: &Request, environ: Environ) -> Result<Plan> {
    let devices = DeviceRequest {
        accelerator: request.accelerator,
        data_parallel: request.strategy == Some("dp"),
        devices: &request.devices,
    };
    let selection = devices.select(&accelerator::probe(devices.needs(), &environ))?;
    let cluster = Cluster::plain();
    let interpreter = interpreter(
        request.python.as_ref().map(|it| it.value.as_os_str()),
        &environ,
    )?;
    let machine = Machine::look(&environ);
    plan::resolve(Given {
        request,
        cluster,
        selection,
        interpreter,
        machine,
        environ,
    })
}

fn interpreter(named: Option<&std::ffi::OsStr>, environ: &Environ) -> Result<Interpreter> {
    let is_program =
        |it: &Path| it.is_file() && nix::unistd::access(it, nix::unistd::AccessFlags::X_OK).is_ok();
    let files = Files {
        is_program: &is_program,
        exists: &Path::exists,
    };
    let own_binary = std::env::current_exe().ok();
    plan::find_interpreter(named, environ, own_binary.as_deref(), &files).map_err(|it| anyhow!(it))
}

/// `fabric consolidate` is the Python original's; this process becomes it. Returns only if that failed.
fn hand_over(words: &[OsString], environ: &Environ) -> anyhow::Error {
    /// Run by Python: the module by its present or its older name, or one line that says what is missing.
    const CONSOLIDATE: &str = "\
import importlib.util as u, runpy, sys
for name in ('lightning.fabric.cli', 'lightning_fabric.cli'):
    try:
        found = u.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found:
        sys.argv[0] = 'fabric'
        runpy.run_module(name, run_name='fabric.cli')['_main'](prog_name='fabric')
sys.exit('fabric: `fabric consolidate` is part of Lightning, which ' + sys.executable + ' does not have\\nhint: pip install lightning')
";
    let interpreter = match interpreter(None, environ) {
        Ok(interpreter) => interpreter,
        Err(error) => return error,
    };
    let mut python = std::process::Command::new(&interpreter.path);
    python.args(["-c", CONSOLIDATE, "consolidate"]).args(words);
    anyhow!(
        "failed to run `{}`: {}",
        interpreter.path.display(),
        python.exec()
    )
}
