#!/usr/bin/env python3
"""Sets of parameters outlive the process: they go on from their last checkpoint, to the same bits as without the kill.

usage: test_checkpoints.py PARLEYD      (run by the interpreter that has grpcio, numpy and the stubs; see venv.sh)"""

import contextlib
import os
import random
import sqlite3
import sys
import tempfile
import time

import grpc
import harness
import numpy as np
import trainer
from children import PATIENCE, until
from harness import error_pb2, params
from test_journal import Mortal
from trainer import Updates, create

ROUNDS, EVERY = 12, 4
N = 300_000  # a checkpoint of several parts
SECOND = 1000  # numbers of a second tensor


def gradient(step, n=N):
    return np.random.default_rng(step).standard_normal(n).astype(np.float32)


def adam():
    return params.ParamsOptimiser(kind=params.PARAMS_OPTIMISER_KIND_ADAM, learning_rate=0.01)


def version(parley, name="p"):
    """What there is now; None: no such set. Sets are being read for a moment after a start."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return trainer.Answer(parley.params.Pull(params.ParamsPullRequest(name=name, has_if_newer_than=True, if_newer_than=2**62))).version.version
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return None
            assert error.code() == grpc.StatusCode.UNAVAILABLE and time.monotonic() < end, error


def values(parley, name="p"):
    return trainer.Answer(parley.params.Pull(params.ParamsPullRequest(name=name))).values.tobytes()


def update(updates, name, step, n=N, skips=False, base=None):
    """skips: every second step has no gradient for the second tensor, so that its moments and steps are not those of the first."""
    values, more = gradient(step, n), {}
    if skips and step % 2 == 1:
        values[n - SECOND:], more = 0, {"skipped": [1]}
    return updates.update(name, "a", step, values, base=step - 1 if base is None else base, want=params.PARAMS_WANT_NOTHING, **more)


def rounds(parley, name, first, last, n=N, skips=False):
    updates = Updates(parley.params)
    for step in range(first, last + 1):
        answer = update(updates, name, step, n, skips)
        assert answer.version.counted_in == step, answer.version
    updates.close()


def detail(error):
    return next(error_pb2.ErrorDetail.FromString(v) for k, v in error.trailing_metadata() if k == "parley-error-bin")


def goes_on(parleyd, flags, folder):
    """Killed after a round, and again by SIGTERM: it goes on from a checkpoint, exactly."""
    with harness.Parleyd(parleyd, *flags) as parley:
        create(parley.params, "p", {"w": [N - SECOND], "b": [SECOND]}, optimiser=adam(), dedupe=True)
        rounds(parley, "p", 1, ROUNDS, skips=True)
        control = values(parley)
    data = ["--data", os.path.join(folder, "goes-on"), "--checkpoint-rounds", str(EVERY)]
    with Mortal(parleyd, *flags, *data) as parley:
        daemon = parley.daemon
        create(parley.params, "p", {"w": [N - SECOND], "b": [SECOND]}, optimiser=adam(), dedupe=True)
        rounds(parley, "p", 1, 6, skips=True)
        daemon.kill()
        parley = daemon.again()
        have = version(parley)
        assert have in (0, 4, 5, 6), have
        try:
            update(Updates(parley.params), "p", 7, skips=True)
            assert have == 6
        except grpc.RpcError as error:
            why = detail(error)
            assert error.code() == grpc.StatusCode.ABORTED and why.reason == "PARAMS_RESTORED", error
            assert (why.have_version, why.want_version) == (6, have), why
            assert have < 6
        if have > 0:  # the last step that the checkpoint has counts no second time
            again = update(Updates(parley.params), "p", have, skips=True)
            assert (again.version.version, again.version.counted_in) == (have, have), again.version
        rounds(parley, "p", max(have, version(parley)) + 1, 10, skips=True)
    assert daemon.process.returncode == 0
    with Mortal(parleyd, *flags, *data) as parley:
        assert version(parley) == 10, "the drain wrote all of it"
        rounds(parley, "p", 11, ROUNDS, skips=True)
        assert values(parley) == control, "the same bits as without the kill"


def is_there_or_not(parleyd, flags, folder):
    """A set is there again once its creator was told, and gone once its deleter was; and a name that was deleted is free."""
    with Mortal(parleyd, *flags, "--data", os.path.join(folder, "there")) as parley:
        daemon = parley.daemon
        create(parley.params, "p", {"w": [3]}, values=[1, 2, 3], access=harness_access("ben"))
        daemon.kill()
        parley = daemon.again()
        assert version(parley) == 0 and np.frombuffer(values(parley), "<f4").tolist() == [1, 2, 3]
        parley.params.Delete(params.ParamsDeleteRequest(name="p"))
        daemon.kill()
        parley = daemon.again()
        assert version(parley) is None
        create(parley.params, "p", {"w": [2]}, values=[5, 6])
        daemon.kill()
        parley = daemon.again()
        assert version(parley) == 0 and np.frombuffer(values(parley), "<f4").tolist() == [5, 6]


def harness_access(*readers):
    return params.ParamsConfig().access.__class__(readers=readers)


def checkpoint_id(data):
    """Of the one that is complete: the parts of the next one must not replace its own."""
    with contextlib.closing(sqlite3.connect(os.path.join(data, "journal.db"))) as journal:
        return journal.execute("SELECT checkpoint FROM params").fetchone()[0]


def killed_at_any_time(parleyd, flags, folder):
    """Killed while rounds and checkpoints are under way: what is there is always a whole checkpoint, none older than was seen before."""
    seed = random.randrange(2**32)
    print("seed", seed, flush=True)
    chance, n, rate = random.Random(seed), 1000, 0.5
    at = [np.zeros(n, np.float32)]
    for step in range(1, 400):
        at.append(at[-1] - np.float32(rate) * gradient(step, n))
    with Mortal(parleyd, *flags, "--data", os.path.join(folder, "any"), "--checkpoint-rounds", "1") as parley:
        daemon = parley.daemon
        create(parley.params, "p", {"w": [n]}, optimiser=params.ParamsOptimiser(learning_rate=rate))
        least = 0
        for _ in range(8):
            have = version(parley)
            assert have >= least, (have, least)
            assert values(parley) == at[have].tobytes(), have
            least = have
            rounds(parley, "p", have + 1, have + chance.randrange(1, 12), n)
            daemon.kill()
            assert any(checkpoint_id(os.path.join(folder, "any"))), "a checkpoint has an id that was not drawn"
            parley = daemon.again()


def main():
    parleyd = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--http", "off"]
        for part in (is_there_or_not, goes_on, killed_at_any_time):
            began = time.monotonic()
            part(parleyd, flags, folder)
            print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
