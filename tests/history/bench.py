"""The simulation of the journal with 10,000 seeds; then 1,000 kills, in runs whose histories are kept in build/history: an interrupted
bench goes on where it was. With --mutations: each of the deliberate bugs of mutations/ is built and found.

usage: bench.py BUILD_DIR MODEL.gguf [--kills N] [--seed N] | --mutations [NAME…]      (the model is not used: a tiny one is)"""
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))


def main():
    build, _, *rest = sys.argv[1:]
    if "--mutations" in rest:
        rest.remove("--mutations")
        sys.exit(subprocess.run([sys.executable, os.path.join(here, "mutations.py"), "--find", *rest]).returncode)
    subprocess.run(["ninja", "-C", build, "tests/sim/sim_journal"], check=True, stdout=subprocess.DEVNULL)
    if subprocess.run([os.path.join(build, "tests/sim/sim_journal"), "--seeds", "10000"]).returncode != 0:
        sys.exit(1)
    keep = os.path.join("build", "history")
    rest = ([] if "--kills" in rest else ["--kills", "1000"]) + ([] if "--seed" in rest else ["--seed", "1"]) + rest
    sys.exit(subprocess.run([sys.executable, os.path.join(here, "test_history.py"), os.path.join(build, "parleyd"),
                             os.path.join(build, "tests/integration/write_tiny_model"), "--keep", keep, *rest]).returncode)


if __name__ == "__main__":
    main()
