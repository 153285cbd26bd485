"""Four models on two devices, those that exchange data together. After Machin's example of this name; `parley place` decides.

usage: assign.py [PARLEY]      the program"""
import json
import subprocess
import sys

RESNET_152_BYTES = 58.2e6 * 4

if __name__ == "__main__":
    asked = {
        "models": [{"name": str(i), "bytes": RESNET_152_BYTES} for i in range(4)],
        "devices": [{"name": "cuda:0", "bytes": 8e9}, {"name": "cpu", "kind": "cpu", "bytes": 8e9, "speed": 1}],
        # the amount of data from one to the other
        "connections": [{"between": ["0", "1"], "weight": 1}, {"between": ["2", "3"], "weight": 1}],
        "connection_weight": 1e3,
        "load_weight": 10,
    }
    program = sys.argv[1] if len(sys.argv) > 1 else "parley"
    done = subprocess.run([program, "place"], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True)
    placement = json.loads(done.stdout)["placement"]
    # "cuda:0", "cuda:0", "cpu", "cpu" or "cpu", "cpu", "cuda:0", "cuda:0"
    print(f"Assignment: {[placement[str(i)] for i in range(4)]}")
