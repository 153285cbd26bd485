#!/usr/bin/env python3
"""Kills the daemon with -9 while 64 clients use it, and checks what they were told; then they do the same in a run without kills.

usage: test_history.py PARLEYD WRITE_TINY_MODEL [--kills N] [--seed N] [--keep FOLDER]     (run by the interpreter that has grpcio; see venv.sh)

Kills come in runs of at most 50, each with a folder of its own. With --keep the histories stay in FOLDER, and what is there already is not
run again: an interrupted run goes on where it was. checker.py HISTORY [REFERENCE] judges one by itself."""
import argparse
import concurrent.futures
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
import children  # noqa: E402
import harness  # noqa: E402
import checker  # noqa: E402
import script  # noqa: E402

RUN = 50  # kills


class Mortal(harness.Parleyd):
    """A daemon that is killed and started again on the same addresses, for clients that go on meanwhile."""

    def __init__(self, *args):
        super().__init__(*args)
        self.is_back, self.life = threading.Event(), 0

    def __enter__(self):
        super().__enter__()
        self.command[self.command.index("--listen") + 1] = self.address
        self.command[self.command.index("--http") + 1] = self.http
        self.life += 1
        self.is_back.set()
        return self

    def kill(self, by=signal.SIGKILL):
        """Or asked to stop: then what runs is not waited for."""
        self.is_back.clear()
        self.process.send_signal(by)
        code = self.process.wait(children.PATIENCE)
        assert code == (-by if by == signal.SIGKILL else 0), (code, self.said)
        self.listener.join()
        self.client.channel.close()

    def kill_while_it_starts(self, after_s):
        """Before it is ready, or just after; nobody knows of it."""
        early = children.start(self.command, stdin=-3, stdout=-3, stderr=-3)  # -3: DEVNULL
        time.sleep(after_s)  # the moment of the kill is random, and nothing is waited for
        early.kill()
        early.wait()


def killed(daemon, n_kills, seed):
    """The records of all clients, with so many kills on the way."""
    chance, is_over = random.Random(seed), threading.Event()
    with daemon, concurrent.futures.ThreadPoolExecutor(script.CLIENTS) as pool:
        running = script.start_all(pool, daemon, seed, True, lambda _: is_over.is_set)
        try:
            for _ in range(n_kills):
                time.sleep(chance.uniform(0.02, 0.3))  # the moment of the kill is random, and nothing is waited for
                failed = next((one for one in running if one.done()), None)
                if failed is not None:
                    break
                daemon.kill(signal.SIGTERM if chance.random() < 0.1 else signal.SIGKILL)
                if chance.random() < 0.2:
                    daemon.kill_while_it_starts(chance.uniform(0, 0.04))
                daemon.__enter__()
        finally:
            is_over.set()
        return [one.result() for one in running]


def unharmed(daemon, walks, seed):
    rounds = {walk.number: walk.n_rounds for walk in walks}
    with daemon, concurrent.futures.ThreadPoolExecutor(script.CLIENTS) as pool:
        running = script.start_all(pool, daemon, seed, False, lambda walk: lambda: walk.n_rounds >= rounds[walk.number])
        return [one.result() for one in running]


def records_of(walks):
    return [record for walk in walks for record in walk.records]


def write(path, records):
    with open(path + ".new", "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
    os.replace(path + ".new", path)


def histories(args, flags, folder, paths, n_kills, seed):
    data = os.path.join(folder, f"{seed}.data")
    walks = killed(Mortal(args.parleyd, *flags, "--data", data), n_kills, seed)
    write(paths[0], records_of(walks))
    checked = children.run([args.parleyd, *flags, "--data", data, "--check-data"], stdout=-1, stderr=-1, text=True)
    assert checked.returncode == 0, checked.stderr
    write(paths[1], records_of(unharmed(Mortal(args.parleyd, *flags), walks, seed)))


def run(args, model, folder, n_kills, seed):
    """Judges one run, of which the histories may be there already."""
    paths = [os.path.join(folder, f"{seed}.{what}.jsonl") for what in ("killed", "unharmed")]
    flags = ["--model", f"tiny={model}", "--http", "127.0.0.1:0", "--linger", "1m", "--drain-timeout", "20ms"]
    began = time.monotonic()
    broken = []
    if not all(map(os.path.exists, paths)):
        try:
            histories(args, flags, folder, paths, n_kills, seed)
        except AssertionError as error:
            broken = [("daemon", str(error)[:1000])]
    judged = checker.judge(*(checker.read(path) for path in paths if os.path.exists(path)))
    judged.faults += broken
    print(f"seed={seed} kills={n_kills}", *(f"{k}={v}" for k, v in judged.counts.items()), f"faults={len(judged.faults)}",
          f"seconds={time.monotonic() - began:.1f}", flush=True)
    for fault in judged.faults[:10]:
        print(*fault, flush=True)
    return judged


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parleyd")
    parser.add_argument("write_tiny_model")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("PARLEY_SEED", random.randrange(10**6))))
    parser.add_argument("--keep")
    args = parser.parse_args()
    print(f"PARLEY_SEED={args.seed}")
    n_faults = 0
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        children.run([args.write_tiny_model, model, "8192"], check=True)
        if args.keep is not None:
            os.makedirs(args.keep, exist_ok=True)
            folder = args.keep
        for at in range(0, args.kills, RUN):
            judged = run(args, model, folder, min(RUN, args.kills - at), args.seed + at)
            n_faults += len(judged.faults)
            assert judged.faults or (judged.counts["compared"] > 0 and judged.counts["acknowledged"] > 0), "nothing was told"
    sys.exit(n_faults > 0)


if __name__ == "__main__":
    main()
