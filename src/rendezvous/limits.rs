//! How long a meeting waits.

use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// For all nodes to come; torch's default is 900 s.
    pub(crate) join: Duration,
    /// For a node that has fallen silent.
    pub(crate) node: Duration,
}
