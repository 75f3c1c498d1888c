//! `--isolate pid`: the guardian as the first process of a PID namespace (pid_namespaces(7)).
//!
//! When it ends, for whatever reason, the kernel kills everything in the namespace, so even SIGKILL to
//! launcher and guardian at once leaves nothing. The price: processes have other numbers inside than outside,
//! which is why this is not the default.
//!
//! Root makes the namespace as it is. Others need a user namespace around it, in which the user keeps the
//! number and the groups they have outside, and nobody else is there (user_namespaces(7)).

use std::fs;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::unistd::{ForkResult, Gid, Pid, Uid, getegid, geteuid};

/// What the child of [`fork`] has to finish by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsettled {
    /// The user outside, where the child has become nobody in a user namespace of its own.
    user: Option<(Uid, Gid)>,
}

/// Forks with the child in namespaces of its own. There must be no second thread.
///
/// # Errors
/// The kernel's, most often EPERM: neither root nor user namespaces for everybody.
pub(super) fn fork() -> Result<(ForkResult, Unsettled), Errno> {
    let plain = Unsettled { user: None };
    match clone(libc::CLONE_NEWPID | libc::CLONE_NEWNS) {
        Err(Errno::EPERM) => {}
        done => return Ok((done?, plain)),
    }
    let user = Some((geteuid(), getegid()));
    let forked = clone(libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS)?;
    Ok((forked, Unsettled { user }))
}

impl Unsettled {
    /// In the child: makes the namespaces fit to work in.
    ///
    /// # Errors
    /// The user could not be given their number.
    pub(super) fn settle(self) -> Result<(), Errno> {
        if let Some((user, group)) = self.user {
            write("setgroups", "deny")?;
            write("uid_map", &format!("{user} {user} 1"))?;
            write("gid_map", &format!("{group} {group} 1"))?;
        }
        // Or what is mounted below would appear outside as well.
        let none = None::<&str>;
        let _ = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none);
        // Containers may forbid it. Then /proc has the numbers of outside, which only tools look at; we
        // notice and do without.
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let _ = mount(Some("proc"), "/proc", Some("proc"), flags, none);
        Ok(())
    }
}

/// fork(2) with flags. The C library does not know about it, so its idea of the child's thread number is
/// wrong; only locks that count by thread and robust mutexes use it, and the child has neither.
fn clone(flags: libc::c_int) -> Result<ForkResult, Errno> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: no memory is shared and the stack goes on as it is, so this is fork(2); one thread, see above.
    // With all else zero the order of the arguments, which differs between machines, does not matter.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match Errno::result(pid)? {
        0 => Ok(ForkResult::Child),
        pid => Ok(ForkResult::Parent {
            child: Pid::from_raw(pid as i32),
        }),
    }
}

fn write(file: &str, text: &str) -> Result<(), Errno> {
    let done = fs::write(format!("/proc/self/{file}"), text);
    done.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}
