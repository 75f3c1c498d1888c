//! Any order of events whatever: the policy meets a small world at random and must keep its promises.
//!
//! `PROPTEST_CASES=1000000 cargo test --release orders` tries as many as one has time for.

use std::time::Duration;

use proptest::prelude::*;

use super::event::{Event, Step, Why};
use super::policy::{Action, Input, Moment, Policy, Target};
use super::stories::usual;
use crate::plan::Settings;
use crate::status::{Signal, Status};
use crate::topology::LocalRank;

/// Orders that are tried each time, of up to 60 events.
const CASES: u32 = 3_000;
/// More moves of the guardian than any run needs once nothing happens to it any more.
const ENOUGH: usize = 2_000;
/// From the hard stop until a run is given up, see the policy.
const GIVE_UP: Duration = Duration::from_secs(5);

/// What may happen next.
#[derive(Clone, Debug)]
enum Chance {
    Nothing {
        milliseconds: u64,
    },
    Begin,
    /// The worker exits, if it runs.
    Exit(u32, Status),
    /// The next start is refused.
    Refuse,
    /// A worker leaves something behind; it goes.
    Leave,
    Vanish,
    Signal(Signal),
    LauncherGone,
    Elsewhere,
}

fn chance(workers: u32) -> impl Strategy<Value = Chance> {
    let status = prop_oneof![
        3 => Just(Status::Code(0)),
        1 => (1u8..=255).prop_map(Status::Code),
        1 => Just(Status::Signal { signal: Signal::KILL, core: false }),
    ];
    // The four that end a run, and some that do not.
    let signal = prop::sample::select(vec![1, 2, 3, 15, 10, 18, 20, 28, 40]).prop_map(Signal);
    prop_oneof![
        6 => prop_oneof![0u64..20, 0u64..1500, 0u64..40_000]
            .prop_map(|milliseconds| Chance::Nothing { milliseconds }),
        2 => Just(Chance::Begin),
        6 => (0..workers, status).prop_map(|(rank, status)| Chance::Exit(rank, status)),
        1 => Just(Chance::Refuse),
        2 => Just(Chance::Leave),
        2 => Just(Chance::Vanish),
        3 => signal.prop_map(Chance::Signal),
        1 => Just(Chance::LauncherGone),
        1 => Just(Chance::Elsewhere),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Worker {
    Waiting,
    Running,
    Gone,
}

/// The processes of a run, and what the policy has wanted and said so far.
#[derive(Debug)]
struct World {
    policy: Policy,
    now: Moment,
    begun: bool,
    refuse_next: bool,
    workers: Vec<Worker>,
    leftovers: u32,
    /// Nothing dies of SIGKILL: every process hangs in a driver.
    immortal: bool,
    /// SIGKILL has been sent to all there was.
    doomed: bool,
    kill_since: Option<Moment>,
    /// The first thing that ends a run, as an observer would say.
    expected: Option<Why>,
    told: Vec<Event>,
    stuck_told: bool,
}

impl World {
    fn new(workers: u32, settings: Settings, immortal: bool) -> Self {
        Self {
            policy: Policy::new(workers, settings),
            now: Duration::ZERO,
            begun: false,
            refuse_next: false,
            workers: vec![Worker::Waiting; workers as usize],
            leftovers: 0,
            immortal,
            doomed: false,
            kill_since: None,
            expected: None,
            told: Vec::new(),
            stuck_told: false,
        }
    }

    fn input(&mut self, input: Input) {
        let was_done = self.policy.done();
        let mut actions = Vec::new();
        self.policy.on(input, self.now, &mut actions);
        assert!(
            !was_done || actions.is_empty(),
            "it acts after the end: {actions:?}"
        );
        for action in actions {
            match action {
                Action::Send(Signal::KILL, target) => {
                    assert_eq!(target, Target::Everything);
                    self.doomed = true;
                    self.kill_since.get_or_insert(self.now);
                }
                Action::Send(..) | Action::TellLeft => {}
                Action::TellStuck => self.stuck_told = true,
                Action::Tell(event) => self.told.push(event),
            }
        }
    }

    /// What would end the run if nothing has yet.
    fn cause(&mut self, why: Why) {
        let all_gone = self.workers.iter().all(|it| *it == Worker::Gone);
        // Once all workers have succeeded nothing can make a failure of it; only a lost launcher is told of.
        let open = !self.policy.done() && (!all_gone || why == Why::LauncherGone);
        if self.expected.is_none() && open {
            self.expected = Some(why);
        }
    }

    fn happen(&mut self, chance: Chance) {
        match chance {
            Chance::Nothing { milliseconds } => self.now += Duration::from_millis(milliseconds),
            Chance::Begin if !self.begun => {
                self.begun = true;
                self.input(Input::Begin);
            }
            Chance::Exit(rank, status) => self.exit(rank, status),
            Chance::Refuse => self.refuse_next = true,
            Chance::Leave if self.workers.contains(&Worker::Running) => self.leftovers += 1,
            Chance::Vanish => self.leftovers = self.leftovers.saturating_sub(1),
            Chance::Signal(signal) => {
                if usual().handled.contains(&signal) {
                    self.cause(Why::Signal(signal));
                }
                self.input(Input::Signal(signal));
            }
            Chance::LauncherGone => {
                self.cause(Why::LauncherGone);
                self.input(Input::LauncherGone);
            }
            Chance::Elsewhere => {
                self.cause(Why::Elsewhere);
                self.input(Input::Elsewhere);
            }
            Chance::Begin | Chance::Leave => {}
        }
    }

    fn exit(&mut self, rank: u32, status: Status) {
        let worker = &mut self.workers[rank as usize];
        if *worker != Worker::Running {
            return;
        }
        *worker = Worker::Gone;
        let rank = LocalRank(rank);
        if !status.success() && self.expected.is_none() {
            self.expected = Some(Why::Failed(rank));
        }
        let asked = self
            .told
            .iter()
            .any(|it| matches!(it, Event::Stopping { .. }));
        self.input(Input::Exited(rank, status));
        let told = Event::Exited {
            worker: rank,
            status,
            asked,
        };
        assert!(self.policy.done() || self.told.contains(&told));
    }

    /// One turn of the guardian, as its loop has it.
    fn turn(&mut self) {
        if let Some(rank) = self.policy.next_start() {
            assert_eq!(
                self.expected, None,
                "it starts workers for a run that is to end"
            );
            assert!(self.begun);
            if std::mem::take(&mut self.refuse_next) {
                self.workers[rank.0 as usize] = Worker::Gone;
                self.cause_of_refusal(rank);
                self.input(Input::NotStarted(rank, 11, Step::Process));
            } else {
                self.workers[rank.0 as usize] = Worker::Running;
                self.input(Input::Started(rank));
            }
        }
        // A step that takes no time may follow another one, but not for ever.
        for _ in 0..4 {
            self.input(Input::Tick);
        }
        let deadline = self.policy.deadline();
        assert!(
            deadline.is_none_or(|it| it > self.now),
            "it would tick for ever"
        );
        if self.policy.all_ended() {
            assert!(!self.workers.contains(&Worker::Running));
            self.input(Input::Remaining(self.leftovers > 0));
        }
    }

    fn cause_of_refusal(&mut self, rank: LocalRank) {
        self.expected.get_or_insert(Why::NotStarted(rank));
    }

    /// SIGKILL takes effect.
    fn fall(&mut self) {
        if !self.doomed || self.immortal {
            return;
        }
        self.leftovers = 0;
        for rank in 0..self.workers.len() as u32 {
            let killed = Status::Signal {
                signal: Signal::KILL,
                core: false,
            };
            self.exit(rank, killed);
        }
    }

    /// Nothing happens any more but what the policy itself brings about, and time.
    fn run_out(&mut self) {
        for _ in 0..ENOUGH {
            self.turn();
            self.fall();
            if self.policy.done() {
                return;
            }
            match self.policy.deadline() {
                Some(deadline) => self.now = self.now.max(deadline),
                None if !self.begun => self.happen(Chance::Begin),
                // It waits for its workers, as it should; they succeed.
                None => {
                    (0..self.workers.len() as u32).for_each(|it| self.exit(it, Status::Code(0)))
                }
            }
            if self.policy.next_start().is_none() && self.expected.is_none() {
                self.happen(Chance::Signal(Signal::CONT));
            }
        }
        panic!("no end: {self:?}");
    }

    fn check(&self) {
        let told =
            |wanted: &dyn Fn(&Event) -> bool| self.told.iter().filter(|it| wanted(it)).count();
        assert_eq!(told(&|it| *it == Event::Done), 1);
        assert_eq!(
            self.told.last(),
            Some(&Event::Done),
            "it speaks after the end"
        );
        for rank in (0..self.workers.len() as u32).map(LocalRank) {
            let ends = told(&|it| matches!(it, Event::Exited { worker, .. } if *worker == rank));
            assert!(ends <= 1, "{rank} exited more than once");
        }
        let mut reasons = self.told.iter().filter_map(|it| match it {
            Event::Stopping { why } => Some(*why),
            _ => None,
        });
        let first = reasons.next();
        assert_eq!(
            first, self.expected,
            "the root cause is the first thing that ends a run"
        );
        assert!(reasons.all(|it| it == Why::LauncherGone));
        // Whoever still lives at the end is left to the kernel, named, and not before its time.
        let alive = self.workers.contains(&Worker::Running) || self.leftovers > 0;
        assert!(
            !alive || self.stuck_told || self.kept(),
            "it leaves somebody: {self:?}"
        );
        if let (true, Some(since)) = (self.stuck_told, self.kill_since) {
            assert!(self.now >= since + GIVE_UP);
        }
    }

    /// Only leftovers of a success may stay, where somebody wants them to.
    fn kept(&self) -> bool {
        let daemons_may_stay = self.expected.is_none();
        daemons_may_stay && !self.workers.contains(&Worker::Running)
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let span = || prop_oneof![Just(0), 0u64..2_000, Just(30_000)].prop_map(Duration::from_millis);
    (span(), span(), any::<bool>()).prop_map(|(grace, linger, keep_daemons)| Settings {
        grace,
        linger,
        keep_daemons,
        ..usual()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_in_whatever_order_all_promises_are_kept(
        settings in settings(),
        immortal in prop::bool::weighted(0.2),
        chances in prop::collection::vec(chance(4), 0..60),
    ) {
        let keeps = settings.keep_daemons;
        let mut world = World::new(4, settings, immortal);
        for chance in chances {
            world.happen(chance);
            world.turn();
            world.fall();
        }
        world.run_out();
        prop_assert!(keeps || world.leftovers == 0 || world.stuck_told);
        world.check();
    }
}
