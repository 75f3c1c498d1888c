//! How the launcher itself speaks on stderr.

use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::EventFd;

use super::output::Output;
use super::pump::Order;
use super::treatment::Stream;

/// While workers' output is relayed, lines of our own go the same way: they never fall into the middle of
/// another line, and who speaks never waits for a reader. Before and after they are written at once.
#[derive(Clone, Debug)]
pub(crate) struct Voice(Arc<Mutex<Way>>);

#[derive(Debug)]
enum Way {
    Straight(Output),
    Through(Orders),
    /// Nobody reads, and somebody who waits for us has had enough.
    Silent,
}

/// Where a pump takes its orders.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub(super) sender: Sender<Order>,
    pub(super) bell: Arc<EventFd>,
}

impl Orders {
    pub(super) fn give(&self, order: Order) {
        self.put(order);
        self.ring();
    }

    /// For the next time that the bell rings. A pump that has ended hears nothing, which is no loss.
    pub(super) fn put(&self, order: Order) {
        let _ = self.sender.send(order);
    }

    pub(super) fn ring(&self) {
        let _ = self.bell.write(1);
    }
}

impl Voice {
    pub(crate) fn new() -> Self {
        Self::over(Way::Straight(Output::new(Stream::Err)))
    }

    fn over(way: Way) -> Self {
        Self(Arc::new(Mutex::new(way)))
    }

    /// Whole lines.
    pub(crate) fn say(&self, text: &str) {
        self.utter(text.as_bytes());
    }

    fn utter(&self, text: &[u8]) {
        match &mut *self.way() {
            Way::Straight(output) => output.say(text),
            Way::Through(orders) => orders.give(Order::Say(text.to_owned())),
            Way::Silent => {}
        }
    }

    pub(super) fn go_through(&self, orders: Orders) {
        *self.way() = Way::Through(orders);
    }

    /// The pump has left this; what was said too late for it is said now.
    pub(super) fn go_straight(&self, mut output: Output, orders: &Receiver<Order>) {
        let mut way = self.way();
        for order in orders.try_iter() {
            if let Order::Say(text) = order {
                output.say(&text);
            }
        }
        *way = Way::Straight(output);
    }

    /// The pump still waits for its reader, as we would.
    pub(super) fn go_silent(&self) {
        *self.way() = Way::Silent;
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For the log, which writes whole lines.
impl io::Write for Voice {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.utter(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
