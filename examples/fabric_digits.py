"""Lightning Fabric on handwritten digits, data-parallel:
`fabric run --devices 2 --accelerator cpu examples/fabric_digits.py`.

A small network learns the 1,797 digits that scikit-learn ships. The script says nothing about
devices, strategy or precision: the command line does. Needs `pip install lightning scikit-learn`;
`python examples/fabric_digits.py` runs it as one process.
"""

import os

import torch
from lightning.fabric import Fabric
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 16, 32

# One thread per worker: sums then round the same way on every machine.
torch.set_num_threads(1)

fabric = Fabric()
# `fabric run` has started all workers already, and `launch` would refuse to start them again;
# without it, `launch` is what starts those that Fabric(...) was asked for.
if not int(os.environ.get("LT_CLI_USED", "0")):
    fabric.launch()

# The same numbers on every worker: DDP broadcasts rank 0's weights anyway, the split must agree.
fabric.seed_everything(42, verbose=False)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16  # 8 x 8 pixels of 0 to 16
labels = torch.tensor(digits.target)
test, train = torch.randperm(len(labels)).split([360, len(labels) - 360])

model = torch.nn.Sequential(
    torch.nn.Unflatten(1, (1, 8, 8)),
    torch.nn.Conv2d(1, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(32, 64, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(64 * 4 * 4, 10),
)
model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=3e-3))
# `setup_dataloaders` gives each worker its share of every epoch.
batches = fabric.setup_dataloaders(
    DataLoader(TensorDataset(images[train], labels[train]), batch_size=BATCH, shuffle=True)
)

for epoch in range(1, EPOCHS + 1):
    if hasattr(batches.sampler, "set_epoch"):
        batches.sampler.set_epoch(epoch)  # otherwise all epochs come in the same order
    for pixels, wanted in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(pixels), wanted)
        fabric.backward(loss)
        optimizer.step()
    mean = fabric.all_reduce(loss.detach(), reduce_op="mean")
    if epoch % 4 == 0:
        fabric.print(f"epoch {epoch}/{EPOCHS}  loss {mean:.4f}")

# Each worker marks its share of the test digits; the marks are summed.
mine = test[fabric.global_rank :: fabric.world_size]
with torch.no_grad():
    answers = model(fabric.to_device(images[mine])).argmax(dim=1).cpu()
hits = fabric.all_reduce((answers == labels[mine]).sum().float(), reduce_op="sum")

environment = getattr(fabric.strategy, "cluster_environment", None)
fabric.print(
    f"environment={type(environment).__name__} strategy={type(fabric.strategy).__name__}"
    f" world_size={fabric.world_size} loss={mean:.4f} accuracy={hits / len(test):.4f}"
)

# Leave the process group in order: torch 2.15 sometimes aborts at exit while its threads still run.
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
