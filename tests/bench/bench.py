"""Measures `fabric run` beside everything else that starts processes, and writes a table. See `run`, which calls it.

All launchers take turns, one launch each a round, so that whatever the machine does meanwhile happens to all; ratios
are formed within a round. A number is a median, with the first and the third quartile behind it.
"""
import argparse
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import time

import rivals
from launch import Launch, cost

HERE = os.path.dirname(os.path.abspath(__file__))
IDLE_SECONDS = 2.0
FAILED = 8  # workers, of which one fails


def start(launcher, programs):
    """Two workers that print a line and end."""
    with Launch(launcher.command(2, programs["worker"]), {**os.environ, "BENCH_ONCE": "1"}) as it:
        it.until(lambda: it.gone is not None and it.first_line is not None and len(it.workers) == 2, "it is over")
        return {
            "first worker runs": it.since_start(min(it.workers.values())),
            "first line": it.since_start(it.first_line),
            "whole command": it.since_start(it.gone),
        }


def whole(launcher, programs, workers):
    """Workers that do nothing."""
    with Launch(launcher.command(workers, programs["instant"]), os.environ) as it:
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
        it.until_started(FAILED)
        time.sleep(0.3)
        pids = [it.pid, *it.below()]
        before = cost(pids)
        time.sleep(IDLE_SECONDS)
        after = cost(pids)
        for pid in it.workers:
            os.kill(pid, signal.SIGUSR2)
        it.until_gone()
        return {
            "peak RSS, MiB": after["rss"] / 1024,
            "PSS, MiB": after["pss"] / 1024,
            "processes": len(pids),
            "CPU, ms/s": (after["cpu"] - before["cpu"]) / 1e6 / IDLE_SECONDS,
            "wake-ups/s": (after["switches"] - before["switches"]) / IDLE_SECONDS,
        }


def store(command):
    """What torch's own client gets from the store that the launcher serves."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout.splitlines()[-1])


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
                if launcher.name == "fabric":
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
            if reference and name != reference and values:
                text += f", x{cell(paired(values, samples[reference][column]))}"
            cells.append(text)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def growth(samples):
    """The exponent e of time ~ workers^e from 64 workers on: the slope of the best line through the logarithms."""
    found = {}
    for name, row in samples.items():
        points = [(math.log(int(n)), math.log(spread(values)[0])) for n, values in row.items() if int(n) >= 64]
        if len(points) > 1:
            found[name] = statistics.linear_regression(*zip(*points)).slope
    return found


def machine():
    load = os.getloadavg()[0]
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs, load {load:.1f} at the start"


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--fabric", required=True, help="the program")
    words.add_argument("--programs", required=True, help="folder with the compiled C programs")
    words.add_argument("--out", required=True, help="folder for table.md and results.json")
    words.add_argument("--rounds", type=int, default=15)
    words.add_argument("--only", help="launchers whose name contains this, and ours")
    given = words.parse_args()
    programs = {it: os.path.join(given.programs, it) for it in ("instant", "worker", "launcher")}
    everyone = rivals.present(given.fabric, programs["launcher"])
    everyone = [it for it in everyone if given.only is None or given.only in it.name or it.name == "fabric"]
    about, rounds, results, notes = machine(), given.rounds, {}, []

    title = "Two workers that print a line and end, ms"
    results[title] = take_turns("start", everyone, lambda it: start(it, programs), rounds, notes)
    title = "Whole command by number of workers, which do nothing, ms"
    results[title] = {it.name: {} for it in everyone}
    for workers in (1, 2, 8, 64, 512, 2000):
        able = [it for it in everyone if it.most >= workers]
        turns = rounds if workers < 512 else max(3, rounds // 3)
        measured = take_turns(f"{workers} workers", able, lambda it: whole(it, programs, workers), turns, notes)
        for name, row in measured.items():
            results[title][name].update(row)
    exponents = growth(results[title])
    watching = [it for it in everyone if it.watches]
    title = f"One of {FAILED} workers fails: from its exit, ms"
    results[title] = take_turns("failure", watching, lambda it: failure(it, programs), rounds, notes)
    title = f"While {FAILED} workers run: the launcher's share"
    results[title] = take_turns("idle", watching, lambda it: idle(it, programs), min(rounds, 3), notes)
    if os.environ.get("FABRIC_TEST_PYTHON"):
        title = "The store, asked by torch's client"
        servers = rivals.servers(given.fabric)
        results[title] = take_turns("store", servers, lambda it: store(it.command(1, "")), min(rounds, 3), notes)

    relative = {title: "sh, a loop with &" for title in results if title.startswith("Whole")}
    text = [f"Measured on {about}. Median (quartiles), x = ratio within a round to the row it names."]
    for title, samples in results.items():
        reference = relative.get(title, "fabric")
        text.append(table(f"{title}; x is to {reference}", samples, reference))
    text.append("\n### Growth from 64 workers on: time ~ workers^e\n\n| | e |\n|---|---|")
    text += [f"| {name} | {slope:.2f} |" for name, slope in exponents.items()]
    text += ["", *(f"- {note}" for note in notes)]
    os.makedirs(given.out, exist_ok=True)
    with open(os.path.join(given.out, "table.md"), "w") as file:
        file.write("\n".join(text) + "\n")
    with open(os.path.join(given.out, "results.json"), "w") as file:
        json.dump({"machine": about, "samples": results, "growth": exponents, "notes": notes}, file, indent=1)
    print("\n".join(text))


if __name__ == "__main__":
    main()
