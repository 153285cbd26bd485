"""A foreign client of parley.v1.Params: grpcio and numpy. As a program, a trainer that fits a linear model.

usage: trainer.py ADDRESS NAME CLIENT SHARD N_SHARDS ROUNDS      (its loss after each round on stdout, and what it has at the end)
"""
import hashlib
import queue
import struct
import sys
import time

import grpc
import harness
import numpy as np
from children import PATIENCE
from harness import params, params_pb2_grpc, tensor_pb2

CHUNK = 1 << 20


def crc_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def parts(message, values, chunk=CHUNK):
    """Chunks and hash of an array, as messages of a kind."""
    data = np.ascontiguousarray(values, dtype="<f4").tobytes()
    for at in range(0, len(data), chunk):
        piece = data[at:at + chunk]
        yield message(chunk=params.ParamsChunk(offset=at, data=piece, crc32c=crc32c(piece)))
    yield message(sha256=hashlib.sha256(data).digest())


def upload(name, client, step, values, base=0, **more):
    yield params.ParamsUpload(header=params.ParamsUploadHeader(name=name, client_id=client, step_id=step, base_version=base, **more))
    yield from parts(params.ParamsUpload, values)


class Answer:
    """What an update brings: its version, and the values if they come with it."""

    def __init__(self, stream):
        self.version = next(stream).version
        data = b""
        while len(data) < self.version.size_bytes:
            chunk = next(stream).chunk
            assert chunk.offset == len(data) and chunk.crc32c == crc32c(chunk.data)
            data += chunk.data
        self.values = np.frombuffer(data, dtype="<f4")
        if self.version.size_bytes > 0:
            self.sha256 = next(stream).sha256
            assert self.sha256 == hashlib.sha256(data).digest()


class Updates:
    """One UpdateAndFetch stream: updates one after the other."""

    def __init__(self, stub, **more):
        self.out = queue.Queue()
        self.stream = stub.UpdateAndFetch(iter(self.out.get, None), **more)

    def send(self, *messages):
        for message in messages:
            self.out.put(message)

    def update(self, *args, **more):
        self.send(*upload(*args, **more))
        return Answer(self.stream)

    def close(self):
        self.out.put(None)


def create(stub, name, shapes, values=None, **config):
    """A daemon that has just started refuses for a moment, while it reads which sets its journal holds: that is tried again."""
    def messages():
        specs = [tensor_pb2.TensorSpec(name=key, dtype=tensor_pb2.DTYPE_F32, shape=shape) for key, shape in shapes.items()]
        config.setdefault("optimiser", params.ParamsOptimiser(learning_rate=1))
        config.setdefault("round_size", 1)
        yield params.ParamsCreateRequest(config=params.ParamsConfig(name=name, specs=specs, **config))
        if values is not None:
            yield from parts(params.ParamsCreateRequest, values)

    end = time.monotonic() + PATIENCE
    while True:
        try:
            return stub.Create(messages()).version
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > end:
                raise


# --- a linear model: y = x w + b, mean squared error ---

N_FEATURES, N_SAMPLES = 6, 48


def data(shard, n_shards):
    draw = np.random.default_rng(543)
    x = draw.standard_normal((N_SAMPLES, N_FEATURES)).astype(np.float32)
    y = (x @ np.arange(1, N_FEATURES + 1, dtype=np.float32) / 4 + np.float32(0.5)).astype(np.float32)
    return x[shard::n_shards], y[shard::n_shards]


def loss_and_gradient(values, x, y):
    error = x @ values[:-1] + values[-1] - y
    gradient = np.concatenate([x.T @ error, [error.sum(dtype=np.float32)]]).astype(np.float32)
    return float(np.mean(error * error)), gradient * np.float32(2 / len(y))


def main(address, name, client, shard, n_shards, rounds):
    x, y = data(int(shard), int(n_shards))
    parley = harness.Client(address)
    updates = Updates(parley.params)
    values, version = np.zeros(N_FEATURES + 1, np.float32), 0
    for step in range(1, int(rounds) + 1):
        loss, gradient = loss_and_gradient(values, x, y)
        print(f"{loss:.9g}", flush=True)
        answer = updates.update(name, client, step, gradient, base=version)
        values, version = answer.values, answer.version.version
    print(values.tobytes().hex(), flush=True)
    updates.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
