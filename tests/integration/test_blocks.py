#!/usr/bin/env python3
"""The blocks of shell lines of README.md and docs/*.md run as they are printed, ports and all.

A page is run from its top in a network and processes of its own, in a folder that looks like a built checkout: its entries, build/release
and the default model. A block is given to one bash, and must end with 0. Before one that starts no parleyd on the default ports, the
last one's goes on; if there is none, `parleyd --model smollm2=MODEL` is started. What a block leaves running runs until the next parleyd
is started or the page ends. FILE.gguf is the default model. A fenced block behind "Save as `NAME`" is written there.

A block that cannot run here stands behind a line `<!-- not run: REASON -->`.

usage: test_blocks.py BUILD_ROOT SOURCE_ROOT MODEL PYTHON     (PYTHON: one that has the clients' packages; see venv.sh)
       test_blocks.py --page PAGE FOLDER                      in the page's own network, where the test starts it

PARLEY_PAGES names the pages to run, as docs/tour.md,README.md: all."""
import contextlib
import glob
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import children

GRPC_PORT, HTTP_PORT = 8001, 8000
NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->$")
LEAST_RUN = 40
STARTS_DAEMON = re.compile(r"(?:^|[\s/;&|])parleyd [^\n#]*&", re.MULTILINE)
DEFAULT = 'parleyd --model smollm2="$(./run model)" &'


SAVED = re.compile(r"^Save (?:this )?as `([\w.]+)`[^\n]*:\n\n```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Block:
    def __init__(self, line, text, reason):
        self.line, self.text, self.reason = line, text, reason
        self.starts_daemon = STARTS_DAEMON.search(text) is not None and "--listen" not in text


def blocks_of(text):
    """The blocks of shell lines of a page: those that are indented, outside of lists and fences."""
    blocks, before, is_fenced, in_list, reason, start = [], "", False, False, None, None
    lines = [*text.splitlines(), ""]
    for number, line in enumerate(lines, 1):
        is_block = not is_fenced and not in_list and line.startswith("    ") and (start is not None or before == "")
        if is_block and start is None:
            start = number
        elif not is_block and start is not None:
            blocks.append(Block(start, "\n".join(one[4:] for one in lines[start - 1 : number - 1]) + "\n", reason))
            start = reason = None
        if line.startswith("```"):
            is_fenced = not is_fenced
        elif match := NOT_RUN.match(line):
            reason = match[1]
        elif not is_block and line.strip():
            reason = None
            in_list = not is_fenced and (re.match(r"([-*+]|\d+\.) ", line) is not None or in_list and line.startswith(" "))
        before = line.strip()
    return blocks


def test_blocks_of():
    blocks = blocks_of("# A\n\n    one\n    two\n\n- item\n\n    of the item\n\nText.\n\n<!-- not run: it is long -->\n\n    three\n\n```\n\n    fenced\n```\n\n    parleyd --x &\n")
    assert [(b.line, b.text, b.reason) for b in blocks] == [(3, "one\ntwo\n", None), (14, "three\n", "it is long"), (21, "parleyd --x &\n", None)], [vars(b) for b in blocks]
    assert [b.starts_daemon for b in blocks] == [False, False, True]


def test_failure():
    """That of any command of a block is told with its place, in a pipe too."""
    with tempfile.TemporaryDirectory() as folder:
        for wrong in ("false | true\n", "echo seen\nnone-such\ntrue\n"):
            try:
                run_block("page.md", Block(7, wrong, None), folder)
            except AssertionError as failure:
                assert str(failure).startswith("page.md:7: ") and wrong in str(failure), failure
            else:
                raise AssertionError(wrong)


def is_served(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def is_ready():
    """Whether the daemon on the default ports has its model; one with TLS or keys does not tell this client, and is taken to have it."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", HTTP_PORT, timeout=children.PATIENCE)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status != 503
        except ConnectionRefusedError:
            return False
        except (http.client.HTTPException, ConnectionError):
            return True


def kill_others():
    """All processes of this page but ours."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) not in (1, os.getpid()):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
    children.until("the end of a killed parleyd", lambda: not is_served(GRPC_PORT) and not is_served(HTTP_PORT))


def run_block(page, block, folder):
    """What it says is a file's: what it leaves running may hold a pipe open."""
    with tempfile.TemporaryFile() as said:
        # curl -i shows an answer that is an error; elsewhere one is a failure.
        environment = os.environ if "curl -i " in block.text else {**os.environ, "CURL_HOME": os.path.join(folder, "build")}
        bash = subprocess.Popen(["bash", "-e", "-o", "pipefail", "-c", block.text], cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment)
        try:
            status = bash.wait(children.PATIENCE)
        except subprocess.TimeoutExpired:
            status = f"nothing within {children.PATIENCE} s"
        said.seek(0)
        assert status == 0, f"{page}:{block.line}: {status}\n{block.text}{said.read().decode(errors='replace')[-4000:]}"
    if block.starts_daemon:
        children.until(f"{page}:{block.line}: a ready parleyd", is_ready)


def run_page(page, folder):
    with open(os.path.join(folder, page), encoding="utf-8") as file:
        text = file.read()
    for name, content in SAVED.findall(text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
    blocks = blocks_of(text)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for block in blocks:
        if block.reason is not None:
            continue
        if block.starts_daemon:
            kill_others()
        elif not is_served(GRPC_PORT):
            run_block(page, Block(0, DEFAULT, None), folder)
        run_block(page, block, folder)


def checkout(folder, build_root, source_root, model, python):
    """A folder that looks like a built checkout."""
    for entry in os.listdir(source_root):
        if entry not in ("build", ".git"):
            os.symlink(os.path.join(source_root, entry), os.path.join(folder, entry))
    os.remove(os.path.join(folder, "run"))
    shutil.copy(os.path.join(source_root, "run"), folder)
    os.makedirs(os.path.join(folder, "build/model"))
    os.makedirs(os.path.join(folder, "build/agents/bin"))
    os.symlink(build_root, os.path.join(folder, "build/release"))
    for name in (model, f"{model}.ok"):
        os.symlink(name, os.path.join(folder, "build/model", os.path.basename(name)))
    os.symlink(model, os.path.join(folder, "FILE.gguf"))
    with open(os.path.join(folder, "build/agents/bin/python"), "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {python} "$@"\n')
    os.chmod(os.path.join(folder, "build/agents/bin/python"), 0o755)
    with open(os.path.join(folder, "build/.curlrc"), "w", encoding="utf-8") as file:
        file.write("fail-with-body\n")


def main():
    if sys.argv[1] == "--page":
        return run_page(*sys.argv[2:])
    build_root, source_root, model, python = sys.argv[1:]
    test_blocks_of()
    test_failure()
    isolated = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    is_isolated = children.run([*isolated, "true"]).returncode == 0
    assert is_isolated or os.getuid() != 0, "root can have a network of its own"
    if not is_isolated:
        print("this machine lets no process have a network of its own")
        sys.exit(77)
    environment = {**os.environ, "PATH": f"{build_root}:{os.environ['PATH']}", "PYTHONPATH": os.environ["PARLEY_PACKAGE"]}
    pages = ["README.md", *sorted(os.path.relpath(path, source_root) for path in glob.glob(os.path.join(source_root, "docs/*.md")))]
    wanted = os.environ.get("PARLEY_PAGES", "").split(",")
    if wanted != [""]:
        pages = [page for page in pages if page in wanted]
    n_run = 0
    for page in pages:
        with open(os.path.join(source_root, page), encoding="utf-8") as file:
            blocks = blocks_of(file.read())
        to_run = [block for block in blocks if block.reason is None]
        if to_run:
            start = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                checkout(folder, build_root, source_root, model, python)
                done = children.run([*isolated, sys.executable, os.path.abspath(__file__), "--page", page, folder], env=environment | {"TMPDIR": folder})
                assert done.returncode == 0, page
            n_run += len(to_run)
            print(f"{page}: {len(to_run)} of {len(blocks)} blocks, {time.monotonic() - start:.1f} s", flush=True)
    assert wanted != [""] or n_run >= LEAST_RUN, n_run


if __name__ == "__main__":
    main()
