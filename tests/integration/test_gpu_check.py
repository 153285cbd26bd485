"""./run gpu-check without a GPU says in one line what it needs; on the stand-in of a device its script goes through its sections, and a
gate that fails ends it, with what was seen in the report.
usage: test_gpu_check.py CHECK BUILD WRITE_TINY_MODEL MODULE, the last being tests/cuda_host's"""
import os
import subprocess
import sys
import tempfile

import children


def main():
    check, build, write_tiny_model, module = sys.argv[1:]
    without = subprocess.run([sys.executable, check], capture_output=True, text=True, env={**os.environ, "PATH": "/nowhere"})
    assert without.returncode == 1 and without.stdout == "" and without.stderr.count("\n") == 1, without
    assert without.stderr.startswith("gpu-check needs an NVIDIA GPU"), without.stderr
    with tempfile.TemporaryDirectory() as folder:
        tiny, report = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "report.txt")
        children.run([write_tiny_model, tiny], check=True)
        stand_in = [sys.executable, check, "--build", build, "--model", tiny, "--report", report, "--stand-in", module]

        done = children.run(stand_in, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(report, encoding="utf-8") as file:
            assert file.read() == done.stdout and done.stdout.endswith("\nall sections passed\n"), done.stdout
        assert [line[0] for line in done.stdout.splitlines() if line[1:3] == ". "] == list("ABCDEF"), done.stdout
        assert "RED" not in done.stdout and "ok  replies  (2," in done.stdout and "ok  pages move" in done.stdout, done.stdout
        assert "ok  a speaks with b" in done.stdout and "ok  a speaks alone" in done.stdout, done.stdout

        red = children.run([*stand_in, "--sections", "AEF"], capture_output=True, text=True, env={**os.environ, "CUDA_HOST_FAIL": "200:700"})
        assert red.returncode == 1 and "RED operators" in red.stdout, red.stdout + red.stderr
        assert "\nstopped: section A is red: operators: exit status " in red.stdout and "\nE. " not in red.stdout, red.stdout


main()
