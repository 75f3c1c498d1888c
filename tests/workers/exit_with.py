"""exit_with.py CODE [--rank R]: exits with CODE; given a rank, only that one does, the others sleep."""

import os
import sys

from ready import sleep_for_ever

code, *flag = sys.argv[1:]
if not flag or flag[1] == os.environ["RANK"]:
    sys.exit(int(code))
sleep_for_ever()
