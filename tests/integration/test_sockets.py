#!/usr/bin/env python3
"""Listening sockets that parleyd is given, as by systemd: while one process follows another, no connection is refused, whether the next one
begins after the end of the one before, or beside it. What is wrong with them is said.

usage: test_sockets.py PARLEYD"""
import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import threading

import children

FIRST_FD = 3


class Given(children.Daemon):
    """A daemon with these sockets as its descriptors 3, 4, …"""

    def __init__(self, parleyd, sockets, *flags, pid="$$", n=None):
        super().__init__(parleyd, *flags)
        del self.command[1:3]  # --listen is among the flags, or there is none
        moves = " ".join(f"{FIRST_FD + i}<&{one.fileno()}" for i, one in enumerate(sockets))
        closes = " ".join(f"{one.fileno()}<&-" for one in sockets)
        script = f'exec {moves} {closes}; export LISTEN_PID={pid} LISTEN_FDS={len(sockets) if n is None else n} LISTEN_FDNAMES=x; exec "$@"'
        self.command = ["bash", "-c", script, "bash", *self.command]
        self.sockets = sockets

    def __enter__(self):
        start = children.start
        children.start = lambda command, **more: start(command, pass_fds=[one.fileno() for one in self.sockets], **more)
        try:
            return super().__enter__()
        finally:
            children.start = start


numbers = itertools.count(200)


def moved(one):
    """With a number that no descriptor of the shell's or of parleyd's start has."""
    with one:
        return socket.socket(fileno=os.dup2(one.fileno(), next(numbers)))


def tcp():
    return moved(socket.create_server(("127.0.0.1", 0), backlog=128))


def unix(path):
    one = socket.socket(socket.AF_UNIX)
    one.bind(path)
    one.listen()
    return moved(one)


def address(one):
    host, port = one.getsockname()[:2]
    return f"{host}:{port}"


class Asker:
    """Asks without a pause, each time on a new connection. What is answered with 503 is asked again, and so is what a process has closed that
    waited long enough for the request; a connection that is refused is noted, and whatever else goes wrong."""

    def __init__(self, at):
        self.at, self.is_over, self.failed, self.n, self.n_again = at, threading.Event(), [], 0, 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hello"}]})
        while not self.is_over.is_set() and not self.failed:
            try:
                with contextlib.closing(http.client.HTTPConnection(self.at, timeout=children.PATIENCE)) as connection:
                    connection.request("POST", "/v1/chat/completions", body)
                    answer = connection.getresponse()
                    said = answer.read()
                    assert answer.status in (200, 503), (answer.status, said)
                    self.n += answer.status == 200
                    self.n_again += answer.status == 503
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.n_again += 1
            except Exception as error:  # whatever it is
                self.failed.append(repr(error))

    def more(self):
        n = self.n
        children.until("further answers", lambda: self.failed or self.n > n + 2)

    def end(self):
        self.is_over.set()
        self.thread.join(children.PATIENCE)
        assert not self.failed and self.n > 0, (self.failed, self.n)


def stopped(daemon):
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(children.PATIENCE) == 0, daemon.said
    daemon.listener.join()


def one_after_the_other(parleyd):
    """The same data, which only one process may have: connections wait for the next one."""
    sockets = [tcp(), tcp()]
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--listen", address(sockets[0]), "--http", address(sockets[1]), "--data", folder]
        daemon = Given(parleyd, sockets, *flags)
        daemon.__enter__()
        assert (daemon.address, daemon.http) == tuple(map(address, sockets))
        asker = Asker(daemon.http)
        for _ in range(3):
            asker.more()
            stopped(daemon)
            with socket.create_connection(sockets[0].getsockname()):  # nobody is there, and it is not refused
                daemon = Given(parleyd, sockets, *flags)
                daemon.__enter__()
        asker.more()
        asker.end()
        stopped(daemon)
    print(f"one after the other: {asker.n} answers, {asker.n_again} asked again")


def beside_each_other(parleyd):
    """The next one serves before the one before is asked to stop, which takes nothing new from then on."""
    sockets = [tcp(), tcp()]
    flags = ["--listen", address(sockets[0]), "--http", address(sockets[1])]
    before = Given(parleyd, sockets, *flags)
    before.__enter__()
    asker = Asker(before.http)
    for _ in range(3):
        asker.more()
        after = Given(parleyd, sockets, *flags)
        after.__enter__()
        stopped(before)
        before = after
    asker.more()
    asker.end()
    stopped(before)
    print(f"beside each other: {asker.n} answers, {asker.n_again} asked again")


def of_all_kinds(parleyd):
    """A unix socket, which stays, and one of both families; an address without a socket is bound as ever."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        both = moved(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True))
        port = both.getsockname()[1]
        with Given(parleyd, [unix(path), both], "--listen", f"unix:{path}", "--listen", "127.0.0.1:0", "--http", f"0.0.0.0:{port}"):
            connection = http.client.HTTPConnection(f"127.0.0.1:{port}", timeout=children.PATIENCE)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
        assert os.path.exists(path), "the socket's file is gone, though others have the socket"


def ends(parleyd, sockets, words, *flags, **more):
    try:
        with Given(parleyd, sockets, *flags, **more):
            raise AssertionError(f"it started: {words}")
    except AssertionError as error:
        assert words in str(error), error


def refused(parleyd):
    free = tcp()
    there = ["--listen", address(free), "--http", "127.0.0.1:0"]
    ends(parleyd, [free, tcp()], "no --listen or --http names the socket of 127.0.0.1, port ", *there)
    silent = moved(socket.socket())
    ends(parleyd, [silent], "descriptor 3 is no listening socket", *there)
    datagrams = moved(socket.socket(type=socket.SOCK_DGRAM))
    ends(parleyd, [datagrams], "descriptor 3 is no listening socket", *there)
    ends(parleyd, [free], "descriptor 4 is no listening socket", *there, n=2)
    ends(parleyd, [free], "LISTEN_FDS is '17', it must be from 0 to 16", *there, n=17)
    ends(parleyd, [free], "LISTEN_FDS is '-1', it must be", *there, n=-1)
    ends(parleyd, [free], "is taken by", *there, pid=1)  # they are somebody else's, and the port is taken


def main():
    for check in (one_after_the_other, beside_each_other, of_all_kinds, refused):
        check(sys.argv[1])


if __name__ == "__main__":
    main()
