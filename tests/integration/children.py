"""Processes that a test starts. None outlives it, however it ends; and a test that hangs says where, and ends. Any python3; no packages."""
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

# Meson's own limit ends a test without a word; this one, which meson.build sets, shows what each thread waits for.
TEST_SECONDS = float(os.environ.get("PARLEY_TEST_SECONDS", 0))
STUCK_SECONDS = 3  # after which somebody holds the interpreter's lock


def tell_and_end():
    """On the stderr that the process began with: a test may read what goes to sys.stderr."""
    names = {t.ident: t.name for t in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        sys.__stderr__.write(f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    sys.__stderr__.write(f"the test has run for {TEST_SECONDS:g} s\n")
    sys.__stderr__.flush()
    os._exit(1)


if TEST_SECONDS > 0:
    watch = threading.Timer(TEST_SECONDS, tell_and_end)
    watch.daemon = True
    watch.start()
    # It reads the threads' frames while they run, which may end in a SIGSEGV: only where the other cannot.
    faulthandler.dump_traceback_later(TEST_SECONDS + STUCK_SECONDS, exit=True)

PATIENCE = max(60, int(TEST_SECONDS / 3))  # seconds for anything that is to happen, however loaded the machine is and whatever watches the daemon

# Tokens of a turn that still runs after whatever a test does meanwhile. ./run lets a daemon under ThreadSanitizer, which is slower, make fewer.
LONG_TURN = int(os.environ.get("PARLEY_LONG_TURN", 5000))

# Of how many cases of a table one is tried: a release tries all.
STRIDE = int(os.environ.get("PARLEY_TEST_STRIDE", 1))


def ended(one):
    """How a process or a call that should still be under way has ended; None: it has not."""
    if isinstance(one, subprocess.Popen):
        return None if one.poll() is None else f"process {one.args} ended with {one.returncode}"
    return f"a call ended with {one.code()}, {one.details()}" if one.done() else None


def until(what, holds, *meanwhile):
    """Returns once it holds. That it cannot come to hold any more is said at once: what is to be under way meanwhile, processes and
    calls, has ended, or holds raises; that nothing comes of it, after a while.
    """
    end = time.monotonic() + PATIENCE
    while not holds():
        said = next(filter(None, map(ended, meanwhile)), None)
        assert said is None or holds(), f"{what} does not happen: {said}"
        assert time.monotonic() < end, f"{what} does not happen within {PATIENCE} s"
        time.sleep(0.01)  # holds asks a server, which tells nobody


def mortal(command):
    """The command, to be killed with the one who starts it: a child that lives on would hold the test's pipe, and meson waits for that to close."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]


def start(command, **more):
    """Popen, from the thread that stays: the child dies with it."""
    return subprocess.Popen(mortal(command), **more)


def run(command, timeout=2 * PATIENCE, **more):
    return subprocess.run(mortal(command), timeout=timeout, **more)


def disconnected(url, name="parleyd"):
    """Returns when no program of that name is connected to a PostgreSQL's database: what a killed one had sent may still be carried out."""
    run(["psql", "-q", url, "-c", f"""DO $$ BEGIN
        WHILE EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = '{name}') LOOP
            PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
        END LOOP; END $$"""], check=True)


class Daemon:
    """with Daemon(path, flags…) as daemon: parleyd lives as long as the block, and must end with 0."""

    def __init__(self, path, *flags, listen="127.0.0.1:0"):
        self.command = [path, "--listen", listen, "--log-level", "warn", *flags]

    def __enter__(self):
        self.process = start(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said, self.ready, self.is_up = [], None, threading.Event()
        self.listener = threading.Thread(target=self.listen, daemon=True)  # a pipe that nobody reads would stop a daemon that has much to say
        self.listener.start()
        self.is_up.wait(PATIENCE)
        if self.ready is None:
            self.process.kill()
            self.listener.join()
            raise AssertionError(f"parleyd did not start, {ended(self.process)}: {''.join(self.said)}")
        self.address, self.http = self.ready["grpc"], self.ready.get("http")
        return self

    def listen(self):
        for line in self.process.stderr:
            if self.ready is None and line.startswith("ready "):
                self.ready = dict(word.split("=", 1) for word in line.split()[1:])
                self.is_up.set()
            else:
                self.said.append(line)
        self.is_up.set()

    def __exit__(self, kind, value, trace):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.said.append(f"parleyd did not end within {PATIENCE} s\n")
        self.process.wait()
        self.listener.join(PATIENCE)
        rest = "".join(self.said)
        if kind is None:
            assert self.process.returncode == 0, f"parleyd ended with {self.process.returncode}: {rest}"
        elif rest:
            print(rest, file=sys.stderr)
