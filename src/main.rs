//! `fabric`: starts one training process per device and watches over them.

mod status;
mod topology;
mod source;
mod integer;
mod environ;
mod accelerator;
mod numa;
mod cluster;
mod cli;
mod plan;
mod rendezvous;
mod agent;
mod report;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};

use accelerator::{Busy, DeviceRequest, Driver};
use agent::{Exit, Inherited, Start};
use cli::{Command, Entry, Request};
use cluster::Cluster;
use environ::Environ;
use numa::{Binding, Bound, Near, System};
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
    let mut reporter =
        report::Reporter::new(&plan, plan.local_world_size.value * plan.node_rank.value.0);
    reporter.give_hints();
    reporter.warn();
    if request.dry_run {
        report::say(&plan::describe(&plan));
        return Ok(Exit::Code(0));
    }
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
    let outcome = agent::run(&plan, start, &mut |it| reporter.hear(it))?;
    reporter.sum_up(&outcome);
    Ok(outcome.exit())
}

/// Everything about what to launch.
fn decide(request: &Request, environ: Environ) -> Result<Plan> {
    let environ = environ.with(&request.env);
    let devices = DeviceRequest {
        accelerator: request.accelerator,
        data_parallel: request.strategy == Some("dp"),
        devices: &request.devices,
    };
    let needs = match request.numa_binding {
        Some(_) => devices.possible(),
        None => devices.needs(),
    };
    let (inventory, driver) = accelerator::probe(needs, &environ);
    let selection = devices.select(&inventory)?;
    let gpus = Gpus {
        physical: &inventory.cuda.physical,
        of_workers: selection.gpus(&inventory),
        driver: &driver,
    };
    let bound = request.numa_binding.map(|mode| {
        let bound = bind(mode, &gpus, selection.workers);
        bound.map_err(|it| anyhow!("`--numa-binding {}`: {it}", mode.name()))
    });
    plan::resolve(Given {
        request,
        cluster: Cluster::plain(),
        busy: gpus.busy(inventory.cuda.partitions),
        selection,
        interpreter: program(request, &environ)?,
        bound: bound.transpose()?,
        machine: Machine::look(&environ),
        environ,
    })
}

/// The GPUs of a launch.
struct Gpus<'a> {
    /// All visible ones, by the driver's numbers.
    physical: &'a [u32],
    /// Which of them each worker has; `None` where workers have none.
    of_workers: Option<Vec<u32>>,
    driver: &'a Driver,
}

impl Gpus<'_> {
    /// Who computes on them already. On partitions of a GPU somebody else always may.
    fn busy(&self, partitions: bool) -> Vec<Busy> {
        let used = self.of_workers.iter().flatten();
        let used = used
            .filter(|_| !partitions)
            .map(|it| self.physical[*it as usize]);
        self.driver.busy(&used.collect::<Vec<_>>())
    }
}

/// The CPUs near each worker's GPU, or for workers without any a part of the machine.
fn bind(mode: Binding, gpus: &Gpus, workers: u32) -> Result<Bound, String> {
    let system = System::here()?;
    let Some(of_workers) = &gpus.of_workers else {
        return system.bind(mode, Near::Nothing { workers });
    };
    let addresses = gpus.driver.addresses(gpus.physical).into_iter();
    let addresses = addresses.zip(gpus.physical).map(|(address, gpu)| {
        address.ok_or_else(|| format!("the driver does not tell where GPU {gpu} is on the PCI bus"))
    });
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    system.bind(
        mode,
        Near::Devices {
            addresses: &addresses,
            of_workers,
        },
    )
}

/// What the workers execute.
fn program(request: &Request, environ: &Environ) -> Result<Interpreter> {
    if request.entry() == Entry::Program {
        let seen = |it: &Path| PathBuf::from(request.seen_by_workers(it.as_os_str()));
        let files = Files {
            is_program: &|it| is_program(&seen(it)),
            exists: &|it| seen(it).exists(),
        };
        return plan::find_program(&request.script, environ, &files).map_err(|it| anyhow!(it));
    }
    let named = request.python.as_ref().map(|it| it.value.as_os_str());
    let mut found = interpreter(named, environ)?;
    if request.cwd.is_some() {
        // It was found from here; the workers start elsewhere.
        found.path = std::path::absolute(&found.path)?.into();
    }
    Ok(found)
}

fn is_program(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn interpreter(named: Option<&std::ffi::OsStr>, environ: &Environ) -> Result<Interpreter> {
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
