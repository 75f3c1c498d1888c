//! Starts workers: the only place that makes processes which run somebody else's program.
//!
//! clone(2) with CLONE_VM and CLONE_VFORK: the child borrows our memory and we sleep until it has executed
//! its program, so nothing is copied however large we are, and a failure of any step in the child is simply
//! written into a variable that we read afterwards. posix_spawn(3) would do the same but knows no
//! parent-death signal; fork(2) costs three times as much (measured: 250 against 85 microseconds a start).

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::event::{Pid, Step};
use crate::numa::CpuSet;
use crate::plan::{Plan, Variable, World};
use crate::relay::Ends;
use crate::topology::LocalRank;

/// Stack of the child between clone(2) and execve(2), which run a few system calls only.
const STACK: usize = 64 * 1024;

/// Why a worker could not be started.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) errno: i32,
    pub(crate) step: Step,
}

/// Everything that the starts of all workers share, prepared once.
pub(crate) struct Spawner<'a> {
    plan: &'a Plan,
    world: World,
    program: CString,
    arguments: Vec<CString>,
    /// `NAME=value` of the variables that are the same for every worker.
    environment: Vec<CString>,
    cwd: Option<CString>,
    /// CPUs of each worker by local rank, as sched_setaffinity(2) takes them; empty where none are set.
    masks: Vec<Vec<u64>>,
    /// For workers other than the first; `None` where /dev/null cannot be opened.
    null: Option<OwnedFd>,
    /// Not filled with zeros: of its pages only the last is ever touched.
    stack: Box<[MaybeUninit<u8>]>,
}

/// What the child reads and writes while it borrows our memory.
struct Launch<'a> {
    program: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    /// What becomes standard input; negative leaves it as it is.
    stdin: c_int,
    /// What become standard output and error, in the same way.
    outputs: [c_int; 2],
    /// Null leaves it where we are.
    cwd: *const c_char,
    /// CPUs, one bit each; empty leaves them as they are.
    mask: &'a [u64],
    parent: libc::pid_t,
    failure: Option<(Step, i32)>,
}

impl<'a> Spawner<'a> {
    pub(crate) fn new(plan: &'a Plan, world: World) -> Self {
        let null = open(
            "/dev/null",
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .ok();
        let environment = plan.common_environment(&world);
        let cpus = plan.bound.iter().flat_map(|it| &it.cpus);
        Self {
            plan,
            world,
            program: c_string(plan.program.clone()),
            arguments: plan.arguments.iter().cloned().map(c_string).collect(),
            environment: environment.iter().map(assignment).collect(),
            cwd: plan.cwd.clone().map(c_string),
            masks: cpus.map(CpuSet::mask).collect(),
            null,
            stack: Box::new_uninit_slice(STACK),
        }
    }

    /// Starts one worker, which writes to its `ends`, and returns once it runs its program.
    ///
    /// The calling thread becomes the worker's parent in the sense of PR_SET_PDEATHSIG (prctl(2)): the
    /// signal comes when that THREAD ends, so this must be called by the main thread.
    pub(crate) fn start(&mut self, rank: LocalRank, ends: &Ends) -> Result<Pid, Refused> {
        let own = self.plan.own_environment(&self.world, rank);
        let own: Vec<CString> = own.iter().map(assignment).collect();
        let argv = pointers(self.arguments.iter());
        let envp = pointers(self.environment.iter().chain(&own));
        let stdin = match &self.null {
            Some(null) if rank.0 > 0 => null.as_raw_fd(),
            _ => -1,
        };
        let mut launch = Launch {
            program: self.program.as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            stdin,
            outputs: ends.of_worker().unwrap_or([-1; 2]),
            cwd: self.cwd.as_ref().map_or(std::ptr::null(), |it| it.as_ptr()),
            mask: self.masks.get(rank.0 as usize).map_or(&[], Vec::as_slice),
            parent: nix::unistd::getpid().as_raw(),
            failure: None,
        };
        let pid =
            clone_and_wait_for_exec(&mut self.stack, &mut launch).map_err(|errno| Refused {
                errno: errno as i32,
                step: Step::Process,
            })?;
        match launch.failure {
            None => Ok(pid),
            Some((step, errno)) => {
                // It has ended by itself; nobody else knows its number.
                let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
                Err(Refused { errno, step })
            }
        }
    }
}

fn clone_and_wait_for_exec(
    stack: &mut [MaybeUninit<u8>],
    launch: &mut Launch<'_>,
) -> Result<Pid, Errno> {
    let top = stack.as_mut_ptr_range().end;
    // The ABI wants 16 bytes of alignment.
    let top = top.wrapping_sub(top as usize % 16).cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let launch: *mut Launch<'_> = launch;
    // SAFETY: `stack` and `launch` outlive the call, which returns only when the child has executed its
    // program or ended (CLONE_VFORK); until then nobody else in this single-threaded process runs. The child
    // has its own signal handlers, descriptors and working directory, so what it changes is its own.
    let pid = unsafe { libc::clone(child, top, flags, launch.cast()) };
    Errno::result(pid)
}

/// Runs in the child: only system calls, no allocation, no lock, nothing that needs our threads.
extern "C" fn child(launch: *mut c_void) -> c_int {
    // SAFETY: the pointer is the `Launch` that `clone_and_wait_for_exec` was given, which outlives us.
    let launch = unsafe { &mut *launch.cast::<Launch<'_>>() };
    // SAFETY: the pointers in `launch` come from `CString`s and arrays that end with null.
    let failure = unsafe { become_worker(launch) };
    launch.failure = Some(failure);
    // SAFETY: _exit runs no handlers of ours, which must not run twice.
    unsafe { libc::_exit(127) }
}

/// Returns only when something failed.
unsafe fn become_worker(launch: &Launch<'_>) -> (Step, i32) {
    // SAFETY: plain system calls on valid arguments, see the caller.
    unsafe {
        // A session of its own, as in the original: terminal signals reach the launcher only, and the
        // worker's number is also that of its group.
        if libc::setsid() == -1 {
            return (Step::Setup, Errno::last_raw());
        }
        if let Err(errno) = super::linux::die_with_parent(launch.parent) {
            return (Step::Setup, errno as i32);
        }
        let [stdout, stderr] = launch.outputs;
        for (descriptor, number) in [(launch.stdin, 0), (stdout, 1), (stderr, 2)] {
            if descriptor >= 0 && libc::dup2(descriptor, number) == -1 {
                return (Step::Setup, Errno::last_raw());
            }
        }
        if !launch.mask.is_empty() {
            let (bytes, mask) = (size_of_val(launch.mask), launch.mask.as_ptr());
            if libc::sched_setaffinity(0, bytes, mask.cast()) == -1 {
                return (Step::Setup, Errno::last_raw());
            }
        }
        if !launch.cwd.is_null() && libc::chdir(launch.cwd) == -1 {
            return (Step::Directory, Errno::last_raw());
        }
        // Last, for from here on a signal kills: the guardian blocks all, the program expects none blocked.
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::execve(launch.program, launch.argv, launch.envp);
    }
    (Step::Exec, Errno::last_raw())
}

fn pointers<'c>(strings: impl Iterator<Item = &'c CString>) -> Vec<*const c_char> {
    strings
        .map(|it| CStr::as_ptr(it))
        .chain([std::ptr::null()])
        .collect()
}

fn assignment((name, value): &Variable<'_>) -> CString {
    // With room for the zero: there are many, and each is allocated once.
    let mut text = Vec::with_capacity(name.len() + value.len() + 2);
    text.extend_from_slice(name.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    terminated(text)
}

fn c_string(text: OsString) -> CString {
    terminated(text.into_vec())
}

/// Words of the command line and the environment were C strings when they came to us; a zero byte can only
/// stem from a bug, and then the text up to it is what the kernel would read.
fn terminated(mut bytes: Vec<u8>) -> CString {
    if let Some(end) = bytes.iter().position(|it| *it == 0) {
        bytes.truncate(end);
    }
    CString::new(bytes).unwrap_or_default()
}
