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
use crate::report::Output;

/// Puts the cursor in the upper left corner and clears the screen below it (ECMA-48, CUP and ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Hands each listing to `print`; `output` is what standard output can do.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn ps(asked: &Ps, output: Output, print: &mut dyn FnMut(&str)) -> Result<()> {
    let mut meter = Meter::new()?;
    let mut time = Meter::PAUSE;
    let clear = output.clears && asked.watch.is_some() && !asked.json;
    let mut before = if clear { CLEAR } else { "" };
    while pause(time).is_continue() {
        let seen = meter.look(launches());
        let listing = match asked.json {
            true => listing::json(&seen),
            false => listing::text(&seen, output.paint),
        };
        print(&format!("{before}{listing}"));
        match asked.watch {
            Some(again) => time = again,
            None => break,
        }
        if before.is_empty() && !asked.json {
            before = "\n";
        }
    }
    Ok(())
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
