//! The processes below this one, whatever group or session they have moved to.
//!
//! Orphans among them are our children (we are a subreaper), so following parents in /proc/*/stat finds all.
//! Where /proc is not mounted, or shows another PID namespace than ours, children are found by asking wait
//! about every number that may be theirs: first those handed out since we were born, which takes microseconds,
//! then all there can be, which takes a second or two. That is complete as well, since whatever a killed
//! child leaves becomes a child in its turn.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{ForkResult, fork, getpid};

use super::event::Pid;
use super::linux::PidFd;
use super::wait::{Found, Which, peek, reap_blocking};
use crate::status::Signal;

/// Highest process number any Linux hands out (PID_MAX_LIMIT, 64 bit).
const PID_MAX: Pid = 4_194_304;

/// One line of /proc/PID/stat (proc(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    /// 0 where it is not known.
    pub(crate) session: Pid,
    /// `R`, `S`, `D`, `T`, `Z`, ...; `?` where it is not known.
    pub(crate) state: u8,
    /// When it was started, in clock ticks since boot: with the number, its identity. 0 where it is not
    /// known; then it was found as our own child that nobody has reaped, which is an identity as well.
    born: u64,
    /// Threads that still run. The first may be a zombie while others live on.
    threads: u32,
}

impl Process {
    /// Nothing of it runs any more: a zombie that waits to be reaped.
    pub(crate) fn is_dead(&self) -> bool {
        self.state == b'X' || self.state == b'Z' && self.threads <= 1
    }

    /// The same for one process whenever it is seen, and for no other.
    pub(crate) fn identity(&self) -> (Pid, u64) {
        (self.pid, self.born)
    }
}

/// All processes below this one, each after its parent; dead ones, too, until they are reaped.
pub(crate) fn below() -> Vec<Process> {
    match all() {
        Some(all) => tree(getpid().as_raw(), &all),
        None => children_without_proc(),
    }
}

/// The session this process is in.
pub(crate) fn own_session() -> Pid {
    nix::unistd::getsid(None).map_or(0, nix::unistd::Pid::as_raw)
}

/// Sends a signal to exactly this process: never to another that has been given its number since.
pub(crate) fn send(process: &Process, signal: Signal) {
    match PidFd::open(process.pid) {
        // The handle is open: if the number still belongs to the one we saw, the handle does too.
        Ok(handle) if is_still_there(process) => drop(handle.send(signal.0)),
        Ok(_) | Err(Errno::ESRCH) => {}
        // An older kernel, or no descriptor to spare. The check leaves a gap of microseconds, in which a
        // number would have to be freed and handed out again; numbers are handed out in turn (pid_max(5)).
        Err(_) if is_still_there(process) => kill(process.pid, signal),
        Err(_) => {}
    }
}

/// kill(2) for any signal number, real-time ones included; a process that has gone is no error here.
pub(crate) fn kill(pid: Pid, signal: Signal) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal.0) };
}

fn is_still_there(process: &Process) -> bool {
    process.born == 0 || look_up(process.pid).is_some_and(|it| it.identity() == process.identity())
}

fn look_up(pid: Pid) -> Option<Process> {
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Every process there is, or `None` without a /proc that numbers processes as we do.
fn all() -> Option<HashMap<Pid, Process>> {
    // After `unshare --pid` without `--mount-proc` it is the outer namespace's: its numbers are strangers'.
    if fs::read_link("/proc/self").ok()? != Path::new(&getpid().to_string()) {
        return None;
    }
    let found = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid: Pid = entry.file_name().to_str()?.parse().ok()?;
        look_up(pid)
    });
    Some(found.map(|it| (it.pid, it)).collect())
}

fn tree(root: Pid, all: &HashMap<Pid, Process>) -> Vec<Process> {
    let mut children: HashMap<Pid, Vec<&Process>> = HashMap::new();
    for process in all.values() {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut seen) = (Vec::new(), HashSet::from([root]));
    let mut ahead = vec![root];
    while let Some(pid) = ahead.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if seen.insert(child.pid) {
                ahead.push(child.pid);
                found.push(**child);
            }
        }
    }
    found
}

/// The fields after the command, which is in brackets and may itself hold brackets and blanks.
fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|it| *it == b'(')?;
    let close = stat.iter().rposition(|it| *it == b')')?;
    let pid = std::str::from_utf8(&stat[..open]).ok()?;
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    // The first of them is field 3 of the line.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Process {
        pid: pid.trim().parse().ok()?,
        state: *field(3)?.as_bytes().first()?,
        parent: field(4)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        threads: field(20)?.parse().ok()?,
        born: field(22)?.parse().ok()?,
    })
}

fn children_without_proc() -> Vec<Process> {
    let own = getpid().as_raw();
    let recent = match newest() {
        Some(newest) if newest > own => own..newest,
        // The numbers have begun anew, or there is no knowing.
        _ => 1..PID_MAX,
    };
    let found = children_among(recent);
    if found.is_empty() && peek(Which::Any) != Found::Nobody {
        return children_among(1..PID_MAX);
    }
    found
}

fn children_among(numbers: std::ops::Range<Pid>) -> Vec<Process> {
    let alive = numbers.filter(|pid| peek(Which::One(*pid)) == Found::Alive);
    let unknown = |pid| Process {
        pid,
        parent: 0,
        session: 0,
        state: b'?',
        born: 0,
        threads: 1,
    };
    alive.map(unknown).collect()
}

/// The number that was handed out last: that of a process which is made to learn it.
fn newest() -> Option<Pid> {
    // SAFETY: the child makes one system call that is safe in any process, however many threads it had.
    match unsafe { fork() }.ok()? {
        // SAFETY: as above.
        ForkResult::Child => unsafe { libc::_exit(0) },
        ForkResult::Parent { child } => {
            reap_blocking(Which::One(child.as_raw()));
            Some(child.as_raw())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: Pid, parent: Pid, state: u8) -> Process {
        Process {
            pid,
            parent,
            session: 1,
            state,
            born: 1,
            threads: 1,
        }
    }

    #[test]
    fn a_command_with_brackets_and_blanks_is_read() {
        let line = b"42 (a) b (c) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 9876 1 2 3";
        let expected = Process {
            session: 41,
            born: 9876,
            threads: 3,
            ..process(42, 7, b'S')
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b"42 (cut"), None);
        assert_eq!(parse(b"42 (short) S 7"), None);
    }

    #[test]
    fn the_tree_leaves_out_strangers() {
        let all = [
            process(10, 1, b'S'),
            process(11, 10, b'Z'),
            process(12, 10, b'S'),
            process(13, 12, b'T'),
            process(20, 1, b'S'),
        ];
        let all = all.map(|it| (it.pid, it)).into_iter().collect();
        let mut found: Vec<Pid> = tree(10, &all).iter().map(|it| it.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [11, 12, 13]);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_lives_on() {
        assert!(process(2, 1, b'Z').is_dead());
        let headless = Process {
            threads: 2,
            ..process(2, 1, b'Z')
        };
        assert!(!headless.is_dead());
        assert!(!process(2, 1, b'D').is_dead());
    }

    #[test]
    fn we_see_ourselves() {
        let me = look_up(getpid().as_raw()).unwrap();
        assert_eq!(me.session, own_session());
        assert!(is_still_there(&me));
        let other = Process { born: 1, ..me };
        assert!(!is_still_there(&other));
    }
}
