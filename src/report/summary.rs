//! The last thing a failed run prints: what failed first, in its own words, and what became of the others.

use std::fmt::Write;

use super::attempt::failed_attempt;
use super::cause::{Clues, explain};
use super::exception::exception;
use super::fates::{fates, lived};
use super::hints::hint;
use super::line::{Paint, harmless, ranks, shortened, span, wrap};
use crate::agent::{End, Exit, Outcome, Why, parse_error_file};
use crate::plan::Plan;
use crate::rendezvous::Cause;
use crate::topology::LocalRank;

/// Columns of the labels on the left, and of the whole.
const LABEL: usize = 14;
const WIDTH: usize = 80;
/// Characters of a message and of one line of a traceback that are shown.
const MESSAGE: usize = 2000;
const LINE: usize = 500;
/// Lines of a traceback that are shown: its end, where the exception is.
const TRACEBACK: usize = 40;
/// Lines that are shown of what the worker wrote last.
const WORDS: usize = 20;
/// Processes that could not be ended and are shown, one line each.
const STUCK: usize = 16;
/// Workers other than the root cause whose messages are shown, one line each.
const ALSO: usize = 4;

/// What the summary is about.
pub(crate) struct Summary<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) outcome: &'a Outcome,
    /// Global rank of local rank 0.
    pub(crate) first_rank: u32,
    /// When the root cause ended, by the clock on the wall.
    pub(crate) failed_at: String,
    pub(crate) clues: Clues,
    /// Why a worker could not be started, in words; empty if all could.
    pub(crate) refusal_reason: String,
    pub(crate) paint: Paint,
}

/// Nothing is to be said of a run that went well.
pub(crate) fn went_well(outcome: &Outcome) -> bool {
    outcome.exit() == Exit::Code(0) && outcome.stuck.is_empty()
}

impl Summary<'_> {
    /// The text, for a run that did not go well.
    pub(crate) fn text(&self) -> String {
        let headline = self.paint.red(&format!("fabric: {}", self.headline()));
        let mut text = format!("{headline}\n");
        let script = harmless(&self.plan.script.to_string_lossy());
        self.row(&mut text, "script", &script);
        self.row(&mut text, "reason", &self.refusal_reason);
        let root_cause = self.outcome.root_cause();
        if let Some(cause) = self.foreign_cause() {
            self.row(&mut text, "root cause", &harmless(&cause.to_string()));
        }
        if let Some((rank, end)) = root_cause {
            self.root_cause(&mut text, rank, end);
        }
        self.earlier(&mut text);
        self.others(&mut text);
        self.stuck(&mut text);
        if let Some((rank, _)) = root_cause {
            self.own_words(&mut text, rank);
        }
        text
    }

    fn headline(&self) -> String {
        if let Some(status) = self.outcome.guardian_lost {
            return format!("the guardian process died: {status}");
        }
        match self.outcome.why {
            Some(Why::Failed(rank)) => {
                let status = self.outcome.root_cause().map(|(_, end)| end.status);
                let status = status.map_or_else(String::new, |it| format!(": {it}"));
                format!("rank {} failed{status}", self.global(rank))
            }
            Some(Why::NotStarted(rank)) => {
                format!("rank {} could not be started", self.global(rank))
            }
            Some(Why::Signal(signal)) => format!("stopped by {signal}"),
            Some(Why::TimeLimit) => {
                let limit = self.plan.settings.limit.map_or_else(String::new, span);
                format!("ended by the time limit of {limit} (--timeout)")
            }
            Some(Why::Elsewhere) => "stopped because another node did".to_owned(),
            Some(Why::LauncherGone) | None => "some processes could not be ended".to_owned(),
        }
    }

    /// What began it all, where that was on another node.
    fn foreign_cause(&self) -> Option<&Cause> {
        let cause = self.outcome.cause.as_ref()?;
        (cause.node.0 != self.plan.place.index).then_some(cause)
    }

    fn root_cause(&self, text: &mut String, rank: LocalRank, end: End) {
        let record = &self.outcome.workers[rank.0 as usize];
        let pid = record.pid.unwrap_or_default();
        let (node, host) = (self.plan.node_rank.value, &self.plan.machine.host);
        let global = self.global(rank);
        let who = format!("rank {global} (local rank {rank}, node {node} on {host}, pid {pid})");
        let label = if self.foreign_cause().is_some() {
            "also here"
        } else {
            "root cause"
        };
        self.row(text, label, &who);
        let (lived, at) = (span(lived(record)), &self.failed_at);
        self.row(text, "", &format!("{} after {lived}, at {at}", end.status));
        if let Some(meaning) = explain(end.status, &self.clues) {
            self.row(text, "", &meaning);
        }
    }

    /// What ended the attempts before this one.
    fn earlier(&self, text: &mut String) {
        let mut label = "earlier";
        let mut words = self.outcome.earlier_words.iter();
        for (number, cause) in (1..).zip(&self.outcome.earlier) {
            let failed = failed_attempt(number, self.plan, cause);
            let lines = words.next().map_or_else(Vec::new, |it| it.lines(WORDS));
            for told in [Some(failed.as_str()), exception(&lines)]
                .into_iter()
                .flatten()
            {
                let told = shortened(told, 2 * (WIDTH - LABEL));
                self.row(text, label, &harmless(&told));
                label = "";
            }
        }
    }

    /// What the worker itself said about its failure: in its error file, and last of all on stderr. The words
    /// of an only worker are still in sight.
    fn own_words(&self, text: &mut String, rank: LocalRank) {
        let words = self.outcome.last_words.get(&rank);
        let words = words.map_or_else(Vec::new, |it| it.lines(WORDS));
        let alone = self.plan.workers() == 1 && self.plan.output.needs_relay().is_none();
        let quoted: &[String] = if alone { &[] } else { &words };
        let confession = self.outcome.confessions.get(&rank.0);
        if let Some(confession) = confession.and_then(|it| parse_error_file(it)) {
            let message = harmless(&shortened(&confession.message, MESSAGE));
            self.row(text, "message", &message);
            let first = message.lines().next().unwrap_or_default();
            if !quoted.iter().any(|it| it.contains(first)) {
                self.traceback(text, &confession.traceback.unwrap_or_default());
            }
        } else if let Some(exception) = exception(&words) {
            self.row(text, "message", &harmless(&shortened(exception, MESSAGE)));
        }
        if let Some(hint) = hint(words.iter().map(String::as_str)) {
            self.row(text, "hint", hint);
        }
        self.quote(text, "last lines", quoted);
    }

    fn traceback(&self, text: &mut String, traceback: &str) {
        let lines: Vec<&str> = traceback.lines().collect();
        let skipped = lines.len().saturating_sub(TRACEBACK);
        if skipped > 0 {
            self.row(text, "traceback", &format!("its last {TRACEBACK} lines"));
        }
        self.quote(
            text,
            if skipped > 0 { "" } else { "traceback" },
            &lines[skipped..],
        );
    }

    /// Lines that are not ours, below their label.
    fn quote(&self, text: &mut String, label: &str, lines: &[impl AsRef<str>]) {
        if !label.is_empty() && !lines.is_empty() {
            let _ = writeln!(text, "  {}", self.paint.bold(label));
        }
        for line in lines {
            let _ = writeln!(text, "    {}", harmless(&shortened(line.as_ref(), LINE)));
        }
    }

    fn others(&self, text: &mut String) {
        let apart = match self.outcome.why {
            Some(Why::NotStarted(rank) | Why::Failed(rank)) => Some(rank.0),
            _ => None,
        };
        let mut label = if apart.is_some() { "others" } else { "workers" };
        for fate in fates(self.outcome, self.first_rank, apart) {
            self.row(text, label, &fate);
            label = "";
        }
        let messages = self.outcome.confessions.iter();
        let messages = messages.filter(|(rank, _)| Some(**rank) != apart);
        for (rank, bytes) in messages.take(ALSO) {
            let Some(confession) = parse_error_file(bytes) else {
                continue;
            };
            let first = confession.message.lines().next().unwrap_or_default();
            let who = ranks(&[self.first_rank + rank]);
            let line = format!("{who} wrote: {}", harmless(first));
            self.row(text, "", &shortened(&line, WIDTH - LABEL));
        }
    }

    fn stuck(&self, text: &mut String) {
        let more = self.outcome.stuck.len().saturating_sub(STUCK);
        for (pid, state) in self.outcome.stuck.iter().take(STUCK) {
            let state = match state {
                b'D' => "in uninterruptible sleep, often a driver or a file server".to_owned(),
                b'Z' => "dead, but a debugger holds it".to_owned(),
                state => format!("state {}", char::from(*state)),
            };
            let line = format!("pid {pid} survived SIGKILL ({state})");
            self.row(text, "still there", &line);
        }
        if more > 0 {
            self.row(text, "", &format!("and {more} more"));
        }
    }

    fn global(&self, rank: LocalRank) -> u32 {
        self.first_rank + rank.0
    }

    /// A label and its text, which goes on below itself.
    fn row(&self, text: &mut String, label: &str, value: &str) {
        let lines = value.lines().flat_map(|it| wrap(it, WIDTH - LABEL));
        for (number, line) in lines.enumerate() {
            let label = if number == 0 { label } else { "" };
            let (shown, gap) = (self.paint.bold(label), LABEL - 2 - label.len());
            let row = format!("  {shown}{:gap$}{line}", "");
            let _ = writeln!(text, "{}", row.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::agent::{Record, Refusal, Step};
    use crate::plan::sample;
    use crate::relay::Tail;
    use crate::status::{Signal, Status};

    const SEGV: Status = signal(11);
    const TERM: Status = signal(15);

    const fn signal(number: i32) -> Status {
        let (signal, core) = (Signal(number), false);
        Status::Signal { signal, core }
    }

    /// A run of workers that lived from 0.1 s on; each ended at so many milliseconds, asked or not.
    fn run(why: Option<Why>, ends: &[(u64, Status, bool)]) -> Outcome {
        let mut outcome = Outcome::new(ends.len() as u32);
        for (number, (at, status, asked)) in ends.iter().enumerate() {
            outcome.workers[number] = Record {
                pid: Some(100 + number as i32),
                started: Some(Duration::from_millis(100)),
                end: Some(End {
                    at: Duration::from_millis(*at),
                    status: *status,
                    asked: *asked,
                }),
            };
        }
        outcome.why = why;
        outcome.done = true;
        outcome
    }

    fn failed(rank: u32) -> Option<Why> {
        Some(Why::Failed(LocalRank(rank)))
    }

    fn text(outcome: &Outcome, paint: Paint) -> String {
        let refused = outcome
            .refusal
            .map(|_| "`/venv/bin/python3` does not exist any more");
        let plan = sample::plan(outcome.workers.len() as u32, &[]);
        let summary = Summary {
            plan: &plan,
            outcome,
            first_rank: 0,
            failed_at: "2026-07-20 14:03:22".into(),
            clues: Clues::default(),
            refusal_reason: refused.unwrap_or_default().into(),
            paint,
        };
        summary.text()
    }

    #[track_caller]
    fn check(outcome: &Outcome, expected: &str) {
        let text = text(outcome, Paint { on: false });
        assert_eq!(text, expected, "\n{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn success_says_nothing() {
        let mut outcome = run(None, &[(200, Status::Code(0), false)]);
        assert!(went_well(&outcome));
        outcome.stuck = vec![(71, b'D')];
        assert!(!went_well(&outcome));
        assert!(!went_well(&run(failed(0), &[(200, SEGV, false)])));
    }

    #[test]
    fn the_root_cause_comes_first_and_workers_of_one_fate_share_a_row() {
        let outcome = run(
            failed(1),
            &[
                (500, TERM, true),
                (480, Status::Code(7), false),
                (481, Status::Code(1), false),
                (500, TERM, true),
                (620, Status::Code(1), false),
                (300, Status::Code(0), false),
                (30_480, signal(9), true),
                (490, Status::Code(3), true),
            ],
        );
        check(
            &outcome,
            "\
fabric: rank 1 failed: exit code 7
  script      train.py
  root cause  rank 1 (local rank 1, node 0 on gpu-1, pid 101)
              exit code 7 after 0.38 s, at 2026-07-20 14:03:22
  others      ranks 0, 3: ended by fabric (SIGTERM)
              ranks 2, 4: failed, too: exit code 1 after 0.38 s to 0.52 s
              rank 5: done, exit code 0
              rank 6: killed by fabric (SIGKILL)
              rank 7: exit code 3, when told to end
",
        );
    }

    #[test]
    fn the_workers_own_words_come_last() {
        let mut outcome = run(
            failed(0),
            &[(480, Status::Code(1), false), (500, TERM, true)],
        );
        let words = br#"{"message": {"message": "ValueError: boom\nand more", "extraInfo":
            {"py_callstack": "Traceback (most recent call last):\n  File \"train.py\", line 7\nValueError: boom\n"}}}"#;
        let others = br#"{"message": "ConnectionResetError: peer closed connection while rank 1 was reducing gradients"}"#;
        outcome.confessions = [(0, words.to_vec()), (1, others.to_vec())].into();
        check(
            &outcome,
            "\
fabric: rank 0 failed: exit code 1
  script      train.py
  root cause  rank 0 (local rank 0, node 0 on gpu-1, pid 100)
              exit code 1 after 0.38 s, at 2026-07-20 14:03:22
  others      rank 1: ended by fabric (SIGTERM)
              rank 1 wrote: ConnectionResetError: peer closed connection whil...
  message     ValueError: boom
              and more
  traceback
    Traceback (most recent call last):
      File \"train.py\", line 7
    ValueError: boom
",
        );
    }

    #[test]
    fn what_the_worker_wrote_last_is_quoted_unless_it_is_in_sight() {
        let ends = [(480, Status::Code(1), false), (500, TERM, true)];
        let written = "Traceback (most recent call last):\n  File \"train.py\"\n\x1b[31mKeyError: 'lr'\x1b[0m\n";
        let report = |ends: &[(u64, Status, bool)]| {
            let mut outcome = run(failed(0), ends);
            let mut tail = Tail::default();
            tail.push(written.as_bytes());
            outcome.last_words.insert(LocalRank(0), tail);
            text(&outcome, Paint { on: false })
        };
        let quoted = "\
  message     KeyError: 'lr'
  last lines
    Traceback (most recent call last):
      File \"train.py\"
    KeyError: 'lr'
";
        assert!(report(&ends).ends_with(quoted), "{}", report(&ends));
        assert!(report(&ends[..1]).ends_with("  message     KeyError: 'lr'\n"));
    }

    #[test]
    fn of_a_long_message_and_a_long_traceback_the_telling_part_is_shown() {
        let mut outcome = run(failed(0), &[(480, SEGV, false)]);
        let frames: String = (1..=50).map(|it| format!("frame {it}\\n")).collect();
        let words = format!(
            r#"{{"message": {{"message": "{}", "extraInfo": {{"py_callstack": "{frames}"}}}}}}"#,
            "word ".repeat(1000)
        );
        outcome.confessions = [(0, words.into_bytes())].into();
        let text = text(&outcome, Paint { on: false });
        assert!(
            text.contains("traceback   its last 40 lines\n    frame 11\n"),
            "{text}"
        );
        assert!(text.ends_with("frame 50\n"));
        assert!(text.contains("..."));
        assert!(text.len() < 4000, "{}", text.len());
    }

    #[test]
    fn a_signal_to_the_launcher_is_no_failure_of_a_worker() {
        let outcome = run(
            Some(Why::Signal(Signal::INT)),
            &[(900, signal(2), true), (900, Status::Code(0), true)],
        );
        check(
            &outcome,
            "\
fabric: stopped by SIGINT
  script      train.py
  workers     rank 0: ended by fabric (SIGINT)
              rank 1: exit code 0, when told to end
",
        );
    }

    #[test]
    fn a_worker_that_cannot_be_started_is_told_with_its_reason() {
        let mut outcome = run(Some(Why::NotStarted(LocalRank(1))), &[(150, TERM, true)]);
        outcome.workers.extend([Record::default(); 2]);
        outcome.refusal = Some(Refusal {
            errno: 2,
            step: Step::Exec,
        });
        check(
            &outcome,
            "\
fabric: rank 1 could not be started
  script      train.py
  reason      `/venv/bin/python3` does not exist any more
  others      rank 0: ended by fabric (SIGTERM)
              rank 2: not started
",
        );
    }

    #[test]
    fn what_survived_is_named_even_after_success() {
        let mut outcome = run(None, &[(200, Status::Code(0), false)]);
        outcome.stuck = vec![(71, b'D'), (72, b'?')];
        check(
            &outcome,
            "\
fabric: some processes could not be ended
  script      train.py
  workers     rank 0: done, exit code 0
  still there pid 71 survived SIGKILL (in uninterruptible sleep, often a driver
              or a file server)
  still there pid 72 survived SIGKILL (state ?)
",
        );
    }

    #[test]
    fn a_lost_guardian_is_told() {
        let mut outcome = run(None, &[(200, Status::Code(0), false)]);
        outcome.workers.push(Record {
            pid: Some(101),
            ..Record::default()
        });
        (outcome.guardian_lost, outcome.done) = (Some(signal(9)), false);
        check(
            &outcome,
            "\
fabric: the guardian process died: SIGKILL (killed)
  script      train.py
  workers     rank 0: done, exit code 0
              rank 1: ended with the guardian
",
        );
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let outcome = run(failed(0), &[(480, SEGV, false)]);
        let coloured = text(&outcome, Paint { on: true });
        assert!(coloured.starts_with("\x1b[1;31mfabric: rank 0 failed: SIGSEGV"));
        let plain = coloured
            .replace("\x1b[1;31m", "")
            .replace("\x1b[1m", "")
            .replace("\x1b[0m", "");
        assert_eq!(plain, text(&outcome, Paint { on: false }));
    }
}
