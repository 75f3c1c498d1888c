//! What a person gets to read: the launcher's own lines while it runs, and the summary of a failure.

mod line;
mod cause;
mod summary;
mod clues;
mod reporter;

pub(crate) use reporter::Reporter;
