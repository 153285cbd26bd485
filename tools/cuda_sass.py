"""Machine code of the CUDA module's kernels, as cuobjdump prints it."""

import os
import re
import subprocess

FUNCTION = re.compile(r"\s+Function : (\S+)")
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
LOCAL = re.compile(r"(LDL|STL)\b")
GENERIC = re.compile(r"(LD|ST|ATOM)(\.|$)")
TARGET = re.compile(r"0x([0-9a-f]+)\s*$")


class Kernel:
    """n: instructions; loops: those of each loop that has none in it; faults: what may not be there."""

    def __init__(self, code):
        loops = []
        self.n = sum(1 for _, op, _ in code if op != "NOP")
        self.faults = sorted({f"{op} at {at:#x}" for at, op, _ in code if LOCAL.match(op) or GENERIC.match(op)})
        for at, op, rest in code:
            target = TARGET.search(rest) if op.startswith("BRA") else None
            if target and int(target[1], 16) < at:
                loops.append((int(target[1], 16), at))
        inner = [(a, b) for a, b in loops if not any((a, b) != (c, d) and a <= c and d <= b for c, d in loops)]
        self.loops = {sum(1 for at, op, _ in code if a <= at <= b and op != "NOP") for a, b in inner}


def read(cuobjdump, objects, arch):
    """The kernels of the objects, by their mangled names."""
    kernels = {}
    for path in objects:
        name, code = None, []
        text = subprocess.run([cuobjdump, "-sass", "-arch", f"sm_{arch}", path], text=True, check=True, capture_output=True,
                              env={**os.environ, "PATH": os.path.dirname(cuobjdump) + os.pathsep + os.environ["PATH"]}).stdout
        for line in [*text.splitlines(), "\tFunction : end"]:
            if m := FUNCTION.match(line):
                if name:
                    kernels[name] = Kernel(code)
                name, code = m[1], []
            elif m := INSTRUCTION.match(line):
                code.append((int(m[1], 16), m[2], m[3]))
    return kernels
