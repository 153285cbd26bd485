#!/usr/bin/env python3
"""The daemon's options in a real process: from the environment, tried by --check, read again on SIGHUP; and what the service manager hears.

usage: test_config.py PARLEY PARLEYD WRITE_TINY_MODEL [--preload FILE_SYSTEM] [ONLY…]      (any python3; no packages)
"""
import functools
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import children
from children import PATIENCE


def check(parleyd, *flags, **variables):
    """The exit status of --check, and what it says."""
    done = children.run([parleyd, "--check", *flags], capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **variables})
    assert done.stderr.count("\n") == (0 if done.returncode == 0 else 1), done
    return done.returncode, done.stderr


def tried(parley, parleyd, tiny, folder):
    """--check opens models and binds addresses, and leaves nothing behind."""
    anywhere = "127.0.0.1:0"
    path = os.path.join(folder, "check.sock")
    assert check(parleyd, "--listen", f"unix:{path}", "--http", anywhere, "--model", f"tiny={tiny}") == (0, "")
    assert not os.path.exists(path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        code, said = check(parleyd, "--listen", address)
        assert code == 1 and "--listen: " in said and address in said, said
        code, said = check(parleyd, "--listen", anywhere, "--http", address)
        assert code == 1 and "--http: " in said and address in said, said
        with open("/proc/self/comm", encoding="utf-8") as file:
            name = file.read().strip()
        assert f"the port is taken by {name} (process {os.getpid()})" in said, said
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(path)
        taken.listen()
        code, said = check(parleyd, "--listen", f"unix:{path}")
        assert code == 1 and f"the socket is taken by {name} (process {os.getpid()})" in said, said
    os.unlink(path)


def beside(parley, parleyd, tiny, folder):
    """--check with the configuration of a daemon that runs: its addresses and its journal are not mistakes, and stay as they are."""
    data, path = os.path.join(folder, "beside"), os.path.join(folder, "beside.sock")
    flags = "--listen-admin", f"unix:{path}", "--data", data, "--model", f"tiny={tiny}"
    with children.Daemon(parleyd, *flags, "--http", "127.0.0.1:0") as daemon:
        before = {name: os.stat(os.path.join(data, name)).st_mtime_ns for name in os.listdir(data)}
        done = children.run([parleyd, "--check", "--listen", daemon.address, "--http", daemon.http, *flags], capture_output=True, text=True)
        assert done.returncode == 0, done
        for address in daemon.address, daemon.http, f"unix:{path}":
            assert f"info check address={address} held_by=parleyd pid={daemon.process.pid}" in done.stderr, done
        assert done.stderr.count("\n") == 3 and os.path.exists(path), done
        assert before == {name: os.stat(os.path.join(data, name)).st_mtime_ns for name in os.listdir(data)}
        assert fetched(daemon.http, "/health")
    assert check(parleyd, "--listen", "127.0.0.1:0", *flags) == (0, "")


def tries_folders(parley, parleyd, tiny, folder, preload=None):
    """--check finds a --data or --model-dir that a start could not use, and makes nothing there."""
    anywhere, at = ("--listen", "127.0.0.1:0"), lambda *names: os.path.join(folder, *names)  # noqa: E731

    def says(wanted, *flags, code=1, held=False, **variables):
        """held: the user may do no more than the files' modes say, also where it is root."""
        drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if held and os.geteuid() == 0 else []
        done = children.run([*drop, parleyd, "--check", *anywhere, *flags], capture_output=True, text=True, env={**os.environ, **variables})
        assert done.returncode == code and wanted in done.stderr and done.stderr.count("\n") == (1 if wanted else 0), (wanted, done)

    data, empty, file, closed = at("kept"), at("no-models"), at("a-file"), at("closed")
    with children.Daemon(parleyd, "--data", data):
        pass
    os.mkdir(empty)
    open(file, "w", encoding="utf-8").close()
    os.mkdir(closed, 0o500)
    for flags, wanted in ((("--data", file), f"--data: {file} is not a folder"),
                          (("--data", at("not", "there")), f"--data: {at('not', 'there')} cannot be made: {at('not')}: No such file"),
                          (("--data", at("a-file", "in")), f"--data: {at('a-file', 'in')}: Not a directory"),
                          (("--model-dir", file), f"--model-dir: cannot read the folder {file}: Not a directory"),
                          (("--model-dir", at("nowhere")), "--model-dir: cannot read the folder")):
        says(wanted, *flags)
    says("", "--data", at("new"), "--model-dir", os.path.dirname(tiny), code=0)
    assert not os.path.exists(at("new"))
    says(f"warn check model_dir=\"{empty}\" warning=\"there is no model in it\"", "--model-dir", empty, code=0)
    says(f"may not write in {closed}, which belongs to user {os.geteuid()} and has the mode 500", "--data", closed, held=True)
    says(f"{os.path.join(closed, 'in')} cannot be made: user ", "--data", os.path.join(closed, "in"), held=True)
    os.chmod(closed, 0)
    says(f"--model-dir: cannot read the folder {closed}: Permission denied", "--model-dir", closed, held=True)
    # What is in it.
    says("", "--data", data, code=0)
    journal = os.path.join(data, "journal.db")
    os.chmod(journal, 0o400)
    says(f"--data: {journal}: Permission denied", "--data", data, held=True)
    os.chmod(journal, 0o600)
    with sqlite3.connect(journal) as db:
        version, = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version = {version + 1}")
    db.close()
    says(f"--data: {journal} has schema {version + 1}, this parleyd writes schema {version}", "--data", data)
    with sqlite3.connect(journal) as db:
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("PRAGMA application_id = 7")
    db.close()
    says(f"--data: {journal} is not a journal of parleyd", "--data", data)
    with open(journal, "w", encoding="utf-8") as out:
        out.write("a text")
    says(f"--data: {journal} is not a journal of parleyd", "--data", data)
    if os.geteuid() == 0:
        os.mkdir(at("theirs"))
        os.chown(at("theirs"), 65534, 65534)
        says("it belongs to another user", "--data", at("theirs"), code=0)
    if preload is not None:
        says(f"--data: {empty} is on a read-only file system", "--data", empty, LD_PRELOAD=preload, PARLEY_READ_ONLY="1")
        for kind in "0x6969", "0xff534d42", "0xfe534d42":
            says("it is on a network file system", "--data", empty, code=0, LD_PRELOAD=preload, PARLEY_FILE_SYSTEM=kind)


def tries_files(parley, parleyd, tiny, folder):
    """--check reads keys and certificates as a start does."""
    anywhere = "--listen", "127.0.0.1:0"
    keys, pem, key, other = (os.path.join(folder, name) for name in ("keys", "cert.pem", "key.pem", "other.pem"))
    for path in key, other:
        children.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path, "-out", pem,
                      "-subj", "/CN=parley", "-days", "1"], check=True, capture_output=True)
    right = "--tls-cert", pem, "--tls-key", other
    with open(keys, "w", encoding="utf-8") as file:
        file.write("alice " + "0" * 64 + "\n")
    for mode, status, word in (0o640, 0, ""), (0o644, 1, "--keys"):
        os.chmod(keys, mode)
        code, said = check(parleyd, *anywhere, "--keys", keys, *right)
        assert code == status and word in said, said
    os.chmod(keys, 0o640)
    with open(keys, "a", encoding="utf-8") as file:
        file.write("bob nonsense\n")
    code, said = check(parleyd, *anywhere, "--keys", keys)
    assert code == 1 and f"{keys}: line 2" in said, said
    for flags, word in (("--tls-cert", pem), "--tls-key"), (("--tls-cert", pem, "--tls-key", key), "is not the key of"), \
                       ((*right, "--tls-client-ca", "/nowhere"), "/nowhere"):
        code, said = check(parleyd, *anywhere, *flags)
        assert code == 1 and "TLS: " in said and word in said, said


def fetched(address, path):
    """Status and body."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def administers(parley, parleyd, tiny, folder):
    """With an address of its own /metrics is there alone, and nothing else but /health is."""
    for http in "127.0.0.1:0", "off":
        with children.Daemon(parleyd, "--http", http, "--http-admin", "127.0.0.1:0") as daemon:
            admin = daemon.ready["http_admin"]
            assert fetched(admin, "/metrics")[0] == 200 and fetched(admin, "/health")[0] == 200
            status, said = fetched(admin, "/v1/models")
            assert status == 404 and "/metrics" in said and "/v1/" not in said.replace("'/v1/models'", ""), said
            if http == "off":
                assert daemon.http is None
                continue
            assert fetched(daemon.http, "/v1/models")[0] == 200 and fetched(daemon.http, "/health")[0] == 200
            status, said = fetched(daemon.http, "/metrics")
            assert status == 404 and "/v1/chat/completions" in said and "/metrics" not in said.replace("'/metrics'", ""), said
            with socket.create_server(("127.0.0.1", 0)) as taken:
                code, said = check(parleyd, "--listen", "127.0.0.1:0", "--http-admin", "127.0.0.1:%d" % taken.getsockname()[1])
            assert code == 1 and "--http-admin: " in said, said
    with children.Daemon(parleyd, "--http", "127.0.0.1:0") as daemon:
        assert fetched(daemon.http, "/metrics")[0] == 200 and "http_admin" not in daemon.ready


def is_taken(address):
    """A connection that is served until the caller closes it; None: it was closed at once."""
    connection = socket.create_connection(address.rsplit(":", 1), timeout=PATIENCE)
    try:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if connection.recv(4096).startswith(b"HTTP/1.1 200"):
            return connection
    except ConnectionError:
        pass
    connection.close()
    return None


def bounds_peers(parley, parleyd, tiny, folder):
    """An address has so many connections over both ports; what was closed makes room."""
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--max-peer-connections", "3") as daemon:
        grpc = socket.create_connection(daemon.address.rsplit(":", 1), timeout=PATIENCE)
        grpc.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        assert grpc.recv(4096)  # gRPC's settings: it is served
        first, second = is_taken(daemon.http), is_taken(daemon.http)
        assert first and second and not is_taken(daemon.http)
        held = [second]
        for connection in grpc, first:
            connection.close()
            children.until("room for one more", lambda: held.append(is_taken(daemon.http)) or held[-1] is not None, daemon.process)
            assert not is_taken(daemon.http)


def from_environment(parley, parleyd, tiny, folder):
    """Variables set what no flag sets; a wrong one is named."""
    code, said = check(parleyd, PARLEY_TTL="soon")
    assert code == 2 and said == "parleyd: PARLEY_TTL: 'soon' is not a number\n", said
    path = os.path.join(folder, "parleyd.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("listen: 127.0.0.1:0\nttl: 1h\nkv-bytes: 1G\n")
    code, said = check(parleyd, PARLEY_CONFIG=path)
    assert code == 2 and said == f"parleyd: {path}:3: there is no key 'kv-bytes', did you mean 'kv_bytes'?\n", said
    os.environ["PARLEY_MODELS"] = f"tiny={tiny}"
    try:
        with children.Daemon(parleyd) as daemon:
            assert daemon.ready["models"] == "tiny,echo", daemon.ready
    finally:
        del os.environ["PARLEY_MODELS"]


def sample(parley, parleyd, tiny, folder):
    """The sockets of the packaged sample are where the packaged unit may make them."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../packaging/parleyd.service.in"), encoding="utf-8") as file:
        may = "/run/%s/" % re.search(r"^RuntimeDirectory=(.+)$", file.read(), re.M)[1]
    sockets = re.findall(r"unix:(/[^'\"\s,\]]+)", children.run([parleyd, "--print-config"], capture_output=True, text=True, check=True).stdout)
    assert len(sockets) >= 2 and all(os.path.dirname(path) + "/" == may for path in sockets), (may, sockets)


def write(path, text):
    """As an editor does: at once."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


class Reloading(children.Daemon):
    """A daemon by a file that the test rewrites."""

    def __init__(self, parleyd, path, text, *flags):
        write(path, text)
        super().__init__(parleyd, "--config", path, "--http", "127.0.0.1:0", *flags)
        self.command.remove("--log-level")
        self.command.remove("warn")  # the file's is what holds
        self.path = path

    def says(self, *words, after=0):
        """Waits for a line of the log with all the words behind the first `after` lines."""
        children.until(f"a line with {words}", lambda: any(all(word in line for word in words) for line in self.said[after:]), self.process)

    def reload(self, text, *words):
        write(self.path, text)
        after = len(self.said)
        self.process.send_signal(signal.SIGHUP)
        self.says(*words, after=after)

    def metric(self, name):
        return float(next(line for line in self.get("/metrics").splitlines() if line.startswith(name + " ")).split()[1])

    def get(self, path, **headers):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(urllib.request.Request(f"http://{self.http}{path}", headers=headers), timeout=PATIENCE) as answer:
            return answer.read().decode()

    def models(self):
        return [model["id"] for model in json.loads(self.get("/v1/models"))["data"]]


def reloaded(parley, parleyd, tiny, folder):
    """SIGHUP changes what can change while it serves, and says what waits for a start."""
    path = os.path.join(folder, "reload.yaml")
    with Reloading(parleyd, path, "http_origin: https://a.example\nlog_level: info\n") as daemon:
        assert daemon.get("/v1/models", Origin="https://a.example")
        daemon.reload("max_conversations: 1\nhttp_origin: https://b.example\nthreads: 1\nlog_level: info\n",
                      "warn reloaded", "changed=http_origin,max_conversations", "wait_for_a_start=threads")
        assert daemon.get("/v1/models", Origin="https://b.example")
        try:
            daemon.get("/v1/models", Origin="https://a.example")
            raise AssertionError("the origin that was taken away is served")
        except urllib.error.HTTPError as refused:
            assert refused.code == 403, refused
        assert daemon.metric('parley_reloads_total{result="done"}') == 1
        daemon.reload("log_level: info\n", "info reloaded", "changed=http_origin,max_conversations")
        daemon.reload("log_level: info\n", "info reloaded", "changed=none")


def reloads_keys(parley, parleyd, tiny, folder):
    """A SIGHUP says which keys came and went, and whose rights are others, though the configuration is the same."""
    path, keys, text = os.path.join(folder, "keys.yaml"), os.path.join(folder, "reloaded.keys"), "log_level: info\n"
    alice, bob = ("%s %s" % (name, digit * 64) for name, digit in (("alice", "1"), ("bob", "2")))

    def write_keys(*lines):
        with open(os.open(keys, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            print(*lines, sep="\n", file=file)

    write_keys(alice)
    with Reloading(parleyd, path, text, "--keys", keys) as daemon:
        for lines, says in [((alice, bob), "changed=keys keys_added=1 keys_revoked=0 keys_altered=0"), ((alice, bob), "changed=none"),
                            ((f"{alice} admin", bob), "changed=keys keys_added=0 keys_revoked=0 keys_altered=1"),
                            ((f"{alice} admin until=2099-01-01", f"{bob} weight=2"), "changed=keys keys_added=0 keys_revoked=0 keys_altered=2"),
                            (("# comment", f"{bob} weight=2"), "changed=keys keys_added=0 keys_revoked=1 keys_altered=0"),
                            ((alice,), "changed=keys keys_added=1 keys_revoked=1 keys_altered=0")]:
            write_keys(*lines)
            daemon.reload(text, "info reloaded", says)


def reloads_models(parley, parleyd, tiny, folder):
    """Models that are new are loaded, those that are gone are unloaded; echo and the others go on."""
    path, other = os.path.join(folder, "models.yaml"), os.path.join(folder, "other.gguf")
    shutil.copy(tiny, other)
    one, two = f"  - tiny={tiny}\n", f"  - other={other}\n"
    with Reloading(parleyd, path, f"log_level: info\nmodels:\n{one}") as daemon:
        assert sorted(daemon.models()) == ["echo", "tiny"]
        daemon.reload(f"log_level: info\nmodels:\n{one}{two}", "info reloaded", "changed=models")
        daemon.says("loaded", "model=other")
        assert sorted(daemon.models()) == ["echo", "other", "tiny"]
        daemon.reload(f"log_level: info\nmodels:\n{two}", "info reloaded", "changed=models")
        daemon.says("unloaded", "model=tiny")
        assert sorted(daemon.models()) == ["echo", "other"]
        before = len(daemon.said)
        daemon.reload(f"log_level: info\nmodels:\n  - other={tiny}\n", "info reloaded", "changed=models")
        daemon.says("unloaded", "model=other", after=before)
        daemon.says(" loaded ", "model=other", after=before)
        assert sorted(daemon.models()) == ["echo", "other"]


def keeps_the_old(parley, parleyd, tiny, folder):
    """A mistake anywhere keeps everything, and is told with file, line and key."""
    path = os.path.join(folder, "wrong.yaml")
    good = f"log_level: info\nmodels: tiny={tiny}\nhttp_origin: https://a.example\n"
    with Reloading(parleyd, path, good) as daemon:
        for text, line, why in [("http_origin: '*'\nttl: soon\n", 2, "ttl: 'soon' is not a number"),
                                ("http_origin: '*'\nttll: 1s\n", 2, "did you mean 'ttl'"),
                                (f"http_origin: '*'\nmodels:\n  - tiny=/nowhere/tiny.gguf\n  - more={tiny}\n", 3, "models: model 'tiny': there is no file"),
                                ("http_origin: [\n", 2, "no YAML")]:
            daemon.reload(text, "error reload kept=all", f"{path}:{line}: ", why)
            assert daemon.models() == ["tiny", "echo"]
            try:
                daemon.get("/v1/models", Origin="https://b.example")
                raise AssertionError(f"the origin of a wrong file is served: {text}")
            except urllib.error.HTTPError as refused:
                assert refused.code == 403, refused
        assert daemon.metric('parley_reloads_total{result="failed"}') == 4
        daemon.reload(good, "info reloaded", "changed=none")


class Manager:
    """A service manager's socket, and what is said to it."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(PATIENCE)

    def hears(self, *lines):
        """Waits for a message with lines that begin so; other messages are dropped."""
        while True:
            said = self.socket.recv(4096).decode().split("\n")
            if all(any(line.startswith(wanted) for line in said) for wanted in lines):
                return said


def notifies(parley, parleyd, tiny, folder):
    """The manager hears of the start, of reloads, of signs of life and of the stop; by path and by abstract name."""
    path = os.path.join(folder, "notify.yaml")
    for address, variable in (os.path.join(folder, "notify"), None), ("\0parley-%d" % os.getpid(), "@parley-%d" % os.getpid()):
        manager = Manager(address)
        os.environ["NOTIFY_SOCKET"] = variable or address
        os.environ["WATCHDOG_USEC"] = "200000"
        try:
            with Reloading(parleyd, path, "log_level: info\n") as daemon:
                manager.hears("READY=1", f"STATUS=serves 1 models on {daemon.address}")
                manager.hears("WATCHDOG=1")
                manager.hears("WATCHDOG=1")
                daemon.reload("ttl: 1h\nlog_level: info\n", "reloaded")
                manager.hears("RELOADING=1", "MONOTONIC_USEC=")
                manager.hears("READY=1", "STATUS=serves")
                daemon.reload("ttl: soon\n", "kept=all")
                manager.hears("RELOADING=1", "MONOTONIC_USEC=")
                manager.hears("READY=1", f"STATUS=keeps the old configuration: {path}:1: ttl: ")
            manager.hears("STOPPING=1")
        finally:
            del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]


def main():
    parley, parleyd, write_tiny_model = sys.argv[1:4]
    only, preload = sys.argv[4:], None
    if only[:1] == ["--preload"]:
        preload, only = os.path.abspath(only[1]), only[2:]
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, tiny], check=True)
        for test in tried, beside, functools.partial(tries_folders, preload=preload), tries_files, administers, bounds_peers, from_environment, sample, reloaded, reloads_keys, reloads_models, keeps_the_old, notifies:
            name = getattr(test, "func", test).__name__
            if not only or name in only:
                print(name, flush=True)
                test(parley, parleyd, tiny, folder)


if __name__ == "__main__":
    main()
