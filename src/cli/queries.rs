//! What is asked of fabric about launches and machines rather than to launch: plain data.

use std::time::Duration;

use super::request::Request;

/// `fabric ps`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ps {
    pub(crate) json: bool,
    /// Again and again, with this much time in between; `None` for once.
    pub(crate) watch: Option<Duration>,
}

/// `fabric stop`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    /// The launch's number: the process id of its launcher.
    pub(crate) launch: i32,
    /// Without giving the workers time to end by themselves.
    pub(crate) now: bool,
}

/// `fabric doctor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Doctor {
    /// The launch that is to be checked; its script is empty where none was named.
    pub(crate) request: Request,
    pub(crate) json: bool,
}
