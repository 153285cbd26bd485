"""Examples a second of ParlAI 1.7.2's own worlds, by processor time, with data in its own format.

    python -P parlai_worlds.py DATA.txt AGENT BATCH_SIZE  ->  {"examples": N, "seconds": S, "exs": N}
"""
import json
import logging
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import parlai_stand_ins  # noqa: E402, F401
sys.path.pop(0)  # where some files are called as what ParlAI imports
from parlai.core.agents import create_agent  # noqa: E402
from parlai.core.params import ParlaiParser  # noqa: E402
from parlai.core.worlds import create_task  # noqa: E402
import parlai.utils.logging  # noqa: E402


def main():
    path, agent, batch_size = sys.argv[1:]
    parlai.utils.logging.set_log_level(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        opt = ParlaiParser(True, True).parse_args([
            "-t", "parlai.tasks.fromfile.agents:ParlaiformatTeacher", "--fromfile-datapath", path,
            "--fromfile-datatype-extension", "false", "-dt", "valid", "-m", agent, "-bs", batch_size,
            "--datapath", folder])
        world = create_task(opt, create_agent(opt))
        start = time.process_time()
        while not world.epoch_done():
            world.parley()
        seconds = time.process_time() - start
        exs = world.report()["exs"].value()
    print(json.dumps({"examples": world.num_examples(), "seconds": seconds, "exs": exs}))


main()
