"""Four models on two devices, those that exchange data together. After Machin's example of this name; sizes stand for its torch models,
and both devices are described, so that it needs neither.

usage: assign.py [PARLEY]      the program that decides, by default the one in PATH"""
import sys

from parley.parallel import ModelAssigner

RESNET_152_BYTES = 58.2e6 * 4

if __name__ == "__main__":
    assigner = ModelAssigner(
        [RESNET_152_BYTES] * 4,
        {(0, 1): 1, (2, 3): 1},  # the amount of data from one to the other
        devices=[{"name": "cuda:0", "bytes": 8e9}, {"name": "cpu", "kind": "cpu", "bytes": 8e9, "speed": 1}],
        connection_weight=1e3,
        complexity_match_weight=10,
        program=sys.argv[1] if len(sys.argv) > 1 else "parley",
    )
    # "cuda:0", "cuda:0", "cpu", "cpu" or "cpu", "cpu", "cuda:0", "cuda:0"
    print(f"Assignment: {assigner.assignment}")
