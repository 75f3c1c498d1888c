//! The processes below this one, whatever group or session they have moved to.
//!
//! Orphans among them are our children (we are a subreaper), so following parents in /proc/*/stat finds all.
//! Where /proc is not mounted, or shows another PID namespace than ours, children are found by asking wait
//! about every number that may be theirs: first those handed out since we were born, which takes microseconds,
//! then all there can be, which takes a second or two. That is complete as well, since whatever a killed
//! child leaves becomes a child in its turn.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{ForkResult, fork, getpid};

use super::event::Pid;
use super::linux::PidFd;
use super::wait::{Found, Which, peek, reap_blocking};
use crate::status::Signal;

/// Highest process number any Linux hands out (PID_MAX_LIMIT, 64 bit).
const PID_MAX: Pid = 4_194_304;
/// How often a killer looks after what was made since it last looked: each takes a fraction of a millisecond.
const CHASES: usize = 500;

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
    pub(crate) born: u64,
    /// Threads that still run. The first may be a zombie while others live on.
    threads: u32,
}

impl Process {
    /// Nothing of it runs any more: a zombie that waits to be reaped.
    pub(crate) fn is_dead(&self) -> bool {
        self.state == b'X' || self.state == b'Z' && self.threads <= 1
    }

    /// It did not end, or we are not given it to reap, because a debugger holds it.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.is_dead() || peek(Which::One(self.pid)) == Found::Alive
    }

    /// The same for one process whenever it is seen, and for no other.
    pub(crate) fn identity(&self) -> (Pid, u64) {
        (self.pid, self.born)
    }
}

/// Tells which of the processes below this one are none of ours, and so what is below them is not either.
pub(crate) type Foreign<'f> = &'f dyn Fn(&Process) -> bool;

/// Everything below is ours.
pub(crate) const NOBODY: Foreign<'_> = &|_| false;

/// All processes below this one, each after its parent; dead ones, too, until they are reaped.
pub(crate) fn below(foreign: Foreign<'_>) -> Vec<Process> {
    let mut found = Vec::new();
    visit(foreign, &mut |it| found.push(*it));
    found
}

/// Kills all processes below this one, and what they make meanwhile. What SIGKILL was sent to makes no more;
/// but a process may be found dead whose child was made after the child's number had been passed. So the
/// numbers handed out since are looked through, again and again, until nobody of ours is among them: that
/// catches even a process which goes on to another one every millisecond.
///
/// True if there was anything, be it dead.
pub(crate) fn kill_all_below(foreign: Foreign<'_>) -> bool {
    let mut any = false;
    let mut kill = |it: &Process| {
        any = true;
        if !it.is_dead() {
            send(it, Signal::KILL);
        }
    };
    let before = newest();
    if let (Some(below), Some(before)) = (visit(foreign, &mut kill), before) {
        chase(below, before, foreign, &mut kill);
    }
    any
}

/// Visits what was made since `last` was the newest number, until nobody of ours is among it.
fn chase(
    mut below: HashSet<Pid>,
    mut last: Pid,
    foreign: Foreign<'_>,
    visit: &mut dyn FnMut(&Process),
) {
    for _ in 0..CHASES {
        let Some(newest) = newest() else { return };
        let mut any = false;
        for it in numbers_between(last, newest).filter_map(look_up) {
            if below.contains(&it.parent) && !foreign(&it) && below.insert(it.pid) {
                visit(&it);
                any = true;
            }
        }
        if !any {
            return;
        }
        last = newest;
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

/// One process by its number.
pub(crate) fn look_up(pid: Pid) -> Option<Process> {
    // One read of enough bytes for all fields: there may be ten thousand processes.
    let mut line = [0; 1024];
    let mut file = fs::File::open(format!("/proc/{pid}/stat")).ok()?;
    let length = file.read(&mut line).ok()?;
    parse(&line[..length])
}

/// Visits all processes below this one, as they are found. The numbers of all, and our own; `None` where
/// there is no /proc, and so only children were visited.
fn visit(foreign: Foreign<'_>, visit: &mut dyn FnMut(&Process)) -> Option<HashSet<Pid>> {
    match numbers() {
        Some(numbers) => {
            let all = numbers.filter_map(look_up).filter(|it| !foreign(it));
            Some(visit_tree(getpid().as_raw(), all, visit))
        }
        None => {
            visit_children(&mut |it| {
                if !foreign(it) {
                    visit(it);
                }
            });
            None
        }
    }
}

/// The number of every process there is, or `None` without a /proc that numbers processes as we do.
fn numbers() -> Option<impl Iterator<Item = Pid>> {
    // After `unshare --pid` without `--mount-proc` it is the outer namespace's: its numbers are strangers'.
    if fs::read_link("/proc/self").ok()? != Path::new(&getpid().to_string()) {
        return None;
    }
    let entries = fs::read_dir("/proc").ok()?.flatten();
    Some(entries.filter_map(|it| it.file_name().to_str()?.parse().ok()))
}

/// The numbers handed out after the one, up to the other; they begin anew at the top.
fn numbers_between(after: Pid, to: Pid) -> impl Iterator<Item = Pid> {
    let top = if after <= to { to } else { pid_max() };
    let anew = if after <= to { 0 } else { to };
    (after + 1..=top).chain(1..=anew)
}

fn pid_max() -> Pid {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").ok();
    text.and_then(|it| it.trim().parse().ok())
        .unwrap_or(PID_MAX)
}

fn visit_tree(
    root: Pid,
    all: impl Iterator<Item = Process>,
    visit: &mut dyn FnMut(&Process),
) -> HashSet<Pid> {
    let mut below = HashSet::from([root]);
    let mut apart = Vec::new();
    for process in all {
        if below.contains(&process.parent) {
            below.insert(process.pid);
            visit(&process);
        } else {
            apart.push(process);
        }
    }
    // Children whose numbers are lower than their parents', because the numbers have begun anew.
    let mut before = usize::MAX;
    while apart.len() < before {
        before = apart.len();
        apart.retain(|it| {
            let found = below.contains(&it.parent) && below.insert(it.pid);
            if found {
                visit(it);
            }
            !found
        });
    }
    below
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

fn visit_children(visit: &mut dyn FnMut(&Process)) {
    let own = getpid().as_raw();
    let recent = match newest() {
        Some(newest) if newest > own => own..newest,
        // The numbers have begun anew, or there is no knowing.
        _ => 1..PID_MAX,
    };
    // Dead ones are to be reaped first: they hide whether somebody is alive.
    if !visit_children_among(recent, visit) && peek(Which::Any) == Found::Alive {
        visit_children_among(1..PID_MAX, visit);
    }
}

/// True if there was one.
fn visit_children_among(numbers: Range<Pid>, visit: &mut dyn FnMut(&Process)) -> bool {
    let mut found = false;
    for pid in numbers.filter(|pid| peek(Which::One(*pid)) == Found::Alive) {
        found = true;
        visit(&Process {
            pid,
            parent: 0,
            session: 0,
            state: b'?',
            born: 0,
            threads: 1,
        });
    }
    found
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

    #[track_caller]
    fn check(all: &[(Pid, Pid)], expected: &[Pid]) {
        let mut found = Vec::new();
        let all = all.iter().map(|(pid, parent)| process(*pid, *parent, b'S'));
        visit_tree(10, all, &mut |it| found.push(it.pid));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_tree_leaves_out_strangers() {
        check(
            &[(1, 0), (10, 1), (11, 10), (12, 11), (20, 1), (21, 20)],
            &[11, 12],
        );
        check(&[(1, 0), (10, 1)], &[]);
    }

    #[test]
    fn children_with_lower_numbers_than_their_parents_are_found_all_the_same() {
        let all = [(1, 0), (2, 4), (3, 9), (4, 3), (9, 10), (10, 1), (11, 10)];
        check(&all, &[9, 11, 3, 4, 2]);
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
