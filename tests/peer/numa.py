"""Which CPUs torch's own NUMA binding gives to the worker of a device.

Reads JSON lines and answers each with the list of CPUs, or "error", on machines that are made up:

    {"files": {"/sys/...": "text", ...}, "allowed": "0-3,8-11", "devices": ["0000:01:00.0", ...], "mode": "node", "device": 0}
"""

import builtins
import io
import json
import os
import shutil
import sys
from types import SimpleNamespace

import torch
from torch.numa import binding

cpus = binding._get_set_of_int_from_ranges_str
real_open, real_listdir = builtins.open, os.listdir
shutil.which = lambda name: "/usr/bin/" + name


def properties(address):
    domain, bus, device = address.removesuffix(".0").split(":")
    return SimpleNamespace(
        pci_domain_id=int(domain, 16), pci_bus_id=int(bus, 16), pci_device_id=int(device, 16)
    )


def answer(ask):
    files, devices = ask["files"], ask["devices"]

    def fake_open(path, *rest):
        if path not in files:
            raise FileNotFoundError(path)
        return io.StringIO(files[path])

    def fake_listdir(path):
        return sorted({it[len(path) + 1 :].split("/")[0] for it in files if it.startswith(path + "/")})

    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda: None
    torch.accelerator.device_count = lambda: len(devices)
    torch.get_device_module = lambda _: SimpleNamespace(get_device_properties=lambda it: properties(devices[it]))
    os.sched_getaffinity = lambda _: cpus(ask["allowed"])
    builtins.open, os.listdir = fake_open, fake_listdir
    try:
        options = binding.NumaOptions(affinity_mode=binding.AffinityMode(ask["mode"]))
        bound = binding._get_validated_logical_cpus_to_bind_to(device_index=ask["device"], numa_options=options)
        return binding._get_ranges_str_from_ints(bound)
    except Exception:  # each complaint is an answer
        return "error"
    finally:
        builtins.open, os.listdir = real_open, real_listdir


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))))
