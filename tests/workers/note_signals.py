"""note_signals.py DIR [--stay]: notes each signal in DIR/RANK.signals as `NAME MONOTONIC_SECONDS`.

TERM, INT, HUP and QUIT end it with exit code 0, unless it is to stay.
"""

import os
import signal
import sys
import time
from pathlib import Path

from ready import announce, sleep_for_ever

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# A descriptor and no file object: a handler may be interrupted by the next one in the middle of its write.
notes = os.open(Path(sys.argv[1], os.environ["RANK"] + ".signals"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(number, _frame):
    real_time = number - signal.SIGRTMIN
    name = signal.Signals(number).name if real_time < 0 else f"SIGRTMIN+{real_time}"
    os.write(notes, f"{name} {time.monotonic():.6f}\n".encode())
    if number in ENDING and "--stay" not in sys.argv:
        sys.exit(0)


for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, 32, 33}:
    signal.signal(number, note)
announce(sys.argv[1])
sleep_for_ever()
