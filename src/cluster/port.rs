//! A main port that all launchers of a job work out by themselves, each job another one.
//!
//! Ports 16384 to 32764: above those of services, below those that Linux gives to outgoing
//! connections (32768 to 60999, ip(7)).

const FIRST: u64 = 16384;
/// A prime, so that multiples of [`PER_STEP`] come back to the start only after this many.
const PORTS: u64 = 16381;
/// Far enough apart that steps of neighbouring jobs do not meet.
const PER_STEP: u64 = 5501;

/// The port of a job and one of its steps. All steps of a job differ, and so do jobs whose
/// numbers are less than 5000 apart at their first three steps. (Lightning takes the last
/// four digits of the job's number: steps share a port, and so do jobs 10000 apart.)
pub(super) fn of_job(job: u64, step: u64) -> u16 {
    let offset = (job % PORTS + step % PORTS * PER_STEP) % PORTS;
    (FIRST + offset) as u16
}

/// The port of a job whose name is no number.
pub(super) fn of_name(name: &str) -> u16 {
    // FNV-1a: every launcher of the job, of any build, must come to the same.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    of_job(hash, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn steps_and_neighbouring_jobs_differ() {
        let ports: HashSet<u16> = (70_000..75_000)
            .step_by(7)
            .flat_map(|job| (0..3).map(move |step| of_job(job, step)))
            .collect();
        assert_eq!(ports.len(), 715 * 3);
        assert_ne!(of_job(12, 0), of_job(10_012, 0));
    }

    #[test]
    fn ports_stay_between_services_and_outgoing_connections() {
        for port in [
            of_job(0, 0),
            of_job(u64::MAX, u64::MAX),
            of_name("ƒD2e73NP"),
            of_name(""),
        ] {
            assert!((16384..32768).contains(&port), "{port}");
        }
    }
}
