//! The launcher's own log, for those who want to see what it does.

use std::io::{self, IsTerminal};

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::environ::Environ;
use crate::relay::Voice;

/// The launcher's own log, on standard error: warnings, or what `-v`, `-q` and RUST_LOG ask for.
pub(crate) fn start_log(verbosity: i8, environ: &Environ, voice: &Voice) {
    let level = match verbosity {
        ..=-2 => LevelFilter::OFF,
        -1 => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        3.. => LevelFilter::TRACE,
    };
    let wanted = environ
        .text("RUST_LOG")
        .and_then(|it| it.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(level));
    let colours = environ.wants_colours() && io::stderr().is_terminal();
    let voice = voice.clone();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || voice.clone())
        .with_ansi(colours)
        // It would complain to the same place, and panic when that fails, too: a closed pipe must not end us.
        .log_internal_errors(false);
    let lines = lines.without_time().with_target(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
}
