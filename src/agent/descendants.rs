//! The processes below one process, whatever group or session they have moved to.
//!
//! Orphans among them are its children (it is a subreaper), so following parents in /proc/*/stat finds all.
//! Where /proc is not mounted, children are found by asking wait about every possible number: slow (a second
//! or so) but complete, since whatever a killed child leaves becomes a child in its turn.

use std::collections::{HashMap, HashSet};
use std::fs;

use nix::errno::Errno;

use super::event::Pid;
use super::linux::PidFd;
use super::wait::{Found, Which, peek};
use crate::status::Signal;

/// Highest process number any Linux hands out (PID_MAX_LIMIT, 64 bit).
const PID_MAX: Pid = 4_194_304;

/// One line of /proc/PID/stat (proc(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    /// `R`, `S`, `D`, `T`, `Z`, ...
    pub(crate) state: u8,
    /// When it was started, in clock ticks since boot: with the number, its identity.
    pub(crate) born: u64,
}

/// All living processes below `root`, nearest first; zombies are left out, there is nothing to end.
pub(crate) fn below(root: Pid) -> Vec<Process> {
    match all() {
        Some(all) => tree(root, &all),
        None => children_without_proc(),
    }
}

/// One process by its number.
pub(crate) fn look_up(pid: Pid) -> Option<Process> {
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Sends a signal to exactly this process: never to another that has been given its number since.
pub(crate) fn send(process: &Process, signal: Signal) {
    match PidFd::open(process.pid) {
        // The handle is open: if the number still belongs to the one we saw, the handle does too.
        Ok(handle) if same(process) => drop(handle.send(signal.0)),
        Ok(_) | Err(Errno::ESRCH) => {}
        // An older kernel. The check leaves a gap of microseconds, in which a number would have to be
        // freed and handed out again; numbers are handed out in turn (pid_max(5)).
        Err(_) if same(process) => kill(process.pid, signal),
        Err(_) => {}
    }
}

/// kill(2) for any signal number, real-time ones included; a process that has gone is no error here.
pub(crate) fn kill(pid: Pid, signal: Signal) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal.0) };
}

fn same(process: &Process) -> bool {
    match look_up(process.pid) {
        Some(now) => now.born == process.born,
        // Without /proc it was found as our own unreaped child, so the number cannot have been reused.
        None => process.born == 0,
    }
}

/// Every process there is, or `None` without /proc.
fn all() -> Option<HashMap<Pid, Process>> {
    let found = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid: Pid = entry.file_name().to_str()?.parse().ok()?;
        look_up(pid)
    });
    let found: HashMap<Pid, Process> = found.map(|it| (it.pid, it)).collect();
    (!found.is_empty()).then_some(found)
}

fn tree(root: Pid, all: &HashMap<Pid, Process>) -> Vec<Process> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for process in all.values() {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let (mut found, mut seen, mut ahead) = (Vec::new(), HashSet::from([root]), vec![root]);
    while let Some(pid) = ahead.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if seen.insert(*child) {
                ahead.push(*child);
                found.push(all[child]);
            }
        }
    }
    found.retain(|it| it.state != b'Z' && it.state != b'X');
    found
}

/// The fields after the command, which is in brackets and may itself hold brackets and blanks.
fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|it| *it == b'(')?;
    let close = stat.iter().rposition(|it| *it == b')')?;
    let pid = std::str::from_utf8(&stat[..open]).ok()?.trim().parse().ok()?;
    let mut rest = std::str::from_utf8(&stat[close + 1..]).ok()?.split_ascii_whitespace();
    let state = *rest.next()?.as_bytes().first()?;
    let parent = rest.next()?.parse().ok()?;
    // Field 22 of the line; state is field 3 and the parent 4.
    let born = rest.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, state, born })
}

fn children_without_proc() -> Vec<Process> {
    let found = (1..PID_MAX).filter(|pid| peek(Which::One(*pid)) == Found::Alive);
    found.map(|pid| Process { pid, parent: 0, state: b'?', born: 0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_and_blanks_is_read() {
        let line = b"42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 1 2 3";
        let read = parse(line).unwrap();
        assert_eq!(read, Process { pid: 42, parent: 7, state: b'S', born: 9876 });
    }

    #[test]
    fn the_tree_leaves_out_strangers_and_zombies() {
        let process = |pid, parent, state| Process { pid, parent, state, born: 1 };
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
        assert_eq!(found, [12, 13]);
    }

    #[test]
    fn we_see_ourselves() {
        let me = std::process::id() as Pid;
        assert_eq!(look_up(me).unwrap().pid, me);
        assert!(same(&look_up(me).unwrap()));
    }
}
