//! Runs the real binary with real workers: a builder, a deadline on everything, and at the end of every run
//! the proof that nothing is left. Whatever a test does, dropping a run ends its whole tree.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;

/// Nothing a test waits for takes longer than this, however busy the machine is.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// In every process of a run, to find those that are left.
const MARK: &str = "FABRIC_TEST_RUN";

/// A command under construction, with a scratch folder of its own and next to no environment.
#[must_use]
pub(crate) struct Fabric {
    command: Command,
    scratch: TempDir,
    mark: Mark,
}

/// A command that runs.
pub(crate) struct Running {
    child: Child,
    /// Stdout and stderr, where they are collected.
    streams: [Option<JoinHandle<Vec<u8>>>; 2],
    scratch: TempDir,
    mark: Mark,
    started: Instant,
}

/// A command that has ended, with nothing left of it.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
    pub(crate) scratch: TempDir,
}

impl Fabric {
    /// `fabric` with no argument yet.
    pub(crate) fn new() -> Self {
        Self::through(binary(), &[])
    }

    /// `fabric run`.
    pub(crate) fn run() -> Self {
        Self::new().arg("run")
    }

    /// Another program, which is expected to start `fabric` in its turn.
    pub(crate) fn through(program: &str, args: &[&str]) -> Self {
        let mark = Mark::new();
        let scratch = TempDir::new().unwrap();
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", path())
            .env(MARK, &mark.text);
        command
            .env("TMPDIR", scratch.path())
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self {
            command,
            scratch,
            mark,
        }
    }

    pub(crate) fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.command.arg(word);
        self
    }

    pub(crate) fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.command.args(words);
        self
    }

    /// One of tests/workers.
    pub(crate) fn worker(self, name: &str) -> Self {
        let path = workers().join(name);
        assert!(path.exists(), "{} does not exist", path.display());
        self.arg(path)
    }

    /// A worker of these lines of Python, for what no other test needs.
    pub(crate) fn code(self, lines: &str) -> Self {
        let path = self.scratch.path().join("worker.py");
        fs::write(&path, lines).unwrap();
        self.arg(path)
    }

    /// tests/workers/actor.c as every worker, which does what the words say.
    pub(crate) fn actor<W: AsRef<OsStr>>(self, words: impl IntoIterator<Item = W>) -> Self {
        self.args(["--main-port", "0", "--python"])
            .arg(actor())
            .worker("actor.c")
            .args(words)
    }

    /// The scratch folder as a word, which many workers write to.
    pub(crate) fn scratch_arg(self) -> Self {
        let path = self.scratch.path().to_owned();
        self.arg(path)
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn cwd(mut self, path: impl AsRef<Path>) -> Self {
        self.command.current_dir(path);
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Somewhere else than into the test's hands.
    pub(crate) fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self
    }

    /// The same.
    pub(crate) fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.command.stderr(stderr);
        self
    }

    /// Changes the command in ways that have no name here.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    pub(crate) fn start(mut self) -> Running {
        let started = Instant::now();
        let mut child = self.command.spawn().unwrap();
        let stdout = child.stdout.take().map(|it| collect(Box::new(it)));
        let stderr = child.stderr.take().map(|it| collect(Box::new(it)));
        Running {
            child,
            streams: [stdout, stderr],
            scratch: self.scratch,
            mark: self.mark,
            started,
        }
    }

    /// Starts and waits for the end.
    pub(crate) fn finish(self) -> Finished {
        self.start().finish()
    }
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(self.pid(), signal).unwrap();
    }

    /// Waits until each of the workers has created its ready file; their texts by rank.
    pub(crate) fn ready(&self, workers: u32) -> BTreeMap<u32, String> {
        let file = |rank: &u32| self.scratch.path().join(format!("{rank}.ready"));
        wait_until("all workers are ready", || {
            (0..workers).all(|it| file(&it).exists())
        });
        (0..workers)
            .map(|it| (it, fs::read_to_string(file(&it)).unwrap()))
            .collect()
    }

    /// The process that is the parent of the workers.
    pub(crate) fn guardian(&self) -> Pid {
        let mut found = None;
        wait_until("there is a guardian", || {
            let named = |pid| fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            let mut children = self.others().into_iter();
            found = children.find(|it| named(*it) == b"guardian\n");
            found.is_some()
        });
        Pid::from_raw(found.unwrap())
    }

    /// The worker that said it is ready, by its number here; it may have said the one in its own namespace.
    pub(crate) fn worker(&self, rank: u32) -> Pid {
        let path = self.scratch.path().join(format!("{rank}.ready"));
        let inside = fs::read_to_string(path).unwrap();
        let inside = inside.split_whitespace().last().unwrap();
        let is_it = |pid: &i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let numbers = status.lines().find(|it| it.starts_with("NSpid:"));
            numbers.is_some_and(|it| it.split_whitespace().last() == Some(inside))
        };
        let found = self.others().into_iter().find(is_it);
        Pid::from_raw(found.expect("a process with that number"))
    }

    /// Every living process of this run but the launcher.
    pub(crate) fn others(&self) -> Vec<i32> {
        self.mark
            .bearers()
            .into_iter()
            .filter(|it| *it != self.pid().as_raw())
            .collect()
    }

    /// Waits for the end, which must come, and for nothing to be left, which must be soon.
    #[track_caller]
    pub(crate) fn finish(self) -> Finished {
        self.finish_within(Duration::from_secs(2))
    }

    /// The same, with this much time between the launcher's end and that of everything else.
    #[track_caller]
    pub(crate) fn finish_within(mut self, patience: Duration) -> Finished {
        let status = self.wait();
        let took = self.started.elapsed();
        let deadline = Instant::now() + patience;
        while !self.mark.bearers().is_empty() && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let left: Vec<String> = self
            .mark
            .bearers()
            .iter()
            .map(|it| command_line(*it))
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        let streams = std::mem::take(&mut self.streams);
        let bytes = streams.map(|it| it.map_or_else(Vec::new, |it| it.join().unwrap()));
        let [stdout, stderr] = bytes.map(|it| String::from_utf8_lossy(&it).into_owned());
        let scratch = std::mem::replace(&mut self.scratch, TempDir::new().unwrap());
        Finished {
            status,
            stdout,
            stderr,
            took,
            scratch,
        }
    }

    /// The launcher's end, if it has come.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the launcher's own end only.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the launcher has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.mark.end_bearers();
    }
}

impl Finished {
    /// The exit code, or minus the signal's number.
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| -self.status.signal().unwrap())
    }

    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code(),
            code,
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Stderr must hold all of these.
    #[track_caller]
    pub(crate) fn expect_said(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(
                self.stderr.contains(text),
                "no `{text}` in: {}",
                self.stderr
            );
        }
        self
    }
}

/// One line of /proc/PID/stat, as far as tests need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) state: char,
    /// Clock ticks since boot.
    pub(crate) born: u64,
}

/// All processes, as they are found.
pub(crate) fn stats() -> impl Iterator<Item = Stat> {
    let folders = fs::read_dir("/proc").unwrap().flatten();
    folders.filter_map(|it| stat(it.file_name().to_str()?.parse().ok()?))
}

/// One process, if it is there.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = line[line.rfind(')')? + 2..].split(' ');
    let state = rest.next()?.chars().next()?;
    let parent = rest.next()?.parse().ok()?;
    // The first thread may be a zombie while others live on: such a process is no zombie.
    let threads: u32 = rest.nth(15)?.parse().ok()?;
    let state = if state == 'Z' && threads > 1 {
        'S'
    } else {
        state
    };
    let born = rest.nth(1)?.parse().ok()?;
    Some(Stat {
        pid,
        parent,
        state,
        born,
    })
}

/// True while there is such a process and it is not a zombie.
pub(crate) fn alive(pid: i32) -> bool {
    stat(pid).is_some_and(|it| it.state != 'Z')
}

/// Waits for a condition; never just for time to pass.
#[track_caller]
pub(crate) fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_until_within(DEADLINE, what, condition);
}

/// The same, for what takes a fixed time that is no shorter.
#[track_caller]
pub(crate) fn wait_until_within(
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) {
    let deadline = Instant::now() + patience;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// The program under test.
pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_fabric")
}

/// Has the child do something between fork and exec: system calls only.
pub(crate) fn before_exec(command: &mut Command, act: impl Fn() + Send + Sync + 'static) {
    // SAFETY: what callers do there is safe there, see each.
    unsafe {
        command.pre_exec(move || {
            act();
            Ok(())
        });
    }
}

/// tests/workers/actor.c, compiled once.
pub(crate) fn actor() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("actor");
        // Each test may be a process of its own: none shall run what another has half written.
        let part = path.with_extension(std::process::id().to_string());
        let source = workers().join("actor.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
        let status = compiler.arg(&part).arg(source).status();
        assert!(status.expect("`cc` is installed").success());
        fs::rename(part, &path).unwrap();
        path
    })
}

/// The folder of worker programs.
pub(crate) fn workers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers")
}

/// PATH of this process, with the real Python first: where `python3` is a wrapper that looks for it, every
/// worker would take longer to start and see variables of the wrapper.
pub(crate) fn path() -> OsString {
    let usual = variable("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut folder = python().parent().unwrap().as_os_str().to_owned();
    folder.push(":");
    folder.push(usual);
    folder
}

/// The interpreter that `python3` stands for.
pub(crate) fn python() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let ask = ["-c", "import sys; print(sys.executable)"];
        let answer = Command::new("python3").args(ask).output().unwrap();
        String::from_utf8(answer.stdout).unwrap().trim_end().into()
    })
}

/// The interpreter of an environment with Lightning, which the test script provides.
pub(crate) fn test_python() -> PathBuf {
    provided("FABRIC_TEST_PYTHON")
}

/// The same with an old torch and nothing else.
pub(crate) fn test_old_python() -> PathBuf {
    provided("FABRIC_TEST_OLD_PYTHON")
}

fn provided(name: &str) -> PathBuf {
    let path = variable(name).map(PathBuf::from);
    let path = path.unwrap_or_else(|| panic!("{name} must name a Python: run tests/run"));
    assert!(path.exists(), "{} does not exist", path.display());
    path
}

/// A port that nobody listens at now.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A variable of this process.
#[expect(
    clippy::disallowed_methods,
    reason = "the tests' own environment is not the launcher's"
)]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// What every process of one run has in its environment, because the first has and all inherit it.
struct Mark {
    text: String,
    /// Processes that do not have it, by number and birth: nobody gets it later.
    strangers: RefCell<HashSet<(i32, u64)>>,
}

impl Mark {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            // The number of a process comes back, and what an aborted run left may still bear it.
            text: format!("{}-{count}-{:?}", std::process::id(), Instant::now()).replace(' ', ""),
            strangers: RefCell::default(),
        }
    }

    /// Living processes that have it.
    fn bearers(&self) -> Vec<i32> {
        let bearers = stats().filter(|it| self.is_on(it));
        bearers.map(|it| it.pid).collect()
    }

    /// Each as soon as it is found: it may have become another one a moment later.
    fn end_bearers(&self) {
        for _ in 0..100 {
            let bearers = stats().filter(|it| self.is_on(it));
            let ended =
                bearers.map(|it| nix::sys::signal::kill(Pid::from_raw(it.pid), Signal::SIGKILL));
            if ended.count() == 0 {
                return;
            }
        }
    }

    fn is_on(&self, process: &Stat) -> bool {
        let identity = (process.pid, process.born);
        let mut strangers = self.strangers.borrow_mut();
        if process.state == 'Z' || strangers.contains(&identity) {
            return false;
        }
        let environ = environ(process.pid);
        let wanted = format!("{MARK}={}", self.text).into_bytes();
        let bears = environ.split(|it| *it == 0).any(|it| it == wanted);
        // In the middle of execve it has none to show.
        if !bears && !environ.is_empty() {
            strangers.insert(identity);
        }
        bears
    }
}

/// Of any thread that still has one, for the first may have ended.
fn environ(pid: i32) -> Vec<u8> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let paths = tasks
        .flatten()
        .flatten()
        .map(|it| it.path().join("environ"));
    let mut environs = paths.filter_map(|it| fs::read(it).ok());
    environs.find(|it| !it.is_empty()).unwrap_or_default()
}

fn command_line(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!(
        "{pid} {}",
        String::from_utf8_lossy(&line).replace('\0', " ")
    )
}

fn collect(mut stream: Box<dyn Read + Send>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}
