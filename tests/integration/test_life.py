#!/usr/bin/env python3
"""How the daemon starts, lives and ends when the machine gives it little: descriptors, memory, a terminal that closes.

usage: test_life.py PARLEY PARLEYD WRITE_TINY_MODEL [FAIL_THREAD KIB…]      (any python3; no packages)

FAIL_THREAD: fail_thread.c, to be preloaded; KIB: address spaces to start in. Not for a build with sanitizers, which must come first and
need all of it.
"""
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import children
from children import PATIENCE

FEW = 200  # descriptors


class Daemon(children.Daemon):
    """with Daemon(path, flags…): limits are set by prlimit before it runs."""

    def __init__(self, path, *flags, limits=(), **more):
        super().__init__(path, *flags, **more)
        self.command = ["prlimit", *limits, "--", *self.command]

    def open_files(self):
        return set(map(int, os.listdir(f"/proc/{self.process.pid}/fd")))

    def leave_none(self):
        """No descriptor can be had any more; returns what undoes it."""
        soft, hard = self.limit()
        self.limit((3, hard))  # those that it has stay
        return lambda: self.limit((soft, hard))

    def limit(self, *new):
        return resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, *new)

    def says(self, *words):
        """Waits for a line of its log."""
        children.until(f"a line with {words}", lambda: any(all(word in line for word in words) for line in list(self.said)), self.process)

    def connect(self, address):
        host, port = address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), PATIENCE)

    def get(self, http, path):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{http}{path}", timeout=PATIENCE) as answer:
            return answer.read()

    def metric(self, http, name):
        return next(float(line.split()[1]) for line in self.get(http, "/metrics").decode().splitlines() if line.startswith(name + " "))

    def is_administered(self, parley, grpc, http):
        """The ports of administration answer at once."""
        began = time.monotonic()
        assert json.loads(self.get(http, "/health")) == {"status": "ok"}
        assert b"parley_uptime_seconds" in self.get(http, "/metrics")
        status = children.run([parley, "status", "--server", grpc], capture_output=True, text=True)
        assert status.returncode == 0, status
        assert time.monotonic() - began < 5, time.monotonic() - began

    def answers(self, parley, server=None):
        """A new connection to each port is served."""
        asked = children.run([parley, "ask", "--server", server or self.address, "--model", "echo", "--json", "hello"], capture_output=True, text=True)
        assert asked.returncode == 0 and "hello" in json.loads(asked.stdout)["reply"], asked
        assert json.loads(self.get(self.http, "/health")) == {"status": "ok"}


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # and an empty SETTINGS


def many_connections(parley, parleyd):
    """More than there are descriptors, to both public ports: those that say nothing make room for others; those that have spoken keep theirs,
    and leave some to the ports of administration. When they go, others are served."""
    with Daemon(parleyd, "--http", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0", "--http-admin", "127.0.0.1:0", limits=[f"--nofile={FEW}:{FEW}"]) as daemon:
        public, admin = [daemon.address, daemon.http], (daemon.ready["grpc_admin"], daemon.ready["http_admin"])
        for first in [b"", PREFACE[:20]]:  # nothing, and too little
            silent = []
            for address in public:
                for _ in range(2 * FEW):
                    silent.append(daemon.connect(address))
                    if first and address == daemon.address:
                        silent[-1].sendall(first)
            daemon.answers(parley)
            daemon.is_administered(parley, *admin)
            assert daemon.metric(admin[1], "parley_connections_silent_total") >= len(silent) // 2 - FEW
            for connection in silent:
                connection.close()
        spoken = []
        for address, first in zip(public, [PREFACE, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"]):
            for _ in range(FEW):
                spoken.append(daemon.connect(address))
                try:
                    spoken[-1].sendall(first)
                except ConnectionError:
                    continue  # refused
            daemon.says("refused=", "open files")
        daemon.is_administered(parley, *admin)
        assert daemon.metric(admin[1], "parley_connections_refused_total") > 0
        assert max(daemon.open_files()) < FEW * 14 // 16, daemon.open_files()
        for connection in spoken:
            connection.close()
        children.until("connections that are closed", lambda: len(daemon.open_files()) < FEW // 4, daemon.process)
        daemon.answers(parley)


def no_descriptors(parley, parleyd, folder):
    """An accept that fails is tried again, at every address."""
    local = f"unix:{folder}/socket"
    with Daemon(parleyd, "--listen", local, "--http", "127.0.0.1:0") as daemon:
        for address in [daemon.address, local, daemon.http]:
            restore = daemon.leave_none()
            waiting = socket.socket(socket.AF_UNIX if address == local else socket.AF_INET)
            waiting.connect(local[len("unix:"):] if address == local else ("127.0.0.1", int(address.rsplit(":", 1)[1])))
            daemon.says(f"={address} ", "Too many open files")
            restore()
            waiting.close()
            daemon.answers(parley, local if address == local else None)


def more_descriptors(parleyd):
    """The limit is raised as far as it goes, with HTTP and without."""
    for http in ["127.0.0.1:0", "off"]:
        with Daemon(parleyd, "--http", http, limits=["--nofile=100:400"]) as daemon:
            assert daemon.limit() == (400, 400), daemon.limit()


def a_terminal_that_closes(parley, parleyd):
    with Daemon(parleyd, "--http", "127.0.0.1:0", "--log-level", "info") as daemon:
        daemon.process.send_signal(signal.SIGHUP)
        daemon.says("reloaded", "changed=none")
        daemon.answers(parley)


def ends(command, *says):
    """It fails: at once, with one sentence."""
    done = children.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and done.stderr.startswith("parleyd: ") and done.stderr.count("\n") == 1, (command, done)
    assert all(text in done.stderr for text in says), (command, done)


def failed_starts(parleyd, tiny, folder):
    start = [parleyd, "--log-level", "error"]
    anywhere = ["--listen", "127.0.0.1:0"]
    cut = os.path.join(folder, "cut.gguf")
    with open(tiny, "rb") as whole, open(cut, "wb") as part:
        part.write(whole.read(100000))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ends([*start, "--listen", address], "--listen", address, "taken")
        ends([*start, *anywhere, "--listen", address], "--listen", address, "taken")
        ends([*start, *anywhere, "--http", address], "--http", address, "taken")
    ends([*start, *anywhere, "--http", "192.0.2.1:80"], "--http", "192.0.2.1:80")
    ends([*start, "--listen", f"unix:{folder}/no/socket"], f"unix:{folder}/no/socket", "No such file")
    ends([*start, "--listen", f"unix:{tiny}"], f"unix:{tiny}", "not a socket")
    ends([*start, *anywhere, "--model", f"cut={cut}"], "model 'cut'")
    ends([*start, *anywhere, "--model", "none=/nowhere.gguf"], "/nowhere.gguf")
    for n in [10, 13, 16, 17, 20]:
        ends(["prlimit", f"--nofile={n}:{n}", "--", *start, *anywhere, "--http", "127.0.0.1:0", "--model", f"tiny={tiny}"], "open files")


def threads_that_cannot_be_started(parleyd, tiny, fail_thread):
    """Each in turn, gRPC's own too, which it waits for at its end: it stops when it is asked to, and a start that fails says why."""
    cut = os.path.join(os.path.dirname(tiny), "cut.gguf")
    started = [(n, model, children.start(["env", f"LD_PRELOAD={fail_thread}", f"PARLEY_FAIL_THREAD={n}", parleyd, "--listen", "127.0.0.1:0",
                                          "--log-level", "error", "--model", f"m={model}"], stderr=subprocess.PIPE, text=True))
               for model in [tiny, cut] for n in range(1, 9)]
    killer = threading.Timer(PATIENCE, lambda: [process.kill() for _, _, process in started])
    killer.start()
    said = []  # all are asked to stop before one is waited for
    for n, model, process in started:
        said.append(process.stderr.readline())
        if model == tiny and said[-1].startswith("ready "):
            process.send_signal(signal.SIGTERM)
        else:
            assert said[-1].startswith("parleyd: "), (n, model, said[-1])
    for (n, model, process), first in zip(started, said):
        wanted = 0 if first.startswith("ready ") else 1
        assert process.stderr.read() == "" and process.wait() == wanted, (n, model, process.returncode, first)
    killer.cancel()


def little_memory(parleyd, tiny, kib):
    """It serves, and ends when it is asked to; or it says at once why it does not. (gRPC's own memory may be what is missing: it says so, and aborts.)"""
    command = ["prlimit", f"--as={kib << 10}", "--", parleyd, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "error",
               "--kv-bytes", "16M", "--model", f"tiny={tiny}"]
    process = children.start(command, stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(PATIENCE, process.kill)
    killer.start()
    said = process.stderr.readline()
    if said.startswith("ready "):
        process.send_signal(signal.SIGTERM)
    rest = process.stderr.read()
    code = process.wait()
    killer.cancel()
    ended = [(0, "ready "), (1, "parleyd: "), (-signal.SIGABRT, "")]
    assert code == -signal.SIGABRT or rest == "", (kib, code, said, rest)
    assert said and any(code == wanted and said.startswith(words) for wanted, words in ended), (kib, code, said, rest)


def main():
    parley, parleyd, write_tiny_model, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        subprocess.run([write_tiny_model, tiny], check=True)
        many_connections(parley, parleyd)
        no_descriptors(parley, parleyd, folder)
        more_descriptors(parleyd)
        a_terminal_that_closes(parley, parleyd)
        failed_starts(parleyd, tiny, folder)
        if more:
            threads_that_cannot_be_started(parleyd, tiny, more[0])
        for kib in map(int, more[1:]):
            little_memory(parleyd, tiny, kib)
    return 0


sys.exit(main())
