#!/usr/bin/env python3
"""Environment steps a second: 64 CartPoles in gymnasium's AsyncVectorEnv, in four attached workers of Env with the same Python
environments, and in Env's built-in ones, interleaved in one run. All reset what has ended in the next step; the actions are the
same draws.

usage: environments.py BUILD_DIR [MODEL]      (run by the interpreter that has grpcio, gymnasium and the stubs; see venv.sh)"""
import os
import statistics
import subprocess
import sys
import time

import gymnasium
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))
import children  # noqa: E402
import grpc  # noqa: E402
import harness  # noqa: E402
from parley.v1 import env_pb2 as env, env_pb2_grpc, tensor_pb2  # noqa: E402: harness knows where they are

N, WORKERS, STEPS, ROUNDS = 64, 4, 150, 5
ACTIONS = np.random.default_rng(543).integers(0, 2, (STEPS, N), np.int64)


def theirs():
    """A step of gymnasium's, and how to end it."""
    vector = gymnasium.vector.AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * N)
    vector.reset(seed=1)
    return vector.step, vector.close


def ours(client, name):
    stub = env_pb2_grpc.EnvStub(client.channel)
    handle = stub.Open(env.EnvOpenRequest(name=name, count=N, seeds=[1])).handle
    stub.Reset(env.EnvResetRequest(handle=handle))

    def step(actions):
        a = stub.Step(env.EnvStepRequest(handle=handle, auto_reset=True, action=tensor_pb2.Tensor(
            dtype=tensor_pb2.DTYPE_I64, shape=[N], data=actions.tobytes())))
        assert not a.failures
        return (np.frombuffer(a.observation.data, np.float32).reshape(N, 4), np.frombuffer(a.reward.data, np.float32),
                np.frombuffer(a.terminated.data, np.bool_), np.frombuffer(a.truncated.data, np.bool_))

    return step, lambda: stub.Close(env.EnvCloseRequest(handle=handle))


def rate(step):
    begun = time.perf_counter()
    for actions in ACTIONS:
        step(actions)
    return STEPS * N / (time.perf_counter() - begun)


def main():
    with harness.Parleyd(os.path.join(sys.argv[1], "parleyd")) as client:
        workers = [children.start([sys.executable, os.path.join(HERE, "../integration/environment_worker.py"), client.address, "theirs",
                                   "CartPole-v1"], stdout=subprocess.PIPE, text=True) for _ in range(WORKERS)]
        for worker in workers:
            assert worker.stdout.readline() == "accepted\n"
        cases = {"gymnasium's AsyncVectorEnv": theirs(), f"{WORKERS} attached workers": ours(client, "theirs"), "built in": ours(client, "cartpole")}
        rates = {name: [] for name in cases}
        for turn in range(ROUNDS + 1):
            for name, (step, _) in cases.items():
                r = rate(step)
                if turn > 0:  # the first warms up
                    rates[name].append(r)
        for _, close in cases.values():
            close()
        for worker in workers:
            worker.kill()
            worker.wait()
    base = statistics.median(rates["gymnasium's AsyncVectorEnv"])
    print(f"{N} CartPoles, {STEPS} steps, median of {ROUNDS} (lowest to highest)")
    for name, all_of in rates.items():
        print(f"{name:28s} {statistics.median(all_of):12,.0f} steps/s  ({min(all_of):,.0f} to {max(all_of):,.0f})  {statistics.median(all_of) / base:6.2f} x")


if __name__ == "__main__":
    main()
