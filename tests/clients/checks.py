"""What the checks of the client programs share: a line for each check, and whether any failed. run.py starts them."""
import os
import socket
import sys
import time
import traceback
import urllib.request

URL = sys.argv[1]  # http://HOST:PORT/v1
MODEL = sys.argv[2]
TOOLS_MODEL = "tools"  # the same, with a template that tells it the tools
CITIES = ("Bonn", "Rome")
_checks = []


def check(what):
    """Marks a function as the check of that: it fails by raising."""
    def mark(function):
        _checks.append((what, function))
        return function
    return mark


def one_line(error):
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) < 400 else text[:397] + "..."


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until_up(url, server, log):
    """Returns once a server's health page answers."""
    end = time.monotonic() + 300
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).read()
            return
        except OSError:
            log.seek(0)
            assert server.poll() is None and time.monotonic() < end, f"it did not start: {log.read()[-300:]}"
            time.sleep(0.2)  # it sends no event when it is up, so its health is polled


def main(program):
    """Runs the checks in their order; those named behind URL and MODEL alone, where there are any."""
    n_failed = 0
    for what, function in _checks:
        if sys.argv[3:] and what not in sys.argv[3:]:
            continue
        try:
            function()
            print(f"ok      {program}: {what}", flush=True)
        except Exception as error:  # whatever a program raises is what is to be told
            n_failed += 1
            print(f"failed  {program}: {what}: {one_line(error)}", flush=True)
            if "PARLEY_CLIENTS_TRACE" in os.environ:
                traceback.print_exc()
    sys.exit(1 if n_failed > 0 else 0)
