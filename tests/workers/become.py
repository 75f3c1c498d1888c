"""become.py PROGRAM [ARGS...]: becomes that program, such as a launcher within a launch."""

import os
import sys

os.execv(sys.argv[1], sys.argv[1:])
