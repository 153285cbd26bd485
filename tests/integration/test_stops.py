#!/usr/bin/env python3
"""A second SIGTERM or SIGINT ends the daemon within a second, whatever any of its threads does.

usage: test_stops.py PARLEY PARLEYD STUCK_AGENT STUCK_ON_LOOP STUCK_SYNC      (any python3; no packages)
"""
import os
import signal
import sys
import tempfile
import time

import children
from children import PATIENCE

FORCED = "parleyd: ended at once, before all had stopped\n"


class Daemon(children.Daemon):
    """It ends by itself within the block."""

    def __init__(self, path, *flags, variables=()):
        super().__init__(path, "--drain-timeout", "1h", *flags)
        self.command = ["env", *variables, *self.command]

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self.listener.join(PATIENCE)

    def work_ms(self):
        """Of its processor time so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as stat:
            return sum(map(int, stat.read().rsplit(") ", 1)[1].split()[11:13])) * 1000 // os.sysconf("SC_CLK_TCK")

    def has_taken(self, number):
        """Whether the handler got the signal: one that is pending would swallow the next of its number."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            pending = next(int(line.split()[1], 16) for line in status if line.startswith("ShdPnd:"))
        return not pending >> (number - 1) & 1

    def stops(self, first, second, forced):
        """Not by the first signal, and at once by the second."""
        self.process.send_signal(first)
        children.until("the first signal is taken", lambda: self.has_taken(first), self.process)
        assert self.process.poll() is None, self.said
        began = time.monotonic()
        self.process.send_signal(second)
        assert self.process.wait(PATIENCE) == 0, self.process.returncode
        took = time.monotonic() - began
        self.listener.join(PATIENCE)
        assert took < 1, f"it took {took:.2f} s"
        assert (FORCED in self.said) == forced, self.said


def asks(parley, daemon, *more):
    """Somebody who waits for a reply of it."""
    return children.start([parley, "ask", "--server", daemon.address, *more, "hello"], stdout=-3, stderr=-3)


def stuck_agent(parley, parleyd, agent, first, second):
    with Daemon(parleyd, "--plugin", f"stuck={agent}") as daemon:
        before = daemon.work_ms()
        waits = asks(parley, daemon, "--model", "stuck")
        children.until("the step that never returns", lambda: daemon.work_ms() > before + 200, daemon.process, waits)
        daemon.stops(first, second, forced=True)
        waits.kill()
        waits.wait()


def stuck_journal(parley, parleyd, preload, folder):
    """Threads wait for a disk that does not answer."""
    stop = os.path.join(folder, "stop")
    with Daemon(parleyd, "--data", os.path.join(folder, "data"), variables=[f"LD_PRELOAD={preload}", f"PARLEY_STUCK_SYNC={stop}"]) as daemon:
        with open(stop, "w", encoding="utf-8"):
            pass
        waits = asks(parley, daemon, "--model", "echo")
        children.until("a sync that never returns", lambda: os.path.exists(f"{stop}.reached"), daemon.process, waits)
        daemon.stops(signal.SIGTERM, signal.SIGTERM, forced=True)
        assert waits.wait(PATIENCE) != 0  # it was told nothing that the disk does not have


def nothing_stuck(parleyd):
    """Two signals at once: the end has its order."""
    with Daemon(parleyd) as daemon:
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(PATIENCE) == 0
    assert FORCED not in daemon.said, daemon.said


def main():
    parley, parleyd, agent, on_loop, preload = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        stuck_agent(parley, parleyd, agent, signal.SIGTERM, signal.SIGTERM)
        stuck_agent(parley, parleyd, on_loop, signal.SIGINT, signal.SIGTERM)
        stuck_journal(parley, parleyd, preload, folder)
        nothing_stuck(parleyd)
    return 0


sys.exit(main())
