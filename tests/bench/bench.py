"""Measures `fabric run` beside everything else that starts processes, and writes a table. See `run`, which calls it.

All launchers take turns, one launch each a round, so that whatever the machine does meanwhile happens to all; ratios
are formed within a round. A number is a median, with the first and the third quartile behind it.
"""
import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import rivals
from launch import Launch, cost, machine

HERE = os.path.dirname(os.path.abspath(__file__))
IDLE_SECONDS = 2.0
FAILED = 8  # workers, of which one fails
WRITTEN = 512 << 20  # bytes that all workers write together
PRINTED = 100_000  # lines that all workers print together
PROGRAMS = ("fabric", "instant", "worker", "writer", "launcher", "store_load")


def start(launcher, programs):
    """Two workers that print a line and end."""
    with Launch(launcher.command(2, programs["worker"]), {**os.environ, "BENCH_ONCE": "1"}) as it:
        it.until(lambda: it.gone is not None and it.first_line is not None and len(it.workers) == 2, "it is over")
        return {
            "first worker runs": it.since_start(min(it.workers.values())),
            "first line": it.since_start(it.first_line),
            "whole command": it.since_start(it.gone),
        }


def whole(launcher, program, workers):
    """Workers that end at once."""
    with Launch(launcher.command(workers, program), os.environ) as it:
        it.until_gone()
        if it.code:
            raise RuntimeError(f"ended with {it.code}: {it.output[-300:].decode(errors='replace')}")
        return {str(workers): it.since_start(it.gone)}


def failure(launcher, programs):
    """One worker fails; milliseconds from just before its exit."""
    with Launch(launcher.command(FAILED, programs["worker"]), os.environ) as it:
        it.until_started(FAILED)
        time.sleep(0.3)  # into the steady state, and to a random point of a poll
        os.kill(max(it.workers), signal.SIGUSR1)
        it.until(lambda: it.gone is not None and len(it.deaths) == FAILED, "all are dead")
        (failed,) = it.told["fail"]
        after = lambda moment: (moment - failed) / 1e6  # noqa: E731
        return {
            # Open MPI may end with SIGKILL whom it does not reach with SIGTERM in time.
            "first SIGTERM": after(min(it.told["term"])) if it.told["term"] else math.nan,
            "all dead": after(max(it.deaths.values())),
            "launcher gone": after(it.gone),
        }


def idle(launcher, programs):
    """Workers that wait; the launcher is all processes that are not workers."""
    with Launch(launcher.command(FAILED, programs["worker"]), os.environ) as it:
        pids = settled(it, FAILED)
        before = cost(pids)
        time.sleep(IDLE_SECONDS)
        after = cost(pids)
        dismiss(it)
        return {
            "peak RSS, MiB": after["peak"] / 1024,
            "PSS, MiB": after["pss"] / 1024,
            "processes": len(pids),
            "CPU, ms/s": (after["cpu"] - before["cpu"]) / 1e6 / IDLE_SECONDS,
            "wake-ups/s": (after["switches"] - before["switches"]) / IDLE_SECONDS,
        }


def memory(launcher, programs, workers):
    """Workers that have printed a line and wait."""
    with Launch(launcher.command(workers, programs["worker"]), os.environ) as it:
        held = cost(settled(it, workers))
        dismiss(it)
        return {f"{workers}: RSS": held["rss"], f"{workers}: PSS": held["pss"]}


def settled(it, workers):
    """The launcher's processes, once there is nothing more to be done for these workers."""
    it.until_started(workers)
    it.until(lambda: it.output.count(b"line") == workers, "all lines have come")
    time.sleep(0.3)
    return [it.pid, *it.below()]


def dismiss(it):
    for pid in it.workers:
        os.kill(pid, signal.SIGUSR2)
    it.until_gone()


def output(launcher, programs, kind, workers, reader):
    """Workers that write as fast as they can, from the first one's start to the last one's end."""
    program, variable, amount, unit = {
        "blocks": (programs["writer"], "BENCH_BYTES", WRITTEN // workers, WRITTEN / 1e9),
        "print": (os.path.join(HERE, "printer.py"), "BENCH_LINES", PRINTED // workers, PRINTED / 1e3),
    }[kind]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat, open(os.devnull, "wb") as null:
        to = (cat.stdin if reader == "pipe" else null).fileno()
        with Launch(launcher.command(workers, program), {**os.environ, variable: str(amount)}, output=to) as it:
            it.until_gone()
            it.until(lambda: len(it.told["done"]) == workers, "all have written")
            return {f"{workers} to {reader}": unit * 1e9 / (max(it.told["done"]) - min(it.workers.values()))}


def job(launcher, programs, nodes):
    """As many launchers as nodes, all on this machine, each with one worker that prints a line and ends."""
    with Launch(launcher.command(nodes, programs["worker"]), {**os.environ, "BENCH_ONCE": "1"}) as it:
        it.until(lambda: it.gone is not None and len(it.workers) == nodes, "it is over")
        return {
            f"{nodes}: last worker runs": it.since_start(max(it.workers.values())),
            f"{nodes}: last launcher gone": it.since_start(it.gone),
        }


def store(launcher, programs):
    """What torch's own client gets from the store that the launcher serves, and many lighter ones at once."""
    found = {}
    for client in (os.path.join(HERE, "store_client.py"), programs["store_load"]):
        command = launcher.command(1, client)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        found.update(json.loads(done.stdout.splitlines()[-1]))
    return found


def take_turns(title, launchers, measure, rounds, notes):
    """samples[launcher][column] = a value per round, None where the launcher sat the round out."""
    samples, out = {it.name: {} for it in launchers}, set()
    for turn in range(rounds):
        print(f"{title}: round {turn + 1} of {rounds}", file=sys.stderr)
        for at in range(len(launchers)):
            launcher = launchers[(at + turn) % len(launchers)]
            if launcher.name in out or launcher.slow and turn * 5 >= rounds:
                continue
            try:
                measured = measure(launcher)
            except (TimeoutError, RuntimeError) as error:
                if launcher.name.startswith("fabric"):
                    raise
                out.add(launcher.name)
                notes.append(f"{title}: {launcher.name} {error}")
                continue
            for column, value in measured.items():
                samples[launcher.name].setdefault(column, [None] * rounds)[turn] = value
    return samples


def spread(values):
    """Median and quartiles."""
    values = [it for it in values if it is not None and not math.isnan(it)]
    if len(values) < 2:
        return values * 3 or None
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return [middle, low, high]


def paired(values, others):
    pairs = zip(values, others)
    return spread([one / other for one, other in pairs if None not in (one, other) and other > 0])


def digits(value):
    return f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.3g}"


def cell(found):
    if found is None:
        return "-"
    middle, low, high = map(digits, found)
    return middle if low == high else f"{middle} ({low} to {high})"


def table(title, samples, reference=None):
    """Markdown; with a reference each cell also has the ratio to that launcher in the same round."""
    columns = list(dict.fromkeys(column for it in samples.values() for column in it))
    lines = [f"\n### {title}\n", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in samples.items():
        cells = []
        for column in columns:
            values = row.get(column, [])
            text = cell(spread(values))
            others = samples.get(reference, {}).get(column)
            if others and values and name != reference:
                text += f", x{cell(paired(values, others))}"
            cells.append(text)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def growth(samples):
    """The exponent e of time ~ workers^e from 64 workers on: the slope of the best line through the logarithms."""
    found = {}
    for name, row in samples.items():
        points = [(math.log(int(n)), math.log(spread(values)[0])) for n, values in row.items() if int(n) >= 64]
        if len(points) > 1:
            found[name] = {"e": [statistics.linear_regression(*zip(*points)).slope]}
    return found


def per_worker(samples):
    """Adds what one more worker costs: the slope from 8 workers on."""
    for row in samples.values():
        for what in ("RSS", "PSS"):
            points = [(int(name.split(":")[0]), spread(values)[0]) for name, values in row.items() if name.endswith(what)]
            if len(points) > 1:
                row[f"a worker: {what}"] = [statistics.linear_regression(*zip(*points)).slope]
    return samples


class Bench:
    """What is measured, part by part."""

    def __init__(self, given):
        self.programs = {it: os.path.join(given.programs, it) for it in PROGRAMS}
        self.only, self.rounds, self.notes = given.only, given.rounds, []
        self.launchers = self.wanted(rivals.present(self.programs))
        self.watching = [it for it in self.launchers if it.watches]

    def wanted(self, launchers):
        basis = ("fabric", "sh,")
        return [it for it in launchers if self.only is None or self.only in it.name or it.name.startswith(basis)]

    def turns(self, title, launchers, measure, rounds=None):
        return take_turns(title, launchers, lambda it: measure(it, self.programs), rounds or self.rounds, self.notes)

    def by_number(self, title, launchers, measure, rounds):
        """A column or more for each number; `rounds` says how often for which."""
        found = {it.name: {} for it in launchers}
        for number, often in rounds.items():
            able = [it for it in launchers if it.least <= number <= it.most]
            measured = self.turns(f"{title}, {number}", able, lambda it, programs: measure(it, programs, number), often)
            for name, row in measured.items():
                found[name].update(row)
        return found

    def start(self):
        yield "Two workers that print a line and end, ms", "fabric", self.turns("start", self.launchers, start)

    def whole(self):
        rounds = dict.fromkeys((1, 2, 8, 64), self.rounds) | dict.fromkeys((512, 2000), max(3, self.rounds // 3))
        nothing = lambda it, programs, number: whole(it, programs["instant"], number)  # noqa: E731
        samples = self.by_number("whole", self.launchers, nothing, rounds)
        yield "Whole command by number of workers, which do nothing, ms", "sh, a loop with &", samples
        yield "Growth from 64 workers on: time ~ workers^e", None, growth(samples)
        # The least that a real program does is to load the C library.
        least = lambda it, programs, number: whole(it, "/bin/true", number)  # noqa: E731
        samples = self.by_number("whole, /bin/true", [it for it in self.launchers if not it.slow], least, rounds)
        yield "Whole command by number of workers, each /bin/true, ms", "sh, a loop with &", samples

    def failure(self):
        samples = self.turns("failure", self.watching, failure)
        yield f"One of {FAILED} workers fails: from its exit, ms", "fabric", samples

    def idle(self):
        samples = self.turns("idle", self.watching, idle, min(self.rounds, 3))
        yield f"While {FAILED} workers run: the launcher's share", "fabric", samples

    def memory(self):
        rounds = dict.fromkeys((8, 64, 512), min(self.rounds, 3))
        samples = self.by_number("memory", self.watching, memory, rounds)
        yield "What the launcher holds by number of workers that wait, KiB", None, per_worker(samples)

    def output(self):
        units = {"blocks": "Lines of 64 bytes in blocks of 64 KiB, GB/s", "print": "Lines of 64 bytes by Python's print, 1000/s"}
        writers = self.wanted(rivals.writers(self.programs))
        for kind, unit in units.items():
            samples = {it.name: {} for it in writers}
            for workers, reader in ((1, "pipe"), (4, "pipe"), (1, "/dev/null"), (4, "/dev/null")):
                measure = lambda it, programs: output(it, programs, kind, workers, reader)  # noqa: B023, E731
                for name, row in self.turns(f"{kind}, {workers} to {reader}", writers, measure, min(self.rounds, 7)).items():
                    samples[name].update(row)
            yield f"{unit}, by writers and reader", "fabric --output direct", samples

    def job(self):
        jobs = self.wanted(rivals.jobs(self.programs))
        samples = self.by_number("job", jobs, job, dict.fromkeys((2, 8, 50), self.rounds))
        yield "A job of many nodes, all on this machine, ms by number of nodes", "fabric", samples

    def store(self):
        servers = self.wanted(rivals.servers(self.programs))
        samples = take_turns("store", servers, lambda it: store(it, self.programs), min(self.rounds, 3), self.notes)
        yield "The store, asked by torch's client and by many light ones", "fabric", samples


PARTS = ("start", "whole", "failure", "idle", "memory", "output", "job", "store")


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--programs", required=True, help="folder with our program and the compiled C programs")
    words.add_argument("--out", required=True, help="folder for table.md and results.json")
    words.add_argument("--rounds", type=int, default=15)
    words.add_argument("--only", help="launchers whose name contains this, and ours")
    words.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    given = words.parse_args()
    # FIFOs are made beside the results: other hosts of tests/engines share the disk. What launchers make goes to
    # memory: making and removing a folder on a disk with a busy journal takes longer than a launch.
    tempfile.tempdir = given.out
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bench.", dir=shared) as folder:
        os.environ["TMPDIR"] = folder
        about = machine("memory (/dev/shm)" if shared else "the disk")
        bench = Bench(given)
        found = [it for part in given.part or PARTS for it in getattr(bench, part)()]
    text = [f"Measured on {about}. Median (quartiles), x = ratio within a round to the row it names."]
    for title, reference, samples in found:
        text.append(table(f"{title}; x is to {reference}" if reference else title, samples, reference))
    text += ["", *(f"- {note}" for note in bench.notes)]
    with open(os.path.join(given.out, "table.md"), "w") as file:
        file.write("\n".join(text) + "\n")
    with open(os.path.join(given.out, "results.json"), "w") as file:
        results = {title: samples for title, _, samples in found}
        json.dump({"machine": about, "samples": results, "notes": bench.notes}, file, indent=1)
    print("\n".join(text))


if __name__ == "__main__":
    main()
