//! Says how an attempt ended that another one followed.

use super::line::span;
use crate::plan::Plan;
use crate::rendezvous::Cause;

/// `attempt 1 of 3 failed after 2 s: rank 1: exit code 7`; attempts count from 1.
pub(super) fn failed_attempt(number: usize, plan: &Plan, cause: &Cause) -> String {
    let all = u32::from(plan.max_restarts) + 1;
    let after = cause
        .lived
        .map_or_else(String::new, |it| format!(" after {}", span(it)));
    let who = match cause.rank {
        Some(rank) if plan.place.count == 1 => format!("rank {rank}: {}", cause.message),
        _ => cause.to_string(),
    };
    format!("attempt {number} of {all} failed{after}: {who}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::sample;
    use crate::topology::{GlobalRank, NodeRank};

    #[test]
    fn the_node_is_named_where_there_are_several() {
        let cause = Cause {
            node: NodeRank(1),
            host: "gpu-2".into(),
            rank: Some(GlobalRank(3)),
            exit_code: 7,
            message: "exit code 7".into(),
            lived: Some(Duration::from_secs(20)),
        };
        let mut plan = sample::plan(2, &[]);
        plan.max_restarts = 2;
        let text = failed_attempt(1, &plan, &cause);
        assert_eq!(
            text,
            "attempt 1 of 3 failed after 20 s: rank 3: exit code 7"
        );
        plan.place.count = 2;
        let text = failed_attempt(2, &plan, &cause);
        let expected = "attempt 2 of 3 failed after 20 s: rank 3 on node 1 (gpu-2): exit code 7";
        assert_eq!(text, expected);
    }
}
