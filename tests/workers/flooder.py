"""flooder.py LINES [EXIT_CODE]: writes LINES numbered lines of 300 bytes, one write each, and exits."""

import os
import sys

rank, lines = os.environ["RANK"], int(sys.argv[1])
for number in range(lines):
    head = f"rank {rank} line {number} "
    rest = (head + "x" * (299 - len(head)) + "\n").encode()
    while rest:  # a pipe may take only a part
        rest = rest[os.write(1, rest) :]
sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
