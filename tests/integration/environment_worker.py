#!/usr/bin/env python3
"""A worker for test_env.py and for `./run bench env`: hosts environments of gymnasium, as many as it is given.

usage: environment_worker.py ADDRESS NAME GYMNASIUM_ID [kill [STEPS]]
kill: it ends itself by SIGKILL in the first step that has an action 1, after so many such steps
It prints "accepted" once it is attached."""
import os
import queue
import signal
import sys

import gymnasium
import grpc
import numpy as np

sys.path.insert(0, os.environ["PARLEY_STUBS"])  # made by venv.sh
from parley.v1 import agents_pb2 as agents, agents_pb2_grpc, tensor_pb2  # noqa: E402

F32, BOOL, I64 = tensor_pb2.DTYPE_F32, tensor_pb2.DTYPE_BOOL, tensor_pb2.DTYPE_I64
address, name, kind = sys.argv[1:4]
is_mortal = "kill" in sys.argv[4:]
lives = int(sys.argv[5]) if len(sys.argv) > 5 else 0
envs, out = {}, queue.SimpleQueue()
space = gymnasium.make(kind)
width = space.observation_space.shape[0]
is_choice = isinstance(space.action_space, gymnasium.spaces.Discrete)
offer = agents.AgentEnvironment(observations=width, actions=space.action_space.n if is_choice else 0,
                                action_numbers=0 if is_choice else space.action_space.shape[0])


def tensor(a, dtype):
    return tensor_pb2.Tensor(dtype=dtype, shape=a.shape, data=a.tobytes())


def reset(order):
    seen = np.zeros((len(order.environment), width), np.float32)
    for i, (number, seed) in enumerate(zip(order.environment, order.seed)):
        if number not in envs:
            envs[number] = gymnasium.make(kind)
        seen[i], _ = envs[number].reset(seed=seed % 2**31)
    return agents.AgentEnvResult(order=order.order, observation=tensor(seen, F32))


def step(order):
    global lives
    n = len(order.environment)
    actions = np.frombuffer(order.action.data, np.int64 if is_choice else np.float32).reshape(tuple(order.action.shape))
    if is_mortal and 1 in actions:
        lives -= 1
        if lives < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    seen, reward = np.zeros((n, width), np.float32), np.zeros(n, np.float32)
    terminated, truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    failures = []
    for i, number in enumerate(order.environment):
        try:
            seen[i], reward[i], terminated[i], truncated[i], _ = envs[number].step(actions[i])
        except Exception as e:  # noqa: BLE001: whatever an environment raises is that environment's
            failures.append(agents.AgentEnvFailure(place=i, message=str(e)))
    return agents.AgentEnvResult(order=order.order, observation=tensor(seen, F32), reward=tensor(reward, F32),
                                 terminated=tensor(terminated, BOOL), truncated=tensor(truncated, BOOL), failures=failures)


out.put(agents.AgentsAttachRequest(offer=agents.AgentOffer(name=name, environment=offer)))
try:
    for order in agents_pb2_grpc.AgentsStub(grpc.insecure_channel(address)).Attach(iter(out.get, None)):
        what = order.WhichOneof("what")
        if what == "env_reset":
            out.put(agents.AgentsAttachRequest(env_result=reset(order.env_reset)))
        elif what == "env_step":
            out.put(agents.AgentsAttachRequest(env_result=step(order.env_step)))
        elif what == "env_close":
            for number in order.env_close.environment:
                envs.pop(number, None)
            print("closed", len(order.env_close.environment), flush=True)
        else:
            print(what, flush=True)
except grpc.RpcError as e:
    print("ended", e.code().name, e.details(), flush=True)
