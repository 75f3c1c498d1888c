//! Stories of runs, told to the policy one input at a time, with what it wants done each time.

use std::time::Duration;

use super::event::{Event, Step, Why};
use super::policy::{Action, Input, Moment, Policy, Target};
use crate::plan::Settings;
use crate::status::{Signal, Status};
use crate::topology::LocalRank;

const USR1: Signal = Signal(10);
const OK: Status = Status::Code(0);

/// As the options are by default.
pub(super) fn usual() -> Settings {
    Settings {
        grace: Duration::from_secs(30),
        linger: Duration::from_secs(5),
        limit: None,
        keep_daemons: false,
        handled: [1, 2, 3, 15].map(Signal).to_vec(),
    }
}

struct Story {
    policy: Policy,
    now: Moment,
    actions: Vec<Action>,
}

impl Story {
    /// Before every node is there.
    fn of(workers: u32, settings: Settings) -> Self {
        Self {
            policy: Policy::new(workers, settings),
            now: Duration::ZERO,
            actions: Vec::new(),
        }
    }

    /// With so many workers running.
    fn running(workers: u32) -> Self {
        Self::of(workers, usual()).begin()
    }

    fn begin(mut self) -> Self {
        self.tell(Input::Begin);
        while let Some(rank) = self.policy.next_start() {
            self.tell(Input::Started(rank));
        }
        self.expect(&[])
    }

    fn tell(&mut self, input: Input) {
        self.policy.on(input, self.now, &mut self.actions);
    }

    /// So many milliseconds after the start; deadlines until then are kept.
    fn at(mut self, milliseconds: u64) -> Self {
        let then = Duration::from_millis(milliseconds);
        assert!(then >= self.now);
        while let Some(deadline) = self.policy.deadline().filter(|it| *it <= then) {
            self.now = self.now.max(deadline);
            self.tell(Input::Tick);
        }
        self.now = then;
        self
    }

    fn then(mut self, input: Input) -> Self {
        self.tell(input);
        self
    }

    fn exits(self, rank: u32, status: Status) -> Self {
        self.then(Input::Exited(LocalRank(rank), status))
    }

    fn signal(self, signal: Signal) -> Self {
        self.then(Input::Signal(signal))
    }

    /// All that was wanted since the last time it was asked.
    #[track_caller]
    fn expect(mut self, expected: &[Action]) -> Self {
        assert_eq!(std::mem::take(&mut self.actions), expected);
        self
    }

    /// What is wanted meanwhile is told elsewhere.
    fn anyway(mut self) -> Self {
        self.actions.clear();
        self
    }

    #[track_caller]
    fn done(self) {
        assert!(self.policy.done());
        assert_eq!(
            (self.policy.deadline(), self.policy.next_start()),
            (None, None)
        );
    }
}

fn exited(rank: u32, status: Status, asked: bool) -> Action {
    let worker = LocalRank(rank);
    Action::Tell(Event::Exited {
        worker,
        status,
        asked,
    })
}

fn stopping(why: Why) -> Action {
    Action::Tell(Event::Stopping { why })
}

const fn groups(signal: Signal) -> Action {
    Action::Send(signal, Target::Groups)
}

const fn everything(signal: Signal) -> Action {
    Action::Send(signal, Target::Everything)
}

const fn died(signal: Signal) -> Status {
    let core = false;
    Status::Signal { signal, core }
}

const KILLING: [Action; 2] = [Action::Tell(Event::Killing), everything(Signal::KILL)];
const DONE: Action = Action::Tell(Event::Done);

#[test]
fn a_failure_ends_the_others_politely() {
    let story = Story::running(3).at(1000).exits(1, Status::Code(7));
    let story = story.expect(&[
        exited(1, Status::Code(7), false),
        groups(Signal::TERM),
        groups(Signal::CONT),
        stopping(Why::Failed(LocalRank(1))),
    ]);
    let story = story.exits(0, died(Signal::TERM)).exits(2, Status::Code(1));
    // Asked to end: neither is a cause of anything.
    let story = story.expect(&[
        exited(0, died(Signal::TERM), true),
        exited(2, Status::Code(1), true),
    ]);
    story.then(Input::Remaining(false)).expect(&[DONE]).done();
}

#[test]
fn exit_code_0_is_no_failure_however_early() {
    let story = Story::running(2)
        .exits(0, OK)
        .expect(&[exited(0, OK, false)]);
    // Worth a word, no more.
    let story = story.at(3_600_000).expect(&[Action::Tell(Event::Uneven)]);
    let story = story.exits(1, OK).expect(&[exited(1, OK, false)]);
    story.then(Input::Remaining(false)).expect(&[DONE]).done();
}

#[test]
fn the_deaf_are_killed_when_the_grace_period_is_over() {
    let story = Story::running(2)
        .at(1000)
        .exits(0, Status::Code(1))
        .anyway();
    let story = story.at(30_999).expect(&[]);
    let story = story.at(31_000).expect(&KILLING);
    let story = story.exits(1, died(Signal::KILL)).anyway();
    story.then(Input::Remaining(false)).expect(&[DONE]).done();
}

#[test]
fn a_signal_is_passed_on_as_it_is() {
    let story = Story::running(2).at(1000).signal(Signal::INT);
    let story = story.expect(&[
        groups(Signal::INT),
        groups(Signal::CONT),
        stopping(Why::Signal(Signal::INT)),
    ]);
    let story = story.exits(0, died(Signal::INT)).exits(1, OK).anyway();
    story.then(Input::Remaining(false)).expect(&[DONE]).done();
}

#[test]
fn a_second_interrupt_means_now_but_for_a_bouncing_key() {
    let story = Story::running(1).at(1000).signal(Signal::INT).anyway();
    let story = story.at(1199).signal(Signal::INT).expect(&[]);
    story.at(1200).signal(Signal::INT).expect(&KILLING);
}

#[test]
fn two_terms_within_a_second_are_one() {
    let story = Story::running(1).at(1000).signal(Signal::TERM).anyway();
    let story = story
        .at(1010)
        .signal(Signal::TERM)
        .at(1999)
        .signal(Signal::TERM)
        .expect(&[]);
    story.at(2000).signal(Signal::TERM).expect(&KILLING);
}

#[test]
fn the_first_request_after_a_failure_is_passed_on_and_the_second_means_now() {
    let story = Story::running(2).exits(0, Status::Code(1)).anyway();
    let story = story
        .at(5000)
        .signal(Signal::INT)
        .expect(&[groups(Signal::INT)]);
    story.at(5300).signal(Signal::INT).expect(&KILLING);
}

#[test]
fn a_signal_before_every_node_is_there_ends_the_run_without_a_start() {
    let story = Story::of(2, usual()).at(50).signal(Signal::TERM).anyway();
    assert!(story.policy.all_ended());
    story
        .then(Input::Remaining(false))
        .then(Input::Begin)
        .expect(&[DONE])
        .done();
}

#[test]
fn a_signal_between_two_starts_prevents_the_second() {
    let mut story = Story::of(2, usual());
    story.tell(Input::Begin);
    story.tell(Input::Started(LocalRank(0)));
    assert_eq!(story.policy.next_start(), Some(LocalRank(1)));
    story.tell(Input::Signal(Signal::TERM));
    assert_eq!(story.policy.next_start(), None);
    assert!(!story.policy.all_ended());
    story.tell(Input::Exited(LocalRank(0), died(Signal::TERM)));
    assert!(story.policy.all_ended());
}

#[test]
fn a_worker_that_cannot_be_started_ends_those_that_could() {
    let mut story = Story::of(3, usual());
    story.tell(Input::Begin);
    story.tell(Input::Started(LocalRank(0)));
    let (worker, errno, step) = (LocalRank(1), 11, Step::Process);
    let story = story.then(Input::NotStarted(worker, errno, step)).expect(&[
        Action::Tell(Event::NotStarted {
            worker,
            errno,
            step,
        }),
        groups(Signal::TERM),
        groups(Signal::CONT),
        stopping(Why::NotStarted(worker)),
    ]);
    assert_eq!(story.policy.next_start(), None);
}

#[test]
fn what_is_left_after_success_is_named_then_asked_and_then_killed() {
    let story = Story::running(1).at(1000).exits(0, OK).anyway();
    let left = Input::Remaining(true);
    let story = story.then(left).at(1299).then(left).expect(&[]);
    let story = story.at(1300).expect(&[Action::TellLeft]);
    let story = story.at(5999).then(left).expect(&[]);
    let story = story
        .at(6000)
        .then(left)
        .expect(&[everything(Signal::TERM)]);
    let story = story.at(6999).then(left).expect(&[]);
    let story = story.at(7000).expect(&KILLING);
    story.then(Input::Remaining(false)).expect(&[DONE]).done();
}

#[test]
fn what_ends_by_itself_soon_is_not_worth_a_word() {
    let story = Story::running(1)
        .exits(0, OK)
        .then(Input::Remaining(true))
        .anyway();
    story
        .at(200)
        .then(Input::Remaining(false))
        .expect(&[DONE])
        .done();
}

#[test]
fn a_request_cuts_the_lingering_short() {
    let story = Story::running(1)
        .exits(0, OK)
        .then(Input::Remaining(true))
        .anyway();
    let story = story.at(1000).anyway().signal(Signal::INT);
    let story = story.expect(&[everything(Signal::TERM)]);
    story.at(2000).expect(&KILLING);
}

#[test]
fn kept_daemons_are_kept_after_success_only() {
    let settings = Settings {
        keep_daemons: true,
        ..usual()
    };
    let story = Story::of(2, settings.clone())
        .begin()
        .exits(0, OK)
        .exits(1, OK)
        .anyway();
    story.then(Input::Remaining(true)).expect(&[DONE]).done();
    let story = Story::of(1, settings)
        .begin()
        .exits(0, Status::Code(1))
        .anyway();
    let story = story.then(Input::Remaining(true));
    story.expect(&[everything(Signal::TERM)]);
}

#[test]
fn what_failed_workers_leave_behind_gets_less_time_than_they() {
    let story = Story::running(1).exits(0, Status::Code(1)).anyway();
    let left = Input::Remaining(true);
    let story = story
        .then(left)
        .then(left)
        .expect(&[everything(Signal::TERM)]);
    let story = story.at(4999).expect(&[]);
    story.at(5000).expect(&KILLING);
}

#[test]
fn without_a_launcher_there_is_nobody_to_be_polite_for() {
    let gone = stopping(Why::LauncherGone);
    let story = Story::running(2).then(Input::LauncherGone);
    story.expect(&[gone, KILLING[0], KILLING[1]]);
}

#[test]
fn what_sigkill_does_not_end_is_swept_again_and_again_then_named_and_left() {
    let story = Story::running(1).then(Input::LauncherGone).anyway();
    // 2, 4, 8 ... milliseconds, and then 200 each time.
    let story = story.at(2).expect(&[KILLING[1]]);
    let story = story.at(14).expect(&[KILLING[1]; 2]);
    let story = story.at(4999).anyway();
    let before = story.policy.deadline();
    assert_eq!(before, Some(Duration::from_secs(5)));
    story.at(5000).expect(&[Action::TellStuck, DONE]).done();
}

#[test]
fn control_z_stops_all_and_starts_nobody_meanwhile() {
    let mut story = Story::of(2, usual());
    story.tell(Input::Begin);
    story.tell(Input::Started(LocalRank(0)));
    let story = story.signal(Signal::TSTP);
    let story = story.expect(&[groups(Signal::STOP), Action::Tell(Event::Paused)]);
    assert_eq!(story.policy.next_start(), None);
    let story = story.signal(Signal::CONT).expect(&[groups(Signal::CONT)]);
    assert_eq!(story.policy.next_start(), Some(LocalRank(1)));
}

#[test]
fn control_z_does_not_stop_an_end() {
    let story = Story::running(1).signal(Signal::TERM).anyway();
    story.signal(Signal::TSTP).expect(&[]);
}

#[test]
fn other_signals_are_for_the_workers_themselves() {
    let story = Story::running(1).signal(USR1);
    let story = story.expect(&[Action::Send(USR1, Target::Workers)]);
    story.at(60_000).expect(&[]);
}

#[test]
fn another_nodes_failure_ends_the_run() {
    let story = Story::running(1).then(Input::Elsewhere);
    story.expect(&[
        groups(Signal::TERM),
        groups(Signal::CONT),
        stopping(Why::Elsewhere),
    ]);
}

#[test]
fn a_grace_period_longer_than_time_itself_is_no_trouble() {
    let settings = Settings {
        grace: Duration::MAX,
        linger: Duration::MAX,
        ..usual()
    };
    let story = Story::of(1, settings)
        .begin()
        .at(1000)
        .signal(Signal::TERM)
        .anyway();
    assert_eq!(story.policy.deadline(), Some(Duration::MAX));
    story.at(u64::MAX / 2).expect(&[]);
}
