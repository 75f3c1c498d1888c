//! The process between the launcher and the workers: it starts them, sees them die, and ends them.
//!
//! It is their parent and the adopter of their orphans, so everything they ever start stays below it. It has
//! a session of its own and blocks every signal, so neither a closing terminal nor `kill -9 -GROUP` nor a
//! stray signal ends it; it touches no terminal, no log and no network, so nothing can make it wait. When the
//! launcher goes, however that happens, their socket closes and everything below ends with SIGKILL. When the
//! guardian is killed instead, workers die by their parent-death signal and the launcher, which adopts what
//! is left, ends that. When it is stopped, the launcher wakes it, and so does the launcher's end. Only SIGKILL
//! to both at once leaves processes of the workers (not workers) behind.
//! Measured against the alternatives (two workers, each with a double-forked orphan, a daemon in a session of
//! its own and a TERM-proof child): groups or parent-death signals alone leave two to four of them, a
//! cgroup needs rights and still somebody alive to write to it, a PID namespace leaves nothing but changes
//! what programs see of themselves (`--isolate pid`).
//!
//! One thread, one wait: poll(2) on the launcher's socket and on SIGCHLD, with the policy's next deadline.
//! No descriptor per worker, so a limit of 64 open files watches 100 workers.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signalfd::SignalFd;
use nix::sys::time::TimeSpec;

use super::descendants::{self, NOBODY, Process, below, kill_all_below};
use super::event::{Event, Pid, Step};
use super::message::{Command, Stamped};
use super::policy::{Action, Input, Moment, Policy, Target};
use super::signals::Inherited;
use super::spawn::Spawner;
use super::uplink::{Heard, Uplink};
use super::wait::{Found, Which, peek, reap, stopped_or_resumed};
use crate::plan::{Plan, World};
use crate::relay::{Ends, Wiring};
use crate::status::{Signal, Status};
use crate::topology::LocalRank;

/// poll(2) refuses times that do not fit the kernel's; nobody notices an extra look once a day.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400);

/// What the guardian is born with.
pub(crate) struct Birth<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) wiring: Wiring,
    pub(crate) inherited: &'a Inherited,
    pub(crate) error_dir: Option<&'a Path>,
    pub(crate) origin: Instant,
    /// What to begin with, where there is no other node to wait for.
    pub(crate) begin: Option<Command>,
    /// Length in bytes of our argument area, see [`super::linux::rename_process`].
    pub(crate) argument_bytes: usize,
}

/// One worker that has been started and not yet reaped: its number, and so that of its group, is ours.
struct Child {
    rank: LocalRank,
    /// Its death has been told to the policy already.
    told: bool,
}

/// The guardian's whole state.
pub(crate) struct Guardian<'a> {
    birth: &'a Birth<'a>,
    launcher: Uplink,
    deaths: SignalFd,
    policy: Policy,
    spawner: Option<Spawner<'a>>,
    children: BTreeMap<Pid, Child>,
    launcher_gone: bool,
    /// There will be no further attempt.
    last: bool,
}

impl<'a> Guardian<'a> {
    pub(crate) fn new(birth: &'a Birth<'a>, launcher: Uplink, deaths: SignalFd) -> Self {
        Self {
            birth,
            launcher,
            deaths,
            policy: policy(birth.plan),
            spawner: None,
            children: BTreeMap::new(),
            launcher_gone: false,
            last: birth.plan.max_restarts == 0,
        }
    }

    /// Instead of all starts: there is no place for workers to live in.
    pub(crate) fn refuse(&mut self, errno: Errno) {
        let first = LocalRank(0);
        self.input(Input::NotStarted(first, errno as i32, Step::Isolation));
    }

    /// Begins without being told, where the launcher knew from the start.
    pub(crate) fn begin(&mut self) {
        if let Some(command) = self.birth.begin {
            self.obey(command);
        }
    }

    /// Watches until nothing is left to watch and the launcher has heard of all of it; true if there was no
    /// launcher to hear it any more.
    pub(crate) fn run(mut self) -> bool {
        while !self.over() {
            self.report();
            self.wait();
            self.hear_launcher();
            self.see_deaths();
            // Before a start, which waits for the file system.
            self.report();
            self.start_next();
            self.input(Input::Tick);
            self.see_what_remains();
        }
        self.launcher.flush();
        while !self.launcher_gone && !self.launcher.is_empty() {
            self.wait();
            self.launcher.flush();
            self.hear_launcher();
            // Daemons that may stay still die; unread, that would keep poll from sleeping.
            while let Ok(Some(_)) = self.deaths.read_signal() {}
        }
        self.launcher_gone
    }

    /// Nothing is left to watch, and nothing will be.
    fn over(&self) -> bool {
        self.policy.done() && (self.last || self.launcher_gone)
    }

    fn now(&self) -> Moment {
        self.birth.origin.elapsed()
    }

    /// Sleeps until the launcher speaks, a child dies or the policy's deadline has come.
    fn wait(&mut self) {
        let timeout = match self.next_start() {
            Some(_) => Some(Duration::ZERO),
            None => self
                .policy
                .deadline()
                .map(|at| at.saturating_sub(self.now())),
        };
        let timeout = timeout.map(|it| TimeSpec::from_duration(it.min(LONGEST_SLEEP)));
        let mut sources = [
            PollFd::new(self.deaths.as_fd(), PollFlags::POLLIN),
            self.launcher.source(),
        ];
        // A launcher that has gone would make poll return at once for ever.
        let sources = if self.launcher_gone {
            &mut sources[..1]
        } else {
            &mut sources[..]
        };
        let _ = ppoll(sources, timeout, None);
    }

    fn hear_launcher(&mut self) {
        while !self.launcher_gone {
            match self.launcher.hear() {
                Heard::Command(command) => {
                    self.tell(Event::Heard);
                    if let Some(command) = command {
                        self.obey(command);
                    }
                }
                Heard::Nothing => return,
                Heard::End => {
                    self.launcher_gone = true;
                    self.input(Input::LauncherGone);
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Begin {
                first_rank,
                world_size,
                first_role_rank,
                role_world_size,
                port,
                attempt,
            } => {
                let world = World {
                    attempt,
                    first_rank,
                    world_size,
                    first_role_rank,
                    role_world_size,
                    port,
                    error_dir: self.birth.error_dir.map(Path::to_owned),
                };
                self.spawner = Some(Spawner::new(self.birth.plan, world));
                if self.policy.done() {
                    self.policy = policy(self.birth.plan);
                    // Those that SIGKILL has not ended yet are no workers of this attempt.
                    self.children.values_mut().for_each(|it| it.told = true);
                }
                self.input(Input::Begin);
            }
            Command::Signal(signal) => self.input(Input::Signal(signal)),
            Command::Abort => self.input(Input::Elsewhere),
            Command::Leave => self.last = true,
        }
    }

    /// None while the launcher has not taken the descriptors of those before: there may be few.
    fn next_start(&self) -> Option<LocalRank> {
        let next = self.policy.next_start();
        next.filter(|_| self.launcher.has_room())
    }

    /// Tells the launcher what there is to tell, unless more of that comes at once.
    fn report(&mut self) {
        let gathers = self.next_start().is_some() && self.launcher.can_wait(self.now());
        if !gathers {
            self.launcher.flush();
        }
    }

    /// The ends of a worker's channels. One that gets none writes to our streams; the launcher sees that and says so.
    fn channels(&mut self) -> Ends {
        let ends = self.birth.wiring.open();
        let ends = ends.or_else(|_| {
            // Those before have descriptors that the launcher shall have.
            self.launcher.flush();
            self.birth.wiring.open()
        });
        ends.unwrap_or_default()
    }

    fn start_next(&mut self) {
        let Some(rank) = self.next_start() else {
            return;
        };
        let ends = self.channels();
        let Some(spawner) = &mut self.spawner else {
            return;
        };
        match spawner.start(rank, &ends) {
            Ok(pid) => {
                self.children.insert(pid, Child { rank, told: false });
                self.tell_with(Event::Started { worker: rank, pid }, ends);
                self.input(Input::Started(rank));
            }
            Err(refused) => self.input(Input::NotStarted(rank, refused.errno, refused.step)),
        }
    }

    /// Takes in every death that has happened, in the order in which they happened as far as it is known:
    /// SIGCHLD merges, but what stays pending is the first of them (signal(7)).
    fn see_deaths(&mut self) {
        let mut first = None;
        while let Ok(Some(info)) = self.deaths.read_signal() {
            first = first.or(Some(Which::One(info.ssi_pid as Pid)));
        }
        if first.is_none() && !self.policy.all_ended() {
            return;
        }
        if let Some(Found::Dead(pid, status)) = first.map(peek) {
            self.see_death(pid, status);
        }
        while let Found::Dead(pid, status) = peek(Which::Any) {
            self.see_death(pid, status);
        }
    }

    /// The last step of every turn: whatever ended the last worker, or kept the first from starting.
    fn see_what_remains(&mut self) {
        if self.policy.all_ended() {
            self.input(Input::Remaining(peek(Which::Any) != Found::Nobody));
        }
        self.see_stops();
    }

    /// SIGCHLD comes for these as well (sigaction(2), SA_NOCLDSTOP), so that nobody has to look now and then.
    fn see_stops(&mut self) {
        while let Some((pid, stopped)) = stopped_or_resumed() {
            let input = if stopped {
                Input::Stopped
            } else {
                Input::Resumed
            };
            if let Some(rank) = self.children.get(&pid).map(|it| it.rank) {
                self.input(input(rank));
            }
        }
    }

    /// Decides on one death and acts before it is reaped: until then its number names its group and no other.
    fn see_death(&mut self, pid: Pid, status: Status) {
        let mut actions = Vec::new();
        let undisturbed = self.policy.undisturbed();
        self.tell_policy(pid, status, &mut actions);
        if undisturbed && !self.policy.undisturbed() {
            // The first failure. Who is dead by now died unasked, before the others hear of it.
            let others: Vec<Pid> = self.children.keys().copied().collect();
            for other in others {
                if let Found::Dead(pid, status) = peek(Which::One(other)) {
                    self.tell_policy(pid, status, &mut actions);
                }
            }
        }
        self.act(actions);
        reap(Which::One(pid));
        self.children.remove(&pid);
    }

    fn tell_policy(&mut self, pid: Pid, status: Status, actions: &mut Vec<Action>) {
        let now = self.now();
        if let Some(child) = self.children.get_mut(&pid).filter(|it| !it.told) {
            child.told = true;
            self.policy
                .on(Input::Exited(child.rank, status), now, actions);
        }
    }

    fn input(&mut self, input: Input) {
        let mut actions = Vec::new();
        self.policy.on(input, self.now(), &mut actions);
        self.act(actions);
    }

    /// Signals go at once; whoever listens to us hears of it at the end of the turn.
    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(signal, target) => self.send(signal, target),
                Action::Tell(event) => self.tell(event),
                Action::TellLeft => {
                    let left = below(NOBODY).into_iter();
                    for process in left.filter(|it| !it.is_dead()) {
                        self.tell(Event::Left { pid: process.pid });
                    }
                    self.tell(Event::Lingering);
                }
                Action::TellStuck => {
                    let stuck = below(NOBODY).into_iter().filter(Process::is_stuck);
                    for Process { pid, state, .. } in stuck {
                        self.tell(Event::Stuck { pid, state });
                    }
                }
            }
        }
    }

    fn send(&self, signal: Signal, target: Target) {
        let children = self.children.keys();
        match target {
            Target::Workers => children.for_each(|pid| descendants::kill(*pid, signal)),
            Target::Groups => children.for_each(|pid| descendants::kill(-pid, signal)),
            Target::Everything if signal == Signal::KILL => drop(kill_all_below(NOBODY)),
            Target::Everything => {
                let below = below(NOBODY).into_iter();
                below.for_each(|it| descendants::send(&it, signal));
            }
        }
    }

    fn tell(&mut self, event: Event) {
        self.tell_with(event, Ends::default());
    }

    /// The worker's ends are closed here: while we had them, the launcher would never see the others end.
    fn tell_with(&mut self, event: Event, ends: Ends) {
        let at = self.now();
        self.launcher.put(Stamped { at, event }, ends.ours);
    }
}

/// That of one attempt.
fn policy(plan: &Plan) -> Policy {
    Policy::new(plan.workers(), plan.settings.clone())
}
