"""One rank of a gloo group that meets at the store of an agent; prints the sum of all ranks' numbers."""
import os, sys
import torch
import torch.distributed as dist

port, rank, world = sys.argv[1:]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=rank, WORLD_SIZE=world,
                  TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
dist.init_process_group("gloo")
number = torch.tensor([2 ** int(rank)])
dist.all_reduce(number)
dist.new_group(list(range(int(world))))
dist.barrier()
print(int(number))
dist.destroy_process_group()
