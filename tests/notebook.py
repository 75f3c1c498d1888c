"""Runs `fabric run` in a cell of a real notebook, with a real kernel, and ends it in one of several ways.

    python notebook.py FABRIC FOLDER finish|interrupt|kill|shutdown

The workers speak and then wait for a file that is made only after what they said has been seen in the cell's output.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat.v4 import new_code_cell, new_notebook

SCRIPT = """%%writefile train.py
import os, pathlib, time
print('rank', os.environ['RANK'], 'speaks')
while not pathlib.Path('go').exists(): time.sleep(0.01)
print('rank', os.environ['RANK'], 'is done')
"""

fabric, folder, way = sys.argv[1:]
os.chdir(folder)
write, run, after = cells = [
    new_code_cell(SCRIPT),
    new_code_cell(f"!{fabric} run --main-port 0 --devices 2 --accelerator cpu train.py"),
    new_code_cell("print('exit code', _exit_code)"),
]


def output(cell):
    return "".join(it.get("text", "") for it in cell.outputs)


async def end(manager):
    if way == "finish":
        Path("go").touch()
    elif way == "interrupt":
        await manager.interrupt_kernel()
    elif way == "kill":
        os.kill(manager.provisioner.pid, signal.SIGKILL)
    elif way == "shutdown":
        await manager.shutdown_kernel()


async def main():
    client = NotebookClient(new_notebook(cells=cells), timeout=60, kernel_name="python3")
    async with client.async_setup_kernel():
        await client.async_execute_cell(write, 0)
        running = asyncio.create_task(client.async_execute_cell(run, 1))
        while output(run).count("speaks") < 2:
            assert not running.done(), output(run)
            await asyncio.sleep(0.01)
        print("both were heard while the cell ran")
        await end(client.km)
        try:
            await running
            await client.async_execute_cell(after, 2)
        except DeadKernelError:
            print("the kernel is gone")
    print(output(run) + output(after))


asyncio.run(main())
