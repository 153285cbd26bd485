"""Torch modules that three processes train by parley.optim.RemoteOptimizer, against one process that takes the mean of the same
three gradients and torch's own optimiser: how far the parameters are apart, and the seconds of a round. A perceptron, then the
batch parameter server's tutorial: ResNet-50, small random images, SGD with momentum.

    optim.py BUILD MODEL [--rounds N] [--batch N] [--pixels N]    (by a Python with torch, torchvision and grpcio; see tests/support/torch.sh)"""
import argparse
import os
import subprocess
import sys
import time

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
import torch  # noqa: E402

import children  # noqa: E402

N_TRAINERS, LR, MOMENTUM, N_CLASSES = 3, 0.01, 0.9, 30
torch.set_num_threads(1)


def module(kind):
    torch.manual_seed(543)
    if kind == "perceptron":
        return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, N_CLASSES))
    import torchvision

    return torchvision.models.resnet50(num_classes=N_CLASSES)


def batch(kind, shard, round_, o):
    """What the trainer of a shard sees in a round."""
    draw = torch.Generator().manual_seed(1000 * round_ + shard)
    shape = (o.batch, 16) if kind == "perceptron" else (o.batch, 3, o.pixels, o.pixels)
    return torch.randn(shape, generator=draw), torch.randint(N_CLASSES, (o.batch,), generator=draw)


def loss_of(net, kind, shard, round_, o):
    x, y = batch(kind, shard, round_, o)
    return torch.nn.functional.cross_entropy(net(x), y)


def flat(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def trainer(kind, shard, address, out, o):
    import parley
    import parley.optim

    net = module(kind)
    with parley.connect(address, patience=600) as server:
        optimizer = parley.optim.RemoteOptimizer(net.parameters(), server, kind, round_size=N_TRAINERS, lr=LR, momentum=MOMENTUM,
                                                 client=f"trainer{shard}")
        print("ready", flush=True)
        sys.stdin.readline()
        for round_ in range(o.rounds):
            optimizer.zero_grad()
            loss_of(net, kind, shard, round_, o).backward()
            optimizer.step()
        optimizer.close()
    torch.save(flat(net), out)


def alone(kind, o):
    """One process: the mean of the gradients and SGD as torch's, each product rounded before it is added."""
    net = module(kind)
    moments = [torch.zeros_like(p) for p in net.parameters()]
    for round_ in range(o.rounds):
        total = None
        for shard in range(N_TRAINERS):
            net.zero_grad()
            loss_of(net, kind, shard, round_, o).backward()
            mine = [p.grad.clone() for p in net.parameters()]
            total = mine if total is None else [t + g for t, g in zip(total, mine)]
        with torch.no_grad():
            for p, m, t in zip(net.parameters(), moments, total):
                m.mul_(MOMENTUM).add_(t / N_TRAINERS)
                p.sub_(LR * m)
    return flat(net)


def compare(kind, o):
    import tempfile

    begun = flat(module(kind))
    start = time.perf_counter()
    one = alone(kind, o)
    alone_s = time.perf_counter() - start
    with children.Daemon(os.path.join(o.build, "parleyd")) as daemon, tempfile.TemporaryDirectory() as folder:
        out = [os.path.join(folder, str(i)) for i in range(N_TRAINERS)]
        given = ["--rounds", str(o.rounds), "--batch", str(o.batch), "--pixels", str(o.pixels)]
        trainers = [children.start([sys.executable, __file__, o.build, o.model, *given, "--trainer", kind, str(i), daemon.address, out[i]],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for i in range(N_TRAINERS)]
        assert [t.stdout.readline() for t in trainers] == ["ready\n"] * N_TRAINERS
        start = time.perf_counter()
        for t in trainers:
            t.stdin.write("\n")
            t.stdin.flush()
        assert [t.wait() for t in trainers] == [0] * N_TRAINERS
        three_s = time.perf_counter() - start
        three = [torch.load(path) for path in out]
    assert all(torch.equal(t, three[0]) for t in three), "trainers of a round have the same bits"
    apart, moved = (one - three[0]).abs().max().item(), (one - begun).abs().max().item()
    print(f"{kind}: {one.numel()} parameters, {o.rounds} rounds; moved by up to {moved:.3g}, one process and three apart by up to "
          f"{apart:.2g}; a round {three_s / o.rounds:.2f} s by three, {alone_s / o.rounds:.2f} s by one", flush=True)
    return apart <= 1e-6 < moved


def is_compatible(o):
    """Whether RemoteOptimizer takes the steps of torch's SGD with closures, a schedule, a frozen parameter, and gradients that are missing
    at times; and whether it trains bfloat16 and refuses by name what it cannot do."""
    import parley
    import parley.optim

    def made():
        torch.manual_seed(1)
        net = torch.nn.ModuleList([torch.nn.Linear(3, 5), torch.nn.Linear(5, 2), torch.nn.Linear(2, 2)])
        net[2].bias.requires_grad_(False)
        return net

    def train(net, optimiser):
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5)
        for step in range(8):
            x, y = (torch.randn(4, n, generator=torch.Generator().manual_seed(step)) for n in (3, 2))

            def closure():
                optimiser.zero_grad(set_to_none=True)
                out = net[1](net[0](x).tanh())
                loss = (((net[2](out) if step % 3 else out) - y) ** 2).mean()  # the last layer has no gradient at times
                loss.backward()
                return loss

            assert optimiser.step(closure) > 0
            schedule.step()

    def is_refused(call, words):
        try:
            call()
        except parley.Error as e:
            return words in e.message
        return False

    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}
    with children.Daemon(os.path.join(o.build, "parleyd")) as daemon, parley.connect(daemon.address) as server:
        mine, theirs = made(), made()
        frozen = mine[2].bias.clone()
        train(mine, parley.optim.RemoteOptimizer(mine.named_parameters(), server, "sgd", **settings))
        train(theirs, torch.optim.SGD(theirs.parameters(), **settings))
        apart = (flat(mine) - flat(theirs)).abs().max().item()
        half = torch.nn.Linear(2, 2).to(torch.bfloat16)
        before = half.bias.clone()
        half(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
        parley.optim.RemoteOptimizer(half.parameters(), server, "half", lr=0.5).step()
        sparse = torch.nn.Embedding(4, 2, sparse=True)
        sparse(torch.tensor([1])).sum().backward()
        one, other = ({"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (1, 2))
        right = (apart <= 1e-6, torch.equal(frozen, mine[2].bias), torch.allclose(half.bias, before - 0.5, atol=0.01),
                 is_refused(parley.optim.RemoteOptimizer(sparse.parameters(), server, "sparse").step, "sparse"),
                 is_refused(lambda: parley.optim.RemoteOptimizer([one, other], server, "rates"), "learning rates"))
    print(f"torch's SGD and ours, with closures, a schedule and missing gradients: apart by up to {apart:.2g}; all else right: {all(right[1:])}", flush=True)
    return all(right)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("model")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--batch", type=int, default=4)
    options.add_argument("--pixels", type=int, default=64)
    options.add_argument("--kinds", default="perceptron,resnet50")
    options.add_argument("--trainer", nargs=4, metavar=("KIND", "SHARD", "ADDRESS", "OUT"), help=argparse.SUPPRESS)
    o = options.parse_args()
    if o.trainer:
        kind, shard, address, out = o.trainer
        trainer(kind, int(shard), address, out, o)
        return
    if not all([is_compatible(o), *[compare(kind, o) for kind in o.kinds.split(",") if kind]]):
        sys.exit("they are more than 1e-6 apart, or have learned nothing")


main()
