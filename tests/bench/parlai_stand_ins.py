"""ParlAI 1.7.2 without its heavy dependencies: once this is imported, a name of theirs is something that does nothing."""
import importlib.machinery
import sys
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
    """Modules that ParlAI imports and that worlds of simple agents, and clients, never use."""

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
