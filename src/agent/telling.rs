//! The way from the launcher to whoever reports.

use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, Scope};
use std::time::Instant;

use super::told::Told;

/// Told everything, with the time when it came. It may wait for whoever reads the report.
pub(crate) type Hear<'h> = &'h mut (dyn FnMut(&Told, Instant) + Send);

type News = (Instant, Told);

/// Hands on what happens to whoever reports. A reader of the report who has stopped reading shall delay no
/// signal, so a thread waits for them; it is started for the first thing that cannot wait.
pub(crate) struct Telling<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    /// Until the thread has it.
    hear: Option<Hear<'e>>,
    kept: Vec<News>,
    thread: Option<Sender<News>>,
}

impl<'s, 'e> Telling<'s, 'e> {
    /// The end of `scope` waits for the report.
    pub(crate) fn new(scope: &'s Scope<'s, 'e>, hear: Hear<'e>) -> Self {
        Self {
            scope,
            hear: Some(hear),
            kept: Vec::new(),
            thread: None,
        }
    }

    /// The thread hears of it at the next [`Telling::pass_on`], or at once where it is needed for that.
    pub(crate) fn tell(&mut self, told: Told) {
        let urgent = !told.can_wait();
        self.kept.push((Instant::now(), told));
        if urgent {
            self.settle();
        }
    }

    /// To be called before a wait: the thread wakes up once for all that has been told.
    pub(crate) fn pass_on(&mut self) {
        if let Some(thread) = &self.thread {
            // The other end is there as long as we are.
            self.kept.drain(..).for_each(|it| drop(thread.send(it)));
        }
    }

    /// Starts the thread, if there is none. Where it is refused, this one waits for the readers.
    pub(crate) fn settle(&mut self) {
        if self.thread.is_some() {
            return;
        }
        // Given to a thread that was refused, it would be lost.
        let (give, take) = channel::<Hear<'e>>();
        let (sender, news) = channel::<News>();
        let body = move || {
            if let Ok(hear) = take.recv() {
                news.iter().for_each(|(at, told)| hear(&told, at));
            }
        };
        let thread = Builder::new().name("report".to_owned());
        if let Err(error) = thread.spawn_scoped(self.scope, body) {
            tracing::warn!("no thread for the report: {error}");
            return self.hear_kept();
        }
        let _taken = self.hear.take().map(|it| give.send(it));
        self.thread = Some(sender);
    }

    /// What has been told is heard, here unless the thread hears it. For what waits for nobody, and for the
    /// end.
    pub(crate) fn hear_kept(&mut self) {
        self.pass_on();
        if let Some(hear) = &mut self.hear {
            self.kept.drain(..).for_each(|(at, told)| hear(&told, at));
        }
    }
}
