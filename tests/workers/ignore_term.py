"""ignore_term.py DIR: as sleeper.py, but TERM, INT and HUP do not end it."""

import signal
import sys

from ready import announce, sleep_for_ever

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
announce(sys.argv[1])
sleep_for_ever()
