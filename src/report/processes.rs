//! Names for processes that are only numbers so far.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sysinfo::{Pid as Number, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use super::line::{harmless, shortened};
use crate::agent::Pid;

/// More of a command line than this tells nobody anything.
const ENOUGH: usize = 40;

/// `pid 71 (sleep 70)` for each; the command is left out where it cannot be read.
pub(crate) fn described(pids: &[Pid]) -> Vec<String> {
    let numbers: Vec<_> = pids.iter().map(|it| Number::from_u32(*it as u32)).collect();
    let system = System::new().ok().map(|mut system| {
        let what = ProcessRefreshKind::nothing().with_cmd(UpdateKind::Always);
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&numbers), true, what);
        system
    });
    let command = |number: Number| system.as_ref().and_then(|it| command(it, number));
    let text = |number: &Number| match command(*number) {
        Some(command) => format!("pid {number} ({command})"),
        None => format!("pid {number}"),
    };
    numbers.iter().map(text).collect()
}

/// `pid 71 (sleep 70) of anna`, as far as it is visible from here.
pub(crate) fn owned(pid: Pid) -> String {
    let owner = owner(pid).map_or_else(String::new, |it| format!(" of {it}"));
    described(&[pid]).concat() + &owner
}

/// The name of the user whose process it is.
fn owner(pid: Pid) -> Option<String> {
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    Some(user.map_or_else(|| uid.to_string(), |it| it.name))
}

fn command(system: &System, number: Number) -> Option<String> {
    let words = system.process(number)?.cmd();
    let (program, rest) = words.split_first()?;
    // Where an interpreter lies says less than what it runs.
    let program = Path::new(program).file_name().unwrap_or(program);
    let words = std::iter::once(program).chain(rest.iter().map(OsString::as_os_str));
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    let text = words.join(" ");
    (!text.is_empty()).then(|| shortened(&harmless(&text), ENOUGH))
}
