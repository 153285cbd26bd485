#!/usr/bin/env python3
"""Clients of three daemons that share a PostgreSQL, any call at any of them, while daemons are killed, stopped, cut off from the database,
and the database loses its connections and is killed. What they were told is judged as in test_history.py.

usage: postgres.sh test_cluster.py PARLEYD WRITE_TINY_MODEL [--faults N] [--seed N] [--only KIND] [--stop SECONDS] [--keep FOLDER]

Faults come in runs of at most 20, each with a database of its own. With --keep the histories stay in FOLDER, and what is there already is
not run again: an interrupted run goes on where it was."""
import argparse
import concurrent.futures
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
import children  # noqa: E402
import checker  # noqa: E402
import script  # noqa: E402
import test_history  # noqa: E402

RUN, DAEMONS, LEASE_S = 20, 3, 0.5
POSTGRES, FOLDER = os.environ["PARLEY_TEST_POSTGRES"], os.environ["PARLEY_TEST_POSTGRES_DIR"]


class Wire:
    """One daemon's way to the database. It can be cut: then nothing passes and nobody is told; or only the answers are lost."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.passes = {"up": threading.Event(), "down": threading.Event()}
        for way in self.passes.values():
            way.set()
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(f"{FOLDER}/.s.PGSQL.21500")
            except OSError:
                client.close()
                continue
            self.sockets += [client, server]
            for way, source, to in (("up", client, server), ("down", server, client)):
                threading.Thread(target=self.carry, args=(self.passes[way], source, to), daemon=True).start()

    @staticmethod
    def carry(passes, source, to):
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(65536)
                passes.wait()
                if not data:
                    break
                to.sendall(data)
        for one in (source, to):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self, ways):
        for way in ways:
            self.passes[way].clear()

    def mend(self):
        """What was on its way when it was cut is lost, with its connections."""
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.sockets.clear()
        for way in self.passes.values():
            way.set()


class Always:
    """Another daemon may answer at any time, so nobody waits for one."""

    def is_set(self):
        return True

    def wait(self, _):
        time.sleep(0.05)  # who was refused by all daemons asks again, and nobody tells it when
        return True


class Cluster:
    """What a client of script.py needs, of any of the daemons."""

    def __init__(self, parleyd, flags, url, stop_s):
        self.stop_s = stop_s
        self.wires = [Wire() for _ in range(DAEMONS)]
        self.daemons = [test_history.Mortal(parleyd, *flags, "--lease", f"{int(LEASE_S * 1000)}ms", "--data",
                                            url.replace(f"host={FOLDER}&port=21500", f"host=127.0.0.1&port={wire.port}")) for wire in self.wires]
        self.is_back, self.chance = Always(), random.Random()
        self.n = dict.fromkeys(FAULTS | ALONE, 0)

    @property
    def life(self):
        return time.monotonic() // 10  # so many tries in this time are too many, whatever fails

    def any(self):
        return self.chance.choice([daemon for daemon in self.daemons if daemon.is_back.is_set()] or self.daemons)

    @property
    def client(self):
        return self.any().client

    @property
    def http(self):
        return self.any().http

    def __enter__(self):
        for daemon in self.daemons:
            daemon.__enter__()
        return self

    def __exit__(self, kind, value, trace):
        for daemon in self.daemons:
            daemon.process.send_signal(signal.SIGCONT)
            daemon.kill(signal.SIGTERM)


def killed(cluster, at, chance):
    daemon = cluster.daemons[at]
    daemon.kill(signal.SIGTERM if chance.random() < 0.2 else signal.SIGKILL)
    time.sleep(chance.uniform(0, 2 * LEASE_S))  # others take over meanwhile, or not
    daemon.__enter__()


def stopped(cluster, at, chance):
    """For so long that its lease is over, mostly; or for --stop, and then who does not call it yet calls others, as behind a balancer."""
    daemon = cluster.daemons[at]
    daemon.process.send_signal(signal.SIGSTOP)
    if cluster.stop_s > 0:
        daemon.is_back.clear()
    time.sleep(cluster.stop_s or chance.uniform(1, 4) * LEASE_S)  # the fault itself: nothing is waited for
    daemon.is_back.set()
    daemon.process.send_signal(signal.SIGCONT)


def cut_off(cluster, at, chance):
    cluster.wires[at].cut(["up", "down"])
    time.sleep(chance.uniform(1, 4) * LEASE_S)  # as above
    cluster.wires[at].mend()


def unanswered(cluster, at, chance):
    """Commits arrive, and their answers do not."""
    cluster.wires[at].cut(["down"])
    time.sleep(chance.uniform(0.05, 2 * LEASE_S))  # as above
    cluster.wires[at].mend()


def disconnected(cluster, at, chance):
    sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'parleyd'"
    children.run(["psql", "-q", "-o", "/dev/null", POSTGRES, "-c", sql], check=True)


def restarted(cluster, at, chance):
    support = os.path.join(os.path.dirname(__file__), "..", "support", "postgres.sh")
    children.run([support, "--stop", chance.choice(["immediate", "fast"])], check=True)
    # The database is no child of this thread, but of the script that waits for the test's end.
    subprocess.run([support, "--start"], check=True, stdout=subprocess.DEVNULL)


def failed_over(cluster, at, chance):
    """The database is killed, and its synchronous standby goes on."""
    support = os.path.join(os.path.dirname(__file__), "..", "support", "postgres.sh")
    subprocess.run([support, "--standby"], check=True, stdout=subprocess.DEVNULL)
    time.sleep(chance.uniform(0.1, 1))  # the moment of the fault is random, and nothing is waited for
    subprocess.run([support, "--fail-over"], check=True, stdout=subprocess.DEVNULL)
    before = [walk.n_rounds for walk in cluster.walks]
    children.until("each client's round with the standby", lambda: all(w.n_rounds > n + 1 or w.is_ended for w, n in zip(cluster.walks, before)))


FAULTS = {one.__name__: one for one in (killed, stopped, cut_off, unanswered, disconnected, restarted)}


ALONE = {failed_over.__name__: failed_over}  # each with a database of its own: --only failed_over --faults 1


def harmed(cluster, n_faults, seed, only):
    """The records of all clients, with so many faults on the way: of each kind as many, in an order that the seed draws."""
    chance, is_over = random.Random(seed), threading.Event()
    kinds = [only] if only else list(FAULTS)
    plan = [kinds[i % len(kinds)] for i in range(n_faults)]
    chance.shuffle(plan)
    with cluster, concurrent.futures.ThreadPoolExecutor(script.CLIENTS) as pool:
        running = script.start_all(pool, cluster, seed, True, lambda _: is_over.is_set)
        try:
            for kind in plan:
                time.sleep(chance.uniform(0.1, 0.8))  # the moment of the fault is random, and nothing is waited for
                if any(one.done() for one in running):
                    break
                (FAULTS | ALONE)[kind](cluster, chance.randrange(DAEMONS), chance)
                cluster.n[kind] += 1
        finally:
            is_over.set()
        return [one.result() for one in running]


def database(parleyd, seed):
    children.run(["psql", "-q", POSTGRES, "-c", f"DROP DATABASE IF EXISTS h{seed}", "-c", f"CREATE DATABASE h{seed}"], check=True, stderr=-1)
    url = POSTGRES.replace("/postgres?", f"/h{seed}?")
    children.run([parleyd, "--init-data", "--data", url], check=True)
    return url


def histories(args, flags, paths, n_faults, seed):
    url = database(args.parleyd, seed)
    cluster = Cluster(args.parleyd, flags, url, args.stop)
    walks = harmed(cluster, n_faults, seed, args.only)
    test_history.write(paths[0], test_history.records_of(walks))
    print(*(f"{kind}={n}" for kind, n in cluster.n.items()), f"refused={refused(cluster)}", flush=True)
    checked = children.run([args.parleyd, *flags, "--data", url, "--check-data"], stdout=-1, stderr=-1, text=True)
    assert checked.returncode == 0, checked.stderr
    test_history.write(paths[1], test_history.records_of(test_history.unharmed(test_history.Mortal(args.parleyd, *flags), walks, seed)))


def refused(cluster):
    """How often a daemon was refused what another one had taken over."""
    return sum("journal refused=" in line for daemon in cluster.daemons for line in daemon.said)


def run(args, flags, folder, n_faults, seed):
    paths = [os.path.join(folder, f"{seed}.{what}.jsonl") for what in ("harmed", "unharmed")]
    began = time.monotonic()
    broken = []
    if not all(map(os.path.exists, paths)):
        try:
            histories(args, flags, paths, n_faults, seed)
        except AssertionError as error:
            broken = [("daemon", str(error)[:1000])]
    judged = checker.judge(*(checker.read(path) for path in paths if os.path.exists(path)))
    judged.faults += broken
    print(f"seed={seed} faults={n_faults}", *(f"{k}={v}" for k, v in judged.counts.items()), f"broken={len(judged.faults)}",
          f"seconds={time.monotonic() - began:.1f}", flush=True)
    for fault in judged.faults[:10]:
        print(*fault, flush=True)
    return judged


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parleyd")
    parser.add_argument("write_tiny_model")
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--only", choices=list(FAULTS | ALONE))
    parser.add_argument("--stop", type=float, default=0, help="how long a daemon is stopped")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("PARLEY_SEED", random.randrange(10**6))))
    parser.add_argument("--keep")
    args = parser.parse_args()
    script.CLIENTS = args.clients
    script.Walk.has_constraints = os.path.exists(os.path.join(os.path.dirname(args.parleyd), "agents/lm/grammar/libparley-grammar.so"))
    print(f"PARLEY_SEED={args.seed} constraints={script.Walk.has_constraints}")
    n_broken = 0
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        children.run([args.write_tiny_model, model, "8192"], check=True)
        flags = ["--model", f"tiny={model}", "--http", "127.0.0.1:0", "--linger", "1m", "--drain-timeout", "20ms"]
        if args.keep is not None:
            os.makedirs(args.keep, exist_ok=True)
            folder = args.keep
        for at in range(0, args.faults, RUN):
            judged = run(args, flags, folder, min(RUN, args.faults - at), args.seed + at)
            n_broken += len(judged.faults)
            assert judged.faults or (judged.counts["compared"] > 0 and judged.counts["acknowledged"] > 0), "nothing was told"
    sys.exit(n_broken > 0)


if __name__ == "__main__":
    main()
