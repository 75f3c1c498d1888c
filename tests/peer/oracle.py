#!/usr/bin/env python3
"""Asks the original: what does Lightning Fabric's own click command make of a command line?

    python oracle.py < lines > answers

Needs an interpreter that has `lightning` (or `lightning-fabric`) and `click`. A line of stdin is a JSON list: the
words after the program's name. A line of stdout is a JSON object with

    exit         the exit code
    stderr       what click printed there, if anything
    options      the options that differ from their defaults, as texts   } only if click
    script       } as the original's main function                       } called the
    script_args  } would get them                                        } main function

Words are bytes. In JSON each byte is one character, U+0000 to U+00FF (Latin-1), so that bytes which are not UTF-8
travel too; `stderr` is plain text.
"""
import gc
import io
import json
import os
import sys

try:
    import lightning.fabric.cli as cli
except ModuleNotFoundError:
    import lightning_fabric.cli as cli

DEFAULTS = {
    "accelerator": None,
    "strategy": None,
    "devices": "1",
    "num_nodes": 1,
    "node_rank": 0,
    "main_address": "127.0.0.1",
    "main_port": 29400,
    "precision": None,
}


def to_json(text):
    return os.fsencode(text).decode("latin-1")


def from_json(text):
    return os.fsdecode(text.encode("latin-1"))


def ask(words):
    """The answer to one command line; the main function is replaced by one that notes its arguments."""
    called = {}

    def main(args, script_args=()):
        given = {name: getattr(args, name) for name in DEFAULTS}
        called["options"] = {k: to_json(str(v)) for k, v in given.items() if v != DEFAULTS[k]}
        called["script"] = to_json(args.script)
        called["script_args"] = [to_json(it) for it in script_args]

    cli.main = main
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        cli._main.main(args=[from_json(it) for it in words], prog_name="fabric")
    except SystemExit as end:
        code = end.code or 0
    finally:
        stderr = sys.stderr.getvalue()
        sys.stdout, sys.stderr = streams
    answer = {"exit": code, **called}
    if stderr:
        # As Python writes to a real stderr.
        answer["stderr"] = stderr.encode("utf-8", "backslashreplace").decode()
    return answer


def serve():
    os.environ["COLUMNS"] = "80"
    gc.disable()  # torch leaves a big heap behind, and answers make little garbage in cycles
    for count, line in enumerate(sys.stdin):
        print(json.dumps(ask(json.loads(line))), flush=True)
        if count % 10000 == 0:
            gc.collect()


if __name__ == "__main__":
    serve()
