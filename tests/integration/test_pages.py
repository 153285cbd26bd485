#!/usr/bin/env python3
"""The programs of README.md and docs/*.md, and their requests by curl, run as they are printed, but for the ports. What a page shows as a
program's output (outputs.py) is compared where no language model makes it: the one here has random weights. test_blocks.py has the real one.

usage: test_pages.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the clients' packages; see venv.sh)"""
import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import urllib.request

import children
import outputs
from children import Daemon, until

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
import parley.policies  # noqa: E402
from parley.rollouts import Environments  # noqa: E402

PARLEYD, WRITE_TINY_MODEL = sys.argv[1:3]
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]}
MODEL = "smollm2"
LEAST_COMPARED = 6
ATTEMPTS = 5  # the model's weights are random: one sampled reply in 50 ends before it has a word
# These answer with an error, need a file or a key of the reader's, or are told by a shell's variables.
NOT_ALONE = re.compile(r"curl -i |\$\(|\$body|\bpk-|alice|bob\.key")


def text_of(page):
    with open(os.path.join(DOCS, page), encoding="utf-8") as file:
        return file.read()


def here(text, daemon):
    return text.replace("127.0.0.1:8001", daemon.address).replace("127.0.0.1:8000", daemon.http)


def programs_of(page, text):
    """(page, program, what it shows as its output or None) of each block of Python that asks a daemon."""
    lines = text.splitlines()
    return [(page, block[1], outputs.output_after(lines, text.count("\n", 0, block.end()) + 1))
            for block in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "127.0.0.1:800" in block[1]]


def programs():
    """Those of all pages, those that serve first: requests of other blocks are to them."""
    found = [one for page in ["../README.md", *sorted(os.listdir(DOCS))] if page.endswith(".md") for one in programs_of(page, text_of(page))]
    assert len(found) >= 16, found
    return sorted(found, key=lambda one: "parley.serve(" not in one[1])


def requests():
    found = [(page, line.strip()) for page in sorted(os.listdir(DOCS)) if page.endswith(".md") and page != "serving.md"
             for line in text_of(page).splitlines() if line.startswith("    curl ") and not NOT_ALONE.search(line)]
    assert len(found) >= 9, found
    return found


def blocks_of(page, with_text):
    """The one block of shell lines of a page that has this text."""
    block, = [b for b in re.findall(r"^(?: {4}.*\n)+", text_of(page), re.MULTILINE) if with_text in b]
    return block


def models(daemon):
    with urllib.request.urlopen(f"http://{daemon.http}/v1/models", timeout=children.PATIENCE) as answer:
        return {model["id"] for model in json.load(answer)["data"]}


def has_environment(server, name):
    try:
        with Environments(server, name, 1):
            return True
    except parley.Error:
        return False


def shell(script, daemon):
    done = children.run(["bash", "-c", here(script, daemon)], capture_output=True, text=True)
    assert done.returncode == 0, (script, done)
    return done.stdout


def test_programs_of():
    """A program's output is found behind it, and a wrong one is told with its place, what was expected and what was seen."""
    text = "# A\n\n```python\nask(\"127.0.0.1:8001\")\n```\n\n```text\n42\n```\n\n```python\nask(\"127.0.0.1:8000\")\n```\n"
    (page, program, shown), (_, _, none) = programs_of("page.md", text)
    assert (page, program, shown.line, shown.lines, none) == ("page.md", 'ask("127.0.0.1:8001")\n', 8, ["42"], None)
    assert outputs.fails(page, shown, "42\n") is None
    assert outputs.fails(page, shown, "43\n").startswith("page.md:8: expected\n  42\nseen\n  43\n")


def test_programs(daemon, folder, stack):
    """Each ends with 0 and says something, what its page shows; those that serve are there for the requests of other pages."""
    n_compared = 0
    with parley.connect(daemon.address) as server:
        for i, (page, program, shown) in enumerate(programs()):
            path = os.path.join(folder, f"program{i}.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(here(program, daemon))
            command = [sys.executable, path]
            if "parley.serve(" in program:
                worker = children.start(command, env=ENVIRONMENT, cwd=folder)
                stack.callback(worker.wait)
                stack.callback(worker.kill)
                name = re.search(r'@?parley\.(?:agent|environment)\("([\w-]+)"\)', program)[1]
                is_agent = "@parley.agent(" in program
                until(f"{page}'s {name}", lambda: name in models(daemon) if is_agent else has_environment(server, name), worker)
                continue
            for _ in range(ATTEMPTS):
                done = children.run(command, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True)
                assert done.returncode == 0, (page, program, done)
                if done.stdout.strip() != "":
                    break
            else:
                raise AssertionError((page, program, done))
            if shown is not None and MODEL not in program:
                outputs.compare(os.path.normpath(os.path.join("docs", page)), shown, done.stdout)
                n_compared += 1
    assert n_compared >= LEAST_COMPARED, n_compared


def test_requests(daemon):
    """Each is answered, with what is no error."""
    for page, request in requests():
        said = shell(request.replace("curl ", "curl -sS --fail-with-body ", 1), daemon)
        assert said != "", (page, request)


def test_what_pages_promise(daemon):
    """docs/determinism.md: a reply alone and beside seven others has one checksum. docs/pages.md: the second answer finds its prompt."""
    sums = re.findall(r"^[0-9a-f]{64} ", shell(blocks_of("determinism.md", "ask()"), daemon), re.MULTILINE)
    assert len(sums) == 2 and sums[0] == sums[1] != hashlib.sha256().hexdigest() + " ", sums  # of something
    first, second = re.findall(r'"cached_tokens":(\d+)', shell(blocks_of("pages.md", 'grep -o \'"usage"'), daemon))
    assert int(first) == 0 and int(second) >= 16, (first, second)


def main():
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path, pole = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "pole.gguf")
        children.run([WRITE_TINY_MODEL, path], check=True)
        parley.policies.create(pole, 4, 2)
        test_programs_of()
        daemon = stack.enter_context(Daemon(PARLEYD, "--http", "127.0.0.1:0", "--model", f"smollm2={path}",
                                            "--model", f"pole={pole}", "--max-reply", "smollm2=200"))  # the tiny model ends no reply itself
        test_programs(daemon, folder, stack)
        test_requests(daemon)
        test_what_pages_promise(daemon)


if __name__ == "__main__":
    main()
