#!/usr/bin/env python3
"""What `meson install` places, and that it is of use: the unit, the completions of each shell that is there, the example file.

usage: test_install.py MESON BUILD_DIR      (any python3; no packages)
"""
import os
import re
import shutil
import sys
import tempfile

import children
from children import PATIENCE

EVERYTHING = """bin/parley bin/parleyd include/parley.h include/parley_agent.h include/parley_environment.h include/parley_teacher.h lib/systemd/system/parleyd.service lib/sysusers.d/parley.conf
share/bash-completion/completions/parley share/bash-completion/completions/parleyd share/doc/parley/examples/parleyd.yaml
share/fish/vendor_completions.d/parley.fish share/fish/vendor_completions.d/parleyd.fish share/man/man1/parley.1
share/man/man7/parley-parlai.7 share/man/man8/parleyd.8 share/parley/grafana/parley.json share/zsh/site-functions/_parley
share/zsh/site-functions/_parleyd share/parley/proto/parley/v1/conversations.proto share/parley/proto/grpc/health/v1/health.proto
share/parley/proto/inference/grpc_service.proto share/parley/train/train.py""".split()


def said(*command, **more):
    done = children.run(command, capture_output=True, text=True, timeout=PATIENCE, **more)
    assert done.returncode == 0, done
    return done.stdout


def placed(root):
    for path in EVERYTHING:
        assert os.path.isfile(os.path.join(root, path)), path
    for folder, _, files in os.walk(os.path.join(root, "share/parley/proto")):
        assert all(name.endswith(".proto") for name in files), (folder, files)
    parleyd, example = os.path.join(root, "bin/parleyd"), os.path.join(root, "share/doc/parley/examples/parleyd.yaml")
    said(parleyd, "--check", "--config", example, "--listen", "127.0.0.1:0", "--http", "off")


def completed(root, program, *words):
    """What bash offers for the last of the words."""
    script = os.path.join(root, "share/bash-completion/completions", program)
    line = ["bash", "--norc", "-c", 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_$1"; printf "%s\\n" "${COMPREPLY[@]}"', "bash"]
    return said(*line, script, program, *words).split()


def completions(root):
    assert completed(root, "parleyd", "--kv-h") == ["--kv-host-bytes"]
    assert completed(root, "parleyd", "--kv", "") == ["f16", "q8", "f32"]
    assert completed(root, "parley", "se") == ["selftest", "self-chat"]
    assert completed(root, "parley", "ask", "--top") == ["--top-p", "--top-k"]
    assert completed(root, "parley", "help", "self") == ["selftest", "self-chat"]
    assert completed(root, "parley", "conversations", "c") == ["cancel", "close"] and completed(root, "parley", "models", "")[:2] == ["list", "rm"]
    for shell, files in ("zsh", ["share/zsh/site-functions/_parley", "share/zsh/site-functions/_parleyd"]), \
                        ("fish", ["share/fish/vendor_completions.d/parley.fish", "share/fish/vendor_completions.d/parleyd.fish"]):
        if shutil.which(shell) is None:
            print(f"no {shell}: its completions are not tried")
            continue
        for path in files:
            said(shell, "-n", os.path.join(root, path))
    if shutil.which("fish") is not None:
        for path in "parleyd", "parley":
            script = f"source {root}/share/fish/vendor_completions.d/{path}.fish; complete -C '{path} '"
            offered = said("fish", "--no-config", "-c", f"{script}; complete -C 'parleyd --kv-h'" if path == "parleyd" else script)
            assert ("--kv-host-bytes" if path == "parleyd" else "self-chat") in offered, offered


def unit(root):
    """systemd takes the unit, and finds little that it could still do harm with."""
    if shutil.which("systemd-analyze") is None:
        print("no systemd-analyze: the unit is not tried")
        return
    path = os.path.join(root, "parleyd.service")
    with open(os.path.join(root, "lib/systemd/system/parleyd.service"), encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(re.sub("^(ExecStart=).*", rf"\g<1>{root}/bin/parleyd", text, flags=re.M))
    verified = children.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=PATIENCE)
    assert verified.returncode == 0 and "parleyd" not in verified.stderr, verified
    said("systemd-analyze", "security", "--offline=true", "--threshold=20", path)


def main():
    meson, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        said(meson, "install", "-C", build, "--no-rebuild", "--quiet", "--skip-subprojects", env={**os.environ, "DESTDIR": folder})
        programs = [where for where, _, files in os.walk(folder) if "parleyd" in files and os.path.basename(where) == "bin"]
        prefix = os.path.dirname(programs[0])
        for test in placed, completions, unit:
            print(test.__name__, flush=True)
            test(prefix)


if __name__ == "__main__":
    main()
