#!/usr/bin/env python3
"""What ptxas says of the CUDA module's kernels, and their machine code: registers by compute
capability; spills, local memory and addresses of no known memory, of which there must be none; and
for one capability the number of instructions, in all and in the longest inner loop.

usage: tools/cuda_kernels.py TABLE CUOBJDUMP FOLDER [--write]

FOLDER has the reports and objects of tools/nvcc.sh. Fails when a kernel has what it may not have, or
when TABLE does not say what they say, or its notes (cuda_estimate.py) count loops that are not there;
--write makes it do so."""

import glob
import os
import re
import subprocess
import sys

import cuda_estimate
import cuda_sass

COUNTED, OTHERS = 90, (75,)  # capabilities whose machine code is read
NOTES = "# Notes\n"

KERNEL = re.compile(r"Compiling entry function '(\S+)' for 'sm_(\d+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")


def read(path, figures):
    kernel = arch = None
    stack = spills = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if m := KERNEL.search(line):
                kernel, arch = m[1], int(m[2])
            elif (m := SPILLS.search(line)) and kernel:
                stack, spills = int(m[1]), int(m[2]) + int(m[3])
            elif (m := USED.search(line)) and kernel:
                figures.setdefault(kernel, {})[arch] = (int(m[1]), stack, spills)
                kernel = None


def plain_names(kernels):
    out = subprocess.run(["c++filt"], input="\n".join(kernels), text=True, check=True,
                         capture_output=True).stdout.splitlines()
    # without what a kernel returns and takes; enumerators as numbers
    return {k: re.sub(r"\(dtype\)|\(kv_type\)", "", re.sub(r"^void ", "", n)).rsplit("(", 1)[0]
            for k, n in zip(kernels, out)}


def main():
    args = [a for a in sys.argv[1:] if a != "--write"]
    table, cuobjdump, folder = args
    figures = {}
    for report in sorted(glob.glob(os.path.join(folder, "*.ptxas"))):
        read(report, figures)
    if not figures:
        sys.exit("cuda_kernels: there are no reports: build the CUDA module first")
    names = plain_names(sorted(figures))
    archs = sorted({a for by_arch in figures.values() for a in by_arch})
    spilling = [f"{names[k]} on sm_{a}: {f[2]} bytes" for k, by_arch in figures.items()
                for a, f in sorted(by_arch.items()) if f[2]]
    objects = sorted(glob.glob(os.path.join(folder, "*.cu.o")))
    code = {a: cuda_sass.read(cuobjdump, objects, a) for a in archs if a == COUNTED or a in OTHERS}
    spilling += [f"{names[k]} on sm_{a}: {', '.join(c.faults[:3])}" for a, kernels in code.items()
                 for k, c in kernels.items() if c.faults]
    lines = ["# Registers of each kernel, and bytes of stack where it has a frame, by compute capability, as",
             "# ptxas of CUDA 13.0 has them; for one, instructions in all and in the longest inner loop. None",
             "# spills. `./run cuda --write` makes this file.", ""]
    lines.append("kernel".ljust(48) + "".join(f"{'sm_' + str(a):>8}" for a in archs) + f"{f'code_{COUNTED}':>9}{'loop':>6}")
    for name, kernel in sorted((n, k) for k, n in names.items()):
        cells = [figures[kernel].get(a) for a in archs]
        lines.append(name.ljust(48) + "".join(
            f"{'-' if c is None else str(c[0]) + (f'+{c[1]}' if c[1] else ''):>8}" for c in cells) +
            (f"{c.n:>9}{max(c.loops, default=0):>6}" if (c := code.get(COUNTED, {}).get(kernel)) else f"{'-':>9}{'-':>6}"))
    text = "\n".join(lines) + "\n"
    old = ""
    if os.path.exists(table):
        with open(table, encoding="utf-8") as file:
            old = file.read()
    text += "\n" + NOTES + cuda_estimate.notes()
    if stale := cuda_estimate.missing({names[k]: c.loops for k, c in code[COUNTED].items()}):
        print("cuda_kernels: tools/cuda_estimate.py counts loops that do not exist:", *stale, sep="\n  ", file=sys.stderr)
        sys.exit(1)
    if "--write" in sys.argv:
        with open(table, "w", encoding="utf-8") as out:
            out.write(text)
    elif old != text:
        print(f"cuda_kernels: {table} does not match these kernels: run ./run cuda --write", file=sys.stderr)
        sys.exit(1)
    if spilling:
        print("cuda_kernels: these kernels spill registers or load from an unknown memory:", *spilling, sep="\n  ", file=sys.stderr)
        sys.exit(1)
    print(f"{len(figures)} kernels, {len(archs)} architectures, none spills registers or loads from an unknown memory")


main()
