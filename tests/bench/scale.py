"""Measures node 0 of ever larger jobs. See `scale`, which calls it."""
import argparse
import math
import os
import resource
import signal
import socket
import statistics
import subprocess
import time

from launch import Launch, cost, machine

WORKERS = 8  # of each node; those of node 0 run, those of the others are only counted
GUESTS = 4000  # in one process
SPARE = 100  # descriptors of a process for anything else
PATIENCE = 300
TEST = "rendezvous::crowd::plays_the_guests_of_a_real_host"


class Crowd:
    """Guests in one process."""

    def __init__(self, program, port, nodes, first, last):
        environ = {**os.environ, "FABRIC_CROWD": f"{port} {nodes} {first} {last} {__file__}"}
        words = [program, "--exact", TEST, "--nocapture"]
        self.process = subprocess.Popen(words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self, word):
        """When it said so."""
        for line in self.process.stdout:
            said, _, moment = line.rpartition(" ")
            # The test's name stands before the first word.
            if said.endswith(word) and moment.strip().isdigit():
                return int(moment)
        raise RuntimeError(f"the guests ended before they were {word}")


def measure(programs, crowd, nodes):
    port = free_port()
    words = ["--num-nodes", str(nodes), "--node-rank", "0", "--main-address", "127.0.0.1", "--main-port", str(port)]
    words += ["--accelerator", "cpu", "--devices", str(WORKERS), "--python", os.path.join(programs, "worker"), __file__]
    most = min(GUESTS, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE) // 2)
    with Launch([os.path.join(programs, "fabric"), "run", *words], os.environ, PATIENCE) as host:
        firsts = range(1, nodes, most)
        crowds = [Crowd(crowd, port, nodes, it, min(it + most, nodes)) for it in firsts]
        try:
            return watch(host, crowds, nodes, port)
        finally:
            for it in crowds:
                it.process.kill()
                it.process.communicate()


def watch(host, crowds, nodes, port):
    for it in crowds:
        it.hear("here")
    segments, began = tcp_segments(), time.monotonic_ns()
    for it in crowds:
        it.ask("join")
    ready = max(it.hear("ready") for it in crowds)
    host.until_started(WORKERS)
    joined, held = tcp_segments(), cost([host.pid])
    received, sent = payload(port)
    connections = sum(os.readlink(f"/proc/{host.pid}/fd/{it}").startswith("socket:") for it in os.listdir(f"/proc/{host.pid}/fd"))
    time.sleep(1)
    for it in crowds:
        it.ask(nodes - 1)
    failed = crowds[-1].hear("failed")
    told = max(it.hear("told") for it in crowds)
    host.until_gone()
    return {
        "all there, s": (max(ready, *host.workers.values()) - began) / 1e9,
        "CPU of node 0, s": held["cpu"] / 1e9,
        "peak RSS, MiB": held["peak"] / 1024,
        "sockets": connections,
        "received, KB": received / 1e3,
        "sent, KB": sent / 1e3,
        "TCP segments": joined - segments,
        "last is told of a failure, ms": (told - failed) / 1e6,
        "launcher gone, ms": (host.gone - failed) / 1e6,
        "CPU in all, s": host.usage.ru_utime + host.usage.ru_stime,
    }


def payload(port):
    """Bytes that node 0 has received and sent over the connections that stand, without headers."""
    shown = subprocess.run(["ss", "-tinHO", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    words = [it.partition(":") for it in shown.split()]
    return [sum(int(number) for name, _, number in words if name == wanted) for wanted in ("bytes_received", "bytes_acked")]


def tcp_segments():
    """Sent by this machine so far, acknowledgements too."""
    with open("/proc/net/snmp") as file:
        names, values = (line.split() for line in file if line.startswith("Tcp:"))
    return int(dict(zip(names, values))["OutSegs"])


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def affordable(nodes):
    """Each connection takes a descriptor of node 0."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE
    return min(nodes, most)


def exponent(rows, column):
    """The slope of the best line through the logarithms; only where there is something to grow."""
    points = [(math.log(nodes), math.log(row[column])) for nodes, row in rows.items() if row[column] > 0]
    return f"{statistics.linear_regression(*zip(*points)).slope:.2f}" if len(points) > 1 else "-"


def table(rows):
    columns = list(next(iter(rows.values())))
    lines = [["nodes", *columns], ["---"] * (len(columns) + 1)]
    lines += [[str(nodes), *(f"{row[it]:.3g}" if row[it] < 1000 else f"{row[it]:.0f}" for it in columns)] for nodes, row in rows.items()]
    lines.append(["grows with nodes^", *(exponent(rows, it) for it in columns)])
    return "\n".join(f"| {' | '.join(it)} |" for it in lines)


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--programs", required=True, help="folder with our program and the worker")
    words.add_argument("--crowd", required=True, help="the test program that plays the guests")
    words.add_argument("--out", required=True, help="folder for scale.md")
    words.add_argument("nodes", nargs="*", type=int, default=[100, 1000, 10000])
    given = words.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    about = machine("memory")
    rows = {it: measure(given.programs, given.crowd, it) for it in map(affordable, given.nodes)}
    text = f"Node 0 of a job of N nodes with {WORKERS} workers each, all on one machine. {about}.\n\n{table(rows)}\n"
    with open(os.path.join(given.out, "scale.md"), "w") as file:
        file.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
