"""Turns a second of an echo that is built in, plugged in, attached by a worker in C (libparley), and attached by a Python worker
(client/python), 64 conversations at once, driven by `parley bench`. One daemon serves them all; rounds of each take turns. Ratios are to the one built in.

    agents.py BUILD MODEL [--rounds N] [--turns N]"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
import parley  # noqa: E402

import children  # noqa: E402

IN_FLIGHT = 64


@parley.agent("attached")
class Echo:
    def observe(self, messages):
        self.text = messages[-1].text

    def act(self):
        return self.text


def turns_a_second(build, address, model, turns, prompts):
    done = children.run([os.path.join(build, "parley"), "bench", f"parley://{address}", "--model", model, "--concurrency", str(IN_FLIGHT),
                         "--requests", str(IN_FLIGHT), "--turns", str(turns), "--prompt-file", prompts, "--json"],
                        check=True, stdout=subprocess.PIPE, text=True)
    row = json.loads(done.stdout.splitlines()[0])
    assert row["completed"] == IN_FLIGHT * turns and row["failed"] == 0, row
    return row["request_throughput"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("model")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--turns", type=int, default=200)
    options.add_argument("--work", help=argparse.SUPPRESS)
    o = options.parse_args()
    if o.work:
        parley.serve(Echo, o.work)
        return
    plugin = os.path.join(o.build, "agents/plugin/examples/echo.so")
    rates = {name: [] for name in ("echo", "plugged", "attached_c", "attached")}
    with children.Daemon(os.path.join(o.build, "parleyd"), "--plugin", f"plugged={plugin}") as daemon, parley.connect(daemon.address) as server, \
            tempfile.NamedTemporaryFile("w") as prompts:
        prompts.write("one two three four\n")
        prompts.flush()
        workers = [children.start([sys.executable, __file__, o.build, o.model, "--work", daemon.address]),
                   children.start([os.path.join(o.build, "tests/bench/echo_worker"), daemon.address, "attached_c"])]

        def are_attached():
            try:
                for name in rates:
                    server.open(name).close()
                return True
            except parley.Error as e:
                assert e.code == "NOT_FOUND", e
                return False

        children.until("they are attached", are_attached, *workers)
        for _ in range(o.rounds):
            for name, found in rates.items():
                found.append(turns_a_second(o.build, daemon.address, name, o.turns, prompts.name))
        for worker in workers:
            worker.kill()
            worker.wait()
    for name, found in rates.items():
        ratios = [mine / echo for mine, echo in zip(found, rates["echo"])]
        print(f"{name:10s} {statistics.median(found):7.0f} turns/s, {statistics.median(ratios):.2f} of the one built in "
              f"({min(ratios):.2f}-{max(ratios):.2f})", flush=True)


main()
