"""ParlAI 1.7.2's own pair of LSTMs on torch, trained for an epoch on data in its own format, in its own worlds: examples a second by processor time.

    python -P dynamic_batching_peer.py TRAIN.txt none|batchsort|full BATCH_SIZE  ->  {"exs_per_s": N, …}
"""
import json
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402

from parlai.core.agents import create_agent  # noqa: E402
from parlai.core.worlds import create_task  # noqa: E402
from parlai.scripts.build_dict import build_dict  # noqa: E402
from parlai.scripts.train_model import setup_args  # noqa: E402
import parlai.utils.logging  # noqa: E402

# of the same sizes as ours, which also takes a step of Adam for each batch
SIZES = ["-hs", "128", "-esz", "128", "-nl", "1", "--dropout", "0", "-lr", "0.003"]


def main():
    path, kind, size = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    parlai.utils.logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        opt = setup_args().parse_args([
            "-t", "parlai.tasks.fromfile.agents:ParlaiformatTeacher", "--fromfile-datapath", path, "--fromfile-datatype-extension", "false", "-dt", "train:ordered",
            "-m", "seq2seq", *SIZES, "--optimizer", "adam", "--lr-scheduler", "none", "--text-truncate", "128", "--label-truncate", "32", "--no-cuda", "--datapath", folder,
            "-bs", size, *([] if kind == "none" else ["-dynb", kind]), "-mf", f"{folder}/model", "--dict-file", f"{folder}/words"])
        build_dict(opt, skip_if_built=True)
        model = create_agent(opt)
        world = create_task(opt, model)
        seen = {"batches": 0, "examples": 0, "cells": 0}
        inner = model.train_step

        def counted(batch):
            seen["batches"] += 1
            seen["examples"] += batch.text_vec.shape[0]
            seen["cells"] += batch.text_vec.numel() + batch.label_vec.numel()
            return inner(batch)

        model.train_step = counted
        with open(path) as lines:
            n_examples = sum(1 for _ in lines)
        start = time.process_time()
        while seen["examples"] < n_examples:  # its teacher of train:ordered has no end
            world.parley()
        taken = time.process_time() - start
    print(json.dumps({"exs_per_s": seen["examples"] / taken, "seconds": taken, "torch": torch.__version__, **seen}))


main()
