//! `fabric ps`: looks, once or again and again.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Result;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::board::launches;
use super::listing;
use super::meter::Meter;
use crate::cli::Ps;
use crate::report::Paint;

/// Puts the cursor in the upper left corner and clears the screen below it (ECMA-48, CUP and ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Where the listing goes.
pub(crate) struct Screen<'a> {
    pub(crate) print: &'a mut dyn FnMut(&str),
    pub(crate) paint: Paint,
    /// A terminal that can be cleared: a new listing takes the place of the last.
    pub(crate) clears: bool,
}

/// # Errors
/// /proc cannot be read.
pub(crate) fn ps(asked: &Ps, screen: Screen<'_>) -> Result<()> {
    let mut meter = Meter::new()?;
    if pause(Meter::PAUSE).is_break() {
        return Ok(());
    }
    loop {
        let seen = meter.look(launches());
        let listing = match asked.json {
            true => listing::json(&seen),
            false => listing::text(&seen, screen.paint),
        };
        let clear = screen.clears && asked.watch.is_some() && !asked.json;
        (screen.print)(&format!("{}{listing}", if clear { CLEAR } else { "" }));
        let Some(time) = asked.watch else {
            return Ok(());
        };
        if pause(time).is_break() {
            return Ok(());
        }
        if !clear && !asked.json {
            (screen.print)("\n");
        }
    }
}

/// Lets time pass, unless nobody reads our output any more, as after `| head`: poll(2) always tells of that.
fn pause(time: Duration) -> ControlFlow<()> {
    let out = std::io::stdout();
    let mut reader = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    match poll(&mut reader, timeout) {
        Ok(0) | Err(Errno::EINTR) => ControlFlow::Continue(()),
        Ok(_) | Err(_) => ControlFlow::Break(()),
    }
}
