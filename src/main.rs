//! `fabric`: starts one training process per device and watches over them.

#![cfg_attr(not(test), no_main)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "fabric runs on Linux only: what it needs of Linux, and what could take its place, is listed in src/agent/mod.rs"
);

mod entry;
mod status;
mod topology;
mod source;
mod clock;
mod integer;
mod environ;
mod accelerator;
mod numa;
mod cluster;
mod cli;
mod plan;
mod rendezvous;
mod relay;
mod agent;
mod report;
mod placement;
mod link;
mod inspect;
mod launch;

use std::ffi::{OsString, c_char, c_int};
use std::os::unix::process::CommandExt;

use anyhow::{Result, bail};

use agent::{Exit, Inherited};
use cli::Command;
use environ::Environ;

// The unwinder comes with the program: one shared library less to load at every start.
#[cfg(all(target_os = "linux", target_env = "gnu", not(feature = "wheel")))]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: this is `main`.
    let words = unsafe { entry::begin(count, words) };
    entry::end(run(&words))
}

/// The program with these words, its own name first; returns its exit code.
fn run(words: &[OsString]) -> u8 {
    let inherited = Inherited::reset();
    let environ = Environ::of_this_process();
    let own = words.iter().skip(1).cloned();
    let terminal = report::terminal_width();
    let done = match cli::parse(own, &environ, terminal, &cli::look_at) {
        Err(usage) => {
            report::complain(&usage.text);
            return cli::EXIT_USAGE;
        }
        Ok(Command::Show(text)) => {
            report::say(&text);
            Ok(Exit::Code(0))
        }
        Ok(Command::Link) => link::link().map(told),
        Ok(Command::Unlink) => link::unlink().map(told),
        Ok(Command::Consolidate(words)) => hand_over(words, &environ),
        Ok(Command::Run(request)) => launch::run(&request, environ, &inherited, words),
        Ok(Command::Doctor(asked)) => Ok(launch::examine(&asked, environ)),
        Ok(Command::Ps(asked)) => {
            let listed = inspect::ps(&asked, report::output(&environ), &mut report::say);
            listed.map(|()| Exit::Code(0))
        }
        Ok(Command::Stop(asked)) => inspect::stop(&asked).map(told),
    };
    match done {
        Ok(Exit::Code(code)) => code,
        Ok(Exit::Signal(signal)) => {
            agent::die_by(signal);
            // Only PID 1 of a container is still here.
            128 + signal.0 as u8
        }
        Err(error) => {
            report::complain(&format!("fabric: {error:#}\n"));
            1
        }
    }
}

fn told(text: String) -> Exit {
    report::say(&text);
    Exit::Code(0)
}

/// `fabric consolidate`: this process becomes the Python original. Returns only if that failed.
fn hand_over(words: Vec<OsString>, environ: &Environ) -> Result<Exit> {
    let interpreter = plan::interpreter(None, environ)?;
    let mut python = std::process::Command::new(&interpreter.path);
    let error = python.args(plan::consolidate(words)).exec();
    bail!("failed to run `{}`: {error}", interpreter.path.display())
}
