"""Why a daemon is not reached, in one sentence: `parley`, a program with libparley and the Python package, blocking and asyncio, say the same,
and nothing of gRPC's log is seen. What waiting cannot change is said at once; what a client waits for is said after a second.

usage: test_reach.py PARLEYD PARLEY REACH_CALLS
"""
import asyncio
import concurrent.futures
import hashlib
import logging
import os
import queue
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import cable
import children
import grpc

PACKAGE = os.environ["PARLEY_PACKAGE"]  # made by venv.sh
sys.path.insert(0, PACKAGE)
import parley  # noqa: E402
from parley import reach  # noqa: E402

PARLEYD, PARLEY, REACH_CALLS = sys.argv[1:]
WAIT = 1.5  # seconds in which a cause is known, beside other work


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
    assert done.returncode == (2 if "is not an address" in done.stderr else 1) and done.stdout == "" and done.stderr.count("\n") == 1, done
    return re.sub(r" \(waited .*\)$", "", done.stderr.removeprefix("parley: ").rstrip("\n")), took


def of_library(address, ca, wait, model="echo"):
    """The reason and the sentence of libparley."""
    done = children.run([REACH_CALLS, address, str(round(1000 * wait)), model, *([ca] if ca else [])], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("\n") == 1, done
    return tuple(done.stdout.rstrip("\n").split(" ", 1))


def of_python(address, ca, model="echo", patience=WAIT):
    """The reason and the sentence of the blocking client, which that of asyncio equals."""
    with parley.connect(address, tls=ca or None, patience=patience) as server:
        error = failure(lambda: server.open(model).ask("hello"))

    async def ask():
        chat = await parley.aio.connect(address, tls=ca or None, patience=patience).open(model)
        await chat.ask("hello")

    later = failure(lambda: asyncio.run(ask()))
    assert (later.message, later.reason) == (error.message, error.reason), (later, error)
    return error.reason, error.message


def failure(call):
    try:
        call()
    except parley.Error as e:
        return e
    raise AssertionError("it did not fail")


def is_told(address, reason, ca=None, is_final=False):
    """All clients name the cause, with the sentence of the table in the Python package."""
    wait = 30 if is_final else WAIT
    said, took = of_program(address, ca, wait)
    if reason == "ADDRESS_MALFORMED":
        error = failure(lambda: parley.connect(address))
        of_both = error.reason, error.message
    else:
        of_both = of_python(address, ca)
        sentences = {cause[1] for row in reach.TEXTS for cause in row[1:] if cause[0] == reason}
        assert said in {s.format(reach.address_of(address)) for s in sentences}, said
    assert of_both == of_library(address, ca, wait) == (reason, said), (address, of_both, said)
    assert took < 20, f"{address}: what waiting cannot change is said at once"


def malformed():
    for address in ("", "a b", "localhost:", "localhost:0", "localhost:65536", "localhost:x", "http://localhost:8000", "[::1", "[localhost", "host:1:2", "::1]:1",
                    "a/b:1", "localhost:1 ", "é:1", "x" * 300 + ":1", "unix:", "dns:"):
        is_told(address, "ADDRESS_MALFORMED", is_final=True)
    for command in (*(("bench", f"{protocol}://a b", "--model", "echo") for protocol in ("parley", "act", "kserve")), ("bench", "grpc://a b/pkg.Service/Method"),
                    ("display", "-t", "attached:x", "--server", "a b"), ("self-chat", "-m", "attached:x", "--server", "a b"),
                    ("eval", "-t", "attached:x", "-m", "repeat_label", "--server", "a b"), ("interactive", "-m", "attached:x", "--server", "a b"),
                    ("train", "-t", "attached:x", "-m", "attached:x", "-eps", "1", "--server", "a b"), ("self-chat", "--world", "attached:x", "--server", "a b")):
        done = children.run([PARLEY, *command], capture_output=True, text=True)
        assert done.returncode == 2 and "is not an address" in done.stderr, (command, done)
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


def no_certificate(folder):
    """A file of authorities that has none is named, with what is wrong, before anything is sent."""
    whole, path = open(certificate(folder, "good", "DNS:localhost")[0], encoding="ascii").read(), os.path.join(folder, "bad.pem")
    for text, fault in (("nonsense\n", "has no certificate in PEM: no line '-----BEGIN CERTIFICATE-----'"),
                        ("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n", "has no certificate in PEM: no line '-----BEGIN CERTIFICATE-----'"),
                        (whole[:300], "has a certificate in PEM that is cut off or damaged"), (whole.replace("MII", "M*I"), "has a certificate in PEM that is cut off or damaged"),
                        (ssl.DER_cert_to_PEM_cert(b"no certificate"), "has a certificate in PEM that is cut off or damaged"),
                        (ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(whole)[:-30]), "has a certificate in PEM that is cut off or damaged"),
                        (ssl.DER_cert_to_PEM_cert(b"\x30\x03\x02\x01\x00"), "has a certificate in PEM that is cut off or damaged")):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        assert of_program("localhost:1", path, 30)[0] == f"{path} {fault}"
        assert of_library("localhost:1", path, 30) == ("PEM_MALFORMED", f"ca {fault}")
        error = failure(lambda: parley.connect("localhost:1", tls=path))
        assert (error.reason, error.message) == ("PEM_MALFORMED", f"{path} {fault}"), error


def key_missing(folder):
    """The daemon's own words; a key that cannot be sent is refused before."""
    keys = os.path.join(folder, "keys")
    with open(keys, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
        print("anna", hashlib.sha256(b"pk-anna").hexdigest(), file=f)
    with children.Daemon(PARLEYD, "--keys", keys) as daemon:
        said, _ = of_program(daemon.address, None, 30)
        assert of_python(daemon.address, None) == of_library(daemon.address, None, 30) == ("KEY_MISSING", said.removesuffix("; --key-file FILE or PARLEY_API_KEY gives it [UNAUTHENTICATED]")), said
        with parley.connect(daemon.address, key="pk-anna") as server:
            assert server.open("echo").ask("hello").text == "hello"
    done = children.run([PARLEY, "models"], env={**os.environ, "PARLEY_API_KEY": "a key"}, capture_output=True, text=True)
    assert done.returncode == 1 and "a character that no key has" in done.stderr and "a key" not in done.stderr.replace("that no key", ""), done
    e = failure(lambda: parley.connect("localhost", key="a key\n"))
    assert "a character that no key has" in e.message and "a key\n" not in e.message, e


def words_of_a_proxy():
    """A proxy's own words that no row knows stand behind the sentence, in one line and cut."""
    words = "no healthy upstream.\n" + "é" * 100

    class Proxy(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(grpc.StatusCode.UNAVAILABLE, words))

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), [Proxy()])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    sentence = reach.LOST[1].format(address) + " (gRPC: no healthy upstream. " + "é" * 69 + ")"
    said, _ = of_program(address, None, WAIT)
    assert of_python(address, None) == of_library(address, None, WAIT) == ("CONNECTION_LOST", said) == ("CONNECTION_LOST", sentence), said
    server.stop(None).wait()


def slow_watch():
    """A server that serves, and whose watch is slow to say so, as on a machine that has too much to do, is there."""
    gone = threading.Event()

    class Server(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method == "/grpc.health.v1.Health/Check":
                return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01")
            if details.method == "/grpc.health.v1.Health/Watch":
                return grpc.unary_stream_rpc_method_handler(lambda request, context: gone.wait() and iter(()))
            return grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, "it was asked"))

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), [Server()])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        said, _ = of_program(address, None, WAIT)
    finally:
        gone.set()
        server.stop(None).wait()
    assert said.startswith("it was asked"), said


def silent():
    """Somebody takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = "{}:{}".format(*mute.getsockname())
        said, _ = of_program(address, None, 0.6)
        assert (*of_library(address, None, 0.6),) == ("SILENT", said) == ("SILENT", reach.SILENT[1].format(address)), said
        link = parley.client.Link(address, None, None, 0.6)
        e = failure(link.reach)
        assert (e.reason, e.message) == ("SILENT", said), e
        link.channel.close()


def lost():
    """A connection breaks while a reply is computed, and the client has no patience. (`parley` always has, and goes on.)"""
    asked, go = queue.SimpleQueue(), queue.SimpleQueue()

    @parley.agent("stuck")
    class Stuck:
        def observe(self, messages):
            pass

        def act(self):
            asked.put(None)
            go.get()
            return "ok"

    def serve(address):
        try:
            parley.serve(Stuck, address)
        except parley.Error:
            pass  # the daemon ends

    def cut(wire, call):
        """Cuts the connection when the agent has been asked; the agent then answers nobody."""
        said = queue.SimpleQueue()
        threading.Thread(target=lambda: said.put(call()), daemon=True).start()
        asked.get(timeout=children.PATIENCE)
        wire.cut()
        try:
            return said.get(timeout=children.PATIENCE)
        finally:
            go.put(None)

    with children.Daemon(PARLEYD) as daemon:
        wire = cable.Cable(daemon.address)
        threading.Thread(target=serve, args=(daemon.address,), daemon=True).start()
        with parley.connect(daemon.address) as server:
            children.until("the agent is served", lambda: any(m.name == "stuck" for m in parley.Models(server).list()))
        sentence = reach.LOST[1].format(wire.address)
        assert cut(wire, lambda: of_library(wire.address, None, 30, "stuck")) == ("CONNECTION_LOST", sentence)
        with parley.connect(wire.address, patience=0) as server:
            e = cut(wire, lambda: failure(lambda: server.open("stuck").ask("hello")))
            assert (e.reason, e.message) == ("CONNECTION_LOST", sentence), e

        async def ask():
            await (await parley.aio.connect(wire.address, patience=0).open("stuck")).ask("hello")

        e = cut(wire, lambda: failure(lambda: asyncio.run(ask())))
        assert (e.reason, e.message) == ("CONNECTION_LOST", sentence), e


def waiting(folder):
    """A client that waits says for what, once for each cause, and goes on when the daemon is there."""
    address = f"unix:{folder}/later"
    said = queue.SimpleQueue()
    handler = logging.Handler()
    handler.emit = lambda record: said.put(record.getMessage())
    logging.getLogger("parley").addHandler(handler)
    replies = queue.SimpleQueue()
    with parley.connect(address, patience=children.PATIENCE) as server:
        threading.Thread(target=lambda: replies.put(server.open("echo").ask("hello").text), daemon=True).start()
        assert said.get(timeout=children.PATIENCE) == f"parley: waiting: nothing listens at {address}: is parleyd running there?"
        with children.Daemon(PARLEYD, listen=address):
            assert replies.get(timeout=children.PATIENCE) == "hello"
    logging.getLogger("parley").removeHandler(handler)


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
        no_certificate(folder)
        key_missing(folder)
        waiting(folder)
        served(folder)
    words_of_a_proxy()
    slow_watch()
    silent()
    lost()


if __name__ == "__main__":
    main()
