"""What the original makes of --devices and of the variables that hide devices.

Reads JSON lines and answers with JSON lines, on machines that are made up:

    {"accelerator": "cuda" or null, "devices": "0,1", "cuda": 4, "mps": 0}
        the number of processes that Lightning starts, or the name of its complaint
    {"build": "nvidia" or "amd", "environ": {...}, "gpus": ["GPU-aaaa", ...]}
        the number of devices that such a build of torch counts (-1: it asks the CUDA driver), or "error"
"""

import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")
os.environ.pop("TORCHELASTIC_RUN_ID", None)  # has one device visible mean any number of them

import lightning.fabric.accelerators.cuda as cuda  # noqa: E402
import lightning.fabric.accelerators.mps as mps  # noqa: E402
import torch  # noqa: E402
from lightning.fabric.cli import _get_num_processes  # noqa: E402

HIDING = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
COMPLAINTS = {"must be unique": "twice", "but your machine only has": "missing", "none are available": "none"}


def processes(ask):
    cuda.num_cuda_devices = lambda: ask["cuda"]
    mps.MPSAccelerator.is_available = staticmethod(lambda: ask["mps"] > 0)
    try:
        return _get_num_processes(ask["accelerator"], ask["devices"])
    except Exception as error:  # each complaint is an answer
        text = str(error).lower()
        return next((name for part, name in COMPLAINTS.items() if part in text), type(error).__name__)


def visible(ask):
    for name in HIDING:
        os.environ.pop(name, None)
    os.environ.update(ask["environ"])
    amd, gpus = ask["build"] == "amd", ask["gpus"]
    torch.version.hip = "6.4" if amd else None
    torch.cuda._raw_device_count_nvml = torch.cuda._raw_device_count_amdsmi = lambda: len(gpus)
    torch.cuda._raw_device_uuid_nvml = lambda: gpus
    torch.cuda._raw_device_uuid_amdsmi = lambda: [it.removeprefix("GPU-") for it in gpus]
    try:
        return torch.cuda._device_count_amdsmi() if amd else torch.cuda._device_count_nvml()
    except (ValueError, RuntimeError):
        return "error"


for line in sys.stdin:
    ask = json.loads(line)
    print(json.dumps(visible(ask) if "build" in ask else processes(ask)))
