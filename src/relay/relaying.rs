//! The launcher's side of its pumps.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use anyhow::{Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::channel::{Wiring, resize, same_file};
use super::lane::Lane;
use super::logs;
use super::output::Output;
use super::pump::{Order, Tails};
use super::source::Channel;
use super::tail::{Tail, Words};
use super::treatment::{Started, Stream, Treatment};
use super::voice::Voice;
use crate::plan::Plan;
use crate::topology::{GlobalRank, LocalRank};

/// Descriptors that the launcher needs for itself, besides one connection to the store per worker.
const OTHERS: u64 = 24;

/// A relay that has not been started.
pub(crate) struct Relaying {
    /// What the guardian gives to workers.
    pub(crate) wiring: Wiring,
    logs: Option<(PathBuf, File)>,
}

/// Passes on what workers write.
pub(crate) struct Relay<'a> {
    plan: &'a Plan,
    /// One for each of our streams, or one for both; the last one has stderr.
    lanes: Vec<Lane>,
    voice: Voice,
    /// Where the run's files are.
    folder: Option<PathBuf>,
    /// How often each worker has been started.
    starts: BTreeMap<LocalRank, u32>,
    /// Those that are still open are told the terminal's size.
    ends: Vec<Weak<OwnedFd>>,
}

/// What is left of a relay that has ended.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// Of each worker: on stderr, if it wrote there.
    pub(crate) words: Words,
    /// Of the worker that ended each attempt but the last; of one that was not ours nothing.
    pub(crate) earlier: Vec<Tail>,
}

impl Relaying {
    /// Looks at our streams and makes the folder of the log files, which is said.
    ///
    /// # Errors
    /// The folder cannot be made, or descriptors are short and something is wanted that needs them.
    pub(crate) fn prepare(plan: &Plan, voice: &Voice) -> Result<Self> {
        let wiring = match plan.output.direct {
            true => Wiring::Direct,
            false => affordable(Wiring::of_our_streams(&plan.output), plan, voice)?,
        };
        let logs = logs::make(plan)?;
        if let Some((folder, _)) = &logs {
            voice.say(&format!("fabric: logs in {}\n", folder.display()));
        }
        Ok(Self { wiring, logs })
    }

    /// Opens the lanes; `None` where workers write to our own streams. Our limit of open files is raised as
    /// far as it goes, so the guardian must have been forked already: workers inherit the user's.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub(crate) fn start<'a>(self, plan: &'a Plan, voice: &Voice) -> io::Result<Option<Relay<'a>>> {
        let (folder, log) = self.logs.unzip();
        // Also where none of them is the relay's: the store has a connection to each worker of all nodes.
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
        }
        let own = match self.wiring {
            Wiring::Direct => return Ok(None),
            _ if same_file() => &[Stream::Out][..],
            _ => &[Stream::Out, Stream::Err],
        };
        let mut outputs: Vec<Output> = own.iter().copied().map(Output::new).collect();
        if let (Some(log), Some(last)) = (log, outputs.last_mut()) {
            last.keep_log(log);
        }
        let alone = plan.workers() == 1;
        let lanes = outputs.into_iter().map(|it| Lane::open(it, alone));
        let lanes: Vec<Lane> = lanes.collect::<io::Result<_>>()?;
        if let Some(lane) = lanes.last() {
            voice.go_through(lane.orders.clone());
        }
        Ok(Some(Relay {
            plan,
            lanes,
            voice: voice.clone(),
            folder,
            starts: BTreeMap::new(),
            ends: Vec::new(),
        }))
    }
}

impl Relay<'_> {
    /// From the next [`Relay::pass_on`] on what comes from `ends`, our ends of this worker's channels, is passed on.
    pub(crate) fn add(&mut self, index: LocalRank, first_rank: u32, ends: Vec<OwnedFd>) {
        if ends.is_empty() {
            let rank = first_rank + index.0;
            self.voice.say(&format!(
                "fabric: no pipe can be had for what rank {rank} writes: it writes directly\n"
            ));
        }
        let starts = self.starts.entry(index).or_default();
        let attempt = *starts;
        *starts += 1;
        let worker = Started {
            index,
            first_rank,
            attempt,
        };
        // It may have changed since the guardian was forked.
        resize(ends.iter());
        for (stream, end) in [Stream::Out, Stream::Err].into_iter().zip(ends) {
            self.add_channel(worker, stream, Arc::new(end));
        }
    }

    fn add_channel(&mut self, worker: Started, stream: Stream, end: Arc<OwnedFd>) {
        let colour = stream.descriptor().is_terminal() && self.plan.environ.wants_colours();
        let treatment = Treatment::of(self.plan, worker, stream, self.folder.as_deref(), colour);
        // Those that are closed make room, rather than that each time all are looked through.
        if self.ends.len() == self.ends.capacity() {
            self.ends.retain(|it| it.strong_count() > 0);
        }
        self.ends.push(Arc::downgrade(&end));
        let lane = match stream {
            Stream::Out => self.lanes.first_mut(),
            Stream::Err => self.lanes.last_mut(),
        };
        if let Some(lane) = lane {
            lane.add(Channel {
                rank: worker.index,
                stream,
                end,
                treatment,
            });
        }
    }

    /// The pumps look at what has been added.
    pub(crate) fn pass_on(&mut self) {
        self.lanes.iter_mut().for_each(Lane::pass_on);
    }

    /// Our terminal has another size. Workers are not in its process group: somebody has to tell them.
    pub(crate) fn resize(&self) {
        let open: Vec<Arc<OwnedFd>> = self.ends.iter().filter_map(Weak::upgrade).collect();
        resize(open.iter().map(Arc::as_ref));
    }

    /// To be called when one of [`Relay::sources`] is readable.
    ///
    /// # Errors
    /// Workers write, and no thread can be had to pass it on.
    pub(crate) fn attend(&mut self) -> io::Result<()> {
        self.lanes.iter_mut().try_for_each(Lane::attend)
    }

    /// Gives every pump its thread before it is needed: later the system may have none left.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        self.lanes.iter_mut().try_for_each(Lane::start)
    }

    /// An attempt has failed: what the worker of this rank wrote last is kept, if it is one of ours.
    pub(crate) fn keep(&self, rank: Option<GlobalRank>, first_rank: u32) {
        let index = rank.and_then(|it| it.0.checked_sub(first_rank));
        let ours = index.filter(|it| *it < self.plan.workers()).map(LocalRank);
        let orders = self.lanes.iter().map(|it| &it.orders);
        orders.for_each(|it| it.give(Order::Keep(ours)));
    }

    /// To be called when every worker has ended: the pumps write what is left and end.
    pub(crate) fn finish(&mut self) {
        self.lanes.iter_mut().for_each(Lane::finish);
    }

    /// Whether every pump has ended.
    pub(crate) fn ended(&mut self) -> bool {
        // All are asked, so that none that has ended is waited for.
        let running = self
            .lanes
            .iter_mut()
            .filter_map(|it| (!it.ended()).then_some(()));
        running.count() == 0
    }

    /// What poll(2) shall watch.
    pub(crate) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lanes.iter().filter_map(Lane::source)
    }

    /// The last words of the workers. A pump that has not ended, since nobody reads what it writes, is left
    /// behind with them.
    pub(crate) fn end(self) -> Remembered {
        let mut all = Remembered::default();
        let last = self.lanes.len().saturating_sub(1);
        for (number, lane) in self.lanes.into_iter().enumerate() {
            let Some(remains) = lane.remains() else {
                if number == last {
                    self.voice.go_silent();
                }
                continue;
            };
            all.add(remains.tails, remains.kept);
            if number == last {
                self.voice.go_straight(remains.output, &remains.orders);
            }
        }
        all
    }
}

impl Remembered {
    /// Takes in what one of our streams has brought; stderr comes last, for its words count most.
    pub(super) fn add(&mut self, tails: Tails, kept: Vec<Tail>) {
        for ((rank, _), tail) in tails {
            self.words.entry(rank).or_default().follow(tail);
        }
        if self.earlier.len() < kept.len() {
            self.earlier.resize_with(kept.len(), Tail::default);
        }
        for (words, tail) in self.earlier.iter_mut().zip(kept) {
            words.follow(tail);
        }
    }
}

/// The same, or none where there are not enough descriptors for it, which is said.
fn affordable(wiring: Wiring, plan: &Plan, voice: &Voice) -> Result<Wiring> {
    let needed = u64::from(plan.workers()) * u64::from(wiring.channels() + 1) + OTHERS;
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, most)| most);
    if most >= needed {
        return Ok(wiring);
    }
    let short = format!("takes {needed} open files, and {most} are allowed (`ulimit -Hn`)");
    if let Some(flag) = plan.output.needs_relay() {
        bail!("failed to pass on output for `{flag}`: that {short}");
    }
    voice.say(&format!(
        "fabric: workers write directly: to pass it on {short}\n"
    ));
    Ok(Wiring::Direct)
}
