"""Values in an order of versions: of several who push behind one, one succeeds. After Machin's example of this name; the daemon is
the server.

usage: dist_oserver.py [ADDRESS]      a daemon's"""
from common import run

from parley.parallel import OrderedStore, World


def say(text):
    print(text + "\n", end="", flush=True)  # at once: the others print, too


def main(rank, address, secret):
    with World(str(rank), rank, world_size=3, rpc_timeout=20, address=address, secret=secret) as world:
        group = world.create_rpc_group("group", ["0", "1", "2"])
        if rank == 0:
            group.pair("server", address)
        group.barrier()
        if rank > 0:
            server = OrderedStore(group.get_paired("server").to_here())
            for number, value in enumerate(("value", "value2", "value3"), 1):
                # from the version before, None for the first, to this one
                pushed = server.push("a", value, number, number - 1 or None)
                say(f"{rank} push {number} {'success' if pushed else 'failed'}")
        group.barrier()
        if rank > 0:
            assert server.pull("a") == ("value3", 3)
            assert server.pull("a", 2) == ("value2", 2)
            assert server.pull("a", 1) is None
            assert server.pull("b") is None
            say("Ordered server check passed")
        group.destroy()


if __name__ == "__main__":
    run(main)
