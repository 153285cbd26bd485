"""The daemon of pools that were given no address: the one at the default address, else one that this process starts. It ends with this
process, also where that is killed."""
from __future__ import annotations

import atexit
import ctypes
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading

from parley import wire

PR_SET_PDEATHSIG = 1

_lock = threading.Lock()
_address: str | None = None  # guarded by the lock: of the daemon that was started here


def _is_there(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def _program() -> str:
    found = os.environ.get("PARLEYD") or shutil.which("parleyd")
    if found is None:
        raise wire.Error("UNAVAILABLE", f"no daemon listens at {wire.DEFAULT_ADDRESS}, and there is no program 'parleyd' in PATH (or named by PARLEYD) "
                         "to start: start one, or pass address=")
    return found


def _live(program: str, said: queue.SimpleQueue[str | BaseException]) -> None:
    """Starts the daemon, says its address, and lives as long: the daemon gets SIGTERM when its parent's thread ends."""
    prctl = ctypes.CDLL(None).prctl
    try:
        process = subprocess.Popen([program, "--listen", "127.0.0.1:0", "--log-level", "warn"], stderr=subprocess.PIPE, text=True,
                                   start_new_session=True, preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
    except OSError as e:
        said.put(wire.Error("UNAVAILABLE", f"'{program}' cannot be started: {e.strerror}"))
        return
    atexit.register(process.terminate)
    last = ""
    for last in process.stderr or ():
        if last.startswith("ready "):
            said.put(dict(word.split("=", 1) for word in last.split()[1:])["grpc"])
    code = process.wait()
    said.put(wire.Error("UNAVAILABLE", f"'{program}' ended with status {code}: {last.strip()}"))
    global _address
    with _lock:
        _address = None  # the next pool starts another


def address() -> str:
    """Returns the address of a daemon on this machine, which is started if there is none."""
    global _address
    with _lock:
        if _address is None:
            if _is_there(wire.DEFAULT_ADDRESS):
                return wire.DEFAULT_ADDRESS
            said: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()
            threading.Thread(target=_live, args=(_program(), said), daemon=True, name="parleyd").start()
            got = said.get()
            if isinstance(got, BaseException):
                raise got
            _address = got
        return _address
