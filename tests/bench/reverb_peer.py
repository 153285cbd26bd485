#!/usr/bin/env python3
"""One side of replay_beside.py: DeepMind's Reverb, or our Replay through the Python package; a server, or a client that is told what to do.

usage: reverb_peer.py reverb --serve              prints its port; ends with its input
       reverb_peer.py reverb|parley --client WHERE
A client reads lines "insert SECONDS", by a writer, "insert_all SECONDS", 64 at once, and "sample SECONDS", and answers each with items a second."""
import sys
import time

import numpy as np

STEP, ROOM, AT_ONCE, BATCH = 4096, 20_000, 64, 32
STEPS = np.random.default_rng(1).integers(0, 256, (256, STEP), np.uint8)  # which no compression makes smaller


def rate(seconds, work):
    """Of a generator that yields how many items were done."""
    n, begin = 0, time.monotonic()
    for done in work:
        n += done
        if time.monotonic() - begin > seconds:
            break
    return n / (time.monotonic() - begin)


class Reverb:
    def __init__(self, where):
        import reverb
        self.client = reverb.Client(f"localhost:{where}")

    def insert(self):
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
            while True:
                for i in range(AT_ONCE):
                    writer.append({"x": STEPS[i]})
                    writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
                writer.flush()
                yield AT_ONCE

    insert_all = insert  # its writer joins what it sends

    def sample(self):
        while True:
            for n, _ in enumerate(self.client.sample("t", num_samples=100 * BATCH, emit_timesteps=False)):
                if n % BATCH == BATCH - 1:
                    yield BATCH


class Parley:
    def __init__(self, where):
        import parley
        self.replay = parley.Replay(where, "t", {"x": ("u1", (STEP,))}, max_items=ROOM)

    def insert(self):
        with self.replay.writer(1) as writer:
            while True:
                for i in range(AT_ONCE):
                    writer.append({"x": STEPS[i]})
                    writer.item(1, 1.0)
                writer.flush()
                yield AT_ONCE

    def insert_all(self):
        while True:
            self.replay.insert_all({"x": STEPS[:AT_ONCE]})
            yield AT_ONCE

    def sample(self):
        for batch in self.replay.batches(BATCH):
            yield len(batch)


def serve():
    import reverb
    table = reverb.Table(name="t", sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(), max_size=ROOM,
                         rate_limiter=reverb.rate_limiters.MinSize(1))
    server = reverb.Server(tables=[table], port=None)
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


def main():
    if sys.argv[2] == "--serve":
        serve()
        return
    side = {"reverb": Reverb, "parley": Parley}[sys.argv[1]](sys.argv[3])
    print("ready", flush=True)
    for line in sys.stdin:
        what, seconds = line.split()
        work = getattr(side, what)()
        print(rate(float(seconds), work), flush=True)
        work.close()


main()
