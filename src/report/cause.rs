//! What an exit code or a signal probably means, for somebody who has never met it.

use crate::status::{Signal, Status};

/// What the machine knows beyond the status itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Clues {
    /// The kernel's out-of-memory killer struck in our cgroup since the start; the text is the limit it kept.
    pub(crate) out_of_memory: Option<String>,
    /// /dev/shm when the failure was seen.
    pub(crate) shared_memory: Option<Memory>,
    /// The limit for core dumps is 0 (RLIMIT_CORE).
    pub(crate) no_cores: bool,
}

/// Room in a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

/// So small a /dev/shm is worth a word; Docker's is 64 MiB unless it is told otherwise.
const SMALL: u64 = 1 << 30;

/// A sentence or two on a failure that nobody asked for; `None` where the status says it all.
pub(crate) fn explain(status: Status, clues: &Clues) -> Option<String> {
    let (signal, core) = match status {
        Status::Code(code) => return explain_code(code, clues),
        Status::Signal { signal, core } => (signal, core),
    };
    let meaning = match signal.0 {
        9 => return Some(killed(clues)),
        4 => "often a library built for a newer kind of processor".to_owned(),
        6 => "the program gave up by itself; its last lines above say why".to_owned(),
        7 => bus_error(clues),
        8 => "native code divided by zero or the like".to_owned(),
        11 => "a crash in native code, such as an extension or a driver".to_owned(),
        _ => return None,
    };
    Some(match !core && clues.no_cores {
        true => format!("{meaning} (no core was dumped: `ulimit -c` is 0)"),
        false => meaning,
    })
}

fn explain_code(code: u8, clues: &Clues) -> Option<String> {
    match (code, &clues.out_of_memory) {
        (126, _) => Some("a shell's code for a program that cannot be executed".to_owned()),
        (127, _) => Some("a shell's code for a program that was not found".to_owned()),
        (129..=192, _) => {
            let signal = Signal(i32::from(code) - 128);
            let text = format!("a shell's code for a program that died of {signal}");
            Some(text)
        }
        (_, Some(limit)) => Some(format!(
            "the kernel's out-of-memory killer struck meanwhile ({limit}), perhaps at a process this one had started"
        )),
        (_, None) => None,
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

fn bus_error(clues: &Clues) -> String {
    const WAY_OUT: &str = "data loaders need it: give the container more shared memory";
    match clues.shared_memory {
        // Less than a hundredth: what a data loader asks for next will not fit.
        Some(Memory { free, total }) if free < total / 100 => {
            let (free, total) = (bytes(free), bytes(total));
            format!("/dev/shm is full ({free} of {total} left); {WAY_OUT}")
        }
        Some(Memory { total, .. }) if total < SMALL => {
            format!(
                "perhaps /dev/shm was full: it holds {}; {WAY_OUT}",
                bytes(total)
            )
        }
        _ => "a mapped file was cut short, or a disk is full or failing".to_owned(),
    }
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
        let text = |free, total| {
            let clues = Clues {
                shared_memory: Some(Memory { free, total }),
                ..Clues::default()
            };
            explain(died(7), &clues).unwrap()
        };
        let full = text(1 << 10, 64 << 20);
        assert!(full.starts_with("/dev/shm is full (1 KiB of 64 MiB left); data loaders"));
        // What the dead had mapped is free by the time it is looked at.
        let small = text(60 << 20, 64 << 20);
        assert!(small.starts_with("perhaps /dev/shm was full: it holds 64 MiB;"));
        assert!(text(60 << 30, 64 << 30).starts_with("a mapped file was cut short"));
    }

    #[test]
    fn a_crash_without_a_core_tells_why() {
        let clues = Clues {
            no_cores: true,
            ..Clues::default()
        };
        let text = explain(died(11), &clues).unwrap();
        assert!(text.ends_with("a driver (no core was dumped: `ulimit -c` is 0)"));
        let dumped = Status::Signal {
            signal: Signal(11),
            core: true,
        };
        assert!(explain(dumped, &clues).unwrap().ends_with("or a driver"));
    }

    #[test]
    fn a_worker_may_fail_because_its_child_was_killed_for_memory() {
        let clues = Clues {
            out_of_memory: Some("cgroup limit 4 GiB".into()),
            ..Clues::default()
        };
        let text = explain(Status::Code(1), &clues).unwrap();
        assert!(text.contains("out-of-memory killer struck meanwhile (cgroup limit 4 GiB)"));
        assert_eq!(explain(Status::Code(1), &Clues::default()), None);
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
