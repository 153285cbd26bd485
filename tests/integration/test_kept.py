#!/usr/bin/env python3
"""Tables of Replay and keys of Store outlive the process: killed at events, they go on from their last checkpoint, to the same draws as
without the kill; asked to stop, nothing is lost; and what is damaged is named.

usage: test_kept.py PARLEYD      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import os
import sqlite3
import sys
import tempfile

import numpy as np

import children
from children import Daemon, until

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402

COLUMNS = {"x": ("i8", ()), "page": ("u1", (1 << 16,))}
NEVER = ("--checkpoint-interval", "24h")
AT_ONCE = ("--checkpoint-interval", "1ms")


class Mortal(Daemon):
    """A daemon that may be killed inside its block, and started again."""

    def again(self):
        self.process.kill()
        self.process.wait()
        self.listener.join()
        return parley.connect(self.__enter__().address)


def steps(first, n):
    return {"x": np.arange(first, first + n), "page": np.full((n, 1 << 16), first & 0xff, np.uint8)}


def rows(folder, sql):
    db = sqlite3.connect(f"file:{folder}/journal.db?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def drawn(replay, n=64):
    batch = replay.sample(n)
    return batch["x"].tolist(), batch.priorities.tolist(), batch.times_sampled.tolist()


def info(replay):
    i = replay.info()
    return i.items, i.held_bytes, i.inserted, i.sampled, i.config.seed, i.config.limiter.min_size


def tables_go_on(parleyd, folder):
    """Killed behind a checkpoint: what came later is lost, all else goes on, with the draws that would have followed."""
    with Mortal(parleyd, "--data", folder, *NEVER) as daemon:
        server = parley.connect(daemon.address)
        replay = parley.Replay(server, "prio", COLUMNS, sampler="prioritized", max_items=100, min_size=7)
        for at in range(0, 130, 10):  # so that some have made room
            replay.insert_all(steps(at, 10), list(range(10)))
        with replay.writer(3) as w:  # runs that share their steps
            for at in range(200, 205):
                w.append({k: v[0] for k, v in steps(at, 1).items()})
                w.item(min(3, at - 199), 50.0)
        batch = replay.sample(64)
        replay.update_priorities(batch, np.arange(64))
        queue = parley.Replay(server, "queue", {"x": ("i8", ())}, sampler="fifo", max_times_sampled=1, samples_per_insert=1, max_diff=20)
        queue.insert_all({"x": np.arange(20)})
        assert queue.sample(5)["x"].tolist() == [0, 1, 2, 3, 4]
        replay.checkpoint()
        queue.checkpoint()
        before = info(replay), info(queue)
        expected = [drawn(replay) for _ in range(4)]
        replay.insert_all(steps(999, 1))
        queue.clear()
        server = daemon.again()
        replay, queue = parley.Replay(server, "prio"), parley.Replay(server, "queue")
        assert (info(replay), info(queue)) == before
        assert replay.update_priorities(batch, np.arange(64)) == 0, "keys of before the kill are of another epoch"
        assert [drawn(replay) for _ in range(4)] == expected
        assert queue.sample(5)["x"].tolist() == [5, 6, 7, 8, 9]
        try:
            queue.insert_all({"x": np.arange(20, 41)}, timeout=0.01)
        except parley.Error as e:
            assert e.code == "DEADLINE_EXCEEDED", e
        else:
            raise AssertionError("the limiter has forgotten what was inserted")
        replay.delete()  # answered when that is durable
        server = daemon.again()
        try:
            parley.Replay(server, "prio")
        except parley.Error as e:
            assert e.code == "NOT_FOUND", e
        else:
            raise AssertionError("a deleted table came back")
        assert parley.Replay(server, "queue").info().items == 15


def killed_while_written(parleyd, folder):
    """Killed between two parts of a checkpoint: the one before is what there is, whole."""
    unfinished = "SELECT count(*) FROM block WHERE checkpoint NOT IN (SELECT checkpoint FROM kept)"
    with Mortal(parleyd, "--data", folder, *AT_ONCE) as daemon:
        replay = parley.Replay(parley.connect(daemon.address), "big", COLUMNS, max_items=120)
        replay.insert_all(steps(0, 120))
        replay.checkpoint()
        n = 1

        def is_between():
            nonlocal n
            replay.insert_all(steps(1000 * n, 10))
            n += 1
            return rows(folder, unfinished)[0][0] > 0

        until("a checkpoint is written", is_between)
        replay = parley.Replay(daemon.again(), "big")
        assert rows(folder, unfinished)[0][0] == 0, "the parts of the checkpoint that was cut off are deleted"
        batch = replay.sample(120)
        assert len(replay) == 120 and (batch["page"] == (batch["x"] // 1000 * 1000 & 0xff).astype(np.uint8)[:, None] * (batch["x"] >= 1000)[:, None]).all()


def keys_go_on(parleyd, folder):
    """A key with its versions, those that a stop asks for and those that a checkpoint had when the daemon was killed."""
    big = np.random.default_rng(1).bytes(5 << 20)
    with Daemon(parleyd, "--data", folder, *NEVER) as daemon:
        store = parley.OrderedStore(parley.connect(daemon.address))
        store.configure("weights", history=3)
        for version in range(6):
            assert store.push("weights", big[version:], version, version - 1 if version else None)
        assert store.push("empty", b"", 7)
    with Mortal(parleyd, "--data", folder, *AT_ONCE) as daemon:
        store = parley.OrderedStore(parley.connect(daemon.address))
        assert store.pull("weights") == (big[5:], 5)
        assert store.pull("weights", 2) == (big[2:], 2) and store.pull("weights", 1) is None
        assert store.pull("empty") == (b"", 7)
        bodies = "SELECT checkpoint FROM kept WHERE name = 'weights'"
        before = rows(folder, bodies)
        assert not store.push("weights", b"", 6, 4) and store.push("weights", b"new", 6, 5)
        until("a checkpoint is complete", lambda: rows(folder, bodies) != before)
        store = parley.OrderedStore(daemon.again())
        assert store.pull("weights") == (b"new", 6) and store.pull("weights", 2) is None
        store.delete("empty")
        store = parley.OrderedStore(daemon.again())
        assert store.pull("empty") is None and store.pull("weights", 3) == (big[3:], 3)


def damage_is_named(parleyd, folder):
    """--check-data names what is damaged; a start tells it, does without it, and has the rest."""
    with Daemon(parleyd, "--data", folder, *NEVER) as daemon:
        server = parley.connect(daemon.address)
        for name in ("whole", "hurt"):
            parley.Replay(server, name, COLUMNS).insert_all(steps(0, 40))
    check = [parleyd, "--check-data", "--data", folder]
    assert children.run(check, capture_output=True).returncode == 0
    db = sqlite3.connect(f"{folder}/journal.db")
    with db:
        row, body = db.execute("SELECT seq, body FROM block WHERE number = 1 AND checkpoint IN (SELECT checkpoint FROM kept WHERE name = 'hurt')").fetchone()
        db.execute("UPDATE block SET body = ? WHERE seq = ?", (body[:5000] + bytes([body[5000] ^ 1]) + body[5001:], row))
    db.close()
    done = children.run(check, capture_output=True, text=True)
    assert done.returncode != 0 and "part 1 of 3 of 'hurt' is damaged or missing" in done.stderr, done.stderr
    with Daemon(parleyd, "--data", folder, *NEVER) as daemon:
        server = parley.connect(daemon.address)
        assert [t.config.table for t in tables(server)] == ["whole"]
        assert len(parley.Replay(server, "whole")) == 40
        until("the loss is logged", lambda: any("restore table=hurt" in line for line in daemon.said))


def tables(server):
    from parley.v1 import replay_pb2 as pb
    return server.links[0].call("Replay/ListTables", pb.ReplayListTablesRequest(), pb.ReplayListTablesResponse).tables


def main():
    parleyd = sys.argv[1]
    with Daemon(parleyd) as daemon:
        replay = parley.Replay(parley.connect(daemon.address), "t", {"x": ("i8", ())})
        try:
            replay.checkpoint()
        except parley.Error as e:
            assert e.code == "FAILED_PRECONDITION" and "--data" in e.message, e
        else:
            raise AssertionError("a checkpoint without --data")
    for test in (tables_go_on, killed_while_written, keys_go_on, damage_is_named):
        with tempfile.TemporaryDirectory() as folder:
            test(parleyd, os.path.join(folder, "data"))
        print(test.__name__, "passed", flush=True)


if __name__ == "__main__":
    main()
