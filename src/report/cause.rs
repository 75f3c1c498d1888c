//! What an exit code or a signal probably means, for somebody who has never met it.

use crate::status::{Signal, Status};

/// What the machine knows beyond the status itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Clues {
    /// The kernel's out-of-memory killer struck in our cgroup since the start; the text is the limit it kept.
    pub(crate) out_of_memory: Option<String>,
    /// Free and total bytes of /dev/shm.
    pub(crate) shared_memory: Option<(u64, u64)>,
}

/// One or two sentences on a failure that nobody asked for; `None` where the status says it all.
pub(crate) fn explain(status: Status, clues: &Clues) -> Option<String> {
    match status {
        Status::Code(126) => {
            Some("a shell's code for a program that cannot be executed".to_owned())
        }
        Status::Code(127) => Some("a shell's code for a program that was not found".to_owned()),
        Status::Code(code @ 129..=192) => {
            let signal = Signal(i32::from(code) - 128);
            Some(format!(
                "a shell's code for a program that died of {signal}"
            ))
        }
        Status::Code(_) => None,
        Status::Signal {
            signal: Signal::KILL,
            ..
        } => Some(killed(clues)),
        Status::Signal {
            signal: Signal(7), ..
        } => bus_error(clues),
        Status::Signal {
            signal: Signal(4), ..
        } => Some("often a library built for a newer kind of processor".to_owned()),
        Status::Signal {
            signal: Signal(6), ..
        } => Some("the program gave up by itself; its last lines above say why".to_owned()),
        Status::Signal { .. } => None,
    }
}

fn killed(clues: &Clues) -> String {
    match &clues.out_of_memory {
        Some(limit) => format!("killed by the kernel's out-of-memory killer ({limit})"),
        None => "somebody sent SIGKILL; it was not fabric, and the kernel's out-of-memory killer left no trace \
                 in this cgroup"
            .to_owned(),
    }
}

fn bus_error(clues: &Clues) -> Option<String> {
    let (free, total) = clues.shared_memory?;
    // Less than a hundredth: what a data loader asks for next will not fit.
    (free < total / 100).then(|| {
        format!(
            "/dev/shm is full ({} of {} left); data loaders need it: give the container more shared memory",
            bytes(free),
            bytes(total)
        )
    })
}

/// `4 GiB`, `1.5 GiB`, `64 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(size, _)| number >= *size) {
        Some((size, unit)) if number.is_multiple_of(*size) => format!("{} {unit}", number / size),
        Some((size, unit)) => format!("{:.1} {unit}", number as f64 / *size as f64),
        None => format!("{number} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(signal: i32) -> Status {
        Status::Signal {
            signal: Signal(signal),
            core: false,
        }
    }

    #[test]
    fn a_kill_is_the_kernels_if_it_left_a_trace() {
        let clues = Clues {
            out_of_memory: Some("cgroup limit 4 GiB".into()),
            ..Clues::default()
        };
        let text = explain(died(9), &clues).unwrap();
        assert_eq!(
            text,
            "killed by the kernel's out-of-memory killer (cgroup limit 4 GiB)"
        );
        assert!(
            explain(died(9), &Clues::default())
                .unwrap()
                .contains("somebody sent SIGKILL")
        );
    }

    #[test]
    fn a_bus_error_with_full_shared_memory_says_so() {
        let full = Clues {
            shared_memory: Some((1 << 10, 64 << 20)),
            ..Clues::default()
        };
        assert!(
            explain(died(7), &full)
                .unwrap()
                .starts_with("/dev/shm is full (1 KiB of 64 MiB left)")
        );
        let roomy = Clues {
            shared_memory: Some((60 << 20, 64 << 20)),
            ..Clues::default()
        };
        assert_eq!(explain(died(7), &roomy), None);
    }

    #[test]
    fn shell_codes_are_translated() {
        assert!(
            explain(Status::Code(127), &Clues::default())
                .unwrap()
                .contains("not found")
        );
        assert!(
            explain(Status::Code(137), &Clues::default())
                .unwrap()
                .contains("SIGKILL")
        );
        assert_eq!(explain(Status::Code(1), &Clues::default()), None);
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes(4 << 30), "4 GiB");
        assert_eq!(bytes(1_610_612_736), "1.5 GiB");
        assert_eq!(bytes(12), "12 bytes");
    }
}
