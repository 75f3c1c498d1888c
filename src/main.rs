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
mod relay;
mod agent;
mod report;

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
use plan::{Files, Given, Interpreter, Machine, Plan};
use relay::Voice;
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
    let voice = Voice::new();
    report::start_log(request.verbosity, &environ, &voice);
    let plan = decide(request, environ)?;
    if request.dry_run {
        report::say(&plan::describe(&plan));
        return Ok(Exit::Code(0));
    }
    let first_rank = plan.local_world_size.value * plan.node_rank.value.0;
    let mut reporter = report::Reporter::new(&plan, first_rank, &voice);
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
        voice: &voice,
    };
    let outcome = agent::run(&plan, start, &mut |it| reporter.hear(it))?;
    reporter.sum_up(&outcome);
    Ok(outcome.exit())
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
