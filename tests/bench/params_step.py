"""A step of shared parameters with two trainers, and PyTorch's tutorial "Implementing Batch RPC Processing Using Asynchronous
Executions" on PyTorch's own RPC, in turns: its batch parameter server, whose trainers send all gradients and get the whole model.
Both step SGD with momentum; gradients are made beforehand.

    params_step.py BUILD [--megabytes M] [--rounds N] [--pairs N]    (by a Python with torch and grpcio; see tests/support/torch.sh)

Prints seconds of a round, the processor seconds of all processes a round, and ours over theirs: the median of the pairs."""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
import torch  # noqa: E402

import children  # noqa: E402

N_TRAINERS, LR, MOMENTUM = 2, 0.001, 0.9
torch.set_num_threads(1)


def tensors(megabytes):
    """As a model has them: a few large ones and many small ones."""
    left, sizes = megabytes * 250_000, []
    while left > 0:
        sizes.append(min(left, max(1000, left // 3)))
        left -= sizes[-1]
    return [torch.full((n,), 0.1) for n in sizes]


class Server:
    """The tutorial's BatchUpdateParameterServer."""

    def __init__(self, megabytes):
        self.model = torch.nn.ParameterList([torch.nn.Parameter(t) for t in tensors(megabytes)])
        for p in self.model:
            p.grad = torch.zeros_like(p)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR, momentum=MOMENTUM)
        self.lock, self.n, self.future = threading.Lock(), 0, torch.futures.Future()

    def get_model(self):
        return [p.detach() for p in self.model]

    @staticmethod
    def update_and_fetch(rref, grads):
        self = rref.local_value()
        with self.lock:
            for p, g in zip(self.model, grads):
                p.grad += g
            self.n += 1
            future = self.future
            if self.n == N_TRAINERS:
                for p in self.model:
                    p.grad /= N_TRAINERS
                self.n = 0
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                future.set_result(self.get_model())
                self.future = torch.futures.Future()
        return future


def train_theirs(rref, megabytes, rounds):
    from torch.distributed import rpc

    mine = tensors(megabytes)
    grads = [torch.full_like(t, 0.5) for t in mine]
    spent = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        found = rpc.rpc_sync(rref.owner(), Server.update_and_fetch, args=(rref, grads), timeout=600)
        with torch.no_grad():
            for p, f in zip(mine, found):
                p.copy_(f)
        spent.append(time.perf_counter() - start)
    return spent[1:], float(mine[0][0])


def process(rank, o, meeting, out):
    from torch.distributed import rpc

    Server.update_and_fetch = staticmethod(rpc.functions.async_execution(Server.update_and_fetch))
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=600, init_method=f"file://{meeting}", num_worker_threads=16)
    rpc.init_rpc(f"p{rank}", rank=rank, world_size=N_TRAINERS + 1, rpc_backend_options=options)
    if rank == 0:
        rref = rpc.RRef(Server(o.megabytes))
        futures = [rpc.rpc_async(f"p{i}", train_theirs, args=(rref, o.megabytes, o.rounds), timeout=600) for i in range(1, N_TRAINERS + 1)]
        out.put([f.wait() for f in futures])
    rpc.shutdown()


def theirs(o):
    import torch.multiprocessing as mp

    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo", GLOG_minloglevel="2")
    with tempfile.TemporaryDirectory() as folder:
        out = mp.get_context("spawn").SimpleQueue()
        mp.spawn(process, args=(o, os.path.join(folder, "meeting"), out), nprocs=N_TRAINERS + 1, join=True)
        return out.get()


def train_ours(address, o):
    import parley
    import parley.optim

    mine = [torch.nn.Parameter(t) for t in tensors(o.megabytes)]
    with parley.connect(address, patience=600) as server:
        optimizer = parley.optim.RemoteOptimizer(mine, server, "net", round_size=N_TRAINERS, lr=LR, momentum=MOMENTUM)
        for p in mine:
            p.grad = torch.full_like(p, 0.5)
        print("ready", flush=True)
        sys.stdin.readline()
        spent = []
        for _ in range(o.rounds + 1):
            start = time.perf_counter()
            optimizer.step()
            spent.append(time.perf_counter() - start)
        optimizer.close()
    print(*spent[1:], float(mine[0].detach()[0]), flush=True)


def ours(o):
    with children.Daemon(os.path.join(o.build, "parleyd")) as daemon:
        command = [sys.executable, __file__, o.build, "--megabytes", str(o.megabytes), "--rounds", str(o.rounds), "--trainer", daemon.address]
        trainers = [children.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(N_TRAINERS)]
        assert [t.stdout.readline() for t in trainers] == ["ready\n"] * N_TRAINERS
        for t in trainers:
            t.stdin.write("\n")
            t.stdin.flush()
        said = [[float(x) for x in t.stdout.readline().split()] for t in trainers]
        assert [t.wait() for t in trainers] == [0] * N_TRAINERS
    return [(s[:-1], s[-1]) for s in said]


def measured(run, o):
    """Seconds of a round, processor seconds of a round with the start of the processes, and what the first parameter is."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = run(o)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return statistics.median(s for rounds, _ in found for s in rounds), spent / (o.rounds + 1), found[0][1]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("--megabytes", type=int, default=100)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--pairs", type=int, default=3)
    options.add_argument("--trainer", help=argparse.SUPPRESS)
    o = options.parse_args()
    if o.trainer:
        train_ours(o.trainer, o)
        return
    pairs = []
    for _ in range(o.pairs):
        pairs.append((measured(ours, o), measured(theirs, o)))
        (mine, spent, value), (their, their_spent, their_value) = pairs[-1]
        assert abs(value - their_value) < 1e-4, (value, their_value)
        print(f"{o.megabytes} MB, two trainers: {mine:.2f} s a round ({spent:.2f} s of processors), PyTorch's RPC {their:.2f} s ({their_spent:.2f} s)", flush=True)
    ratios = [mine[0] / their[0] for mine, their in pairs]
    print(f"ours over theirs: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    main()
