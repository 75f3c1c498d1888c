//! Random runs under random attacks at random moments. After each nothing may be left, the exit code must be
//! one that what happened can explain, and all must be over in time.
//!
//! Every round follows from its seed alone, but for the machine's own timing; a failure prints the seed:
//! `FABRIC_CHAOS_SEED=N FABRIC_CHAOS_ROUNDS=1 cargo test chaos`. With more rounds it goes on for as long.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Fabric, Running, before_exec, variable};

/// Rounds of each of the tests below.
const ROUNDS: u64 = 50;
/// The longest chain of waits in a round takes about 3 s; the rest is for a busy machine.
const IN_TIME: Duration = Duration::from_secs(30);

/// A generator of numbers as good as needed here (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// What is done to a run from outside.
#[derive(Clone, Copy, Debug)]
enum Target {
    Launcher,
    Guardian,
    /// Any process below the launcher.
    Anybody,
}

#[derive(Clone, Copy, Debug)]
struct Attack {
    after: Duration,
    target: Target,
    signals: &'static [Signal],
}

use Signal::{
    SIGCONT as CONT, SIGHUP as HUP, SIGINT as INT, SIGKILL as KILL, SIGQUIT as QUIT,
    SIGSTOP as STOP, SIGTERM as TERM, SIGTSTP as TSTP, SIGUSR1 as USR1, SIGWINCH as WINCH,
};

const ON_LAUNCHER: &[&[Signal]] = &[
    &[INT],
    &[TERM],
    &[HUP],
    &[QUIT],
    &[KILL],
    &[STOP, KILL],
    &[STOP, CONT],
    &[TERM, TERM],
    &[CONT, TERM],
    &[INT, INT],
    &[TSTP, CONT],
    &[TSTP, CONT, TERM],
    &[WINCH],
    &[USR1],
    &[TERM, KILL],
];
const ON_GUARDIAN: &[&[Signal]] = &[
    &[KILL],
    &[STOP],
    &[STOP, KILL],
    &[TERM],
    &[INT, HUP],
    &[STOP, CONT],
];
const ON_ANYBODY: &[&[Signal]] = &[&[KILL], &[STOP], &[TERM], &[STOP, KILL]];

/// One round, completely decided but for the timing.
#[derive(Debug)]
struct Round {
    options: Vec<String>,
    workers: u64,
    words: Vec<String>,
    attacks: Vec<Attack>,
    /// What the launcher may end with: its exit code, or minus its signal.
    codes: BTreeSet<i32>,
}

impl Round {
    fn of(seed: u64) -> Self {
        let dice = &mut Dice(seed);
        let workers = 1 + dice.below(4);
        let mut round = Self {
            options: options(dice),
            workers,
            words: Vec::new(),
            attacks: Vec::new(),
            codes: BTreeSet::new(),
        };
        let shall_succeed = dice.percent(30);
        let mut successes = 0;
        for rank in 0..workers {
            round.words.push(format!("@{rank}"));
            round.behave(dice, shall_succeed);
            let last = round.words.last();
            successes += u64::from(last.is_some_and(|it| it == "exit=0"));
        }
        if successes == workers {
            round.codes.insert(0);
        }
        for _ in 0..dice.below(3) {
            round.attack(dice);
        }
        if !round.options.contains(&"--isolate".to_owned()) {
            round.spare_one();
        }
        round
    }

    /// Launcher or guardian must be there to clean up after the other, as the README says: once one of them has
    /// been killed, the other is neither killed nor stopped.
    fn spare_one(&mut self) {
        let (mut no_launcher, mut no_guardian) = (false, false);
        self.attacks.retain(|it| {
            let kills = it.signals.contains(&KILL);
            let bars = kills || it.signals.contains(&STOP);
            let on_launcher = matches!(it.target, Target::Launcher);
            let spared = bars
                && if on_launcher {
                    no_guardian
                } else {
                    no_launcher
                };
            no_launcher |= kills && on_launcher;
            no_guardian |= kills && !on_launcher;
            !spared
        });
    }

    fn word(&mut self, word: impl Into<String>) {
        self.words.push(word.into());
    }

    fn behave(&mut self, dice: &mut Dice, succeed: bool) {
        if dice.percent(30) {
            self.word("deaf");
        }
        for kind in [
            "child", "orphan", "group", "daemon", "stopped", "headless", "mover",
        ] {
            if dice.percent(15) {
                self.word(kind);
            }
        }
        if dice.percent(10) {
            self.word("flood=500");
        }
        if dice.percent(50) {
            self.word(format!("wait={}", dice.below(60)));
        }
        match dice.below(5) {
            _ if succeed => self.word("exit=0"),
            0 => self.word("exit=0"),
            1 => {
                let code = 1 + dice.below(100);
                self.word(format!("exit={code}"));
                self.codes.insert(code as i32);
            }
            2 => {
                let signal = dice.one_of(&[Signal::SIGSEGV, Signal::SIGABRT, KILL, TERM]);
                self.word(format!("kill={}", signal as i32));
                self.codes.insert(128 + signal as i32);
            }
            3 => self.word(format!("kill={}", STOP as i32)),
            _ => {}
        }
    }

    fn attack(&mut self, dice: &mut Dice) {
        let (target, choices) = match dice.below(5) {
            0..3 => (Target::Launcher, ON_LAUNCHER),
            3 => (Target::Guardian, ON_GUARDIAN),
            _ => (Target::Anybody, ON_ANYBODY),
        };
        let signals = dice.one_of(choices);
        for signal in signals {
            self.codes.extend(consequences(target, *signal));
        }
        self.attacks.push(Attack {
            after: Duration::from_micros(dice.below(80_000)),
            target,
            signals,
        });
        self.attacks.sort_by_key(|it| it.after);
    }
}

fn options(dice: &mut Dice) -> Vec<String> {
    let grace = dice.one_of(&["0", "0.05", "0.3"]);
    let linger = dice.one_of(&["0", "0.2"]);
    let mut options = vec!["--shutdown-timeout", grace, "--linger", linger];
    if dice.percent(25) {
        options.extend(["--isolate", "pid"]);
    }
    options.into_iter().map(str::to_owned).collect()
}

/// How a launcher may end because of this.
fn consequences(target: Target, signal: Signal) -> Vec<i32> {
    let number = signal as i32;
    match (target, signal) {
        (Target::Launcher, INT | TERM | HUP | QUIT | KILL) => vec![-number],
        // It is passed on, and ends workers that have not asked for it; before the launcher takes signals in,
        // it ends the launcher, as it does any program.
        (Target::Launcher, USR1) => vec![128 + number, -number],
        (Target::Guardian, KILL) => vec![137],
        // It may be the guardian.
        (Target::Anybody, KILL | TERM) => vec![128 + number],
        _ => Vec::new(),
    }
}

fn strike(run: &Running, attack: &Attack, started: Instant) {
    while started.elapsed() < attack.after {
        std::thread::yield_now();
    }
    let others = run.others();
    let pid = match attack.target {
        Target::Launcher => Some(run.pid()),
        Target::Guardian => others
            .into_iter()
            .find(|it| is_guardian(*it))
            .map(Pid::from_raw),
        // Which one that is depends on the machine's timing.
        Target::Anybody => others.last().map(|it| Pid::from_raw(*it)),
    };
    for signal in attack.signals {
        // It may have ended by now.
        let _ = pid.map(|it| kill(it, *signal));
    }
}

fn is_guardian(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it == "guardian\n")
}

fn play(seed: u64) {
    let mut round = Round::of(seed);
    let run = Fabric::run().args(["--devices", &round.workers.to_string()]);
    let run = run.args(&round.options).actor(&round.words).with(|it| {
        before_exec(it, || setrlimit(Resource::RLIMIT_CORE, 0, 0).unwrap());
    });
    let started = Instant::now();
    let mut run = run.start();
    for attack in &round.attacks {
        strike(&run, attack, started);
    }
    let enough = started + Duration::from_millis(250);
    while run.try_wait().is_none() && Instant::now() < enough {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    if run.try_wait().is_none() {
        // What has not ended by now never would.
        round.codes.insert(-(TERM as i32));
        run.signal(CONT);
        run.signal(TERM);
    }
    let done = run.finish_within(Duration::from_secs(1));
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
    assert!(done.took < IN_TIME, "took {:?}", done.took);
    let (code, expected) = (done.code(), &round.codes);
    assert!(
        expected.contains(&code),
        "{code} is not of {expected:?}: {}",
        done.stderr
    );
}

fn number(name: &str) -> Option<u64> {
    variable(name)?.to_str()?.parse().ok()
}

fn play_all(table: u64) {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    // Far apart, so that the tables do not play each other's rounds.
    let first = number("FABRIC_CHAOS_SEED").unwrap_or(now.as_secs() * 1_000_000 + table * 100_000);
    for seed in first..first + number("FABRIC_CHAOS_ROUNDS").unwrap_or(ROUNDS) {
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| play(seed))) {
            let round = Round::of(seed);
            std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("FABRIC_CHAOS_SEED={seed} FABRIC_CHAOS_ROUNDS=1: {round:#?}\n").as_bytes(),
            )
            .unwrap();
            resume_unwind(failure);
        }
    }
}

#[test]
fn first_table() {
    play_all(0);
}

#[test]
fn second_table() {
    play_all(1);
}

#[test]
fn third_table() {
    play_all(2);
}

#[test]
fn fourth_table() {
    play_all(3);
}
