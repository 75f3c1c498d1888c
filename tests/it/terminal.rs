//! A terminal of its own for a command under test, with somebody at the keyboard.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;

use crate::harness::{Fabric, Running, wait_until};

/// The keyboard and the screen.
pub(crate) struct Terminal {
    keyboard: Option<File>,
    screen: Arc<Mutex<String>>,
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts a command as the leader of a session that this is the terminal of.
    pub(crate) fn start(command: Fabric) -> (Self, Running) {
        let pty = openpty(None, None).unwrap();
        let slave = File::from(pty.slave);
        // Or the command would hold both ends of its terminal.
        fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        let running = command.with(|it| attach(it, &slave)).start();
        let keyboard = File::from(pty.master);
        let (screen, closing) = (
            Arc::<Mutex<String>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let source = keyboard.try_clone().unwrap();
        let (shown, stop) = (Arc::clone(&screen), Arc::clone(&closing));
        let reader = std::thread::spawn(move || show(source, &shown, &stop));
        let terminal = Self {
            keyboard: Some(keyboard),
            screen,
            closing,
            reader: Some(reader),
        };
        (terminal, running)
    }

    /// Types it.
    pub(crate) fn type_in(&mut self, text: &str) {
        let keyboard = self.keyboard.as_mut().unwrap();
        keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until it is there to read.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        let shows = || self.screen.lock().unwrap().contains(text);
        wait_until(&format!("the screen shows `{text}`"), shows);
    }
}

/// As somebody closes the window: what runs there gets SIGHUP.
impl Drop for Terminal {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        self.reader.take().map(JoinHandle::join);
        self.keyboard.take();
    }
}

fn show(mut source: File, screen: &Mutex<String>, stop: &AtomicBool) {
    let mut bytes = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let mut sources = [PollFd::new(source.as_fd(), PollFlags::POLLIN)];
        if poll(&mut sources, PollTimeout::from(20u8)) != Ok(1) {
            continue;
        }
        match source.read(&mut bytes) {
            Ok(length @ 1..) => {
                let text = String::from_utf8_lossy(&bytes[..length]);
                screen.lock().unwrap().push_str(&text);
            }
            // The last process has let go of the terminal.
            _ => return,
        }
    }
}

fn attach(command: &mut Command, slave: &File) {
    let copy = || slave.try_clone().unwrap();
    command.stdin(copy()).stdout(copy()).stderr(copy());
    let slave = slave.as_raw_fd();
    // SAFETY: two system calls, both safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() == -1 || libc::ioctl(slave, libc::TIOCSCTTY, 0) == -1 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}
