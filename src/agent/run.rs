//! A run from its first process to its last: sets the stage, lets the launcher watch, and clears up.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, Scope, scope};
use std::time::Instant;

use anyhow::{Context, Error, Result, anyhow, bail};

use super::company::Company;
use super::error_file;
use super::guardian::Birth;
use super::launcher::{Launcher, strangers};
use super::limits::refused;
use super::linux;
use super::outcome::Outcome;
use super::private::{self, PrivateDir};
use super::signals::{Inbox, Inherited};
use super::told::Told;
use super::ward::Ward;
use crate::plan::Plan;
use crate::relay::{Relaying, Voice};
use crate::rendezvous::Server;

/// Told everything as it comes, with the time when it came. It may wait for whoever reads the report.
pub(crate) type Hear<'h> = &'h mut (dyn FnMut(&Told, Instant) + Send);

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
    let birth = Birth {
        plan,
        wiring: relaying.wiring,
        inherited: start.inherited,
        error_dir: directory.as_ref().map(PrivateDir::path),
        origin: start.origin,
        argument_bytes: start.argument_bytes,
    };
    let ward = Ward::start(&birth).map_err(|error| no_guardian(error, plan))?;
    let relay = relaying.start(plan, start.voice).map_err(refused);
    let relay = relay.context("failed to set up the relay of output")?;
    let listening = inbox.listen_for_interrupts(start.inherited);
    let listening = listening.map_err(refused);
    listening.context("failed to listen for Ctrl-C")?;
    let port = start
        .server
        .as_ref()
        .map_or(plan.main_port.value, Server::local_port);
    let error_dir = birth.error_dir.map(ToOwned::to_owned);
    let company = Company::go(plan, start.server, port, error_dir)?;
    let (told, events) = channel();
    let launcher = Launcher::new(inbox, ward, relay, company, told);
    scope(|scope| {
        report_beside(scope, events, hear)?;
        let (outcome, inbox) = launcher.watch(&strangers);
        pass_on(plan, &outcome);
        drop(directory);
        // All is done but for the report, which the end of the scope waits for.
        inbox.release(start.inherited, handled);
        match &outcome.unmet {
            Some(why) => bail!("failed to {why}"),
            None => Ok(outcome),
        }
    })
}

/// A reader of the report who has stopped reading shall delay no signal: another thread waits for them.
fn report_beside<'s>(
    scope: &'s Scope<'s, '_>,
    events: Receiver<(Instant, Told)>,
    hear: Hear<'s>,
) -> Result<()> {
    let thread = Builder::new().name("report".to_owned());
    let report = move || events.iter().for_each(|(at, told)| hear(&told, at));
    let started = thread.spawn_scoped(scope, report).map_err(refused);
    started.context("failed to start the thread that reports")?;
    Ok(())
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
