//! The launcher in the company of the other nodes' launchers: what it brings to their meeting, what follows
//! from it for the workers here, and what the others are told when they fail.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::error_file;
use super::event::Why;
use super::limits::refused;
use super::message::Command;
use super::outcome::{Exit, Outcome, TIMED_OUT};
use super::private;
use crate::plan::{Plan, World, error_file as error_path};
use crate::rendezvous::{Cause, Event, Limits, Meeting, Party, Ready, Server, Surroundings};
use crate::status::{Signal, Status};
use crate::topology::{GlobalRank, LocalRank, NodeRank};

/// After a failure the launcher waits no longer than this for the others to hear of it.
pub(crate) const FAREWELL: Duration = Duration::from_secs(5);
/// A secret that all launchers of a run share; set by whoever starts them.
const TOKEN: &str = "FABRIC_TOKEN";

/// By this variable agents of torch are spared to tell each other how many workers they have
/// (torch 2.6 and later, `torch/distributed/elastic/agent/server/api.py`).
const IDENTICAL: &str = "TORCH_ELASTIC_WORKER_IDENTICAL";

/// By these variables a user says which interfaces torch's libraries shall take.
const IFNAMES: [&str; 2] = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"];

/// This launcher's part in the meeting.
pub(crate) struct Company<'a> {
    plan: &'a Plan,
    meeting: Meeting,
    world: World,
    /// What our own words at the meeting brought about.
    pending: Vec<Event>,
    /// The others know, or need not know, that we stop.
    stopped: bool,
    over: bool,
    /// When to look next for workers that do not find each other, and how long to wait after that.
    look: Option<(Instant, Duration)>,
}

/// What the guardian begins with on a single node, where nobody is waited for: all is known from the start.
pub(crate) fn alone(plan: &Plan, port: u16) -> Option<Command> {
    (plan.place.count == 1).then(|| Command::Begin {
        first_rank: 0,
        world_size: plan.workers(),
        first_role_rank: 0,
        role_world_size: plan.workers(),
        port,
        attempt: 0,
    })
}

/// A process group that takes longer than this to come together is worth a line; importing torch may take a
/// good part of it. The pauses between two looks double.
const STUCK: Duration = Duration::from_secs(60);

impl<'a> Company<'a> {
    /// Goes to the meeting: hosts it where we have the store's port, joins it elsewhere, which starts a thread,
    /// so the guardian must have been forked before. `port` is where the workers will meet.
    pub(crate) fn go(
        plan: &'a Plan,
        server: Option<Server>,
        port: u16,
        error_dir: Option<PathBuf>,
    ) -> Result<Self> {
        let limits = Limits {
            join: plan.join_timeout,
            node: plan.node_timeout,
        };
        let (address, now) = (plan.main_address.value.as_str(), Instant::now());
        let meeting = match server {
            Some(server) => Meeting::host(server, party(plan), address, limits, now),
            None => Meeting::join(address, port, party(plan), limits, now),
        };
        let meeting = meeting.map_err(refused);
        let meeting = meeting.context("failed to set up the meeting of the nodes")?;
        let world = World {
            attempt: 0,
            first_rank: 0,
            world_size: 0,
            first_role_rank: 0,
            role_world_size: 0,
            port,
            error_dir,
        };
        Ok(Self {
            plan,
            meeting,
            world,
            pending: Vec::new(),
            stopped: false,
            over: false,
            look: None,
        })
    }

    pub(crate) fn workers(&self) -> u32 {
        self.plan.workers()
    }

    /// Whether there may be another attempt after this one.
    pub(crate) fn restarts(&self) -> bool {
        self.plan.max_restarts > 0
    }

    /// Whether this signal asks for the end of the run.
    pub(crate) fn handles(&self, signal: Signal) -> bool {
        self.plan.settings.handled.contains(&signal)
    }

    /// Readable when there is something to take in.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.meeting.fd()
    }

    /// When to call `advance` again even if nothing is readable.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        if !self.pending.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadlines = [self.meeting.deadline(), self.look.map(|(at, _)| at)];
        let first = deadlines.into_iter().flatten().min();
        first.map(|it| it.saturating_duration_since(Instant::now()))
    }

    /// What has happened since the last call.
    pub(crate) fn advance(&mut self) -> Vec<Event> {
        if self.meeting.is_needed() {
            self.settle();
        }
        let (mut events, now) = (std::mem::take(&mut self.pending), Instant::now());
        events.extend(self.meeting.advance(now));
        events.extend(self.absent(now).map(Event::Notice));
        self.over |= events.contains(&Event::Over);
        events
    }

    /// Starts what was not needed at first, for later the system may refuse it.
    pub(crate) fn settle(&mut self) {
        if let Err(error) = self.meeting.settle() {
            let why = format!("start the thread that serves the store: {}", refused(error));
            self.pending.push(Event::Failed(why));
        }
    }

    /// Whom the workers wait for, if it is time to look and they wait for somebody.
    fn absent(&mut self, now: Instant) -> Option<String> {
        let (_, pause) = self.look.filter(|(at, _)| now >= *at)?;
        self.look = Some((now + pause, pause * 2));
        self.meeting.absent()
    }

    /// Nobody needs us any more.
    pub(crate) fn over(&self) -> bool {
        self.over
    }

    /// Every node is there: what the guardian is told.
    pub(crate) fn begin(&mut self, ready: &Ready) -> Command {
        self.look = self
            .plan
            .place
            .leads
            .then(|| (Instant::now() + STUCK, STUCK * 2));
        self.world.first_rank = ready.base.0;
        self.world.world_size = ready.world_size;
        self.world.first_role_rank = ready.role_base;
        self.world.role_world_size = ready.role_world_size;
        Command::Begin {
            first_rank: ready.base.0,
            world_size: ready.world_size,
            first_role_rank: ready.role_base,
            role_world_size: ready.role_world_size,
            port: self.world.port,
            attempt: self.world.attempt,
        }
    }

    /// Advice on the network, for the start of workers on several machines, unless its user has decided.
    pub(crate) fn hint(&self) -> Option<String> {
        let decided = |name| self.plan.environ.get(name).is_some();
        if self.world.attempt > 0 || IFNAMES.into_iter().all(decided) {
            return None;
        }
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let surroundings = Surroundings {
            route: &self.meeting.route()?,
            routes: &read("/proc/net/route"),
            hosts: &read("/etc/hosts"),
            name: &self.plan.machine.host,
        };
        surroundings.hint()
    }

    /// All begins anew: what is to be said of the workers that are being ended has been said.
    pub(crate) fn restart(&mut self) {
        (self.stopped, self.look) = (false, None);
    }

    /// The workers here have ended, and can be started again.
    pub(crate) fn renew(&mut self) {
        self.world.attempt += 1;
        let events = self.meeting.renew(Instant::now());
        self.pending.extend(events);
    }

    /// The workers here have all succeeded.
    pub(crate) fn finish(&mut self) {
        let events = self.meeting.finish(Instant::now());
        self.pending.extend(events);
    }

    /// The workers here are being stopped: the others shall stop, too, unless it comes from them.
    pub(crate) fn stop(&mut self, outcome: &Outcome) {
        if let (false, Some(cause)) = (self.stopped, self.cause(outcome)) {
            self.stopped = true;
            let events = self.meeting.abort(cause, Instant::now());
            self.pending.extend(events);
        }
    }

    /// The outcome with what workers that did not succeed wrote themselves.
    pub(crate) fn confess(&self, outcome: Outcome) -> Outcome {
        outcome.with_confessions(|rank| self.confession(rank))
    }

    fn confession(&self, rank: LocalRank) -> Option<Vec<u8>> {
        private::read(&error_path(&self.world, rank)?)
    }

    fn cause(&self, outcome: &Outcome) -> Option<Cause> {
        let lived = outcome.root_cause().and_then(|(rank, end)| {
            let started = outcome.workers[rank.0 as usize].started?;
            Some(end.at.saturating_sub(started))
        });
        let (rank, code, message) = match (outcome.guardian_lost, outcome.why) {
            (Some(status), _) => (
                None,
                status.shell_code(),
                format!("its guardian process died: {status}"),
            ),
            (_, Some(Why::Failed(rank))) => {
                let status = outcome.workers[rank.0 as usize].end?.status;
                (Some(rank), status.shell_code(), self.told_by(rank, status))
            }
            (_, Some(why @ Why::NotStarted(rank))) => {
                let Exit::Code(code) = outcome.own_exit(Some(why)) else {
                    return None;
                };
                (Some(rank), code, "could not be started".to_owned())
            }
            (_, Some(Why::Signal(signal))) => {
                let code = Status::Signal {
                    signal,
                    core: false,
                }
                .shell_code();
                (None, code, format!("stopped by {signal}"))
            }
            (_, Some(Why::TimeLimit)) => (None, TIMED_OUT, "its time limit is over".to_owned()),
            (_, Some(Why::Elsewhere | Why::LauncherGone) | None) => return None,
        };
        Some(Cause {
            node: NodeRank(self.plan.place.index),
            host: self.plan.machine.host.clone(),
            rank: rank.map(|it| GlobalRank(self.world.first_rank + it.0)),
            exit_code: code.max(1),
            message,
            lived: lived.filter(|_| outcome.guardian_lost.is_none()),
        })
    }

    /// A worker's end, and its own words on it in one line.
    fn told_by(&self, rank: LocalRank, status: Status) -> String {
        let confession = self.confession(rank).and_then(|it| error_file::parse(&it));
        let words = confession.and_then(|it| it.message.lines().next().map(ToOwned::to_owned));
        words.map_or_else(|| status.to_string(), |words| format!("{status}: {words}"))
    }
}

fn party(plan: &Plan) -> Party {
    Party {
        node: NodeRank(plan.place.index),
        num_nodes: plan.place.count,
        local_world_size: plan.workers(),
        host: plan.machine.host.clone(),
        role: plan.role.value.clone(),
        run_id: plan.run_id.value.clone(),
        launcher: env!("CARGO_PKG_VERSION").to_owned(),
        max_restarts: plan.max_restarts,
        script: plan.script.to_string_lossy().into_owned(),
        identical: plan.environ.text(IDENTICAL) == Some("1"),
        token: plan.environ.text(TOKEN).map(ToOwned::to_owned),
    }
}
