"""A parameter server that steps once for the gradients of all trainers, after the first program of PyTorch's tutorial "Implementing Batch
RPC Processing Using Asynchronous Executions". A trainer's call returns a future, so that no thread of the server waits for the others.

usage: batch_parameter_server.py [ADDRESS]      a daemon's"""
import threading

import numpy as np
from common import run

from parley.parallel import Future, World

N_TRAINERS, N_BATCHES, N_WEIGHTS = 5, 6, 4
TRUE = np.arange(1.0, 1 + N_WEIGHTS)  # the weights that the trainers' data has


class BatchUpdateParameterServer:
    def __init__(self, batch_update_size):
        self.model, self.lr = np.zeros(N_WEIGHTS), 0.3
        self.lock = threading.Lock()
        self.future_model = Future()
        self.batch_update_size, self.curr_update_size = batch_update_size, 0
        self.gradient = np.zeros(N_WEIGHTS)

    def get_model(self):
        return self.model

    def update_and_fetch_model(self, gradient):
        with self.lock:
            self.curr_update_size += 1
            self.gradient += gradient
            mine = self.future_model
            if self.curr_update_size >= self.batch_update_size:
                self.model = self.model - self.lr * self.gradient / self.batch_update_size
                self.curr_update_size, self.gradient = 0, np.zeros(N_WEIGHTS)
                self.future_model = Future()
                mine.set_result(self.model)
        return mine


def train(group, rank):
    draw = np.random.default_rng(rank)
    model, losses = group.registered_sync("get_model"), []
    for _ in range(N_BATCHES):
        x = draw.standard_normal((200, N_WEIGHTS))
        error = x @ (model - TRUE)
        losses.append(float((error ** 2).mean()))
        model = group.registered_sync("update_and_fetch_model", (2 * x.T @ error / len(x),))
    return losses, model


def main(rank, address, secret):
    names = ["ps", *(f"trainer{i}" for i in range(1, 1 + N_TRAINERS))]
    with World(names[rank], rank, len(names), address=address, secret=secret, rpc_threads=1) as world, world.create_rpc_group("group", names) as group:
        if rank == 0:
            server = BatchUpdateParameterServer(N_TRAINERS)
            group.register("get_model", server.get_model)
            group.register("update_and_fetch_model", server.update_and_fetch_model)
        group.barrier()
        if rank > 0:
            losses, model = train(group, rank)
            print(f"{names[rank]}: {N_BATCHES} batches, the loss falls to {100 * losses[-1] / losses[0]:.1f} %, "
                  f"the sum of the weights is {model.sum():.1f}\n", end="", flush=True)
        group.barrier()


if __name__ == "__main__":
    run(main, 1 + N_TRAINERS)
