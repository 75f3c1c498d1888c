"""forker.py DIR [EXIT_CODE]: has four kinds of children, all deaf to TERM, INT and HUP, and sleeps.

DIR/RANK.ready has a line `KIND PID` for each of the five. Given EXIT_CODE it exits instead.
"""

import os
import signal
import sys

from ready import announce, sleep_for_ever

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
inner, outer = os.pipe()
for kind in ("child", "orphan", "group", "daemon"):
    if os.fork() == 0:
        if kind == "orphan" and os.fork() != 0:
            os._exit(0)
        if kind == "group":
            os.setpgrp()
        if kind == "daemon":
            os.setsid()
            os.closerange(0, outer)
        os.write(outer, f"{kind} {os.getpid()}\n".encode())
        os.close(outer)
        sleep_for_ever()
lines = os.fdopen(inner)
announce(sys.argv[1], f"self {os.getpid()}\n" + "".join(lines.readline() for _ in range(4)))
sleep_for_ever() if len(sys.argv) == 2 else sys.exit(int(sys.argv[2]))
