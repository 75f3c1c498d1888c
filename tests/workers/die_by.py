"""die_by.py SIGNAL --rank R: that rank dies by SIGNAL, such as SIGSEGV; the others sleep."""

import os
import resource
import signal
import sys

from ready import sleep_for_ever

name, _, rank = sys.argv[1:]
if rank == os.environ["RANK"]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file beside the tests
    if name != "SIGKILL":  # which has no other action
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    os.kill(os.getpid(), signal.Signals[name])
sleep_for_ever()
