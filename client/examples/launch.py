"""A daemon of a program's own."""
import ctypes
import os
import signal
import subprocess
import sys
import threading


def daemon(parleyd, *options, pass_fds=()):
    """Starts parleyd with these options on a free port, and returns it and its address. It ends with this process, also where that is
    killed (PR_SET_PDEATHSIG). pass_fds: descriptors that it holds open until then."""
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def end_with_parent():
        prctl(1, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed before
            os._exit(1)

    process = subprocess.Popen([parleyd, *options, "--listen", "127.0.0.1:0", "--log-level", "warn"], stderr=subprocess.PIPE, text=True,
                               preexec_fn=end_with_parent, pass_fds=pass_fds)
    for line in process.stderr:
        if line.startswith("ready "):
            threading.Thread(target=lambda: sys.stderr.writelines(process.stderr), daemon=True).start()
            return process, dict(word.split("=", 1) for word in line.split()[1:])["grpc"]
        sys.stderr.write(line)
    raise SystemExit("parleyd did not start")
