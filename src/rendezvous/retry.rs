//! Whether all begins anew after a failure.

use std::time::Duration;

use super::event::Cause;

/// A worker that fails sooner has not got to its work: an import that is missing, an option that is wrong.
const START: Duration = Duration::from_secs(3);

/// The attempts of one run.
pub(crate) struct Retry {
    most: u16,
    /// What ended the attempts before this one.
    failures: Vec<Cause>,
}

/// What follows from a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Restart,
    End,
    /// There would have been attempts left; the sentence says why they are not made.
    GiveUp(String),
}

impl Retry {
    /// All may be started again so often.
    pub(crate) fn up_to(most: u16) -> Self {
        Self {
            most,
            failures: Vec::new(),
        }
    }

    /// Decides. `told` is whether every node can be told to start again.
    ///
    /// Only workers that fail are worth another attempt: who stops a run means it, and a node that is lost
    /// does not come back under its name.
    pub(crate) fn after(&mut self, cause: &Cause, told: bool) -> Next {
        let left = self.failures.len() < usize::from(self.most);
        if !left || cause.lived.is_none() || !told {
            return Next::End;
        }
        if self
            .failures
            .last()
            .is_some_and(|it| is_same_start(it, cause))
        {
            return Next::GiveUp(
                "the same failure at the start twice in a row: no further attempt is made".into(),
            );
        }
        self.failures.push(cause.clone());
        Next::Restart
    }
}

fn is_same_start(first: &Cause, second: &Cause) -> bool {
    let at_start = |it: &Cause| it.lived.is_some_and(|it| it < START);
    at_start(first) && at_start(second) && first.exit_code == second.exit_code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{GlobalRank, NodeRank};

    fn failed(exit_code: u8, seconds: u64) -> Cause {
        Cause {
            node: NodeRank(0),
            host: "gpu-0".into(),
            rank: Some(GlobalRank(1)),
            exit_code,
            message: format!("exit code {exit_code}"),
            lived: Some(Duration::from_secs(seconds)),
        }
    }

    /// What follows from each failure: `r`estart, `e`nd, `g`ive up.
    #[track_caller]
    fn check(most: u16, failures: &[(u8, u64)], expected: &str) {
        let mut retry = Retry::up_to(most);
        let letter = |next| match next {
            Next::Restart => 'r',
            Next::End => 'e',
            Next::GiveUp(_) => 'g',
        };
        let next = failures
            .iter()
            .map(|(code, at)| retry.after(&failed(*code, *at), true));
        assert_eq!(next.map(letter).collect::<String>(), expected);
    }

    #[test]
    fn there_are_as_many_restarts_as_were_asked_for() {
        check(0, &[(1, 60)], "e");
        check(2, &[(1, 60), (1, 60), (1, 60)], "rre");
    }

    #[test]
    fn the_same_failure_at_the_start_is_tried_twice_only() {
        check(9, &[(1, 2), (1, 2)], "rg");
        check(
            9,
            &[(1, 2), (2, 2), (1, 2), (1, 3), (1, 2), (1, 0)],
            "rrrrrg",
        );
    }

    #[test]
    fn what_no_worker_has_done_is_the_end() {
        let stopped = Cause {
            lived: None,
            ..failed(130, 60)
        };
        assert_eq!(Retry::up_to(9).after(&stopped, true), Next::End);
        assert_eq!(Retry::up_to(9).after(&failed(1, 60), false), Next::End);
    }
}
