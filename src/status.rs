//! How a process ended: an exit code or a signal, and the names people know signals by.

use std::fmt;

/// A signal by its number; also real-time ones, which have no name of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Signal(pub(crate) i32);

/// Linux numbers on x86-64 and aarch64 (signal(7)), with what each means to a reader of a report.
const SIGNALS: &[(i32, &str, &str)] = &[
    (1, "SIGHUP", "terminal closed"),
    (2, "SIGINT", "interrupted"),
    (3, "SIGQUIT", "quit"),
    (4, "SIGILL", "illegal instruction"),
    (5, "SIGTRAP", "trap"),
    (6, "SIGABRT", "aborted"),
    (7, "SIGBUS", "bus error"),
    (8, "SIGFPE", "arithmetic error"),
    (9, "SIGKILL", "killed"),
    (10, "SIGUSR1", "user signal 1"),
    (11, "SIGSEGV", "segmentation fault"),
    (12, "SIGUSR2", "user signal 2"),
    (13, "SIGPIPE", "broken pipe"),
    (14, "SIGALRM", "alarm"),
    (15, "SIGTERM", "terminated"),
    (16, "SIGSTKFLT", "stack fault"),
    (17, "SIGCHLD", "child ended"),
    (18, "SIGCONT", "continued"),
    (19, "SIGSTOP", "stopped"),
    (20, "SIGTSTP", "stopped from the terminal"),
    (21, "SIGTTIN", "terminal read from the background"),
    (22, "SIGTTOU", "terminal write from the background"),
    (23, "SIGURG", "urgent data"),
    (24, "SIGXCPU", "CPU time limit exceeded"),
    (25, "SIGXFSZ", "file size limit exceeded"),
    (26, "SIGVTALRM", "virtual alarm"),
    (27, "SIGPROF", "profiling alarm"),
    (28, "SIGWINCH", "window resized"),
    (29, "SIGIO", "I/O possible"),
    (30, "SIGPWR", "power failure"),
    (31, "SIGSYS", "bad system call"),
];

impl Signal {
    pub(crate) const INT: Self = Self(2);
    pub(crate) const KILL: Self = Self(9);
    pub(crate) const TERM: Self = Self(15);
    pub(crate) const CHLD: Self = Self(17);
    pub(crate) const CONT: Self = Self(18);
    pub(crate) const STOP: Self = Self(19);
    pub(crate) const TSTP: Self = Self(20);
    pub(crate) const WINCH: Self = Self(28);

    /// The signal of a name such as `SIGTERM`, or of none.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let known = SIGNALS.iter().find(|(_, known, _)| *known == name)?;
        Some(Self(known.0))
    }

    /// What the signal means in a few words, empty for real-time signals.
    pub(crate) fn meaning(self) -> &'static str {
        SIGNALS
            .iter()
            .find(|it| it.0 == self.0)
            .map_or("", |it| it.2)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIGNALS.iter().find(|it| it.0 == self.0) {
            Some((_, name, _)) => f.write_str(name),
            None if self.0 >= 34 => write!(f, "SIGRTMIN+{}", self.0 - 34),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a process ended (wait(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// It called exit; 0 to 255.
    Code(u8),
    /// A signal ended it; `core` when the kernel wrote a core dump.
    Signal { signal: Signal, core: bool },
}

impl Status {
    pub(crate) fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// The code as Python's subprocess module has it: the exit code, or minus the signal's number.
    pub(crate) fn python_code(self) -> i32 {
        match self {
            Self::Code(code) => code.into(),
            Self::Signal { signal, .. } => -signal.0,
        }
    }

    /// The code a shell shows for this end: the exit code, or 128 + signal number.
    pub(crate) fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal { signal, .. } => 128_u8.wrapping_add(signal.0 as u8),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal { signal, core } => {
                write!(f, "{signal}")?;
                if !signal.meaning().is_empty() {
                    write!(f, " ({})", signal.meaning())?;
                }
                f.write_str(if *core { ", core dumped" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(Signal::named("SIGTERM"), Some(Signal::TERM));
        assert_eq!(Signal::named("TERM"), None);
        assert_eq!(Signal(10).to_string(), "SIGUSR1");
        assert_eq!(Signal(34).to_string(), "SIGRTMIN+0");
        assert_eq!(Signal(33).to_string(), "signal 33");
    }

    #[test]
    fn a_status_reads_like_a_sentence() {
        let killed = Status::Signal {
            signal: Signal::KILL,
            core: false,
        };
        assert_eq!(killed.to_string(), "SIGKILL (killed)");
        assert_eq!(killed.shell_code(), 137);
        assert_eq!(Status::Code(7).to_string(), "exit code 7");
        let crashed = Status::Signal {
            signal: Signal(11),
            core: true,
        };
        assert_eq!(
            crashed.to_string(),
            "SIGSEGV (segmentation fault), core dumped"
        );
        assert!(Status::Code(0).success() && !killed.success());
    }
}
