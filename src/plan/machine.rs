//! What the plan needs to know about this machine: asked once, cheap, plain data afterwards.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use nix::unistd::{AccessFlags, access};

use super::interpreter::{Files, Interpreter, find_interpreter, find_program};
use crate::cli::{Entry, Request};
use crate::environ::Environ;
use crate::numa::{allowed_cpus, online_cpus};
use crate::source::Sourced;

/// Facts about the machine and the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Machine {
    /// CPUs this process may use, at least 1: its affinity and, where that is more than one for each who shares them,
    /// its cgroup's quota.
    pub(crate) cpus: usize,
    /// CPUs that this machine has switched on; no more than `cpus` where that makes no difference.
    pub(crate) online_cpus: usize,
    /// The name the kernel knows this node by; empty where it has none.
    pub(crate) host: String,
    /// The user's name as Python's `getpass.getuser()` finds it.
    pub(crate) user: String,
    /// Where temporary files go, as Python's `tempfile.gettempdir()` decides.
    pub(crate) temp: PathBuf,
}

impl Machine {
    /// `partly`: it makes a difference whether we may use a part of the machine only. So many will share the CPUs.
    pub(crate) fn look(environ: &Environ, partly: bool, sharers: usize) -> Self {
        let cpus = cpus(sharers);
        let host = nix::unistd::gethostname()
            .ok()
            .and_then(|it| it.into_string().ok());
        Self {
            cpus,
            online_cpus: partly.then(online_cpus).flatten().unwrap_or(cpus),
            host: host.unwrap_or_default(),
            user: user(environ),
            temp: temp(environ),
        }
    }
}

/// What the workers execute: a Python, or with `--no-python` SCRIPT itself.
///
/// # Errors
/// It is not there; the text says where it was looked for.
pub(crate) fn program(request: &Request, environ: &Environ) -> Result<Interpreter> {
    if request.entry() == Entry::Program {
        let seen = |it: &Path| PathBuf::from(request.seen_by_workers(it.as_os_str()));
        let files = Files {
            is_program: &|it| is_program(&seen(it)),
            exists: &|it| seen(it).exists(),
        };
        return find_program(&request.script, environ, &files).map_err(|it| anyhow!(it));
    }
    let mut found = interpreter(request.python.as_ref(), environ)?;
    if request.cwd.is_some() {
        // It was found from here; the workers start elsewhere.
        found.path = std::path::absolute(&found.path)?.into();
    }
    Ok(found)
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

/// The Python to run scripts with; `named` is what `--python` says.
///
/// # Errors
/// There is none; the text lists where it was looked for.
pub(crate) fn interpreter(
    named: Option<&Sourced<OsString>>,
    environ: &Environ,
) -> Result<Interpreter> {
    let files = Files {
        is_program: &is_program,
        exists: &Path::exists,
    };
    let own_binary = std::env::current_exe().ok();
    find_interpreter(named, environ, own_binary.as_deref(), &files).map_err(|it| anyhow!(it))
}

fn user(environ: &Environ) -> String {
    let named = ["LOGNAME", "USER", "LNAME", "USERNAME"]
        .into_iter()
        .find_map(|it| environ.text(it));
    match named {
        Some(name) => name.to_owned(),
        None => {
            let uid = nix::unistd::getuid();
            // The file itself first: the C library would load what answers for it, a fifth of all we do before
            // the first worker.
            let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            let entry = || nix::unistd::User::from_uid(uid).ok().flatten();
            let name = name_in(&passwd, uid.as_raw()).map(str::to_owned);
            let name = name.or_else(|| entry().map(|it| it.name));
            name.unwrap_or_else(|| uid.to_string())
        }
    }
}

/// The first name with this number in the text of /etc/passwd (passwd(5)).
fn name_in(passwd: &str, uid: u32) -> Option<&str> {
    let number = uid.to_string();
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid) = (fields.next()?, fields.next()?, fields.next()?);
        (uid == number).then_some(name)
    })
}

/// A quota takes several files to find. It cannot leave less than one CPU for each, so it is asked for where there may
/// be more.
fn cpus(sharers: usize) -> usize {
    let with_quota = || std::thread::available_parallelism().map_or(1, usize::from);
    let few = allowed_cpus().filter(|it| (1..=sharers).contains(it));
    few.unwrap_or_else(with_quota)
}

fn temp(environ: &Environ) -> PathBuf {
    let named = ["TMPDIR", "TEMP", "TMP"]
        .into_iter()
        .filter_map(|it| environ.text(it));
    let usual = ["/tmp", "/var/tmp", "/usr/tmp"];
    let mut candidates = named.chain(usual).map(PathBuf::from);
    candidates
        .find(|it| is_writable_directory(it))
        .unwrap_or_else(|| PathBuf::from("."))
}

fn is_writable_directory(path: &Path) -> bool {
    path.is_dir() && access(path, AccessFlags::W_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_counts_where_it_makes_a_difference() {
        let usable = std::thread::available_parallelism().unwrap().get();
        assert_eq!(cpus(0), usable);
        assert!(cpus(usize::MAX) >= usable);
    }

    #[test]
    fn a_user_is_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1000:7::/:\n";
        assert_eq!(name_in(passwd, 0), Some("root"));
        assert_eq!(name_in(passwd, 1000), Some("ann"));
        assert_eq!(name_in(passwd, 7), None);
        assert_eq!(name_in("", 0), None);
    }
}
