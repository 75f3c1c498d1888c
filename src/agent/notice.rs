//! When something that may be right and may be a hang is worth a word.
//!
//! A worker that has ended with 0 while others go on may have done its part, or the others wait for it until
//! a collective operation times out. A worker that stands still was stopped on purpose, or by a terminal or
//! a job control that nobody thinks of. Neither is ended for it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::event::Event;
use crate::topology::LocalRank;

/// As [`Moment`](super::policy::Moment).
type Moment = Duration;

/// How long others may go on after the first that ended with 0.
const UNEVEN: Duration = Duration::from_secs(60);
/// How long a worker may stand still.
const STANDSTILL: Duration = Duration::from_secs(10);

/// What is to be told, and when.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// The first end with 0.
    ended: Option<Moment>,
    /// That others go on has been told: once is enough.
    uneven_told: bool,
    /// Workers that stand still and of which that has not been told: since when.
    still: BTreeMap<u32, Moment>,
}

impl Notices {
    /// A worker has ended with 0.
    pub(crate) fn ended(&mut self, worker: LocalRank, now: Moment) {
        self.ended.get_or_insert(now);
        self.goes_on(worker);
    }

    /// A worker has been stopped.
    pub(crate) fn stands_still(&mut self, worker: LocalRank, now: Moment) {
        self.still.entry(worker.0).or_insert(now);
    }

    pub(crate) fn goes_on(&mut self, worker: LocalRank) {
        self.still.remove(&worker.0);
    }

    /// When [`Notices::due`] will have something.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let uneven = self.ended.filter(|_| !self.uneven_told);
        let still = self.still.values().map(|since| *since + STANDSTILL);
        still.chain(uneven.map(|since| since + UNEVEN)).min()
    }

    /// What is to be told now, and not again.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<Event> {
        let mut due = Vec::new();
        let told = self
            .still
            .extract_if(.., |_, since| now >= *since + STANDSTILL);
        due.extend(told.map(|(worker, _)| Event::StandsStill {
            worker: LocalRank(worker),
        }));
        if !self.uneven_told && self.ended.is_some_and(|since| now >= since + UNEVEN) {
            self.uneven_told = true;
            due.push(Event::Uneven);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_minute_after_the_first_good_end_it_is_told_once() {
        let mut notices = Notices::default();
        assert_eq!(notices.deadline(), None);
        notices.ended(LocalRank(1), at(5));
        notices.ended(LocalRank(2), at(30));
        assert_eq!(notices.deadline(), Some(at(65)));
        assert_eq!(notices.due(at(64)), []);
        assert_eq!(notices.due(at(65)), [Event::Uneven]);
        assert_eq!(notices.due(at(500)), []);
        assert_eq!(notices.deadline(), None);
    }

    #[test]
    fn a_worker_that_stands_still_is_told_each_time() {
        let worker = LocalRank(3);
        let told = [Event::StandsStill { worker }];
        let mut notices = Notices::default();
        notices.stands_still(worker, at(1));
        notices.goes_on(worker);
        assert_eq!(notices.deadline(), None);
        notices.stands_still(worker, at(2));
        assert_eq!(notices.deadline(), Some(at(12)));
        assert_eq!(notices.due(at(12)), told);
        assert_eq!((notices.deadline(), notices.due(at(100))), (None, vec![]));
        notices.stands_still(worker, at(200));
        assert_eq!(notices.due(at(210)), told);
    }
}
