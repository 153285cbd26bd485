#!/usr/bin/env python3
"""What ELF files of any processor need: the libraries that must travel with them, or how new a C library must be.

usage: libraries.py [--root FOLDER] FILE…     the paths of their libraries and of those that libraries need, but the C library's own,
                                              as FOLDER has them (/)
       libraries.py --glibc FILE…             the newest version of glibc's symbols that one of them uses, as 2.36
"""
import os
import re
import subprocess
import sys

# Debian's libc6: the machine's own, or, in an image, a layer below.
C_LIBRARY = re.compile(r"(ld-linux-.*|lib(c|m|pthread|dl|rt|resolv|util|anl))\.so\.\d+")


def of_elf(option, file):
    return subprocess.run(["readelf", option, "--wide", file], check=True, capture_output=True, text=True).stdout


def triplet(file):
    """The name of the processor's folders in Debian."""
    with open(file, "rb") as elf:
        head = elf.read(20)
    machines = {62: "x86_64-linux-gnu", 183: "aarch64-linux-gnu"}
    machine = int.from_bytes(head[18:20], "little")
    if head[:4] != b"\x7fELF" or machine not in machines:
        raise SystemExit(f"libraries: {file} is no program or library for x86-64 or 64-bit Arm")
    return machines[machine]


def needed(file):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", of_elf("--dynamic", file))


def libraries(files, root="/"):
    """{name: path} of all that the files need."""
    found, to_read = {}, [os.path.realpath(file) for file in files]
    while to_read:
        file = to_read.pop()
        for name in needed(file):
            if name in found or C_LIBRARY.fullmatch(name):
                continue
            places = [os.path.join(root, folder, triplet(file), name) for folder in ("usr/lib", "lib")]
            path = next(filter(os.path.exists, places), None)
            if path is None:
                raise SystemExit(f"libraries: {name}, which {os.path.basename(file)} needs, is not in {os.path.dirname(places[0])}")
            found[name] = path
            to_read.append(path)
    return found


def newest_glibc(files):
    versions = [version for file in files for version in re.findall(r"Name: GLIBC_([\d.]+)", of_elf("--version-info", file))]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


def main():
    words = sys.argv[1:]
    if words[:1] == ["--glibc"] and len(words) > 1:
        print(newest_glibc(words[1:]))
    elif words[:1] == ["--root"] and len(words) > 2:
        print(*sorted(libraries(words[2:], words[1]).values()), sep="\n")
    elif words and not words[0].startswith("--"):
        print(*sorted(libraries(words).values()), sep="\n")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
