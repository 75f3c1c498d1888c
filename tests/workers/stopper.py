"""stopper.py DIR: says that it is ready, then stops itself with SIGSTOP: only SIGKILL reaches it."""

import os
import signal
import sys

from ready import announce, sleep_for_ever

announce(sys.argv[1])
os.kill(os.getpid(), signal.SIGSTOP)
sleep_for_ever()
