"""A worker that prints BENCH_LINES lines of 64 bytes, and tells as worker.c does when it starts and is done."""
import os
import time

LINE = "x" * 63


def tell(kind):
    with open(os.environ["BENCH_EVENTS"], "w") as events:
        events.write(f"{kind} {os.getpid()} {time.monotonic_ns()}\n")


tell("start")
for _ in range(int(os.environ["BENCH_LINES"])):
    print(LINE)
tell("done")
