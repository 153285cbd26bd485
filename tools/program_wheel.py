#!/usr/bin/env python3
"""Makes a wheel of a platform from the pure one: the same package parley, and beside it the package parleyd with the programs and
libraries of a tarball of tools/dist.sh. Its tag says the C library that they really need. Prints the wheel's path.

usage: program_wheel.py PURE.whl TARBALL OUT_FOLDER
       PARLEY_WHEEL_LEVEL: how much it is compressed, 0 to 9 (6)
"""
import base64
import hashlib
import os
import re
import sys
import tarfile
import tempfile
import zipfile

import libraries

HERE = os.path.dirname(os.path.abspath(__file__))
# Without the CUDA module, which is far larger than all else.
FROM_TARBALL = re.compile(r"(bin/.+|lib/(?!libparley-cuda).+|share/(golden|parley)/.+|LICENSE(\..+)?)")
COMMANDS = "[console_scripts]\nparley = parleyd:command_line\nparleyd = parleyd:daemon\n"


def from_tarball(path):
    """{name in the wheel: (bytes, is a program)}, and the tag of where these run."""
    files = {}
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(path) as tar:
        elves = []
        for member in tar:
            name = member.name.partition("/")[2]
            if not member.isfile() or not FROM_TARBALL.fullmatch(name):
                continue
            data = tar.extractfile(member).read()
            files[f"parleyd/{name}"] = data, bool(member.mode & 0o100)
            if data[:4] == b"\x7fELF":
                elves.append(os.path.join(scratch, str(len(elves))))
                with open(elves[-1], "wb") as out:
                    out.write(data)
        if "parleyd/bin/parleyd" not in files:
            raise SystemExit(f"program_wheel: {path} has no bin/parleyd: ./run dist makes such a tarball")
        processor = libraries.triplet(elves[0]).partition("-")[0]
        return files, f"py3-none-manylinux_{libraries.newest_glibc(elves).replace('.', '_')}_{processor}"


def row(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def main(pure, tarball, out_folder):
    files, tag = from_tarball(tarball)
    with zipfile.ZipFile(pure) as wheel:
        for name in wheel.namelist():
            files[name] = wheel.read(name), False
    for name in ("__init__.py", "__main__.py"):
        with open(os.path.join(HERE, "../client/python/parleyd", name), "rb") as file:
            files[f"parleyd/{name}"] = file.read(), False
    (info,) = {name.partition("/")[0] for name in files if re.match(r"[^/]+\.dist-info/", name)}
    about = re.sub(r"(?m)^Tag: .*$", f"Tag: {tag}", files[f"{info}/WHEEL"][0].decode())
    files[f"{info}/WHEEL"] = about.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode(), False
    files[f"{info}/entry_points.txt"] = COMMANDS.encode(), False
    files[f"{info}/top_level.txt"] = b"parley\nparleyd\n", False
    record = f"{info}/RECORD"
    files.pop(record)
    files[record] = ("".join(row(name, data) for name, (data, _) in sorted(files.items())) + f"{record},,\n").encode(), False
    path = os.path.join(out_folder, f"{info.removesuffix('.dist-info')}-{tag}.whl")
    level = int(os.environ.get("PARLEY_WHEEL_LEVEL", 6))
    with zipfile.ZipFile(f"{path}.part", "w") as wheel:
        for name, (data, is_program) in files.items():  # the last is RECORD, as the format asks
            one = zipfile.ZipInfo(name)
            one.external_attr = (0o100755 if is_program else 0o100644) << 16
            wheel.writestr(one, data, zipfile.ZIP_DEFLATED, level)
    os.replace(f"{path}.part", path)
    print(path)


if len(sys.argv) != 4:
    raise SystemExit(__doc__)
main(*sys.argv[1:])
