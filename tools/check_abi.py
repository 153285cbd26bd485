#!/usr/bin/env python3
"""Compares what parley.h promises to programs with what was last agreed on, client/lib/parley.abi: functions that are gone or
have other parameters, structs of another layout, enums of other values. Additions are fine, and are agreed on by --agree.

The library itself is not looked at: a stub that defines what the header declares has its ABI, and none of its private types.
Needs cc and abigail-tools.

usage: check_abi.py [--agree] [--root DIR]
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile


def declarations(header):
    """The functions of a C header, each with its parameters, without the semicolon."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    found = re.findall(r"(?:^|[;{}])\s*((?!typedef\b)[^;{}()]*\bparley_\w+\((?:[^;{}])*\))(?=;)", text)
    return [" ".join(one.split()) for one in found]


def stub(root, folder):
    """A library that defines all that parley.h declares."""
    header = os.path.join(root, "client/lib/parley.h")
    with open(header, encoding="utf-8") as file:
        functions = declarations(file.read())
    source, library = os.path.join(folder, "stub.c"), os.path.join(folder, "libparley.so.0")
    with open(source, "w", encoding="utf-8") as file:
        file.write('#include "parley.h"\n' + "".join(f"{one} {{ __builtin_trap(); }}\n" for one in functions))
    subprocess.run(["cc", "-g", "-O0", "-shared", "-fPIC", "-fvisibility=hidden", "-Wno-unused-parameter", "-I", os.path.dirname(header), source,
                    f"-Wl,--version-script,{root}/client/lib/parley.map", "-Wl,-soname,libparley.so.0", "-o", library], check=True)
    return library


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--agree", action="store_true")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    options = parser.parse_args()
    agreed = os.path.join(options.root, "client/lib/parley.abi")
    with tempfile.TemporaryDirectory() as folder:
        library = stub(options.root, folder)
        if options.agree:
            subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--out-file", agreed, library], check=True)
            return 0
        done = subprocess.run(["abidiff", "--no-added-syms", "--no-show-locs", agreed, library], check=False)
        if done.returncode & 1:  # it could not compare
            return done.returncode
        # Without their differences: what has been added.
        new = subprocess.run(["abidiff", "--no-show-locs", agreed, library], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        print("client/lib/parley.h: the change breaks programs that were built before: undo it; or, if it is intended, raise the soversion in "
              "client/meson.build and the version in client/lib/parley.map, then run tools/check_abi.py --agree", file=sys.stderr)
        return 1
    if new.returncode != 0:
        print(new.stdout, "client/lib/parley.h: it has additions that were not agreed on: run tools/check_abi.py --agree", sep="", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
