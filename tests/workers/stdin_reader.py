"""stdin_reader.py DIR: reads its standard input to the end and writes it to DIR/RANK.stdin."""

import os
import sys
from pathlib import Path

data = sys.stdin.buffer.read()
Path(sys.argv[1], os.environ["RANK"] + ".stdin").write_bytes(data)
