//! Why a worker could not be started, and which of the things it needs is the one that is missing.

use std::fs;
use std::io::Read;
use std::path::Path;

use nix::errno::Errno;

use crate::agent::{Refusal, Step, explained};
use crate::plan::Plan;

/// Bytes that the kernel reads of a program to see what it is (BINPRM_BUF_SIZE).
const HEAD: u64 = 256;

/// In words that fit after "could not be started: ".
pub(crate) fn describe(refusal: Refusal, plan: &Plan) -> String {
    let errno = Errno::from_raw(refusal.errno);
    let reason = errno.desc();
    match refusal.step {
        Step::Process => explained(refusal.errno),
        Step::Isolation => format!("{reason}, while its PID namespace was set up"),
        Step::Setup => format!("{reason}, while its session, CPUs or standard input was set up"),
        Step::Directory => {
            let cwd = plan.cwd.as_deref().unwrap_or_default();
            format!("the directory `{}` (--cwd): {reason}", cwd.display())
        }
        Step::Exec => program(errno, Path::new(&plan.program)),
    }
}

/// execve(2) says "not found" of the program, of what its first line names, and of a directory on the way.
fn program(errno: Errno, path: &Path) -> String {
    let (shown, reason) = (path.display(), errno.desc());
    match errno {
        Errno::ENOENT if !path.exists() && path.is_relative() && !Path::new(".").exists() => {
            format!("`{shown}`: the working directory has been removed")
        }
        Errno::ENOENT if !path.exists() => format!("`{shown}` does not exist any more"),
        Errno::ENOENT => format!("`{shown}` is there, but {} is not", its_loader(path)),
        Errno::ENOEXEC => format!(
            "`{shown}` is no program for this machine; a script needs a first line such as `#!/bin/sh`"
        ),
        Errno::E2BIG => format!("`{shown}`: {}", explained(errno as i32)),
        _ => format!("`{shown}`: {reason}"),
    }
}

/// What a program needs to start: the interpreter of its `#!` line, or the dynamic loader.
fn its_loader(program: &Path) -> String {
    let mut head = Vec::new();
    let read = fs::File::open(program).and_then(|it| it.take(HEAD).read_to_end(&mut head));
    let line = head.split(|it| *it == b'\n').next().unwrap_or_default();
    match (read, line.strip_prefix(b"#!")) {
        (Ok(_), Some(named)) => {
            let named = String::from_utf8_lossy(named);
            let named = named.split_whitespace().next().unwrap_or_default();
            format!("`{named}`, which its first line names,")
        }
        _ => "the dynamic loader it needs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("python");
        let gone = program(Errno::ENOENT, &script);
        assert!(gone.ends_with("python` does not exist any more"), "{gone}");
        fs::write(&script, "#! /no/such/python -u\n").unwrap();
        let loader = program(Errno::ENOENT, &script);
        let expected = "is there, but `/no/such/python`, which its first line names, is not";
        assert!(loader.ends_with(expected), "{loader}");
        fs::write(&script, "\x7fELF").unwrap();
        let loader = program(Errno::ENOENT, &script);
        assert!(
            loader.ends_with("but the dynamic loader it needs is not"),
            "{loader}"
        );
    }
}
