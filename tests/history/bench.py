"""1,000 kills, in runs whose histories are kept in build/history: an interrupted bench goes on where it was.

usage: bench.py BUILD_DIR MODEL.gguf [--kills N] [--seed N]      (the model is not used: a tiny one is)"""
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))


def main():
    build, _, *rest = sys.argv[1:]
    keep = os.path.join("build", "history")
    rest = ([] if "--kills" in rest else ["--kills", "1000"]) + ([] if "--seed" in rest else ["--seed", "1"]) + rest
    sys.exit(subprocess.run([sys.executable, os.path.join(here, "test_history.py"), os.path.join(build, "parleyd"),
                             os.path.join(build, "tests/integration/write_tiny_model"), "--keep", keep, *rest]).returncode)


if __name__ == "__main__":
    main()
