"""A service and a value of one process, used by another. After Machin's example of this name; barriers stand where it sleeps.

usage: dist_rpc.py [ADDRESS]      a daemon's"""
from common import run

from parley.parallel import World


class WorkerService:
    counter = 20

    def count(self):
        self.counter += 1
        return self.counter

    def get_count(self):
        return self.counter


def main(rank, address, secret):
    with World(str(rank), rank, world_size=3, rpc_timeout=20, address=address, secret=secret) as world:
        if rank == 2:
            return  # only members enter
        group = world.create_rpc_group("group", ["0", "1"])
        if rank == 0:
            service = WorkerService()
            group.pair("value", service.counter)
            group.register("count", service.count)
            group.register("get_count", service.get_count)
            group.barrier()
            group.barrier()  # process 1 is done
            assert service.get_count() == 23
            group.unpair("value")
            group.deregister("count")
            group.deregister("get_count")
            group.barrier()
        else:
            group.barrier()
            assert group.is_registered("count") and group.is_registered("get_count")
            print("Process 1: service 'count' and 'get_count' correctly registered.", flush=True)
            assert group.get_paired("value").to_here() == 20
            assert group.registered_sync("count") == 21
            assert group.registered_async("count").wait() == 22
            assert group.registered_remote("count").to_here() == 23
            print("Process 1: service 'count' and 'get_count' correctly called", flush=True)
            group.barrier()
            group.barrier()
            assert not group.is_registered("count") and not group.is_registered("get_count")
            print("Process 1: service 'count' and 'get_count' correctly unregistered.", flush=True)
        group.destroy()


if __name__ == "__main__":
    run(main)
