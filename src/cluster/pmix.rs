//! Asks PMIx, through the library that Open MPI itself uses, on which host each rank is.
//!
//! The library is not linked: it is opened where it is, in a short-lived child process of its
//! own, so that neither its threads nor a crash of it touch the launcher. A rank may do this
//! once in its life: a worker that calls MPI_Init itself will fail. (Only jobs of several
//! hosts that gave no `--node-rank` ask.)

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, pipe};

/// The one name under which versions 3 to 5 are installed.
const LIBRARY: &CStr = c"libpmix.so.2";
/// `PMIX_HOSTNAME` (`pmix_common.h`).
const HOSTNAME_KEY: &CStr = c"pmix.hname";
/// `PMIX_STRING`.
const STRING_TYPE: u16 = 3;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    namespace: [u8; 256],
    rank: u32,
}

/// The head of `pmix_value_t`; its union starts with the string's pointer here.
#[repr(C)]
struct Value {
    kind: u16,
    string: *const c_char,
}

type Init = unsafe extern "C" fn(*mut Process, *mut c_void, usize) -> c_int;
type Get = unsafe extern "C" fn(
    *const Process,
    *const c_char,
    *mut c_void,
    usize,
    *mut *mut Value,
) -> c_int;
type Finalize = unsafe extern "C" fn(*mut c_void, usize) -> c_int;

/// The host names of ranks 0 to `world_size`, in that order. To be called before the process
/// has threads, and bounded by `patience`.
pub(super) fn hosts(world_size: u32, patience: Duration) -> Result<Vec<String>> {
    let (reader, writer) = pipe().context("make a pipe")?;
    // SAFETY: the process has no other threads yet, so the child may do what it likes; it
    // leaves by _exit, past every destructor of ours.
    match unsafe { fork() }.context("fork")? {
        ForkResult::Child => {
            drop(reader);
            answer(writer, world_size);
            // SAFETY: nothing of the parent's may run twice; this runs nothing at all.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let text = read_all(reader, Instant::now() + patience);
            // It may hang in the library, or in a destructor of it; its answer is here or late.
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
            parse(&text?, world_size)
        }
    }
}

/// One line per rank, or one line that starts with a blank: why not.
fn parse(text: &str, world_size: u32) -> Result<Vec<String>> {
    if let Some(why) = text.strip_prefix(' ') {
        bail!("{}", why.trim());
    }
    let hosts: Vec<_> = text.lines().map(str::to_owned).collect();
    ensure!(
        hosts.len() == world_size as usize,
        "no answer from `libpmix`"
    );
    Ok(hosts)
}

/// Until the writer closes its end, or the deadline.
fn read_all(reader: OwnedFd, deadline: Instant) -> Result<String> {
    let mut file = File::from(reader);
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let ready = poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], timeout);
        ensure!(
            ready.context("poll")? > 0,
            "no answer from `libpmix` in time"
        );
        match file.read(&mut chunk).context("read from a pipe")? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            count => text.extend_from_slice(&chunk[..count]),
        }
    }
}

/// The child's part: ask, and write the answer down.
fn answer(writer: OwnedFd, world_size: u32) {
    silence();
    let text = match ask(world_size) {
        Ok(hosts) => hosts.concat(),
        Err(why) => format!(" {why:#}"),
    };
    // The parent reads until the end or gives up; there is nobody else to tell.
    let _ = File::from(writer).write_all(text.as_bytes());
}

/// The library complains on stderr about plugins it does without.
fn silence() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stderr(&null);
    }
}

/// A line for each rank.
fn ask(world_size: u32) -> Result<Vec<String>> {
    // SAFETY: a constant name; the library's constructors run in this child only.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    ensure!(
        !library.is_null(),
        "`libpmix.so.2` is not on the library path"
    );
    let (init, get, finalize) = symbols(library)?;
    let mut own = Process {
        namespace: [0; 256],
        rank: 0,
    };
    // SAFETY: `own` has the layout of pmix_proc_t and lives through the call; no infos.
    let status = unsafe { init(&raw mut own, std::ptr::null_mut(), 0) };
    ensure!(status == 0, "PMIx_Init says {status}");
    let hosts = (0..world_size).map(|rank| host_of(get, &Process { rank, ..own }));
    let hosts = hosts.collect();
    // An end without it would count as a crash of this rank.
    // SAFETY: after a PMIx_Init that succeeded; no infos.
    unsafe { finalize(std::ptr::null_mut(), 0) };
    hosts
}

fn symbols(library: *mut c_void) -> Result<(Init, Get, Finalize)> {
    let find = |name: &CStr| -> Result<*mut c_void> {
        // SAFETY: `library` is an open handle and `name` ends in a zero byte.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        ensure!(
            !found.is_null(),
            "`libpmix.so.2` has no {}",
            name.to_string_lossy()
        );
        Ok(found)
    };
    let (init, get, finalize) = (
        find(c"PMIx_Init")?,
        find(c"PMIx_Get")?,
        find(c"PMIx_Finalize")?,
    );
    // SAFETY: the signatures of `pmix.h`, the same in versions 3 to 5.
    Ok(unsafe {
        (
            std::mem::transmute::<*mut c_void, Init>(init),
            std::mem::transmute::<*mut c_void, Get>(get),
            std::mem::transmute::<*mut c_void, Finalize>(finalize),
        )
    })
}

fn host_of(get: Get, process: &Process) -> Result<String> {
    let mut value: *mut Value = std::ptr::null_mut();
    // SAFETY: `process` has the layout of pmix_proc_t, the key ends in a zero byte, and
    // `value` is where the library puts a pointer to what it allocated.
    let status = unsafe {
        get(
            process,
            HOSTNAME_KEY.as_ptr(),
            std::ptr::null_mut(),
            0,
            &raw mut value,
        )
    };
    ensure!(
        status == 0 && !value.is_null(),
        "PMIx_Get says {status} of rank {}",
        process.rank
    );
    // SAFETY: the library filled it in; it is freed with this short-lived process.
    let value = unsafe { &*value };
    ensure!(
        value.kind == STRING_TYPE && !value.string.is_null(),
        "PMIx_Get gave no name"
    );
    // SAFETY: for this type the union holds a string that ends in a zero byte.
    let name: CString = unsafe { CStr::from_ptr(value.string) }.to_owned();
    Ok(format!("{}\n", name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_line_for_each_rank() {
        assert_eq!(parse("a\nb\na\n", 3).unwrap(), ["a", "b", "a"]);
        let short = parse("a\n", 2).unwrap_err();
        assert_eq!(short.to_string(), "no answer from `libpmix`");
        let why = parse(" PMIx_Init says -25", 1).unwrap_err();
        assert_eq!(why.to_string(), "PMIx_Init says -25");
    }
}
