"""A broadcast from the first of three processes. After Machin's example of this name, with numpy's arrays, and the value returned
where Machin writes it into a tensor.

usage: dist_coll.py [ADDRESS]      a daemon's"""
import numpy as np
from common import run

from parley.parallel import World


def main(rank, address, secret):
    with World(str(rank), rank, world_size=3, rpc_timeout=20, address=address, secret=secret) as world:
        group = world.create_collective_group(ranks=[0, 1, 2])
        a = np.ones([5]) if rank == 0 else np.zeros([5])
        print(f"{group.broadcast(a, 0)}\n", end="", flush=True)  # at once: the others print, too
        group.destroy()


if __name__ == "__main__":
    run(main)
