"""ParlAI 1.7.2's own Starspace agent on torch, by its observe and act, one example at a time and in order: hits@1 on held-out data.

    python -P starspace_peer.py TRAIN.txt VALID.txt EPOCHS RATE SEED...  ->  a JSON line for each seed
"""
import json
import random
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402

from parlai.agents.starspace.starspace import StarspaceAgent  # noqa: E402
from parlai.core.dict import DictionaryAgent  # noqa: E402
from parlai.core.params import ParlaiParser  # noqa: E402
import parlai.utils.logging  # noqa: E402


def read(path):
    with open(path) as lines:
        for line in lines:
            act = dict(field.split(":", 1) for field in line.rstrip("\n").split("\t"))
            yield {"id": "teacher", "text": act["text"], "labels": act["labels"].split("|"), "label_candidates": act["label_candidates"].split("|"), "episode_done": True}


def options(folder, rate):
    parser = ParlaiParser(True, True)
    return parser.parse_args(["-m", "starspace", "-mf", f"{folder}/agent", "-df", f"{folder}/agent.dict", "-lr", str(rate)])


def learn(train, valid, epochs, rate, seed):
    random.seed(seed)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        opt = options(folder, rate)
        words = DictionaryAgent(opt)
        for act in train:
            for text in [act["text"], *act["labels"]]:
                words.add_to_dict(words.tokenize(text))
        words.save(f"{folder}/agent.dict", sort=True)
        agent = StarspaceAgent(opt)
    for _ in range(epochs):
        for act in train:
            agent.observe({key: value for key, value in act.items() if key != "label_candidates"})
            agent.act()
    right = 0
    for act in valid:
        agent.observe({key: value for key, value in act.items() if key != "labels"})
        right += agent.act()["text_candidates"][0] in act["labels"]
    return right / len(valid)


def main():
    torch.set_num_threads(1)
    parlai.utils.logging.disable()
    train, valid = (list(read(path)) for path in sys.argv[1:3])
    for seed in map(int, sys.argv[5:]):
        print(json.dumps({"seed": seed, "hits@1": learn(train, valid, int(sys.argv[3]), float(sys.argv[4]), seed)}), flush=True)


main()
