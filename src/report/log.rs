//! The launcher's own log, for those who want to see what it does.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

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
    let log = Log {
        wanted: wanted.unwrap_or_else(|| Targets::new().with_default(level)),
        voice: voice.clone(),
        colours: environ.wants_colours(),
        open: OnceLock::new(),
    };
    // Refused where there is one already, which there is not.
    let _ = tracing::subscriber::set_global_default(log);
}

/// Opens with its first line: most runs have none, and a registry of spans takes 32 KiB that are written before
/// anything is in them, a fiftieth of a launch. Nothing of ours is in a span.
struct Log {
    wanted: Targets,
    voice: Voice,
    colours: bool,
    open: OnceLock<Box<dyn Subscriber + Send + Sync>>,
}

impl Log {
    fn open(&self) -> &(dyn Subscriber + Send + Sync) {
        self.open.get_or_init(|| {
            let voice = self.voice.clone();
            let lines = tracing_subscriber::fmt::layer()
                .with_writer(move || voice.clone())
                .with_ansi(self.colours && io::stderr().is_terminal())
                // It would complain to the same place, and panic when that fails, too: a closed pipe must not
                // end us.
                .log_internal_errors(false);
            let lines = lines.without_time().with_target(false);
            Box::new(tracing_subscriber::registry().with(lines))
        })
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.wanted
            .would_enable(metadata.target(), metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        <Targets as Layer<Registry>>::max_level_hint(&self.wanted)
    }

    fn event(&self, event: &Event<'_>) {
        self.open().event(event);
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.open().new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.open().record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.open().record_follows_from(span, follows);
    }

    fn enter(&self, span: &Id) {
        self.open().enter(span);
    }

    fn exit(&self, span: &Id) {
        self.open().exit(span);
    }
}
