"""Who starts the same programs in their own ways: as command lines, and only those that are installed."""
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ["FABRIC_TEST_PYTHON"]
SHELL = 'i=0; while [ $i -lt "$1" ]; do "$0" & i=$((i+1)); done; wait'
# A job of $1 nodes on port $2: all launchers are started at once, on this machine.
NODES = 'i=0; while [ $i -lt "$1" ]; do "$0" {} & i=$((i+1)); done; wait'


@dataclass
class Rival:
    name: str
    command: Callable[[int, str], list]  # of the number of workers (or nodes) and the program that each runs
    least: int = 1  # workers in one measurement
    most: int = 2048
    slow: bool = False  # seconds a start: fewer rounds
    watches: bool = True  # ends the others when one worker fails


def present(programs):
    """Ours first, the bare shells next: the others are compared with these."""
    floor = programs["launcher"]
    found = [
        Rival("fabric", _fabric(programs)),
        Rival("sh, a loop with &", _shell("/bin/sh"), watches=False),
        Rival("a page of C", lambda n, program: [floor, str(n), program]),
    ]
    if bash := shutil.which("bash"):
        found.append(Rival("bash, the same loop", _shell(bash), watches=False))
    openmpi, mpich, srun = map(shutil.which, ("mpirun.openmpi", "mpiexec.hydra", "srun"))
    if openmpi:
        words = [openmpi, "--allow-run-as-root", "--oversubscribe", "-n"]
        found.append(Rival("mpirun (Open MPI)", lambda n, program: [*words, str(n), program], most=64))
    if mpich:
        found.append(Rival("mpiexec (MPICH)", lambda n, program: [mpich, "-n", str(n), program], most=512))
    if srun and subprocess.run(["sinfo", "-h"], capture_output=True).stdout:
        flags = [srun, "--quiet", "--kill-on-bad-exit", "--overcommit", "-n"]
        found.append(Rival("srun", lambda n, program: [*flags, str(n), program], most=64))
    found += [Rival("the original", _original, most=64, slow=True), Rival("torchrun", _torchrun, most=64, slow=True)]
    if os.environ.get("FABRIC_BENCH_ACCELERATE"):
        found.append(Rival("accelerate launch", _accelerate, least=2, most=64, slow=True))
    return found


def servers(programs):
    """Who serves a store to a worker: ours, and torch's own in torchrun."""
    return [Rival("fabric", _fabric(programs)), Rival("torchrun", _torchrun)]


def writers(programs):
    """Who passes on what workers write, and who lets them write themselves; Python as `python -u`."""
    return [
        Rival("fabric --output direct", _fabric(programs, "--output", "direct")),
        Rival("fabric", _fabric(programs)),
        Rival("torchrun", _torchrun, slow=True),
    ]


def jobs(programs):
    """Who starts a job of n nodes with one worker each."""
    ours = NODES.format("run --accelerator cpu --num-nodes $1 --node-rank $i --main-address 127.0.0.1 --main-port $2 --python $3 $4")
    theirs = NODES.format("--nnodes $1 --node-rank $i --master-addr 127.0.0.1 --master-port $2 --no-python $3")

    def fabric(n, program):
        return ["/bin/sh", "-c", ours, programs["fabric"], str(n), free_port(), program, __file__]

    def torchrun(n, program):
        return ["/bin/sh", "-c", theirs, _beside("torchrun"), str(n), free_port(), program]

    return [Rival("fabric", fabric), Rival("torchrun", torchrun, most=2, slow=True)]


def _shell(shell):
    return lambda n, program: [shell, "-c", SHELL, program, str(n)]


def _fabric(programs, *options):
    """To it a program is the interpreter, and the script is any file."""

    def command(n, program):
        words = [PYTHON, program] if program.endswith(".py") else [program, __file__]
        return [programs["fabric"], "run", "--accelerator", "cpu", "--devices", str(n), *options, "--python", *words]

    return command


def _original(n, program):
    # `python -u SCRIPT`, and PYTHON_EXEC is that python.
    words = ["run", "--accelerator", "cpu", "--devices", str(n), "--main-port", free_port(), __file__]
    return ["/usr/bin/env", f"PYTHON_EXEC={program}", _beside("fabric"), *words]


def _torchrun(n, program):
    words = [program] if program.endswith(".py") else ["--no-python", program]
    place = ["--nnodes", "1", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", free_port()]
    return [_beside("torchrun"), *place, "--nproc-per-node", str(n), *words]


def _accelerate(n, program):
    # `--cpu` starts one process, however many are asked for; this is torchrun inside, and needs no GPU.
    kind = ["--multi_gpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    place = ["--num_processes", str(n), "--main_process_port", free_port()]
    return [os.environ["FABRIC_BENCH_ACCELERATE"], "launch", *kind, *place, "--no_python", program]


def _beside(name):
    return os.path.join(os.path.dirname(PYTHON), name)


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return str(it.getsockname()[1])
