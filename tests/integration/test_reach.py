"""Why a daemon is not reached, in one sentence: `parley` (libparley) and the Python package, blocking and asyncio, say the same, and nothing
of gRPC's log is seen. What waiting cannot change is said at once.

usage: test_reach.py PARLEYD PARLEY
"""
import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import children

PACKAGE = os.environ["PARLEY_PACKAGE"]  # made by venv.sh
sys.path.insert(0, PACKAGE)
import parley  # noqa: E402
from parley import reach  # noqa: E402

PARLEYD, PARLEY = sys.argv[1:]


def certificate(folder, name, *names):
    """Signed by itself: its file and its key's."""
    pem, key = os.path.join(folder, name), os.path.join(folder, name + ".key")
    children.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", key,
                  "-out", pem, "-subj", f"/CN={name}", "-addext", "subjectAltName=" + ",".join(names)], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return pem, key


def of_program(address, ca, wait):
    """The sentence of `parley`, without the hint in parentheses, and the seconds that it took."""
    flags = ["--wait", str(wait), *(["--ca", ca] if ca else [])]
    began = time.monotonic()
    done = children.run([PARLEY, "models", "--server", address, *flags], capture_output=True, text=True)
    took = time.monotonic() - began
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done
    return re.sub(r" \(waited .*\)$", "", done.stderr.removeprefix("parley: ").rstrip("\n")), took


def of_python(address, ca):
    """The error of the blocking client, which that of asyncio equals."""
    try:
        with parley.connect(address, tls=ca or None, patience=0.3) as server:
            server.open("echo")
    except parley.Error as e:
        error = e
    async def ask():
        await parley.aio.connect(address, tls=ca or None, patience=0.3).open("echo")

    try:
        asyncio.run(ask())
    except parley.Error as e:
        assert (e.message, e.reason) == (error.message, error.reason), (e, error)
        return error
    raise AssertionError(f"{address} is reached")


def is_told(address, reason, ca=None, is_final=False):
    """All clients name the cause, with the sentence of the table in the Python package."""
    said, took = of_program(address, ca, 30 if is_final else 0.6)
    error = of_python(address, ca)
    assert error.reason == reason and error.message == said, (address, error.reason, error.message, said)
    assert took < 20, f"{address}: what waiting cannot change is said at once"
    if reason != "ADDRESS_MALFORMED":
        sentences = {cause[1] for row in reach.TEXTS for cause in row[1:] if cause[0] == reason}
        assert said in {s.format(reach.address_of(address)) for s in sentences}, said


def malformed():
    for address in ("", "a b", "localhost:", "localhost:0", "localhost:65536", "localhost:x", "http://localhost:8000", "[::1", "[localhost", "::1]:1",
                    "a/b:1", "localhost:1 ", "é:1", "x" * 300 + ":1"):
        is_told(address, "ADDRESS_MALFORMED", is_final=True)
    for address, whole in (("localhost", "localhost:8001"), ("::1", "[::1]:8001"), ("[::1]", "[::1]:8001"), ("[::1]:07", "[::1]:7"), ("h:1", "h:1"),
                           ("unix:/a b", "unix:/a b"), ("127.0.0.1", "127.0.0.1:8001"), ("fe80::1%eth0", "[fe80::1%eth0]:8001")):
        assert reach.fault_of(address) == "" and reach.address_of(address) == whole, address
    # As C uses them they are in the sentence. No name is looked up: c-ares leaves ten bytes behind when a channel closes meanwhile.
    for address in ("127.0.0.1:1", "[::1]:1", "unix:/nowhere/socket"):
        assert reach.address_of(address) in of_program(address, None, 0.1)[0]


def causes(folder):
    ours, theirs, elsewhere = (certificate(folder, name, *names) for name, *names in (
        ("ours", "DNS:localhost", "IP:127.0.0.1"), ("theirs", "DNS:localhost", "IP:127.0.0.1"), ("elsewhere", "DNS:elsewhere")))

    def with_tls(pair, *more):
        return children.Daemon(PARLEYD, "--http", "127.0.0.1:0", "--tls-cert", pair[0], "--tls-key", pair[1], *more)

    is_told(f"unix:{folder}/nobody", "NOTHING_LISTENS")
    with socket.socket() as taken:  # bound, so that nobody else comes to listen there
        taken.bind(("127.0.0.1", 0))
        is_told("{}:{}".format(*taken.getsockname()), "NOTHING_LISTENS")
    with children.Daemon(PARLEYD, "--http", "127.0.0.1:0") as plain:
        is_told(plain.http, "NOT_GRPC", is_final=True)
        is_told(plain.address, "TLS_NOT_WANTED", ca=ours[0], is_final=True)
        is_told(plain.http, "TLS_NOT_WANTED", ca=ours[0], is_final=True)
    with with_tls(ours) as daemon:
        is_told(daemon.address, "TLS_WANTED")
        is_told(daemon.address, "AUTHORITY_UNKNOWN", ca=theirs[0], is_final=True)
    with with_tls(elsewhere) as daemon:
        is_told(daemon.address, "NAME_DIFFERS", ca=elsewhere[0], is_final=True)
    with with_tls(ours, "--tls-client-ca", theirs[0]) as daemon:
        is_told(daemon.address, "CERTIFICATE_WANTED", ca=ours[0])


def served(folder):
    """parley.serve says what it serves and to whom, and, while no daemon is there, what it waits for."""
    worker = "import sys, parley\n@parley.agent('words')\nclass Words:\n    def observe(self, messages): pass\n    def act(self): return 'ok'\n" \
             "parley.serve(Words, sys.argv[1])"
    address = f"unix:{folder}/socket"
    child = children.start([sys.executable, "-c", worker, address], stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": PACKAGE})
    lines = iter(child.stderr.readline, "")
    assert next(lines) == f"parley: waiting to serve 'words': nothing listens at {address}: is parleyd running there?\n"
    with children.Daemon(PARLEYD, listen=address):
        assert next(lines) == f"parley: serving 'words' to the daemon at {address}\n"
    child.kill()
    threading.Thread(target=child.stderr.read, daemon=True).start()
    child.wait()


def main():
    malformed()
    with tempfile.TemporaryDirectory() as folder:
        causes(folder)
        served(folder)


if __name__ == "__main__":
    main()
