//! Decides what happens to the workers; a synchronous function over a closed set of inputs.
//!
//! ```text
//!                      all ended with 0, nothing left
//!   Running ------------------------------------------------> Done
//!     |  \--- all ended with 0, something left --> Lingering --> (time up) --+
//!     | failure, signal, time limit, launcher gone                          |
//!     v                                                                     v
//!   Stopping: TERM (or the signal) to the groups, grace ---> leftovers get TERM too
//!     | grace over, second request                                          |
//!     v                                                                     v
//!   Killing: KILL to every descendant, again and again, until none is left -> Done
//! ```
//!
//! It never acts and never asks the time: the guardian feeds it inputs with the instant at which they were
//! seen and carries out the actions. So every order of events can be tested without a process.

use std::time::Duration;

use super::event::{Event, Step, Why};
use super::notice::Notices;
use crate::plan::Settings;
use crate::status::{Signal, Status};
use crate::topology::LocalRank;

/// A moment on the monotonic clock, counted from the start of the run.
pub(crate) type Moment = Duration;

/// A further request to end within this time of the first is the same request. Slurm sends two SIGTERM
/// within 10 ms (srun 22.05), a closing terminal sends SIGHUP through the kernel and through the shell.
const SAME_REQUEST: Duration = Duration::from_secs(1);
/// The same for SIGINT, which a person repeats on purpose.
const SAME_INTERRUPT: Duration = Duration::from_millis(200);
/// Helpers that end by themselves a moment after their worker are not worth a word.
const LEFTOVER_NOTICE: Duration = Duration::from_millis(300);
/// How long leftovers of workers that succeeded get between SIGTERM and SIGKILL.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// A killed process that is still there after this long is reported and left to the kernel.
const GIVE_UP: Duration = Duration::from_secs(5);
/// First pause between two sweeps with SIGKILL; it doubles up to [`SWEEP_PAUSE_MAX`].
const SWEEP_PAUSE: Duration = Duration::from_millis(2);
const SWEEP_PAUSE_MAX: Duration = Duration::from_millis(200);

/// What the guardian saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// Workers may be started: every node is there.
    Begin,
    Started(LocalRank),
    NotStarted(LocalRank, i32, Step),
    Exited(LocalRank, Status),
    /// Somebody has stopped a worker, or let it go on.
    Stopped(LocalRank),
    Resumed(LocalRank),
    /// No worker runs any more; is there still a process below the guardian?
    Remaining(bool),
    /// The launcher was sent this signal.
    Signal(Signal),
    LauncherGone,
    /// Another node failed, or was lost.
    Elsewhere,
    /// The instant named by [`Policy::deadline`] has come.
    Tick,
}

/// Whom a signal is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The worker processes themselves.
    Workers,
    /// The process groups of the workers, those of workers that have just died included.
    Groups,
    /// Every process below the guardian, whatever group or session it is in.
    Everything,
}

/// What the guardian shall do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Send(Signal, Target),
    /// Tell the launcher. `Left` and `Stuck` are found by the guardian itself, see the next two.
    Tell(Event),
    /// Look for processes that workers left behind and tell the launcher each.
    TellLeft,
    /// The same for those that SIGKILL did not end.
    TellStuck,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Worker {
    Waiting,
    Running,
    Ended(Status),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    Stopping {
        kill_at: Moment,
        requested: Option<Moment>,
        leftovers_told: bool,
    },
    Lingering {
        until: Moment,
        tell_at: Option<Moment>,
    },
    Killing {
        give_up_at: Moment,
        sweep_at: Moment,
        pause: Duration,
    },
    Done,
}

/// The state of one node's run.
#[derive(Debug)]
pub(crate) struct Policy {
    settings: Settings,
    workers: Vec<Worker>,
    begun: bool,
    /// Between TSTP and CONT: nobody is started meanwhile.
    paused: bool,
    notices: Notices,
    phase: Phase,
}

impl Policy {
    pub(crate) fn new(workers: u32, settings: Settings) -> Self {
        let workers = vec![Worker::Waiting; workers as usize];
        Self {
            settings,
            workers,
            begun: false,
            paused: false,
            notices: Notices::default(),
            phase: Phase::Running,
        }
    }

    pub(crate) fn done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// True while nobody has been told to end.
    pub(crate) fn undisturbed(&self) -> bool {
        self.phase == Phase::Running
    }

    /// The worker to start next, if one is to be started now.
    pub(crate) fn next_start(&self) -> Option<LocalRank> {
        if !self.begun || self.paused || self.phase != Phase::Running {
            return None;
        }
        let next = self.workers.iter().position(|it| *it == Worker::Waiting)?;
        Some(LocalRank(next as u32))
    }

    /// When to come back with [`Input::Tick`] if nothing else happens.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Running => {
                let notices = self.notices.deadline().filter(|_| !self.paused);
                self.settings.limit.into_iter().chain(notices).min()
            }
            Phase::Done => None,
            Phase::Stopping { kill_at, .. } => Some(kill_at),
            Phase::Lingering { until, tell_at } => Some(tell_at.unwrap_or(until).min(until)),
            Phase::Killing {
                give_up_at,
                sweep_at,
                ..
            } => Some(sweep_at.min(give_up_at)),
        }
    }

    /// Takes one input and adds what is to be done to `actions`.
    pub(crate) fn on(&mut self, input: Input, now: Moment, actions: &mut Vec<Action>) {
        if self.done() {
            return;
        }
        match input {
            Input::Begin => self.begun = true,
            Input::Started(rank) => self.workers[rank.0 as usize] = Worker::Running,
            Input::NotStarted(rank, errno, step) => {
                actions.push(Action::Tell(Event::NotStarted {
                    worker: rank,
                    errno,
                    step,
                }));
                self.workers[rank.0 as usize] = Worker::Ended(Status::Code(127));
                self.stop(Why::NotStarted(rank), Signal::TERM, now, actions);
            }
            Input::Exited(rank, status) => self.exited(rank, status, now, actions),
            // When we did it, it is no news.
            Input::Stopped(rank) if !self.paused => self.notices.stands_still(rank, now),
            Input::Stopped(_) => {}
            Input::Resumed(rank) => self.notices.goes_on(rank),
            Input::Remaining(false) => self.finish(actions),
            Input::Remaining(true) => self.leftovers(now, actions),
            Input::Signal(signal) => self.signal(signal, now, actions),
            Input::LauncherGone => {
                actions.push(Action::Tell(Event::Stopping {
                    why: Why::LauncherGone,
                }));
                self.kill(now, actions);
            }
            Input::Elsewhere => self.stop(Why::Elsewhere, Signal::TERM, now, actions),
            Input::Tick => self.tick(now, actions),
        }
    }

    fn exited(&mut self, rank: LocalRank, status: Status, now: Moment, actions: &mut Vec<Action>) {
        self.workers[rank.0 as usize] = Worker::Ended(status);
        let asked = self.phase != Phase::Running;
        actions.push(Action::Tell(Event::Exited {
            worker: rank,
            status,
            asked,
        }));
        if status.success() {
            self.notices.ended(rank, now);
        } else if !asked {
            self.stop(Why::Failed(rank), Signal::TERM, now, actions);
        }
    }

    /// True once no worker runs and none will be started: then the guardian must say what remains.
    pub(crate) fn all_ended(&self) -> bool {
        match self.phase {
            Phase::Running => self.workers.iter().all(|it| matches!(it, Worker::Ended(_))),
            // Once the run is being stopped, those that wait will never be started.
            _ => !self.workers.contains(&Worker::Running),
        }
    }

    /// No worker runs any more, but something they started does.
    fn leftovers(&mut self, now: Moment, actions: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Running if self.settings.keep_daemons => self.finish(actions),
            Phase::Running => {
                let until = now.saturating_add(self.settings.linger);
                let tell_at = now + LEFTOVER_NOTICE;
                self.phase = Phase::Lingering {
                    until,
                    tell_at: Some(tell_at),
                };
            }
            // The grace period is politeness to the workers; what they left behind gets less.
            Phase::Stopping {
                kill_at,
                leftovers_told,
                ..
            } if !*leftovers_told => {
                *leftovers_told = true;
                *kill_at = (*kill_at).min(now.saturating_add(self.settings.linger));
                actions.push(Action::Send(Signal::TERM, Target::Everything));
            }
            _ => {}
        }
    }

    fn finish(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Done;
        actions.push(Action::Tell(Event::Done));
    }

    fn signal(&mut self, signal: Signal, now: Moment, actions: &mut Vec<Action>) {
        if self.settings.handled.contains(&signal) {
            return self.request(signal, now, actions);
        }
        match signal {
            Signal::TSTP if self.phase != Phase::Running => {}
            Signal::TSTP => {
                self.paused = true;
                actions.push(Action::Send(Signal::STOP, Target::Groups));
                actions.push(Action::Tell(Event::Paused));
            }
            Signal::CONT => {
                self.paused = false;
                actions.push(Action::Send(Signal::CONT, Target::Groups));
            }
            _ => actions.push(Action::Send(signal, Target::Workers)),
        }
    }

    /// Somebody wants the run to end.
    fn request(&mut self, signal: Signal, now: Moment, actions: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Running => self.stop(Why::Signal(signal), signal, now, actions),
            Phase::Stopping {
                requested: Some(first),
                ..
            } => {
                let same = if signal == Signal::INT {
                    SAME_INTERRUPT
                } else {
                    SAME_REQUEST
                };
                if now >= *first + same {
                    self.kill(now, actions);
                }
            }
            Phase::Stopping { requested, .. } => {
                *requested = Some(now);
                actions.push(Action::Send(signal, Target::Groups));
            }
            Phase::Lingering { .. } => self.end_leftovers(now, actions),
            Phase::Killing { .. } | Phase::Done => {}
        }
    }

    fn stop(&mut self, why: Why, signal: Signal, now: Moment, actions: &mut Vec<Action>) {
        if self.phase != Phase::Running {
            return;
        }
        let requested = matches!(why, Why::Signal(_)).then_some(now);
        let kill_at = now.saturating_add(self.settings.grace);
        self.phase = Phase::Stopping {
            kill_at,
            requested,
            leftovers_told: false,
        };
        actions.push(Action::Send(signal, Target::Groups));
        // A stopped process gets a signal only once it goes on.
        actions.push(Action::Send(Signal::CONT, Target::Groups));
        actions.push(Action::Tell(Event::Stopping { why }));
    }

    fn end_leftovers(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let kill_at = now + LEFTOVER_GRACE;
        self.phase = Phase::Stopping {
            kill_at,
            requested: Some(now),
            leftovers_told: true,
        };
        actions.push(Action::Send(Signal::TERM, Target::Everything));
    }

    fn kill(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Killing { .. }) {
            return;
        }
        actions.push(Action::Tell(Event::Killing));
        actions.push(Action::Send(Signal::KILL, Target::Everything));
        let (give_up_at, sweep_at) = (now + GIVE_UP, now + SWEEP_PAUSE);
        self.phase = Phase::Killing {
            give_up_at,
            sweep_at,
            pause: SWEEP_PAUSE,
        };
    }

    fn tick(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.deadline().is_none_or(|at| now < at) {
            return;
        }
        match self.phase {
            Phase::Running if self.settings.limit.is_some_and(|at| now >= at) => {
                self.stop(Why::TimeLimit, Signal::TERM, now, actions);
            }
            Phase::Running => {
                let due = self.notices.due(now).into_iter();
                actions.extend(due.map(Action::Tell));
            }
            Phase::Stopping { .. } => self.kill(now, actions),
            Phase::Lingering {
                until,
                tell_at: Some(_),
            } => {
                actions.push(Action::TellLeft);
                self.phase = Phase::Lingering {
                    until,
                    tell_at: None,
                };
            }
            Phase::Lingering { .. } => self.end_leftovers(now, actions),
            Phase::Killing { give_up_at, .. } if now >= give_up_at => {
                actions.push(Action::TellStuck);
                self.finish(actions);
            }
            Phase::Killing {
                give_up_at, pause, ..
            } => {
                actions.push(Action::Send(Signal::KILL, Target::Everything));
                let pause = (pause * 2).min(SWEEP_PAUSE_MAX);
                self.phase = Phase::Killing {
                    give_up_at,
                    sweep_at: now + pause,
                    pause,
                };
            }
            Phase::Done => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(70);
    const GRACE: Duration = Duration::from_secs(30);

    /// Two workers that run since the start of time.
    fn running(limit: Option<Duration>) -> Policy {
        let settings = Settings {
            grace: GRACE,
            linger: Duration::from_secs(5),
            limit,
            keep_daemons: false,
            handled: vec![Signal::TERM],
        };
        let mut policy = Policy::new(2, settings);
        let started = [0, 1].map(|it| Input::Started(LocalRank(it)));
        for input in [Input::Begin].into_iter().chain(started) {
            assert_eq!(feed(&mut policy, 0, input), []);
        }
        policy
    }

    fn feed(policy: &mut Policy, seconds: u64, input: Input) -> Vec<Action> {
        at(policy, Duration::from_secs(seconds), input)
    }

    fn at(policy: &mut Policy, now: Moment, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        policy.on(input, now, &mut actions);
        actions
    }

    /// How the time limit ends the run.
    fn polite() -> [Action; 3] {
        let why = Why::TimeLimit;
        [
            Action::Send(Signal::TERM, Target::Groups),
            Action::Send(Signal::CONT, Target::Groups),
            Action::Tell(Event::Stopping { why }),
        ]
    }

    #[test]
    fn at_the_limit_comes_the_polite_stop_and_after_the_grace_period_the_hard_one() {
        let mut policy = running(Some(LIMIT));
        assert_eq!(policy.deadline(), Some(LIMIT));
        let before = LIMIT - Duration::from_nanos(1);
        assert_eq!(at(&mut policy, before, Input::Tick), []);
        assert_eq!(at(&mut policy, LIMIT, Input::Tick), polite());
        assert_eq!(policy.deadline(), Some(LIMIT + GRACE));
        let hard = [
            Action::Tell(Event::Killing),
            Action::Send(Signal::KILL, Target::Everything),
        ];
        assert_eq!(at(&mut policy, LIMIT + GRACE, Input::Tick), hard);
    }

    #[test]
    fn the_limit_is_no_failure_of_workers_and_does_not_outlive_them() {
        let mut policy = running(Some(LIMIT));
        for worker in [0, 1].map(LocalRank) {
            feed(&mut policy, 30, Input::Exited(worker, Status::Code(0)));
        }
        feed(&mut policy, 30, Input::Remaining(false));
        assert!(policy.done() && at(&mut policy, LIMIT, Input::Tick).is_empty());
    }

    #[test]
    fn a_stop_for_another_reason_is_not_delayed_by_the_limit() {
        let mut policy = running(Some(LIMIT));
        feed(&mut policy, 0, Input::Signal(Signal::TERM));
        assert_eq!(policy.deadline(), Some(GRACE));
    }

    #[test]
    fn notices_come_before_the_limit_and_do_not_replace_it() {
        let mut policy = running(Some(LIMIT));
        feed(&mut policy, 1, Input::Exited(LocalRank(1), Status::Code(0)));
        assert_eq!(policy.deadline(), Some(Duration::from_secs(61)));
        let told = feed(&mut policy, 61, Input::Tick);
        assert_eq!(told, [Action::Tell(Event::Uneven)]);
        assert_eq!(policy.deadline(), Some(LIMIT));
        feed(&mut policy, 62, Input::Stopped(LocalRank(0)));
        assert_eq!(policy.deadline(), Some(LIMIT));
        assert_eq!(at(&mut policy, LIMIT, Input::Tick), polite());
    }

    #[test]
    fn a_worker_that_ended_well_long_before_another_is_told_and_nobody_is_ended() {
        let mut policy = running(None);
        feed(&mut policy, 1, Input::Exited(LocalRank(1), Status::Code(0)));
        assert_eq!(policy.deadline(), Some(Duration::from_secs(61)));
        let told = feed(&mut policy, 61, Input::Tick);
        assert_eq!(told, [Action::Tell(Event::Uneven)]);
        assert_eq!(policy.deadline(), None);
    }

    #[test]
    fn a_worker_that_stands_still_is_told_unless_all_do() {
        let worker = LocalRank(1);
        let mut policy = running(None);
        feed(&mut policy, 1, Input::Stopped(worker));
        let told = feed(&mut policy, 11, Input::Tick);
        assert_eq!(told, [Action::Tell(Event::StandsStill { worker })]);
        feed(&mut policy, 12, Input::Resumed(worker));
        feed(&mut policy, 20, Input::Signal(Signal::TSTP));
        feed(&mut policy, 20, Input::Stopped(worker));
        assert_eq!(policy.deadline(), None);
        feed(&mut policy, 99, Input::Signal(Signal::CONT));
        assert_eq!(feed(&mut policy, 99, Input::Tick), []);
    }
}
