#!/usr/bin/env python3
"""What `meson install` places for programs of others: libparley, what it exports, and that the examples build against it and run; plug-ins too.

usage: test_libparley.py MESON BUILD_DIR SOURCE_DIR parleyd      (any python3; no packages)
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import children
from children import PATIENCE, Daemon


def said(*command, **more):
    done = children.run(command, capture_output=True, text=True, timeout=PATIENCE, **more)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def found(root, pattern):
    paths = glob.glob(os.path.join(root, "**", pattern), recursive=True)
    assert len(paths) == 1, (pattern, paths)
    return paths[0]


def declared(header):
    """The functions that parley.h declares."""
    with open(header, encoding="utf-8") as file:
        return set(re.findall(r"\b(parley_[a-z0-9_]+)\(", re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)))


def exports(root, header):
    """The library exports what the header declares, each of a version, and nothing else; so does the archive."""
    library = found(root, "libparley.so")
    assert "SONAME" in (dynamic := said("objdump", "-p", library)) and "libparley.so.0" in dynamic, dynamic
    defined = [line.split()[-1] for line in said("nm", "-D", "--defined-only", library).splitlines()]
    functions = {name.split("@")[0] for name in defined if not re.fullmatch(r"PARLEY_[0-9.]+", name.split("@")[0])}
    assert functions == declared(header), functions ^ declared(header)
    assert all("@@PARLEY_" in name for name in defined if name.startswith("parley_")), defined
    archive = found(root, "libparley.a")
    with open(archive, "rb") as file:
        assert file.read(8) == b"!<arch>\n", "a thin archive"  # that one only names its objects
    functions = {line.split()[-1] for line in said("nm", "-g", "--defined-only", archive).splitlines() if len(line.split()) == 3}
    assert functions == declared(header), functions ^ declared(header)


def flags(root, *options):
    """What pkg-config says, of a tree that lies below another root."""
    where = {"PKG_CONFIG_PATH": os.path.dirname(found(root, "parley.pc")), "PKG_CONFIG_SYSROOT_DIR": root}
    return said("pkg-config", *options, "parley", env={**os.environ, **where}).split()


def headers_alone(root, folder):
    """Each standard of C and C++ takes the headers, without a warning."""
    for compiler, language, standards in ("cc", "c", ["c99", "c11", "c17"]), ("c++", "c++", ["c++11", "c++17", "c++20"]):
        for standard in standards:
            path = os.path.join(folder, f"header.{language}")
            with open(path, "w", encoding="utf-8") as file:
                file.write("#include <parley_agent.h>\n#include <parley_environment.h>\n#include <parley_teacher.h>\n#include <parley.h>\n")
            said(compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", *flags(root, "--cflags"), path)


def of_worker(command, env, http):
    """What the agent replies that a worker computes."""
    url = f"http://{http}/v1/chat/completions"
    body = json.dumps({"model": command[-1], "messages": [{"role": "user", "content": "one two three"}]}).encode()
    found = []

    def replies():
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})) as response:
                found.append(json.load(response)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as e:
            assert e.code in (404, 503), e.read()  # 503: it attaches right now
        return found

    worker = children.start(command, env=env)
    children.until("it is attached", replies, worker)
    worker.kill()
    worker.wait()
    return found[0]


def of_host(command, env):
    """What a host says once its environments are served."""
    host = children.start(command, env=env, stdout=subprocess.PIPE, text=True)
    line = host.stdout.readline()
    host.kill()
    host.wait()
    return line


def examples(root, folder, sources, parleyd):
    """All build against the shared library, and those in C against the archive; each runs."""
    library = found(root, "libparley.so")
    static = [flag if flag != "-lparley" else "-l:libparley.a" for flag in flags(root, "--cflags", "--static", "--libs")]
    plugin = os.path.join(folder, "mountain_car.so")
    said("cc", "-shared", "-fPIC", os.path.join(sources, "../../agents/plugin/examples/mountain_car.c"), *flags(root, "--cflags"), "-lm", "-o", plugin)
    more = {"uv_loop.c": said("pkg-config", "--libs", "libuv").split(), "environment.c": ["-ldl"]}
    with Daemon(parleyd, "--http", "127.0.0.1:0") as daemon:
        for source in sorted(glob.glob(os.path.join(sources, "*.c")) + glob.glob(os.path.join(sources, "*.cc"))):
            name = os.path.basename(source)
            compiler = "cc" if source.endswith(".c") else "c++"
            program = os.path.join(folder, name.split(".")[0])
            ways = [(flags(root, "--cflags", "--libs"), {"LD_LIBRARY_PATH": os.path.dirname(library)})]
            if compiler == "cc":
                ways.append((static, {}))
            for how, where in ways:
                said(compiler, "-Wall", "-Wextra", "-Werror", source, *how, *more.get(name, []), "-o", program)
                assert ("libparley.so" in said("objdump", "-p", program)) == bool(where), how
                if name == "words.c":
                    out = of_worker([program, daemon.address, f"words-{len(where)}"], {**os.environ, **where}, daemon.http)
                elif name == "environment.c":
                    out = of_host([program, daemon.address, plugin, f"cars-{len(where)}"], {**os.environ, **where})
                else:
                    out = said(program, daemon.address, env={**os.environ, **where})
                print(name, repr(out[:100]), flush=True)
                assert EXPECTED[name] in out, (name, out)


def plugins(root, folder, sources, parleyd):
    """The examples of plug-ins build as they say, and are served."""
    flag = []
    for source in sorted(glob.glob(os.path.join(sources, "*.c"))):
        plugin = os.path.join(folder, os.path.basename(source)[:-1] + "so")
        said("cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2", source, *flags(root, "--cflags"), "-lm", "-o", plugin)
        undefined = said("nm", "-D", "--undefined-only", plugin)
        assert "parley" not in undefined, undefined  # nothing of ours but by the table that it is given
        defined = {line.split()[-1] for line in said("nm", "-D", "--defined-only", plugin).splitlines()}
        found = defined & {"parley_agent", "parley_environment", "parley_teacher"}
        assert len(found) == 1, defined
        if found != {"parley_teacher"}:  # which is for parley, not the daemon
            flag += ["--plugin", "plugged_" + os.path.basename(source)[:-2] + "=" + plugin]
    with Daemon(parleyd, *flag):
        pass
    return flag


EXPECTED = {
    "loop.c": ": Name a river.\n", "uv_loop.c": "Name a river.\n",
    "turns.c": "Name a river.\nWhere does it rise?\nWhere does it end?\n", "status.cc": "a status of", "words.c": "3 words", "environment.c": "hosting cars-"}


def main():
    meson, build, sources, parleyd = sys.argv[1:]
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as folder:
        said(meson, "install", "-C", build, "--no-rebuild", "--quiet", "--skip-subprojects", env={**os.environ, "DESTDIR": root})
        header = found(root, "parley.h")
        exports(root, header)
        headers_alone(root, folder)
        examples(root, folder, os.path.join(sources, "client/examples"), parleyd)
        assert len(plugins(root, folder, os.path.join(sources, "agents/plugin/examples"), parleyd)) == 8


if __name__ == "__main__":
    main()
