#!/usr/bin/env python3
"""client/examples/retries.py says the same, in both its ways, whether the daemon is killed with -9 under it or not.

usage: test_retries.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has grpcio, openai and the stubs; see venv.sh)"""
import http.client
import os
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "integration"))
import children  # noqa: E402

EXAMPLE = os.path.join(here, "..", "..", "client", "examples", "retries.py")


def started(how, address):
    return children.start([sys.executable, EXAMPLE, how, address, "Tell me a long story.", "7", str(children.LONG_TURN)], stdout=-1, env={**os.environ, "PYTHONPATH": os.environ["PARLEY_STUBS"]})


def live_turns(daemon):
    connection = http.client.HTTPConnection(daemon.http, timeout=children.PATIENCE)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return next(int(line.split()[1]) for line in lines if line.startswith("parley_live_turns "))


def killed_under(daemon, how, address):
    with started(how, address) as client:
        first = client.stdout.read(1) if how == "grpc" else b""
        if how == "openai":
            children.until("the turn", lambda: live_turns(daemon) == 1, client)
        daemon.process.kill()
        daemon.process.wait()
        daemon.listener.join()
        assert client.poll() is None, "it was done before the kill"
        for flag, at in (("--listen", daemon.address), ("--http", daemon.http)):
            daemon.command[daemon.command.index(flag) + 1] = at
        daemon.__enter__()
        said = first + client.stdout.read()
        assert client.wait(children.PATIENCE) == 0
    return said


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, model, "65536"], check=True)
        with children.Daemon(parleyd, "--model", f"long={model}", "--http", "127.0.0.1:0", "--data", os.path.join(folder, "data")) as daemon:
            for how, address in (("grpc", daemon.address), ("openai", daemon.http)):
                said = killed_under(daemon, how, address)
                with started(how, address) as client:
                    assert said == client.stdout.read() and len(said) > 1000, (how, len(said))
                print(f"{how}: {len(said)} bytes, the same", flush=True)


if __name__ == "__main__":
    main()
