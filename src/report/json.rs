//! A run in JSON: each event as it happens, and the whole of it in the end.

use std::time::Duration;

use serde_json::{Value, json};

use super::exception::exception;
use super::hints::hint;
use crate::agent::{Event, Exit, Outcome, Record, Stamped, Told, Why, parse_error_file};
use crate::plan::Plan;
use crate::rendezvous::Cause;
use crate::status::Status;
use crate::topology::LocalRank;

/// Lines of the root cause that are reported.
const WORDS: usize = 20;

/// Whose run it is, and when it began by the clock on the wall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) plan: &'a Plan,
    /// Global rank of our first worker.
    pub(crate) first_rank: u32,
    /// Since 1970.
    pub(crate) began: Duration,
}

impl Frame<'_> {
    /// One line of `--events`; `now` is since the beginning. `None` for what is nobody's business.
    pub(crate) fn event(&self, told: &Told, now: Duration) -> Option<Value> {
        let (at, body) = match told {
            Told::Event(stamped) => (stamped.at, self.of_event(stamped)?),
            Told::Waiting(text) => (now, json!({"event": "waiting", "text": text})),
            Told::Notice(text) => (now, json!({"event": "notice", "text": text})),
            Told::Ready(first) => (now, json!({"event": "joined", "first_rank": first})),
            Told::Elsewhere(failure) => {
                let body = merge(json!({"event": "failed_elsewhere"}), cause(failure));
                (now, body)
            }
            Told::Restarting(failure) => {
                let body = merge(json!({"event": "restarting"}), cause(failure));
                (now, body)
            }
            Told::Lasting => return None,
        };
        Some(self.stamped(body, at))
    }

    /// The last lines of `--events`: how much each worker wrote, and how it all ended.
    pub(crate) fn ending(&self, outcome: &Outcome, now: Duration) -> Vec<Value> {
        let written = outcome.last_words.iter().map(|(rank, tail)| {
            let mut body = self.worker(*rank);
            body["event"] = json!("wrote");
            body["lines"] = json!(tail.ends);
            body["bytes"] = json!(tail.length);
            body
        });
        let mut ended = exit(outcome);
        ended["event"] = json!("ended");
        written
            .chain([ended])
            .map(|it| self.stamped(it, now))
            .collect()
    }

    /// The `--report`.
    pub(crate) fn report(&self, outcome: &Outcome, now: Duration) -> Value {
        let plan = self.plan;
        let workers = (0..).map(LocalRank).zip(&outcome.workers);
        let workers: Vec<Value> = workers
            .map(|(rank, it)| self.record(rank, it, outcome))
            .collect();
        let mut report = exit(outcome);
        report["version"] = json!(1);
        report["script"] = json!(plan.script.to_string_lossy());
        report["run_id"] = json!(plan.run_id.value);
        report["host"] = json!(plan.machine.host);
        report["node_rank"] = json!(plan.node_rank.value.0);
        report["num_nodes"] = json!(plan.num_nodes.value);
        report["began"] = seconds(self.began);
        report["seconds"] = seconds(now);
        report["reason"] = json!(reason(outcome));
        report["killed"] = json!(outcome.killed);
        let foreign = outcome
            .cause
            .as_ref()
            .filter(|it| it.node.0 != plan.place.index);
        report["elsewhere"] = json!(foreign.map(ToString::to_string));
        report["root_cause"] = self.root_cause(outcome);
        report["earlier"] = earlier(outcome);
        report["workers"] = json!(workers);
        report
    }

    fn of_event(&self, stamped: &Stamped) -> Option<Value> {
        let with = |worker: LocalRank, name: &str, more: Value| {
            let mut body = self.worker(worker);
            body["event"] = json!(name);
            merge(body, more)
        };
        Some(match stamped.event {
            Event::Started { worker, pid } => with(worker, "started", json!({"pid": pid})),
            Event::NotStarted { worker, errno, .. } => {
                with(worker, "not_started", json!({"errno": errno}))
            }
            Event::Exited {
                worker,
                status,
                asked,
            } => with(
                worker,
                "exited",
                merge(json!({"asked": asked}), ended_by(status)),
            ),
            Event::Stopping { why } => match why {
                Why::Failed(worker) => with(worker, "stopping", json!({"reason": "failed"})),
                Why::NotStarted(worker) => {
                    with(worker, "stopping", json!({"reason": "not_started"}))
                }
                why => json!({"event": "stopping", "reason": name(why)}),
            },
            Event::Killing => json!({"event": "killing"}),
            Event::Left { pid } => json!({"event": "left_behind", "pid": pid}),
            Event::Stuck { pid, .. } => json!({"event": "stuck", "pid": pid}),
            Event::Paused => json!({"event": "paused"}),
            Event::StandsStill { worker } => with(worker, "stands_still", json!({})),
            Event::Uneven => json!({"event": "uneven"}),
            Event::Done => json!({"event": "done"}),
            Event::Lingering | Event::Heard => return None,
        })
    }

    fn worker(&self, index: LocalRank) -> Value {
        let local_rank = self.plan.local_rank(index).0;
        json!({"rank": self.first_rank + index.0, "local_rank": local_rank})
    }

    fn record(&self, index: LocalRank, record: &Record, outcome: &Outcome) -> Value {
        let mut body = self.worker(index);
        body["pid"] = json!(record.pid);
        body["started"] = record.started.map_or(Value::Null, seconds);
        body["ended"] = record.end.map_or(Value::Null, |it| seconds(it.at));
        if let Some(tail) = outcome.last_words.get(&index) {
            body["lines"] = json!(tail.ends);
            body["bytes"] = json!(tail.length);
        }
        let Some(end) = record.end else { return body };
        body["asked"] = json!(end.asked);
        merge(body, ended_by(end.status))
    }

    fn root_cause(&self, outcome: &Outcome) -> Value {
        let Some((index, end)) = outcome.root_cause() else {
            return Value::Null;
        };
        let words = outcome.last_words.get(&index);
        let lines = words.map_or_else(Vec::new, |it| it.lines(WORDS));
        let confession = outcome.confessions.get(&index.0);
        let confession = confession.and_then(|it| parse_error_file(it));
        let mut body = self.worker(index);
        body["message"] = match &confession {
            Some(it) => json!(it.message),
            None => json!(exception(&lines)),
        };
        body["traceback"] = json!(confession.and_then(|it| it.traceback));
        body["hint"] = json!(hint(lines.iter().map(String::as_str)));
        body["last_lines"] = json!(lines);
        merge(body, ended_by(end.status))
    }

    fn stamped(&self, mut body: Value, at: Duration) -> Value {
        body["seconds"] = seconds(at);
        body["time"] = seconds(self.began + at);
        body
    }
}

/// To the microsecond, which is as exact as a time since 1970 can be in a JSON number.
fn seconds(time: Duration) -> Value {
    json!(time.as_micros() as f64 / 1e6)
}

/// Of exit code and signal one is null.
fn ended_by(status: Status) -> Value {
    match status {
        Status::Code(code) => {
            json!({"exit_code": code, "signal": null, "core_dumped": false})
        }
        Status::Signal { signal, core } => {
            json!({"exit_code": null, "signal": signal.to_string(), "core_dumped": core})
        }
    }
}

/// What ended each attempt but the last.
fn earlier(outcome: &Outcome) -> Value {
    let mut words = outcome.earlier_words.iter();
    let attempts = outcome.earlier.iter().map(|failure| {
        let lines = words.next().map_or_else(Vec::new, |it| it.lines(WORDS));
        let mut body = cause(failure);
        body["lived"] = failure.lived.map_or(Value::Null, seconds);
        body["message"] = json!(exception(&lines));
        body["last_lines"] = json!(lines);
        body
    });
    attempts.collect()
}

/// A failure as all nodes know it.
fn cause(cause: &Cause) -> Value {
    json!({
        "node_rank": cause.node.0,
        "host": cause.host,
        "rank": cause.rank.map(|it| it.0),
        "exit_code": cause.exit_code,
        "text": cause.to_string(),
    })
}

fn exit(outcome: &Outcome) -> Value {
    match outcome.exit() {
        Exit::Code(code) => json!({"exit_code": code, "signal": null}),
        Exit::Signal(signal) => json!({"exit_code": null, "signal": signal.to_string()}),
    }
}

/// Why the run ended, in a word.
fn reason(outcome: &Outcome) -> &'static str {
    match outcome.why {
        _ if outcome.guardian_lost.is_some() => "guardian_lost",
        None => "finished",
        Some(why) => name(why),
    }
}

fn name(why: Why) -> &'static str {
    match why {
        Why::Failed(_) => "failed",
        Why::NotStarted(_) => "not_started",
        Why::Signal(_) => "signal",
        Why::TimeLimit => "time_limit",
        Why::LauncherGone => "launcher_gone",
        Why::Elsewhere => "elsewhere",
    }
}

fn merge(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::End;
    use crate::plan::sample;
    use crate::relay::Tail;
    use crate::status::Signal;

    fn with_frame(check: impl FnOnce(Frame<'_>)) {
        let plan = sample::plan(2, &[]);
        check(Frame {
            plan: &plan,
            first_rank: 4,
            began: Duration::from_secs(1_700_000_000),
        });
    }

    #[track_caller]
    fn check(event: Event, expected: &str) {
        with_frame(|frame| {
            let at = Duration::from_micros(1_500_250);
            let told = Told::Event(Stamped { at, event });
            let line = frame.event(&told, Duration::ZERO);
            assert_eq!(line.map_or(String::new(), |it| it.to_string()), expected);
        });
    }

    const TIME: &str = r#""seconds":1.50025,"time":1700000001.50025"#;

    #[test]
    fn events_are_lines_of_json() {
        let worker = LocalRank(1);
        check(
            Event::Started { worker, pid: 77 },
            &format!(r#"{{"event":"started","local_rank":1,"pid":77,"rank":5,{TIME}}}"#),
        );
        let (status, asked) = (Status::Code(7), false);
        check(
            Event::Exited { worker, status, asked },
            &format!(r#"{{"asked":false,"core_dumped":false,"event":"exited","exit_code":7,"local_rank":1,"rank":5,{TIME},"signal":null}}"#)
                .replace(&format!("{TIME},\"signal\":null"), r#""seconds":1.50025,"signal":null,"time":1700000001.50025"#),
        );
        let why = Why::Signal(Signal::TERM);
        check(
            Event::Stopping { why },
            &format!(r#"{{"event":"stopping","reason":"signal",{TIME}}}"#),
        );
        check(Event::Heard, "");
    }

    #[test]
    fn the_report_has_the_root_cause_in_its_own_words() {
        let mut outcome = Outcome::new(2);
        let status = Status::Signal {
            signal: Signal::KILL,
            core: false,
        };
        let end = |status, asked| {
            Some(End {
                at: Duration::from_secs(3),
                status,
                asked,
            })
        };
        outcome.workers[0].end = end(status, true);
        outcome.workers[1].end = end(Status::Code(1), false);
        outcome.why = Some(Why::Failed(LocalRank(1)));
        let mut tail = Tail::default();
        tail.push(
            b"Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n",
        );
        outcome.last_words.insert(LocalRank(1), tail);
        with_frame(|frame| {
            let report = frame.report(&outcome, Duration::from_secs(4));
            assert_eq!(report["exit_code"], 1);
            assert_eq!(report["reason"], "failed");
            assert_eq!(report["seconds"], 4.0);
            let cause = &report["root_cause"];
            assert_eq!(cause["rank"], 5);
            assert_eq!(cause["message"], "ModuleNotFoundError: No module named 'x'");
            assert_eq!(cause["last_lines"][0], "Traceback (most recent call last):");
            assert!(cause["hint"].as_str().unwrap().contains("--python"));
            assert_eq!(report["workers"][0]["signal"], "SIGKILL");
            assert_eq!(report["workers"][0]["asked"], true);
            assert_eq!(report["workers"][1]["lines"], 2);
            let ending = frame.ending(&outcome, Duration::from_secs(4));
            assert_eq!(ending[0]["event"], "wrote");
            assert_eq!(ending[1]["event"], "ended");
        });
    }

    #[test]
    fn success_has_no_root_cause() {
        with_frame(|frame| {
            let report = frame.report(&Outcome::new(2), Duration::ZERO);
            assert_eq!(report["root_cause"], Value::Null);
            assert_eq!(
                (&report["exit_code"], &report["reason"]),
                (&json!(0), &json!("finished"))
            );
        });
    }
}
