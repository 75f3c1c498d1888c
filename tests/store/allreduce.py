"""One rank of a gloo group that meets at the store of its agent; prints the sum of all ranks' numbers."""
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
number = torch.tensor([2**rank])
dist.all_reduce(number)
dist.new_group(list(range(world)))
dist.barrier()
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
print(int(number), flush=True)
dist.destroy_process_group()
