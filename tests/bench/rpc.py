"""rpc_sync between two processes of this machine, by parley.parallel and by PyTorch's RPC, in turns: of nothing, of 40 MB that come back,
and of 40 MB whose sum comes back. Ours also by way of the daemon (World(direct=False)).

    rpc.py BUILD [--megabytes M] [--pairs N]    (by a Python with torch, grpcio and cloudpickle; see tests/support/torch.sh)

Prints seconds a call and ours over theirs: the median of the pairs, with the least and the greatest."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
import numpy as np  # noqa: E402
import torch  # noqa: E402

import children  # noqa: E402

torch.set_num_threads(1)
N_SMALL, N_LARGE = 1000, 5


def nothing():
    return None


def same(x):
    return x


def total(x):
    return float(x[0]) + float(x[-1])


def measured(call, array):
    """call(function, arguments) -> the result. Seconds of the median call of each kind."""
    spent = {}
    for name, function, args, n in (("nothing", nothing, (), N_SMALL), ("there and back", same, (array,), N_LARGE), ("there", total, (array,), N_LARGE)):
        times = []
        for _ in range(n + 2):
            start = time.perf_counter()
            result = call(function, args)
            times.append(time.perf_counter() - start)
        assert result is None if function is nothing else float(result[7] if function is same else result) == (0.5 if function is same else 1.0)
        spent[name] = statistics.median(times[2:])
    return spent


def torch_process(rank, o, meeting, out):
    from torch.distributed import rpc

    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=600, init_method=f"file://{meeting}", num_worker_threads=16)
    rpc.init_rpc(f"p{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        out.put(measured(lambda function, args: rpc.rpc_sync("p1", function, args=args), torch.full((o.megabytes * 250_000,), 0.5)))
    rpc.shutdown()


def theirs(o):
    import torch.multiprocessing as mp

    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo", GLOG_minloglevel="2")
    with tempfile.TemporaryDirectory() as folder:
        out = mp.get_context("spawn").SimpleQueue()
        mp.spawn(torch_process, args=(o, os.path.join(folder, "meeting"), out), nprocs=2, join=True)
        return out.get()


def member(address, direct):
    from parley.parallel import World

    with World("b", address=address, secret="of the bench", world_size=2, direct=direct) as world, world.create_rpc_group("g", ["a", "b"]) as group:
        group.barrier()


def ours(o, address, direct):
    from parley.parallel import World

    other = children.start([sys.executable, __file__, o.build, "--member", address] + ([] if direct else ["--by-daemon"]))
    with World("a", address=address, secret="of the bench", world_size=2, direct=direct) as world, world.create_rpc_group("g", ["a", "b"]) as group:
        spent = measured(lambda function, args: group.rpc_sync("b", function, args=args), np.full(o.megabytes * 250_000, 0.5, np.float32))
        group.barrier()
    assert other.wait() == 0
    return spent


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("--megabytes", type=int, default=40)
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--member", help=argparse.SUPPRESS)
    options.add_argument("--by-daemon", action="store_true", help=argparse.SUPPRESS)
    o = options.parse_args()
    if o.member:
        member(o.member, not o.by_daemon)
        return
    rounds = []
    with children.Daemon(os.path.join(o.build, "parleyd")) as daemon:
        for _ in range(o.pairs):
            rounds.append((ours(o, daemon.address, True), ours(o, daemon.address, False), theirs(o)))
    for name in rounds[0][0]:
        what = name if name == "nothing" else f"{o.megabytes} MB {name}"
        for way, which in ("", 0), (" by way of the daemon", 1):
            ratios = [r[which][name] / r[2][name] for r in rounds]
            mine, their = (statistics.median(r[k][name] for r in rounds) * 1000 for k in (which, 2))
            print(f"rpc_sync of {what}{way}: {mine:.3g} ms, PyTorch's RPC {their:.3g} ms; ours over theirs {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f}-{max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()
