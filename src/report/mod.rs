//! What a person gets to read: the launcher's own lines while it runs, and the summary of a failure.

mod line;
mod attempt;
mod cause;
mod exception;
mod hints;
mod json;
mod fates;
mod summary;
mod clues;
mod refusal;
mod processes;
mod files;
mod reporter;
mod log;

pub(crate) use cause::bytes;
pub(crate) use line::{Paint, harmless, ranks, span, wrap};
pub(crate) use log::start_log;
pub(crate) use processes::{described, owned};
pub(crate) use reporter::{
    Output, Reporter, complain, output, say, terminal_width, without_effect,
};
