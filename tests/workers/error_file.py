"""error_file.py FORM [--rank R]: leaves an error file as torch's `@record` does, then exits with 1.

FORM is `record`, `short`, `malformed` or `empty`. Given a rank, only that one fails, the others sleep.
"""

import json
import os
import sys
import time
from pathlib import Path

from ready import sleep_for_ever

form, *flag = sys.argv[1:]
if flag and flag[1] != os.environ["RANK"]:
    sleep_for_ever()
text, now = f"ValueError: boom from rank {os.environ['RANK']}", str(int(time.time()))
call_stack = f'Traceback (most recent call last):\n  File "train.py", line 7, in main\n{text}\n'
extra = {"py_callstack": call_stack, "timestamp": now}
contents = {
    "record": json.dumps({"message": {"message": text, "extraInfo": extra}}),
    "short": json.dumps({"message": text, "timestamp": now}),
    "malformed": '{"message": {"mess',
    "empty": "",
}
Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(contents[form])
sys.exit(1)
