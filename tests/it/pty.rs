//! A terminal with nobody but the test in front of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};

use crate::harness::{Fabric, Running, wait_until};

/// What stands on the screen so far, and the keyboard.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts the command as a shell does that leaves the terminal to it.
    pub(crate) fn start(fabric: Fabric, rows: u16, columns: u16) -> (Self, Running) {
        let pair = openpty(&size(rows, columns), None).unwrap();
        let stdin = pair.slave.try_clone().unwrap();
        let stdout = pair.slave.try_clone().unwrap();
        let own = |command: &mut std::process::Command| {
            command.stdin(stdin).stdout(stdout).stderr(pair.slave);
            let take_terminal = || {
                nix::unistd::setsid()?;
                // SAFETY: TIOCSCTTY takes a number.
                nix::errno::Errno::result(unsafe { nix::libc::ioctl(0, nix::libc::TIOCSCTTY, 0) })?;
                Ok(())
            };
            // SAFETY: two system calls.
            unsafe { command.pre_exec(take_terminal) };
        };
        let running = fabric.with(own).start();
        let screen = Arc::default();
        watch(pair.master.try_clone().unwrap(), Arc::clone(&screen));
        let keyboard = pair.master.into();
        (Self { keyboard, screen }, running)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        wait_until(&format!("`{text}` is shown"), || self.text().contains(text));
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = size(rows, columns);
        // SAFETY: TIOCSWINSZ reads a winsize.
        let done =
            unsafe { nix::libc::ioctl(self.keyboard.as_raw_fd(), nix::libc::TIOCSWINSZ, &size) };
        assert_eq!(done, 0);
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Reads until the last program has left the terminal, which reads as an error.
fn watch(master: OwnedFd, screen: Arc<Mutex<Vec<u8>>>) {
    std::thread::spawn(move || {
        let (mut master, mut bytes) = (File::from(master), [0; 4096]);
        while let Ok(count @ 1..) = master.read(&mut bytes) {
            screen.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    });
}
