"""Who starts the same programs in their own ways: as command lines, and only those that are installed."""
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
SHELL = 'i=0; while [ $i -lt "$1" ]; do "$0" & i=$((i+1)); done; wait'


@dataclass
class Rival:
    name: str
    command: Callable[[int, str], list]  # of the number of workers and the program that each runs
    most: int = 2048  # workers in one measurement
    slow: bool = False  # seconds a start: fewer rounds
    watches: bool = True  # ends the others when one worker fails
    environ: dict = field(default_factory=dict)


def present(fabric, floor):
    """Ours first, the bare shell second: the others are compared with these."""
    found = [
        # To it and to the original the program is the interpreter; the script is any file.
        Rival("fabric", lambda n, program: [fabric, "run", "--accelerator", "cpu", "--devices", str(n), "--python", program, __file__]),
        Rival("sh, a loop with &", lambda n, program: [_path("sh"), "-c", SHELL, program, str(n)], watches=False),
        Rival("a page of C", lambda n, program: [floor, str(n), program]),
    ]
    openmpi, mpich = _path("mpirun.openmpi"), _path("mpiexec.hydra")
    if openmpi:
        words = [openmpi, "--allow-run-as-root", "--oversubscribe", "-n"]
        found.append(Rival("mpirun (Open MPI)", lambda n, program: [*words, str(n), program], most=64))
    if mpich:
        found.append(Rival("mpiexec (MPICH)", lambda n, program: [mpich, "-n", str(n), program], most=512))
    if _path("sinfo") and subprocess.run(["sinfo", "-h"], capture_output=True).stdout:
        words = [_path("srun"), "--quiet", "--kill-on-bad-exit", "--overcommit", "-n"]
        found.append(Rival("srun", lambda n, program: [*words, str(n), program], most=64))
    return found + _python_ones()


def _python_ones():
    python = os.environ.get("FABRIC_TEST_PYTHON")
    if not python:
        return []
    beside = lambda name: os.path.join(os.path.dirname(python), name)  # noqa: E731
    # `python -u SCRIPT`, and PYTHON_EXEC is that python.
    original = ["run", "--accelerator", "cpu", "--devices"]
    torchrun = ["--nnodes", "1", "--node-rank", "0", "--master-addr", "127.0.0.1", "--no-python"]
    return [
        Rival(
            "the original",
            lambda n, program: ["/usr/bin/env", f"PYTHON_EXEC={program}", beside("fabric"), *original, str(n), "--main-port", free_port(), __file__],
            most=64,
            slow=True,
        ),
        Rival(
            "torchrun",
            lambda n, program: [beside("torchrun"), *torchrun, "--master-port", free_port(), "--nproc-per-node", str(n), program],
            most=64,
            slow=True,
        ),
    ]


def servers(fabric):
    """Who serves a store to a Python worker: ours, and torch's own in torchrun."""
    python = os.environ["FABRIC_TEST_PYTHON"]
    client = os.path.join(HERE, "store_client.py")
    torchrun = [os.path.join(os.path.dirname(python), "torchrun"), "--nnodes", "1", "--master-addr", "127.0.0.1"]
    return [
        Rival("fabric", lambda *_: [fabric, "run", "--accelerator", "cpu", "--python", python, client]),
        Rival("torchrun", lambda *_: [*torchrun, "--master-port", free_port(), "--nproc-per-node", "1", client]),
    ]


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return str(it.getsockname()[1])


def _path(name):
    return shutil.which(name)
