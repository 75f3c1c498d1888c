//! Slurm's notation for a number per node, such as `2(x3),1`.

use anyhow::{Context as _, Result, ensure};

/// Numbers of tasks, node by node, as runs of equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Tasks on each node of the run, and how many nodes the run has.
    runs: Vec<(u32, u32)>,
}

impl Counts {
    /// Parses `2(x3),1`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let runs = text.split(',').map(|it| {
            let run = parse_run(it.trim());
            run.with_context(|| format!("`{it}` is not a number of tasks such as `4` or `4(x2)`"))
        });
        let runs: Vec<_> = runs.collect::<Result<_>>()?;
        ensure!(runs.iter().all(|it| it.1 > 0), "a run of no nodes");
        Ok(Self { runs })
    }

    /// The tasks on the node with this index.
    pub(super) fn of(&self, node: u32) -> Option<u32> {
        let mut left = node;
        for (tasks, nodes) in &self.runs {
            if left < *nodes {
                return Some(*tasks);
            }
            left -= nodes;
        }
        None
    }

    pub(super) fn fewest(&self) -> u32 {
        self.runs.iter().map(|it| it.0).min().unwrap_or(0)
    }

    pub(super) fn most(&self) -> u32 {
        self.runs.iter().map(|it| it.0).max().unwrap_or(0)
    }
}

/// `4` or `4(x2)`.
fn parse_run(text: &str) -> Option<(u32, u32)> {
    let Some((tasks, nodes)) = text.split_once("(x") else {
        return Some((text.parse().ok()?, 1));
    };
    Some((tasks.parse().ok()?, nodes.strip_suffix(')')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_looked_up_by_node() {
        let counts = Counts::parse("3,1(x2), 2").unwrap();
        let each: Vec<_> = (0..5).map(|node| counts.of(node)).collect();
        assert_eq!(each, [Some(3), Some(1), Some(1), Some(2), None]);
        assert_eq!((counts.fewest(), counts.most()), (1, 3));
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in ["", "x", "2(x", "2(3)", "2(x0)", "-1"] {
            assert!(Counts::parse(text).is_err(), "{text}");
        }
    }
}
