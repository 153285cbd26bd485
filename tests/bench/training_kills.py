#!/usr/bin/env python3
"""`parley train ppo --seed N --run FOLDER`, killed with -9 at random moments: its daemon, its own process, the worker that has its
environment, and the daemon at which that worker is attached. Each training ends in the file of an undisturbed one. By turns the environment
is the daemon's own CartPole, until it is learned, and gymnasium's, which a worker offers at another daemon.

usage: training_kills.py BUILD MODEL [KILLS [SEED]]      (run by the interpreter that has gymnasium and the package)"""
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "integration"), os.environ["PARLEY_PACKAGE"]]
import children  # noqa: E402
import parley  # noqa: E402
from parley.rollouts import Environments  # noqa: E402

WORKER = "import gymnasium, parley; parley.serve(parley.environment('Pole-v1')(lambda: gymnasium.make('CartPole-v1')), {!r})"


def has_pole(server):
    try:
        Environments(server, "Pole-v1", 1).close()
        return True
    except parley.Error as e:
        assert e.code == "NOT_FOUND", e
        return False


class Place:
    """A daemon with a worker, each of which is started again when it was killed."""

    def __init__(self, parleyd):
        self.daemon = children.Daemon(parleyd)
        self.daemon.__enter__()
        self.start_worker()
        with parley.connect(self.daemon.address) as server:
            children.until("the worker is attached", lambda: has_pole(server), self.worker)

    def start_worker(self):
        self.worker = children.start([sys.executable, "-c", WORKER.format(self.daemon.address)], stderr=subprocess.DEVNULL,
                                     env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]})

    def kill(self, what):
        if what == "worker":
            self.worker.kill()
            self.worker.wait()
            self.start_worker()
            return
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.listener.join()
        self.daemon.command[self.daemon.command.index("--listen") + 1] = self.daemon.address
        self.daemon.__enter__()

    def close(self):
        self.worker.kill()
        self.worker.wait()
        self.daemon.__exit__(None, None, None)


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return list(map(int, f.read().split()))
    except OSError:
        return []


class Run:
    """A training: its command, and how it ends."""

    def __init__(self, build, folder, seed, place):
        self.command = [os.path.join(build, "parley"), "train", "ppo", "--seed", str(seed), "--run", folder]
        if place is not None:
            self.command += ["--env", "attached:Pole-v1", "--address", place.daemon.address, "--envs", "4", "--n-steps", "16", "--chapter", "2", "--steps", "3000"]
        else:
            self.command += ["--chapter", "5"]

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"], "PARLEY_PYTHON": sys.executable})

    def end(self):
        """The hash that it printed last; None: it did not come to its end."""
        out, err = self.process.communicate()
        lines = out.strip().split("\n")
        self.losses = err.count(": goes on from chapter ")
        return lines[-1].split()[0] if self.process.returncode in (0, 1) and len(lines) == 2 and len(lines[-1].split()[0]) == 64 else None


def disturbed(run, rng, place, kills, most):
    """Runs it, killed again and again; at most so often. Returns its hash."""
    runs = 0
    while True:
        run.start()
        runs += 1
        while run.process.poll() is None and sum(kills.values()) < most:
            try:  # the moment of a kill is chance
                run.process.wait(rng.random() * rng.choice([0.3, 2, 4]))
                break
            except subprocess.TimeoutExpired:
                pass
            what = rng.choice(["trainer", "daemon", "daemon"] + (["worker", "place"] if place is not None else []))
            if what in ("worker", "place"):
                place.kill(what)
            elif what == "trainer":
                run.process.kill()
            else:
                found = children_of(run.process.pid)
                if not found:
                    continue  # it has none at this moment
                os.kill(rng.choice(found), signal.SIGKILL)
            kills[what] += 1
        found = run.end()
        kills["went on by itself"] += run.losses
        if found is not None:
            return found
        assert runs < 1000, run.command


def main():
    build = sys.argv[1]
    most, seed = (list(map(int, sys.argv[3:])) + [100, 1][len(sys.argv) - 3:])[:2]
    rng, kills, n, begun = random.Random(seed), collections.Counter(), 0, time.monotonic()
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(os.path.join(build, "parleyd"))
        while sum(kills[what] for what in ("trainer", "daemon", "worker", "place")) < most:
            n += 1
            at = place if n % 2 == 0 else None
            whole = Run(build, os.path.join(folder, f"whole-{n}"), n, at)
            whole.start()
            want = whole.end()
            assert want is not None and whole.losses == 0, whole.command
            counts = collections.Counter()
            got = disturbed(Run(build, os.path.join(folder, f"killed-{n}"), n, at), rng, at, counts, most)
            assert got == want, (n, want, got)
            kills += counts
            print(f"training {n}: {dict(counts)}, the same file, {got[:16]}…; kills so far {sum(v for k, v in kills.items() if k != 'went on by itself')}, "
                  f"{time.monotonic() - begun:.0f} s", flush=True)
        place.close()
    print(f"trainings {n}, kills {dict(kills)}: each ended in the file of an undisturbed one")


if __name__ == "__main__":
    main()
