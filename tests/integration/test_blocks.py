#!/usr/bin/env python3
"""The blocks of shell lines of README.md and docs/*.md run as they are printed, ports and all, and print what the page shows.

A page is run from its top in a network and processes of its own, in a folder that looks like a built checkout: its entries, build/release
and the default model. A block is given to one bash, and must end with 0. Before one that starts no parleyd on the default ports, the
last one's goes on; if there is none, `parleyd --model smollm2=MODEL` is started. What a block leaves running runs until the next parleyd
is started or the page ends. FILE.gguf is the default model. A fenced block behind "Save as `NAME`" is written there.

A block that cannot run here stands behind a line `<!-- not run: REASON -->`.

A fenced block ```text is the output of the block before it, by the rule of outputs.py. A program in Python that has an output is run as a
block, too. An output that is behind no block that runs is an error, since nothing would compare it.

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
import outputs

GRPC_PORT, HTTP_PORT = 8001, 8000
NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->$")
LEAST_RUN = 40
STARTS_DAEMON = re.compile(r"(?:^|[\s/;&|])parleyd [^\n#]*&", re.MULTILINE)
PYTHON = "build/agents/bin/python"  # as the pages call it
DEFAULT = 'parleyd --model smollm2="$(./run model)" &'


SAVED = re.compile(r"^Save (?:this )?as `([\w.]+)`[^\n]*:\n\n```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Block:
    def __init__(self, line, text, reason, output=None):
        self.line, self.text, self.reason, self.output = line, text, reason, output
        self.starts_daemon = STARTS_DAEMON.search(text) is not None and "--listen" not in text


def blocks_of(text):
    """The blocks of shell lines of a page: those that are indented, outside of lists and fences. And its programs that show an output."""
    blocks, before, is_fenced, in_list, reason, start, program = [], "", False, False, None, None, None
    lines = [*text.splitlines(), ""]
    for number, line in enumerate(lines, 1):
        is_block = not is_fenced and not in_list and line.startswith("    ") and (start is not None or before == "")
        if is_block and start is None:
            start = number
        elif not is_block and start is not None:
            shell = "\n".join(one[4:] for one in lines[start - 1 : number - 1]) + "\n"
            blocks.append(Block(start, shell, reason, outputs.output_after(lines, number - 1)))
            start = reason = None
        if line.startswith("```"):
            is_fenced, in_list = not is_fenced, False
            output = outputs.output_after(lines, number)
            if line == "```python":
                program = number
            elif not is_fenced and program is not None and output is not None:
                python = "\n".join(lines[program : number - 1])
                blocks.append(Block(program + 1, f"{PYTHON} - <<'END'\n{python}\nEND\n", reason, output))
            if not is_fenced:
                program = reason = None
        elif match := NOT_RUN.match(line):
            reason = match[1]
        elif not is_block and not is_fenced and line.strip():
            reason = None
            in_list = re.match(r"([-*+]|\d+\.) ", line) is not None or in_list and line.startswith(" ")
        before = line.strip()
    return blocks


def check_outputs(page, text, blocks):
    """Each output that the page shows is that of a block that runs."""
    compared = {block.output.line for block in blocks if block.output is not None and block.reason is None}
    for number, line in enumerate(text.splitlines(), 1):
        assert line.strip() != outputs.FENCE or number + 1 in compared, f"{page}:{number}: this output directly follows no block that runs"


# What installs a module that is not named as its package; `./run wheel` is the package of Parley, and brings grpcio.
INSTALLS = {"parley": r"run wheel", "grpc": r"run wheel|grpcio", "grpc_reflection": "grpcio-reflection", "numpy": r"numpy|tritonclient|\[[^]]*(gym|optim|parallel)",
            "gymnasium": r"\[[^]]*gym"}


def check_installs(page, text):
    """Above each program in Python stands the line that installs what it imports."""
    lines, first = text.splitlines(), None
    for number, line in enumerate(lines, 1):
        first = number if line == "```python" else None if line == "```" else first
        if first is None or not (match := re.match(r"\s*(?:from|import) (\w[\w., ]*)", line)):
            continue
        for module in {name.strip().split(".")[0].split(" ")[0] for name in match[1].split(" import ")[0].split(",")}:
            wanted = INSTALLS.get(module, module)
            is_there = any("pip install" in above and re.search(wanted, above) for above in lines[:first])
            assert is_there or module in sys.stdlib_module_names, f"{page}:{number}: no line above installs {module}"


def test_installs():
    check_installs("page.md", '    pip install "$(./run wheel)[gym]"\n\n```python\nimport json, numpy as np\nfrom parley.gym import x\nimport gymnasium\n```\n')
    for text in ("```python\nimport parley\n```\n    pip install parley\n", '    pip install "$(./run wheel)"\n```python\nimport os, numpy\n```\n'):
        try:
            check_installs("page.md", text)
        except AssertionError as failure:
            assert "no line above installs" in str(failure), failure
        else:
            raise AssertionError(text)


def test_blocks_of():
    blocks = blocks_of("# A\n\n    one\n    two\n\n- item\n\n    of the item\n\nText.\n\n<!-- not run: it is long -->\n\n    three\n\n```\n\n    fenced\n```\n\n    parleyd --x &\n")
    assert [(b.line, b.text, b.reason) for b in blocks] == [(3, "one\ntwo\n", None), (14, "three\n", "it is long"), (21, "parleyd --x &\n", None)], [vars(b) for b in blocks]
    assert [b.starts_daemon for b in blocks] == [False, False, True]


def test_outputs():
    """A block's output is compared, a program's too, with its place; what nothing would compare is an error."""
    text = "    echo Bonn\n    echo word >&2\n\n```text\nBonn\n```\n\n```python\nprint(6 * 7)\n```\n\n```text\n4…\n```\n"
    page = blocks_of(text)
    assert [(block.line, block.output.line) for block in page] == [(1, 5), (9, 13)]
    check_outputs("page.md", text, page)
    with tempfile.TemporaryDirectory() as folder:
        make_python(folder, sys.executable)
        for block in page:
            run_block("page.md", block, folder)
        for at, wrong in enumerate((text.replace("\nBonn\n`", "\nBerlin\n`"), text.replace("4…", "5…"))):
            try:
                run_block("page.md", blocks_of(wrong)[at], folder)
            except AssertionError as failure:
                expected, seen = [("Berlin", "Bonn"), ("5…", "42")][at]
                assert str(failure).startswith(f"page.md:{[5, 13][at]}: expected\n  {expected}\nseen\n  {seen}\n"), failure
            else:
                raise AssertionError(wrong)
    for unseen, line in ((f"<!-- not run: it is long -->\n\n{text}", 6), ("    true\n\nIt prints:\n\n```text\n1\n```\n", 5)):
        try:
            check_outputs("page.md", unseen, blocks_of(unseen))
        except AssertionError as failure:
            assert str(failure).startswith(f"page.md:{line}: "), failure
        else:
            raise AssertionError(unseen)


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
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
        # curl -i shows an answer that is an error; elsewhere one is a failure.
        environment = os.environ if "curl -i " in block.text else {**os.environ, "CURL_HOME": os.path.join(folder, "build")}
        bash = subprocess.Popen(["bash", "-e", "-o", "pipefail", "-c", block.text], cwd=folder, stdin=subprocess.DEVNULL, stdout=printed, stderr=said, env=environment)
        try:
            status = bash.wait(children.PATIENCE)
        except subprocess.TimeoutExpired:
            status = f"nothing within {children.PATIENCE} s"
        printed.seek(0)
        said.seek(0)
        seen = printed.read().decode(errors="replace")
        assert status == 0, f"{page}:{block.line}: {status}\n{block.text}{said.read().decode(errors='replace')[-4000:]}{seen[-4000:]}"
    if block.output is not None:
        outputs.compare(page, block.output, seen)
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


def make_python(folder, python):
    path = os.path.join(folder, PYTHON)
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {python} "$@"\n')
    os.chmod(path, 0o755)


def checkout(folder, build_root, source_root, model, python):
    """A folder that looks like a built checkout."""
    for entry in os.listdir(source_root):
        if entry not in ("build", ".git"):
            os.symlink(os.path.join(source_root, entry), os.path.join(folder, entry))
    os.remove(os.path.join(folder, "run"))
    shutil.copy(os.path.join(source_root, "run"), folder)
    os.makedirs(os.path.join(folder, "build/model"))
    os.symlink(build_root, os.path.join(folder, "build/release"))
    for name in (model, f"{model}.ok"):
        os.symlink(name, os.path.join(folder, "build/model", os.path.basename(name)))
    os.symlink(model, os.path.join(folder, "FILE.gguf"))
    make_python(folder, python)
    with open(os.path.join(folder, "build/.curlrc"), "w", encoding="utf-8") as file:
        file.write("fail-with-body\n")


def main():
    if sys.argv[1] == "--page":
        return run_page(*sys.argv[2:])
    build_root, source_root, model, python = sys.argv[1:]
    test_blocks_of()
    test_failure()
    test_installs()
    outputs.test()
    test_outputs()
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
            text = file.read()
        blocks = blocks_of(text)
        check_outputs(page, text, blocks)
        check_installs(page, text)
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
