"""dump.py DIR [ARGS...]: writes all that a worker can see of itself to DIR/RANK.json.

Bytes are told as Latin-1 text, one character per byte. Python itself ignores SIGPIPE and SIGXFSZ; signals 32
and 33, which the C library keeps for itself, are left out.
"""

import json
import os
import resource
import sys
from pathlib import Path


def block(name):
    """A list of NUL-terminated texts as the kernel got it at exec: Python has not touched it."""
    return Path("/proc/self", name).read_bytes().decode("latin-1").split("\0")[:-1]


lines = Path("/proc/self/status").read_text().splitlines()
status = dict(it.split(":\t") for it in lines if ":\t" in it)
os.umask(mask := os.umask(0))
facts = {
    "argv": block("cmdline"),
    "environ": dict(it.split("=", 1) for it in block("environ")),
    "cwd": os.getcwdb().decode("latin-1"),
    "umask": mask,
    "nice": os.nice(0),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "fds": [it for it in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{it}")],
    "ids": {"pid": os.getpid(), "ppid": os.getppid(), "pgid": os.getpgrp(), "sid": os.getsid(0)},
    "signals": {it: int(status[it], 16) & ~(0b11 << 31) for it in ("SigBlk", "SigIgn", "SigCgt")},
    "cpus": status["Cpus_allowed_list"],
    "isatty": [os.isatty(fd) for fd in range(3)],
}
Path(sys.argv[1], os.environ["RANK"] + ".json").write_text(json.dumps(facts))
