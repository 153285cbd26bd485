"""Examples a second of ParlAI 1.7.2's own worlds, by processor time, with data in its own format.

    python -P parlai_worlds.py DATA.txt AGENT BATCH_SIZE  ->  {"examples": N, "seconds": S, "exs": N}
"""
import importlib.machinery
import json
import logging
import sys
import tempfile
import time
import types


class Nothing:
    """What a stand-in module has under any name: may be called and asked, and does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (object,), {}) if name[:1].isupper() else Nothing()


class Finder:
    """Modules that ParlAI imports and that worlds of simple agents never use."""

    names = ("torch", "torchvision", "fvcore", "PIL")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = StandIn(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())

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
