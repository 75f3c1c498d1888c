//! What the kernel's refusals mean: which limit was met, how high it is, and what raises it.

use std::io;

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::cgroup::Cgroup;

/// The system's words for an error number, and the limit behind it where one can be told:
/// `Too many open files (at most 64: ulimit -n)`.
pub(crate) fn explained(errno: i32) -> String {
    let words = io::Error::from_raw_os_error(errno).to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    let limits = match Errno::from_raw(errno) {
        // Threads whose stack finds no room are refused like this as well (pthread_create(3)).
        Errno::EAGAIN => vec![processes(), group_processes(), addresses()],
        Errno::ENOMEM => vec![addresses()],
        Errno::EMFILE => vec![files()],
        Errno::E2BIG => vec![arguments()],
        _ => Vec::new(),
    };
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    match limits.is_empty() {
        true => words.to_owned(),
        false => format!("{words} ({})", limits.join("; ")),
    }
}

/// The system's refusal with the limit behind it.
pub(crate) fn refused(error: io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(errno) => anyhow::anyhow!(explained(errno)),
        None => error.into(),
    }
}

fn addresses() -> Option<String> {
    let what = "KiB of addresses for a process: `ulimit -v`";
    limit(Resource::RLIMIT_AS, 1024, what)
}

fn files() -> Option<String> {
    limit(Resource::RLIMIT_NOFILE, 1, "for a process: `ulimit -n`")
}

/// execve(2), "Limits on size of arguments and environment".
fn arguments() -> Option<String> {
    let what = "KiB of arguments and environment, a quarter of `ulimit -s`, and 128 KiB of each";
    limit(Resource::RLIMIT_STACK, 4 * 1024, what)
}

/// Root may have any number (setrlimit(2)).
fn processes() -> Option<String> {
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    let text = "processes and threads for this user: `ulimit -u`";
    limit(Resource::RLIMIT_NPROC, 1, text)
}

fn group_processes() -> Option<String> {
    let limit = Cgroup::of_this_process("pids")?.least("pids.max")?;
    Some(format!(
        "at most {limit} processes and threads in this cgroup: the container's or job's pids limit"
    ))
}

fn limit(resource: Resource, unit: u64, what: &str) -> Option<String> {
    let (soft, _) = getrlimit(resource).ok()?;
    (soft != RLIM_INFINITY).then(|| format!("at most {} {what}", soft / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_with_its_value_and_what_raises_it() {
        let (files, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let expected = format!("Too many open files (at most {files} for a process: `ulimit -n`)");
        assert_eq!(explained(Errno::EMFILE as i32), expected);
    }

    #[test]
    fn other_errors_are_the_systems_words() {
        assert_eq!(explained(2), "No such file or directory");
    }
}
