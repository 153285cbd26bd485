#!/usr/bin/env python3
"""Keys: every method and route asks for one but health, whatever else is wrong with the call; they are rotated and revoked while calls
are in flight, which end if the key was theirs; no log has them.

usage: test_keys.py PARLEYD WRITE_TINY_MODEL PARLEY      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import contextlib
import hashlib
import http.client
import json
import os
import secrets
import signal
import socket
import sys
import tempfile

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import children
import harness
from children import PATIENCE, until
from harness import conversations

OPEN = {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ServerReady"}
ATTACH = {"/parley.v1.Agents/Attach"}  # the role attach
INNER = {"/parley.v1.Cluster/Http"}  # for other daemons, with a pass
ADMIN = {"/parley.v1.Admin/Status", "/parley.v1.Admin/Drain", "/parley.v1.Cluster/List", "/parley.v1.Models/Load", "/parley.v1.Models/Unload", "/parley.v1.Act/Configure", "/parley.v1.Act/Train", "/parley.v1.Act/Learn", "/parley.v1.Act/Attach",
         "/inference.GRPCInferenceService/RepositoryModelLoad", "/inference.GRPCInferenceService/RepositoryModelUnload",
         "/inference.GRPCInferenceService/ModelStatistics"}
ROUTES = [("GET", "/v1/models"), ("GET", "/v1/models/echo"), ("GET", "/metrics"), ("POST", "/v1/chat/completions"), ("POST", "/v1/completions"),
          ("POST", "/v1/responses"), ("GET", "/v1/responses/resp_1"), ("POST", "/v1/conversations"), ("DELETE", "/v1/conversations/one"), ("DELETE", "/v1/responses/resp_1"), ("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"), ("POST", "/api/chat"), ("POST", "/api/generate"), ("GET", "/api/tags"), ("POST", "/tokenize"), ("POST", "/detokenize"), ("GET", "/nothing"), ("DELETE", "/v1/models")]


def new_key():
    return "pk-" + secrets.token_hex(32)


def write_keys(path, *lines):
    """Each line: principal, key, and what follows. By rename, as an administrator should."""
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        for principal, key, *more in lines:
            print(principal, hashlib.sha256(key.encode()).hexdigest(), *more, file=f)
    os.rename(path + ".new", path)


def bearer(key):
    return [("authorization", "Bearer " + key)]


def status(call):
    try:
        for _ in call:
            pass
        return grpc.StatusCode.OK
    except grpc.RpcError as e:
        return e.code()


def knocking(channel, path, metadata):
    """A call with an empty message and nothing behind it."""
    call = channel.stream_stream(path, request_serializer=bytes, response_deserializer=bytes)
    return call(iter([b""]), metadata=metadata, timeout=PATIENCE)


def knock(channel, path, metadata):
    """Its status."""
    return status(knocking(channel, path, metadata))


def is_there(channel, path, metadata):
    """Whether there is such a method."""
    call = knocking(channel, path, metadata)
    status(call)
    return "there is no method" not in call.details()


def methods(channel):
    """Every method that is served, as reflection tells them to who has a key."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)
    for name in database.get_services():
        service = pool.FindServiceByName(name)
        yield from (f"/{name}/{m.name}" for m in service.methods)


class KeyInterceptor(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor,
                     grpc.StreamStreamClientInterceptor):
    """Sends the key with each call."""

    def __init__(self, key):
        self.key = key

    def more(self, details):
        return details._replace(metadata=[*(details.metadata or ()), *bearer(self.key)])

    def intercept_unary_unary(self, then, details, request):
        return then(self.more(details), request)

    intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = intercept_unary_unary


def with_key(address, key):
    return grpc.intercept_channel(grpc.insecure_channel(address), KeyInterceptor(key))


def ask(daemon, method, path, body=None, **headers):
    """Status, headers and body."""
    with contextlib.closing(http.client.HTTPConnection(daemon.http, timeout=PATIENCE)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body), {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def all_methods_ask(daemon, alice, admin):
    with with_key(daemon.address, admin) as channel:
        paths = sorted(methods(channel))
    assert len(paths) > 40 and OPEN < set(paths) and ADMIN < set(paths), paths
    with grpc.insecure_channel(daemon.address) as channel:
        for path in paths:
            for metadata in ([], bearer("pk-wrong"), bearer(""), [("x-api-key", alice[:-1])], [("authorization", alice)],
                             bearer(alice + "0"), bearer(hashlib.sha256(alice.encode()).hexdigest())):
                if path in OPEN:
                    if not path.endswith("/Watch"):
                        assert knock(channel, path, metadata) == grpc.StatusCode.OK, path
                else:
                    assert knock(channel, path, metadata) == grpc.StatusCode.UNAUTHENTICATED, (path, metadata)
            if path in OPEN or path.endswith("/Watch"):
                continue
            for metadata in (bearer(alice), [("x-api-key", alice)]):
                got = knock(channel, path, metadata)
                assert (got == grpc.StatusCode.PERMISSION_DENIED) == (path in ADMIN | ATTACH | INNER) and got != grpc.StatusCode.UNAUTHENTICATED, (path, got)


def all_routes_ask(daemon, alice, admin):
    for method, path in ROUTES:
        for headers in ({}, {"Authorization": "Bearer pk-wrong"}, {"x_api_key": alice[:-1]}, {"Authorization": "Bearer " + "k" * 5000},
                        {"Authorization": alice}):
            got, more, body = ask(daemon, method, path, {} if method == "POST" else None, **headers)
            assert got == 401 and more["WWW-Authenticate"].startswith("Bearer"), (method, path, headers, got)
            said = json.loads(body)["error"]
            assert alice not in body.decode() and (isinstance(said, str) if path.startswith("/api/") else (said.get("code") or said["type"]) in ("invalid_api_key", "authentication_error")), body
        for headers in ({"Authorization": "Bearer " + alice}, {"x_api_key": alice}):
            got = ask(daemon, method, path, {} if method == "POST" else None, **headers)[0]
            assert (got == 403) == (path == "/metrics") and got != 401, (method, path, got)
    assert ask(daemon, "GET", "/metrics", Authorization="Bearer " + admin)[0] == 200
    assert ask(daemon, "GET", "/health")[0] == 200
    preflight = ask(daemon, "OPTIONS", "/v1/chat/completions", Origin="http://localhost:3000", Access_Control_Request_Headers="authorization")
    assert preflight[0] == 204, preflight  # browsers send no key with it


def watch(daemon, key):
    """A Watch that has begun, of which the rest can be waited for."""
    channel = with_key(daemon.address, key)
    call = harness.conversations_pb2_grpc.ConversationsStub(channel).Watch(conversations.ConversationsWatchRequest())
    while harness.word(next(call), "kind") != "synced":
        pass
    return call


def stream(daemon, key):
    """A reply that goes on and on, of which the first event has come."""
    connection = http.client.HTTPConnection(daemon.http, timeout=PATIENCE)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Tell me."}], "max_tokens": 100000, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"x-api-key": key})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.readline().startswith(b"data:")
    return answer


def ends(answer):
    try:
        return b"[DONE]" not in answer.read()
    except (http.client.IncompleteRead, ConnectionError):
        return True


def reload(daemon, path, *lines):
    n = sum("info reloaded" in line for line in daemon.said)
    write_keys(path, *lines)
    daemon.process.send_signal(signal.SIGHUP)
    until("the reload", lambda: sum("info reloaded" in line for line in daemon.said) > n, daemon.process)


def rotates(daemon, path, alice, bob, admin):
    new = new_key()
    old_watch, bobs_watch, bobs_stream = watch(daemon, alice), watch(daemon, bob), stream(daemon, bob)
    old_stream = stream(daemon, alice)
    reload(daemon, path, ("alice", alice), ("alice", new), ("bob", bob), ("root", admin, "admin"))
    with with_key(daemon.address, new) as channel:
        ours = harness.conversations_pb2_grpc.ConversationsStub(channel).Open(conversations.ConversationsOpenRequest(model="echo")).conversation
    while next(old_watch).conversation != ours:  # two keys, one principal
        pass
    reload(daemon, path, ("alice", new), ("bob", bob), ("root", admin, "admin"))
    assert status(old_watch) == grpc.StatusCode.UNAUTHENTICATED and ends(old_stream)
    with grpc.insecure_channel(daemon.address) as channel:
        assert knock(channel, "/parley.v1.Conversations/List", bearer(alice)) == grpc.StatusCode.UNAUTHENTICATED
        assert knock(channel, "/parley.v1.Conversations/List", bearer(new)) == grpc.StatusCode.OK
    assert bobs_watch.is_active() and bobs_stream.readline() == b"\n" and bobs_stream.readline().startswith(b"data:")
    bobs_watch.cancel()
    bobs_stream.close()
    return new


def keeps_on_failure(daemon, path, alice):
    """A wrong file, and one that others may read, leave the keys as they are."""
    for spoil in (lambda: open(path, "a").write("nonsense\n"), lambda: os.chmod(path, 0o644)):
        spoil()
        n = sum("kept=all" in line for line in daemon.said)
        daemon.process.send_signal(signal.SIGHUP)
        until("the complaint", lambda: sum("kept=all" in line for line in daemon.said) > n, daemon.process)
        assert ask(daemon, "GET", "/v1/models", x_api_key=alice)[0] == 200


def expires(daemon, path, alice, bob, admin):
    reload(daemon, path, ("alice", alice, "until=2020-01-01"), ("bob", bob, "until=2999-12-31"), ("root", admin, "admin"))
    assert ask(daemon, "GET", "/v1/models", x_api_key=alice)[0] == 401
    assert ask(daemon, "GET", "/v1/models", x_api_key=bob)[0] == 200


def client(parley, address, *words, key=None, **more):
    env = {**os.environ, "PARLEY_SERVER": address}
    env.pop("PARLEY_API_KEY", None)
    if key is not None:
        env["PARLEY_API_KEY"] = key
    return children.run([parley, *words], capture_output=True, text=True, env=env, **more)


def client_sends_key(parley, daemon, folder, path, alice, *others):
    """By the environment or a file; a key of its own making is taken."""
    done = client(parley, daemon.address, "models")
    assert done.returncode == 1 and "key" in done.stderr, done
    assert client(parley, daemon.address, "models", key=alice).returncode == 0
    asked = client(parley, daemon.address, "ask", "Hello!", "--model", "echo", key=alice)  # a stream
    assert asked.returncode == 0 and "Hello!" in asked.stdout, asked
    key, line = client(parley, "", "keys", "new", "--principal", "carol", "--until", "2999-01-01").stdout.splitlines()
    assert line == f"carol {hashlib.sha256(key.encode()).hexdigest()} until=2999-01-01"
    words = "--admin --attach --weight 4 --requests 60 --tokens 1000 --in-flight 500 --conversations 9 --until 2999-01-01"
    dave, line = client(parley, "", "keys", "new", "--principal", "dave", *words.split()).stdout.splitlines()
    quota = "weight=4", "requests=60", "tokens=1000", "in-flight=500", "conversations=9"
    assert line.split()[2:] == ["admin", "attach", *quota, "until=2999-01-01"], line
    reload(daemon, path, ("alice", alice), ("dave", dave, *line.split()[2:]), *others)
    assert ask(daemon, "GET", "/v1/models", x_api_key=dave)[1]["x-ratelimit-limit-tokens"] == "1000"
    reload(daemon, path, ("alice", alice), ("carol", key, "until=2999-01-01"), *others)
    key_file = os.path.join(folder, "key")
    with open(key_file, "w") as f:
        print(key, file=f)
    assert client(parley, daemon.address, "models", "--key-file", key_file, key="pk-wrong").returncode == 0
    for url in f"parley://{daemon.address}", f"http://{daemon.http}":
        load = "bench", url, "--model", "echo", "--requests", "2", "--input-tokens", "8", "--output-tokens", "8"
        assert client(parley, daemon.address, *load, key="pk-wrong").returncode == 1
        assert client(parley, daemon.address, *load, "--key-file", key_file, key="pk-wrong").returncode == 0


def administers(parleyd, parley, folder, path, alice, admin):
    """With an address of its own, what needs the role admin is there alone, with health; keys are asked for as ever. A socket is as open as the umask has it."""
    admin_socket = os.path.join(folder, "admin.sock")
    write_keys(path, ("alice", alice), ("root", admin, "admin"))
    for where in "127.0.0.1:0", f"unix:{admin_socket}":
        with children.Daemon(parleyd, "--http", "off", "--keys", path, "--listen-admin", where) as daemon:
            apart = daemon.ready["grpc_admin"]
            assert apart != daemon.address and (where != f"unix:{admin_socket}" or os.stat(admin_socket).st_mode & 0o002 == 0), os.stat(admin_socket)
            for address, has in (daemon.address, lambda path: path not in ADMIN), (apart, lambda path: path in ADMIN | OPEN):
                with with_key(daemon.address, admin) as channel:
                    paths = sorted(methods(channel))
                with grpc.insecure_channel(address) as channel:
                    for call in paths:
                        if call.endswith(("/Watch", "/Attach", "/Train", "/Drain")) or "Reflection" in call:
                            continue
                        assert is_there(channel, call, bearer(admin)) == has(call), (address, call)
                        if call in ADMIN and has(call):
                            assert knock(channel, call, bearer(alice)) == grpc.StatusCode.PERMISSION_DENIED
                            assert knock(channel, call, []) == grpc.StatusCode.UNAUTHENTICATED
            done = client(parley, apart, "status", key=admin)
            assert done.returncode == 0 and "serving" in done.stdout, done
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = "127.0.0.1:%d" % taken.getsockname()[1]
        done = children.run([parleyd, "--check", "--listen", "127.0.0.1:0", "--listen-admin", where], capture_output=True, text=True)
        assert done.returncode == 1 and "--listen-admin: " in done.stderr, done


def refuses_open_file(parleyd, path):
    write_keys(path, ("alice", new_key()))
    os.chmod(path, 0o644)
    done = children.run([parleyd, "--listen", "127.0.0.1:0", "--keys", path], capture_output=True, text=True)
    assert done.returncode == 1 and "--keys" in done.stderr and "644" in done.stderr, done


def warns_of_open_ports(parleyd, path):
    """One line names the ports that others than this machine reach without a key; there is none where nobody does."""
    os.chmod(path, 0o600)
    for listen, flags, names in (("0.0.0.0:0", ["--http", "127.0.0.1:0"], ["grpc"]), ("127.0.0.1:0", ["--http", "0.0.0.0:0"], ["http"]), ("0.0.0.0:0", ["--http", "0.0.0.0:0"], ["grpc", "http"]),
                                 ("127.0.0.1:0", ["--http", "127.0.0.1:0"], []), (f"unix:{path}.socket", ["--http", "off"], []), ("0.0.0.0:0", ["--http", "0.0.0.0:0", "--keys", path], [])):
        with children.Daemon(parleyd, *flags, listen=listen) as daemon:
            pass
        where = " ".join(f"{name}={daemon.ready[name]}" for name in names)
        lines = [line for line in daemon.said if "warn open " in line]
        assert len(lines) == bool(names) and all(f"open {where} what=" in line and "--keys FILE" in line for line in lines), (listen, flags, daemon.said)


def main(parleyd, write_tiny_model, parley):
    with tempfile.TemporaryDirectory() as folder:
        model, path = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "keys")
        children.run([write_tiny_model, model], check=True)
        alice, bob, admin = new_key(), new_key(), new_key()
        write_keys(path, ("alice", alice), ("bob", bob), ("root", admin, "admin"))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0", "--keys", path, "--log-level", "debug") as daemon:
            all_methods_ask(daemon, alice, admin)
            all_routes_ask(daemon, alice, admin)
            new = rotates(daemon, path, alice, bob, admin)
            expires(daemon, path, new, bob, admin)
            reload(daemon, path, ("alice", new), ("bob", bob), ("root", admin, "admin"))
            client_sends_key(parley, daemon, folder, path, new, ("bob", bob), ("root", admin, "admin"))
            keeps_on_failure(daemon, path, new)
        said = "".join(daemon.said)
        assert not any(key in said for key in (alice, bob, admin, new)) and "Tell me." not in said
        administers(parleyd, parley, folder, path, alice, admin)
        refuses_open_file(parleyd, path)
        warns_of_open_ports(parleyd, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
