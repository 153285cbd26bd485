"""Processes that a test starts. None outlives it, however it ends; and a test that hangs says where, and ends. Any python3; no packages."""
import faulthandler
import os
import signal
import subprocess
import sys

PATIENCE = 60  # seconds for anything that is to happen, however loaded the machine is

# Meson's own limit ends a test without a word; this one, which meson.build sets, shows what each thread waits for.
if "PARLEY_TEST_SECONDS" in os.environ:
    faulthandler.dump_traceback_later(float(os.environ["PARLEY_TEST_SECONDS"]), exit=True)


def mortal(command):
    """The command, to be killed with the one who starts it: a child that lives on would hold the test's pipe, and meson waits for that to close."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]


def start(command, **more):
    """Popen, from the thread that stays: the child dies with it."""
    return subprocess.Popen(mortal(command), **more)


def run(command, timeout=2 * PATIENCE, **more):
    return subprocess.run(mortal(command), timeout=timeout, **more)


class Daemon:
    """with Daemon(path, flags…) as daemon: parleyd lives as long as the block, and must end with 0."""

    def __init__(self, path, *flags, listen="127.0.0.1:0"):
        self.command = [path, "--listen", listen, "--log-level", "warn", *flags]

    def __enter__(self):
        self.process = start(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("ready "):
                break
        else:
            raise AssertionError(f"parleyd did not start: {''.join(said)}")
        self.ready = dict(word.split("=", 1) for word in said[-1].split()[1:])
        self.address, self.http = self.ready["grpc"], self.ready.get("http")
        return self

    def __exit__(self, kind, value, trace):
        self.process.send_signal(signal.SIGTERM)
        try:
            _, rest = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, rest = self.process.communicate()
            rest += f"parleyd did not end within {PATIENCE} s\n"
        if kind is None:
            assert self.process.returncode == 0, f"parleyd ended with {self.process.returncode}: {rest}"
        elif rest:
            print(rest, file=sys.stderr)
