//! What a person gets to read: the launcher's own lines while it runs, and the summary of a failure.

mod line;
mod cause;
mod summary;
mod clues;
mod processes;
mod reporter;
mod log;

pub(crate) use cause::bytes;
pub(crate) use line::{Paint, ranks, span, wrap};
pub(crate) use log::start_log;
pub(crate) use processes::described;
pub(crate) use reporter::{Output, Reporter, complain, output, say, terminal_width};
