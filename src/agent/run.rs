//! A run from its first process to its last: sets the stage, lets the launcher watch, and clears up.

use std::io;
use std::path::PathBuf;
use std::thread::scope;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail};

use super::company::{Company, alone};
use super::descendants::Process;
use super::error_file;
use super::guardian::Birth;
use super::launcher::Launcher;
use super::limits::refused;
use super::linux;
use super::outcome::Outcome;
use super::private::{self, PrivateDir};
use super::signals::{Inbox, Inherited};
use super::takeover::{reap_guardian, strangers, take_over};
use super::telling::{Hear, Telling};
use super::ward::Ward;
use crate::plan::Plan;
use crate::relay::{Relay, Relaying, Voice};
use crate::rendezvous::Server;

/// How long to wait for the first worker to be started before the launcher goes on.
const FIRST_TURN: Duration = Duration::from_millis(5);

/// What the launcher was born into.
pub(crate) struct Start<'a> {
    pub(crate) inherited: &'a Inherited,
    /// Length in bytes of our argument area, see [`linux::rename_process`].
    pub(crate) argument_bytes: usize,
    /// The store, where this node hosts it.
    pub(crate) server: Option<Server>,
    pub(crate) voice: &'a Voice,
    /// When the run began.
    pub(crate) origin: Instant,
}

/// Runs the plan to its end. `hear` is told every event as it comes.
///
/// # Errors
/// The system refused what a run needs before there was a worker; the text says what.
pub(crate) fn run(plan: &Plan, start: Start<'_>, hear: Hear<'_>) -> Result<Outcome> {
    let handled = &plan.settings.handled;
    let inbox = Inbox::open(start.inherited, handled).map_err(refused);
    let mut inbox = inbox.context("failed to take in signals")?;
    let directory = PrivateDir::make(&plan.machine.temp);
    let strangers = strangers();
    if linux::adopt_orphans().is_err() {
        tracing::warn!("this kernel cannot hand orphans to their ancestors");
    }
    let relaying = Relaying::prepare(plan, start.voice)?;
    let server = start.server;
    let port = server
        .as_ref()
        .map_or(plan.main_port.value, Server::local_port);
    let birth = Birth {
        plan,
        wiring: relaying.wiring,
        inherited: start.inherited,
        error_dir: directory.as_ref().map(PrivateDir::path),
        origin: start.origin,
        begin: alone(plan, port),
        argument_bytes: start.argument_bytes,
    };
    let begun = birth.begin.is_some();
    let ward = Ward::start(&birth).map_err(|error| no_guardian(error, plan))?;
    if begun {
        // What follows can be done while the first worker's program is loaded.
        ward.give_way(FIRST_TURN);
    }
    let error_dir = birth.error_dir.map(ToOwned::to_owned);
    let (relay, company) = match rest(plan, relaying, start.voice, server, port, error_dir) {
        Ok(it) => it,
        Err(error) => {
            abandon(&ward, &mut inbox, &strangers);
            return Err(error);
        }
    };
    scope(|scope| {
        let telling = Telling::new(scope, hear);
        let mut launcher = Launcher::new(inbox, ward, relay, company, telling, begun);
        launcher.begin();
        pass_on(plan, launcher.watch(&strangers));
        drop(directory);
        let (outcome, inbox) = launcher.end();
        // All is done but for the report, which the end of the scope waits for.
        inbox.release(start.inherited, handled);
        match &outcome.unmet {
            Some(why) => bail!("failed to {why}"),
            None => Ok(outcome),
        }
    })
}

/// What is not needed before the first worker.
fn rest<'p>(
    plan: &'p Plan,
    relaying: Relaying,
    voice: &Voice,
    server: Option<Server>,
    port: u16,
    error_dir: Option<PathBuf>,
) -> Result<(Option<Relay<'p>>, Company<'p>)> {
    let relay = relaying.start(plan, voice).map_err(refused);
    let relay = relay.context("failed to set up the relay of output")?;
    Ok((relay, Company::go(plan, server, port, error_dir)?))
}

/// Nothing is left of what may have begun.
fn abandon(ward: &Ward, inbox: &mut Inbox, strangers: &[Process]) {
    ward.kill();
    reap_guardian(ward, inbox);
    take_over(strangers, inbox);
}

fn no_guardian(error: io::Error, plan: &Plan) -> Error {
    if plan.isolate.is_none() {
        return refused(error).context("failed to start the guardian process");
    }
    let hint = "hint: run as root, have unprivileged user namespaces allowed (sysctl \
                user.max_user_namespaces), or leave the option away";
    let reason = refused(error);
    anyhow!("failed to make a PID namespace (--isolate pid): {reason}\n{hint}")
}

/// A launcher around us reads its own error file: it gets the root cause's, as from torch's launcher.
fn pass_on(plan: &Plan, outcome: &Outcome) {
    let (Some(file), Some((rank, end))) = (
        plan.environ.text("TORCHELASTIC_ERROR_FILE"),
        outcome.root_cause(),
    ) else {
        return;
    };
    if let Some(bytes) = outcome.confessions.get(&rank.0) {
        private::write(
            file.as_ref(),
            &error_file::with_exit_code(bytes, end.status.python_code()),
        );
    }
}
