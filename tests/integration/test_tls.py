#!/usr/bin/env python3
"""TLS on both ports: plain and old clients, and strangers, get nothing; certificates change under calls in flight, which go on; bodies of
megabytes pass both ways; a wrong file keeps what there is.

usage: test_tls.py PARLEYD PARLEY      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import contextlib
import datetime
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import warnings
import xml.etree.ElementTree

import grpc
import httpx

import children
import harness
from children import PATIENCE, until
from harness import content, conversations, conversations_pb2_grpc


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Authority:
    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.pem = self.path("pem")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path("key"), "-out", self.pem,
                "-days", "2", "-subj", f"/CN={name}")

    def path(self, kind, name=None):
        return os.path.join(self.folder, f"{name or self.name}.{kind}")

    def sign(self, name, to=None, start=0):
        """A certificate and its private key, under the name of `to`; by rename. It is valid for a day from `start`, in days from now."""
        key, request, made, more = (self.path(kind, name) for kind in ("new-key", "csr", "new-pem", "ext"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        with open(more, "w") as f:
            print("subjectAltName=IP:127.0.0.1", file=f)
        if start == 0:
            openssl("x509", "-req", "-in", request, "-CA", self.pem, "-CAkey", self.path("key"), "-CAcreateserial", "-out", made, "-days", "2",
                    "-extfile", more)
        else:
            self.sign_for(request, made, *(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days) for days in (start, start + 1)))
        os.chmod(key, 0o600)
        pem, own = self.path("pem", to or name), self.path("key", to or name)
        os.rename(made, pem)
        os.rename(key, own)
        return pem, own

    def sign_for(self, request, made, *days):
        """A certificate for other days than from now on: only `openssl ca` makes one."""
        config = self.path("ca")
        with open(config, "w") as f:
            print(f"[ca]\ndefault_ca = all\n[all]\ndatabase = {config}.index\nnew_certs_dir = {self.folder}\nrand_serial = yes\n"
                  "default_md = sha256\npolicy = any\n[any]\ncommonName = supplied", file=f)
        open(f"{config}.index", "w").close()
        start, end = (day.strftime("%Y%m%d%H%M%SZ") for day in days)
        openssl("ca", "-batch", "-notext", "-config", config, "-in", request, "-out", made, "-cert", self.pem, "-keyfile", self.path("key"),
                "-startdate", start, "-enddate", end)


def context(ca, pair=None):
    made = ssl.create_default_context(cafile=ca)
    if pair is not None:
        made.load_cert_chain(*pair)
    return made


def ask(daemon, how, method="GET", path="/v1/models", body=None):
    with contextlib.closing(http.client.HTTPSConnection(daemon.http, context=how, timeout=PATIENCE)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def is_refused(daemon, how, port):
    """No byte of an answer comes."""
    host, number = (daemon.http if port == "http" else daemon.address).rsplit(":", 1)
    try:
        with socket.create_connection((host, int(number)), timeout=PATIENCE) as plain:
            with how.wrap_socket(plain, server_hostname=host) if how is not None else plain as s:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return s.recv(1) == b""
    except OSError:  # ssl.SSLError is one
        return True


def name_of(daemon, ca, port):
    host, number = (daemon.http if port == "http" else daemon.address).rsplit(":", 1)
    with socket.create_connection((host, int(number)), timeout=PATIENCE) as plain, context(ca).wrap_socket(plain, server_hostname=host) as s:
        return dict(pair for part in s.getpeercert()["subject"] for pair in part)["commonName"]


def channel(daemon, ca, pair=None):
    read = lambda path: open(path, "rb").read()  # noqa: E731
    own = (None, None) if pair is None else (read(pair[1]), read(pair[0]))
    return grpc.secure_channel(daemon.address, grpc.ssl_channel_credentials(read(ca), *own), options=[("grpc.max_receive_message_length", -1)])


def turn(stub, conversation, text):
    return stub.Ask(conversations.TurnRequest(conversation=conversation, messages=[content.Message(role="user", text=text)]), timeout=PATIENCE)


def reload(daemon, word):
    n = sum(word in line for line in daemon.said)
    daemon.process.send_signal(signal.SIGHUP)
    until("the reload", lambda: sum(word in line for line in daemon.said) > n, daemon.process)


def old(ca):
    made = context(ca)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is old is the point
        made.minimum_version = ssl.TLSVersion.TLSv1
        made.maximum_version = ssl.TLSVersion.TLSv1_1
        made.set_ciphers("ALL:@SECLEVEL=0")
    return made


def other_protocol(ca, name):
    made = context(ca)
    made.set_alpn_protocols([name])
    return made


def negotiates(daemon, ca):
    """The HTTP port speaks what ALPN came to; HTTP/2 where a client takes both."""
    url = f"https://{daemon.http}/v1/models"
    for flag, version in ("--http2", "2"), ("--http1.1", "1.1"), ("--no-alpn", "1.1"):
        got = children.run(["curl", "-sS", flag, "--cacert", ca, "-w", "\n%{http_version} %{http_code}", url], capture_output=True, text=True, check=True).stdout
        body, said = got.rsplit("\n", 1)
        assert said == f"{version} 200" and "echo" in body, got
    with httpx.Client(http2=True, verify=context(ca), timeout=PATIENCE) as client:
        models = [client.get(url) for _ in range(2)]
        assert all(m.http_version == "HTTP/2" and m.json()["data"] for m in models)
        body = {"model": "echo", "messages": [{"role": "user", "content": "a few words"}], "stream": True}
        with client.stream("POST", f"https://{daemon.http}/v1/chat/completions", json=body) as streamed:
            assert streamed.http_version == "HTTP/2" and "[DONE]" in streamed.read().decode()


def scan(address):
    """What sslscan finds: protocols and ciphers that should not be."""
    if shutil.which("sslscan") is None:
        print("no sslscan: the ports are not scanned")
        return
    found = xml.etree.ElementTree.fromstring(subprocess.run(["sslscan", "--no-colour", "--xml=-", address], check=True, capture_output=True).stdout)
    protocols = {(p.get("type"), p.get("version")) for p in found.iter("protocol") if p.get("enabled") == "1"}
    assert protocols == {("tls", "1.2"), ("tls", "1.3")}, protocols
    ciphers = [c.get("cipher") for c in found.iter("cipher")]
    assert ciphers and all(c.startswith("TLS_") or c.startswith("ECDHE-") and ("GCM" in c or "CHACHA20" in c) for c in ciphers), ciphers
    assert all(h.get("vulnerable") == "0" for h in found.iter("heartbleed"))
    assert all(r.get("supported") == "0" for r in found.iter("renegotiation"))


def serves(parleyd, parley, ours, folder):
    """Without clients' certificates."""
    pem, key = ours.sign("server")
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--tls-cert", pem, "--tls-key", key, "--log-level", "info") as daemon:
        assert ask(daemon, context(ours.pem))[0] == 200
        assert is_refused(daemon, None, "http") and is_refused(daemon, None, "grpc")  # no TLS
        assert is_refused(daemon, old(ours.pem), "http") and is_refused(daemon, old(ours.pem), "grpc")
        assert is_refused(daemon, other_protocol(ours.pem, "h3"), "http") and is_refused(daemon, other_protocol(ours.pem, "http/1.1"), "grpc")
        negotiates(daemon, ours.pem)
        scan(daemon.http)
        scan(daemon.address)
        large = "Hear me! " * 300000  # more than all buffers on the way
        got, answer = ask(daemon, context(ours.pem), "POST", "/v1/chat/completions", json.dumps(
            {"model": "echo", "messages": [{"role": "user", "content": large}]}))
        assert got == 200 and json.loads(answer)["choices"][0]["message"]["content"] == large
        with channel(daemon, ours.pem) as open_channel:
            stub = conversations_pb2_grpc.ConversationsStub(open_channel)
            conversation = stub.Open(conversations.ConversationsOpenRequest(model="echo")).conversation
            assert turn(stub, conversation, large).message.text == large
            watch = stub.Watch(conversations.ConversationsWatchRequest())
            assert harness.word(next(watch), "kind") == "snapshot" and harness.word(next(watch), "kind") == "synced"
            with contextlib.closing(http.client.HTTPSConnection(daemon.http, context=context(ours.pem), timeout=PATIENCE)) as kept:
                kept.request("GET", "/health")
                kept.getresponse().read()
                ours.sign("renewed", to="server")
                reload(daemon, "info reloaded")
                assert name_of(daemon, ours.pem, "http") == name_of(daemon, ours.pem, "grpc") == "renewed"
                kept.request("GET", "/health")  # on the old connection
                assert kept.getresponse().status == 200
            assert turn(stub, conversation, "Still here.").message.text == "Still here."
            stub.Close(conversations.ConversationsCloseRequest(conversation=conversation))
            assert harness.word(next(watch), "kind") == "closed"
            watch.cancel()
        with open(pem, "w") as f:
            print("nonsense", file=f)
        reload(daemon, "kept=all")
        assert name_of(daemon, ours.pem, "http") == "renewed"
        said = children.run([parley, "ask", "Hello!", "--model", "echo", "--server", daemon.address, "--ca", ours.pem], capture_output=True, text=True)
        assert said.returncode == 0 and "Hello!" in said.stdout, said
        for url in f"parley://{daemon.address}", f"https://{daemon.http}":
            load = [parley, "bench", url, "--model", "echo", "--requests", "3", "--input-tokens", "8", "--output-tokens", "8", "--json"]
            done = children.run([*load, "--ca", ours.pem], capture_output=True, text=True)
            assert done.returncode == 0 and json.loads(done.stdout)["completed"] == 3, done
            done = children.run([*load, "--tls", "--wait", "0.5"], capture_output=True, text=True)  # a certificate of nobody's
            assert done.returncode == 1 and "authority that is not known" in done.stderr, done


def knows_clients(parleyd, parley, ours, theirs):
    pem, key = ours.sign("server")
    friend, stranger = ours.sign("friend"), theirs.sign("stranger")
    flags = "--http", "127.0.0.1:0", "--tls-cert", pem, "--tls-key", key, "--tls-client-ca", ours.pem
    with children.Daemon(parleyd, *flags) as daemon:
        assert ask(daemon, context(ours.pem, friend))[0] == 200
        for how in context(ours.pem), context(ours.pem, stranger):
            assert is_refused(daemon, how, "http") and is_refused(daemon, how, "grpc")
        with channel(daemon, ours.pem, friend) as c:
            conversations_pb2_grpc.ConversationsStub(c).Open(conversations.ConversationsOpenRequest(model="echo"), timeout=PATIENCE)
        with channel(daemon, ours.pem, stranger) as c:
            try:
                conversations_pb2_grpc.ConversationsStub(c).Open(conversations.ConversationsOpenRequest(model="echo"), timeout=PATIENCE)
                raise AssertionError("a stranger is served")
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.UNAVAILABLE, e
        done = children.run([parley, "models", "--server", daemon.address, "--ca", ours.pem, "--cert", friend[0], "--tls-key", friend[1]],
                            capture_output=True, text=True)
        assert done.returncode == 0 and "echo" in done.stdout, done


def refuses_files(parleyd, ours, theirs, folder):
    """What is wrong with a file is said in words, with what helps; and no passphrase is asked for."""
    pem, key = ours.sign("server")
    other, other_key = theirs.sign("other")

    def made(name, data):
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data if isinstance(data, bytes) else b"".join(open(part, "rb").read() for part in data))
        return path

    encrypted, old, der, key_der, weak, weak_key = (os.path.join(folder, name) for name in
                                                    ("encrypted", "old", "cert.der", "key.der", "weak.pem", "weak.key"))
    openssl("pkcs8", "-topk8", "-in", key, "-out", encrypted, "-passout", "pass:secret")
    openssl("ec", "-in", key, "-aes128", "-out", old, "-passout", "pass:secret")
    openssl("x509", "-in", pem, "-outform", "DER", "-out", der)
    openssl("pkey", "-in", key, "-outform", "DER", "-out", key_der)
    openssl("req", "-x509", "-newkey", "rsa:1024", "-nodes", "-keyout", weak_key, "-out", weak, "-days", "2", "-subj", "/CN=weak")
    for path in encrypted, old, key_der, weak_key:
        os.chmod(path, 0o600)
    lines = open(pem, "rb").read().splitlines(keepends=True)
    empty, nonsense = made("empty", b""), made("nonsense", b"nonsense\n")
    damaged = made("damaged", b"".join([lines[0], b"AAAA" + lines[1][4:], *lines[2:]]))
    damaged_key = made("damaged.key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    swapped, second_damaged = made("swapped", [other, pem]), made("second", open(pem, "rb").read() + open(damaged, "rb").read())
    pair = ("--tls-cert", pem, "--tls-key", key)
    cases = [(("--tls-cert", pem), "both --tls-cert and --tls-key are needed"),
             (("--tls-cert", pem, "--tls-key", other_key), f"{other_key} is not the key of the certificate {pem}"),
             (("--tls-cert", swapped, "--tls-key", key), f"{swapped}: its first certificate is not that of the key {key}, number 2 is: put it first"),
             (("--tls-cert", key, "--tls-key", key), f"{key} has no certificate in PEM"),
             (("--tls-cert", pem, "--tls-key", made("as-key", [pem])), "as-key has no private key in PEM"),
             (("--tls-cert", pem, "--tls-key", "/nowhere"), "/nowhere: No such file"),
             (("--tls-cert", folder, "--tls-key", key), f"{folder}: Is a directory"),
             (("--tls-cert", empty, "--tls-key", key), "empty is empty"),
             (("--tls-cert", nonsense, "--tls-key", key), "nonsense has no certificate in PEM"),
             (("--tls-cert", der, "--tls-key", key), "is in DER, not in PEM: 'openssl x509"),
             (("--tls-cert", pem, "--tls-key", key_der), "is in DER, not in PEM: 'openssl pkey"),
             (("--tls-cert", damaged, "--tls-key", key), f"{damaged}: its certificate 1 is damaged"),
             (("--tls-cert", second_damaged, "--tls-key", key), f"{second_damaged}: its certificate 2 is damaged"),
             (("--tls-cert", pem, "--tls-key", damaged_key), f"{damaged_key}: its private key is damaged"),
             (("--tls-cert", pem, "--tls-key", encrypted), f"{encrypted} is encrypted, and parleyd takes no passphrase"),
             (("--tls-cert", pem, "--tls-key", old), f"{old} is encrypted, and parleyd takes no passphrase"),
             (("--tls-cert", weak, "--tls-key", weak_key), f"{weak}: its key is too short"),
             ((*pair, "--tls-client-ca", empty), "empty is empty"),
             ((*pair, "--tls-client-ca", nonsense), "nonsense has no certificate in PEM"),
             ((*pair, "--tls-client-ca", key), f"{key} has no certificate in PEM")]
    for flags, says in cases:
        done = children.run([parleyd, "--check", "--listen", "127.0.0.1:0", *flags], capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.startswith("parleyd: TLS: ") and says in done.stderr and done.stderr.count("\n") == 1, (says, done)
    os.chmod(key, 0o644)
    done = children.run([parleyd, "--listen", "127.0.0.1:0", *pair], capture_output=True, text=True)
    assert done.returncode == 1 and "644" in done.stderr, done
    os.chmod(key, 0o600)


def warns_of_time(parleyd, ours):
    """A certificate that has expired, or is not valid yet, is told of by --check, at a start and at a reload, and served."""
    pem, key = ours.sign("server")
    for days, says in ((-2, "expired="), (2, "not_valid_before=")):
        ours.sign("late", to="server", start=days)
        pair = "--tls-cert", pem, "--tls-key", key
        done = children.run([parleyd, "--check", "--listen", "127.0.0.1:0", *pair], capture_output=True, text=True)
        assert done.returncode == 0 and f"warn certificate file=\"{pem}\" subject=\"/CN=late\" {says}20" in done.stderr, done
        with children.Daemon(parleyd, *pair, "--log-level", "info") as daemon:
            assert any("warn certificate" in line and says in line for line in daemon.said), daemon.said
            ours.sign("server")
            reload(daemon, "info reloaded changed=tls_cert,tls_key certificate_until=20")
            reload(daemon, "info reloaded changed=none")
            ours.sign("late", to="server", start=days)
            reload(daemon, "warn certificate")
            reload(daemon, "info reloaded changed=none")


def main(parleyd, parley):
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
        serves(parleyd, parley, ours, folder)
        knows_clients(parleyd, parley, ours, theirs)
        refuses_files(parleyd, ours, theirs, folder)
        warns_of_time(parleyd, ours)


if __name__ == "__main__":
    main(*sys.argv[1:])
