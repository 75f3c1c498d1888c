"""One launch under observation: who tells what when, what the launcher costs, and that nothing is left."""
import os
import platform
import selectors
import signal
import tempfile
import time

MILLISECOND = 1e6
PATIENCE = 30  # seconds for anything to happen


class Launch:
    """A started command. Times are nanoseconds of CLOCK_MONOTONIC. Its output is read here, unless `output` takes it."""

    def __init__(self, argv, environ, patience=PATIENCE, output=None):
        self.folder = tempfile.TemporaryDirectory(prefix="bench.")
        fifo = os.path.join(self.folder.name, "events")
        os.mkfifo(fifo)
        # Open for both directions: it has no end while we listen.
        self.events = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.pipe, ours = os.pipe()
        os.set_blocking(self.pipe, False)
        self.workers = {}  # pid -> its start
        self.told = {"term": [], "fail": [], "done": []}
        self.deaths = {}
        self.first_line = self.gone = self.code = self.usage = None
        self.output = b""
        self.rest = b""
        self.deadline = time.monotonic() + patience
        actions = [(os.POSIX_SPAWN_DUP2, ours if output is None else output, it) for it in (1, 2)]
        environ = {**environ, "BENCH_EVENTS": fifo}
        self.began = time.monotonic_ns()
        # Signals as in a shell: nothing ignored, nothing blocked.
        self.pid = os.posix_spawn(argv[0], argv, environ, file_actions=actions, setsid=True, setsigmask=[], setsigdef=range(1, 32))
        os.close(ours)
        self.selector = selectors.DefaultSelector()
        self.descriptors = [os.pidfd_open(self.pid)]
        self.selector.register(self.descriptors[0], selectors.EVENT_READ, self._launcher_ended)
        self.selector.register(self.pipe, selectors.EVENT_READ, self._printed)
        self.selector.register(self.events, selectors.EVENT_READ, self._heard)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in [*self.below(), *self.workers]:
            if pid not in self.deaths:
                _kill(pid)
        if self.gone is None:
            _kill(self.pid)
            os.waitpid(self.pid, 0)
        for it in [*self.descriptors, self.pipe, self.events]:
            os.close(it)
        self.selector.close()
        self.folder.cleanup()

    def until(self, condition, what):
        """Handles what comes until the condition holds."""
        while not condition():
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"kept us waiting until {what}; it said: {self.output[-300:].decode(errors='replace')!r}")
            for key, _ in self.selector.select(left):
                key.data(time.monotonic_ns(), key)

    def until_gone(self):
        self.until(lambda: self.gone is not None, "the launcher has ended")

    def until_started(self, workers):
        self.until(lambda: len(self.workers) == workers or self.gone, "all workers have started")
        if len(self.workers) < workers:
            raise RuntimeError(f"ended with {self.code}: {self.output[-300:].decode(errors='replace')}")

    def since_start(self, moment):
        """In milliseconds."""
        return (moment - self.began) / MILLISECOND

    def below(self):
        """The launcher's descendants but for the workers."""
        children = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            children.setdefault(_parent(pid), []).append(int(pid))
        found, todo = [], [self.pid]
        while todo:
            mine = [it for it in children.get(todo.pop(), []) if it not in self.workers]
            found += mine
            todo += mine
        return found

    def _launcher_ended(self, now, key):
        self.gone = now
        self.selector.unregister(key.fileobj)
        _, status, self.usage = os.wait4(self.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)

    def _printed(self, now, key):
        text = os.read(self.pipe, 1 << 16)
        if not text:
            self.selector.unregister(key.fileobj)
        self.output += text
        if self.first_line is None and b"line" in self.output:
            self.first_line = now

    def _heard(self, _now, _key):
        *lines, self.rest = (self.rest + os.read(self.events, 1 << 16)).split(b"\n")
        for line in lines:
            kind, pid, moment = line.split()
            if kind != b"start":
                self.told[kind.decode()].append(int(moment))
                continue
            self.workers[int(pid)] = int(moment)
            try:
                self.descriptors.append(os.pidfd_open(int(pid)))
            except ProcessLookupError:  # it was quick
                continue
            self.selector.register(self.descriptors[-1], selectors.EVENT_READ, self._worker_ended(int(pid)))

    def _worker_ended(self, pid):
        def note(now, key):
            self.deaths[pid] = now
            self.selector.unregister(key.fileobj)

        return note


def cost(pids):
    """What these processes hold: peak RSS, RSS and PSS in KiB; CPU time in ns and context switches so far."""
    total = {"peak": 0, "rss": 0, "pss": 0, "cpu": 0, "switches": 0}
    for pid in pids:
        total["peak"] += _field(f"/proc/{pid}/status", "VmHWM:")
        total["rss"] += _field(f"/proc/{pid}/smaps_rollup", "Rss:")
        total["pss"] += _field(f"/proc/{pid}/smaps_rollup", "Pss:")
        for task in os.listdir(f"/proc/{pid}/task"):
            task = f"/proc/{pid}/task/{task}"
            total["cpu"] += int(_text(f"{task}/schedstat").split()[0])
            total["switches"] += _field(f"{task}/status", "voluntary_ctxt_switches:")
    return total


def machine(temporary):
    """In words."""
    load = os.getloadavg()[0]
    system = f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs, load {load:.1f} at the start"
    return f"{system}; temporary files in {temporary}"


def _field(path, name):
    return next(int(it.split()[1]) for it in _text(path).splitlines() if it.startswith(name))


def _parent(pid):
    try:
        return int(_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return None


def _text(path):
    with open(path) as file:
        return file.read()


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
