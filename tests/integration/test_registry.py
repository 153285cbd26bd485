#!/usr/bin/env python3
"""Registry: members come, go and are killed; entries go with them; barriers release all.

usage: test_registry.py PARLEYD      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request

import grpc

import children

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
from parley.v1 import registry_pb2 as pb  # noqa: E402
from parley.v1 import registry_pb2_grpc as registry  # noqa: E402

KINDS = {pb.REGISTRY_EVENT_KIND_JOINED: "+", pb.REGISTRY_EVENT_KIND_LEFT: "-", pb.REGISTRY_EVENT_KIND_LOST: "!", pb.REGISTRY_EVENT_KIND_PUT: "=",
         pb.REGISTRY_EVENT_KIND_DELETED: "~", pb.REGISTRY_EVENT_KIND_SYNCED: "."}
MEMBER = "import sys; sys.path.insert(0, sys.argv[1]); import test_registry as t; m = t.Member(sys.argv[2], 'g', 'killed'); m.put('theirs'); print('there', flush=True); m.next()"


def shown(event):
    return event.entry.key + KINDS[event.kind] + (event.entry.member or event.member)


class Member:
    """In a group; seen are the events up to SYNCED."""

    def __init__(self, address, group, name, key=None, lease_ms=0):
        self.stub = registry.RegistryStub(grpc.insecure_channel(address))
        self.metadata = [("authorization", f"Bearer {key}")] if key else []
        self.events = self.stub.Join(pb.RegistryJoinRequest(group=group, member=name, lease_ms=lease_ms), metadata=self.metadata)
        self.seen = []
        while True:
            event = next(self.events)
            if event.kind == pb.REGISTRY_EVENT_KIND_SYNCED:
                self.lease = event.lease
                return
            self.seen.append(shown(event))

    def next(self, n=1):
        return [shown(next(self.events)) for _ in range(n)]

    def put(self, key, value=b"", kind=pb.REGISTRY_KIND_VALUE):
        self.stub.Put(pb.RegistryPutRequest(lease=self.lease, kind=kind, key=key, value=value))

    def wait(self, epoch, n=0, name="b"):
        return self.stub.Barrier(pb.RegistryBarrierRequest(lease=self.lease, name=name, epoch=epoch, n=n), timeout=children.PATIENCE)


def refused(code, call, *args, says=""):
    try:
        call(*args)
    except grpc.RpcError as error:
        assert error.code() == code and says in error.details(), error
        return
    raise AssertionError(f"not refused with {code}")


def entries(address):
    a, b = Member(address, "entries", "a"), Member(address, "entries", "b")
    assert a.seen == ["+a"] and b.seen == ["+a", "+b"] and a.next() == ["+b"] and a.lease != b.lease
    a.put("k", b"one")
    b.put("k", kind=pb.REGISTRY_KIND_SERVICE)
    assert a.next(2) == b.next(2) == ["k=a", "k=b"]
    get = lambda key, group="entries": b.stub.Get(pb.RegistryGetRequest(group=group, key=key)).entry  # noqa: E731
    assert get("k").value == b"one" and get("k").member == "a"
    refused(grpc.StatusCode.ALREADY_EXISTS, b.put, "k", says="held by the member 'a'")
    refused(grpc.StatusCode.FAILED_PRECONDITION, b.stub.Delete, pb.RegistryDeleteRequest(lease=b.lease, key="k"), says="held by the member 'a'")
    refused(grpc.StatusCode.NOT_FOUND, get, "none")
    refused(grpc.StatusCode.NOT_FOUND, get, "k", "nowhere")
    refused(grpc.StatusCode.ALREADY_EXISTS, Member, address, "entries", "a", says="has a member 'a'")
    refused(grpc.StatusCode.INVALID_ARGUMENT, Member, address, "entries", "", says="member has 0 bytes")
    refused(grpc.StatusCode.INVALID_ARGUMENT, a.put, "big", b"x" * 65537, says="value has 65537 bytes")
    refused(grpc.StatusCode.INVALID_ARGUMENT, b.stub.Get, pb.RegistryGetRequest(group="entries", key="k", kind=7), says="kind is 7")
    refused(grpc.StatusCode.NOT_FOUND, b.stub.Put, pb.RegistryPutRequest(lease=1, key="x"), says="no member has this lease")
    listed = a.stub.List(pb.RegistryListRequest(group="entries"))
    assert list(listed.members) == ["a", "b"] and sorted((e.kind, e.key, e.member, e.value) for e in listed.entries) == [(1, "k", "a", b""), (2, "k", "b", b"")]
    watch = a.stub.Watch(pb.RegistryWatchRequest(group="entries"))
    assert [shown(next(watch)) for _ in range(5)] == ["+a", "+b", "k=a", "k=b", "."]
    a.stub.Leave(pb.RegistryLeaveRequest(lease=a.lease))
    assert list(a.events) == [], "its call ends well"
    assert b.next(2) == ["k~a", "-a"] and [shown(next(watch)) for _ in range(2)] == ["k~a", "-a"]
    b.events.cancel()
    assert [shown(next(watch)) for _ in range(2)] == ["k~b", "!b"]


def barriers(address):
    members = [Member(address, "barriers", name) for name in "abc"]
    order, lock = [], threading.Lock()

    def walk(member):
        for epoch in range(1, 21):
            assert member.wait(epoch).epoch == epoch
            with lock:
                order.append(epoch)

    threads = [threading.Thread(target=walk, args=(m,)) for m in members]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(order) == sorted(list(range(1, 21)) * 3) and all(abs(e - i // 3 - 1) <= 1 for i, e in enumerate(order)), order
    assert members[0].wait(20).epoch == 20, "one that is over is passed at once"
    refused(grpc.StatusCode.INVALID_ARGUMENT, members[0].wait, 22, says="epoch is 22, the barrier's next is 21")


def killed(address):
    stays = Member(address, "g", "stays")
    here = os.path.dirname(os.path.abspath(__file__))
    with subprocess.Popen([sys.executable, "-c", MEMBER, here, address], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"there\n"
        assert stays.next(2) == ["+killed", "theirs=killed"]
        child.send_signal(signal.SIGKILL)
        assert stays.next(2) == ["theirs~killed", "!killed"]
    again = Member(address, "g", "killed")
    assert again.seen == ["+stays", "+killed"] and stays.next() == ["+killed"]


def leases(address):
    """Who does not renew is lost, though its call is there; who renews is not."""
    stays = Member(address, "leases", "stays")
    renews, sleeps = Member(address, "leases", "renews", lease_ms=2000), Member(address, "leases", "sleeps", lease_ms=300)
    assert stays.next(2) == ["+renews", "+sleeps"]
    over = threading.Event()

    def renew():
        while not over.wait(0.2):
            renews.stub.Renew(pb.RegistryRenewRequest(lease=renews.lease))

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        assert stays.next() == ["!sleeps"]
        refused(grpc.StatusCode.DEADLINE_EXCEEDED, sleeps.next, says="the lease was not renewed for 300 ms")
        refused(grpc.StatusCode.NOT_FOUND, sleeps.stub.Renew, pb.RegistryRenewRequest(lease=sleeps.lease), says="no member has this lease")
        again = Member(address, "leases", "sleeps", lease_ms=400)
        assert stays.next(2) == ["+sleeps", "!sleeps"] and again.seen == ["+stays", "+renews", "+sleeps"]
    finally:
        over.set()
        renewing.join()
    renews.stub.Leave(pb.RegistryLeaveRequest(lease=renews.lease))
    assert stays.next() == ["-renews"]
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: Member(address, "leases", "hasty", lease_ms=99), says="lease_ms is 99, it must be 0 or 100 to 86400000")


def on_the_page(parleyd):
    """What an operator sees of members, barriers and those that were lost."""
    def page():
        with urllib.request.urlopen(f"http://{daemon.http}/metrics", timeout=children.PATIENCE) as response:
            return dict(re.findall(r"^parley_registry_(\w+) (\d+)$", response.read().decode(), re.M))

    with children.Daemon(parleyd, "--http", "127.0.0.1:0") as daemon:
        a, b, c = (Member(daemon.address, "g", name) for name in "abc")
        other = Member(daemon.address, "h", "a")
        c.put("k", b"12345")
        waiting = pb.RegistryBarrierRequest(lease=a.lease, name="b", epoch=1, n=2)
        waits = a.stub.Barrier.future(waiting)
        refused(grpc.StatusCode.ALREADY_EXISTS, lambda: a.stub.Barrier(waiting))  # it does wait
        assert page() == {"groups": "2", "members": "4", "waiting": "1", "bytes": "5", "lost_total": "0"}, page()
        b.wait(1, 2)
        waits.result(children.PATIENCE)
        other.stub.Leave(pb.RegistryLeaveRequest(lease=other.lease))
        c.events.cancel()
        while a.next() != ["!c"]:
            pass
        assert page() == {"groups": "1", "members": "2", "waiting": "0", "bytes": "0", "lost_total": "1"}, page()


def apart(parleyd, folder):
    """Groups of one name are another's for each principal, and so are leases."""
    keys = {}
    path = os.path.join(folder, "keys")
    parley = os.path.join(os.path.dirname(parleyd), "parley")
    with open(path, "w", encoding="utf-8") as file:
        for name in ("ann", "bob"):
            said = children.run([parley, "keys", "new", "--principal", name], capture_output=True, text=True, check=True).stdout.splitlines()
            keys[name] = said[0]
            file.write(said[1] + "\n")
    os.chmod(path, 0o600)
    with children.Daemon(parleyd, "--keys", path) as daemon:
        ann, bob = (Member(daemon.address, "g", "m", keys[name]) for name in ("ann", "bob"))
        assert ann.seen == bob.seen == ["+m"]
        put = pb.RegistryPutRequest(lease=ann.lease, key="k")
        ann.stub.Put(put, metadata=ann.metadata)
        assert ann.next() == ["k=m"]
        for call, request in ((bob.stub.Put, put), (bob.stub.Get, pb.RegistryGetRequest(group="g", key="k")), (bob.stub.Leave, pb.RegistryLeaveRequest(lease=ann.lease))):
            refused(grpc.StatusCode.NOT_FOUND, lambda call=call, request=request: call(request, metadata=bob.metadata))


def main():
    with children.Daemon(sys.argv[1]) as daemon:
        for test in (entries, barriers, killed, leases):
            test(daemon.address)
            print(f"{test.__name__}: good", flush=True)
        member = Member(daemon.address, "last", "m")
        waiting = pb.RegistryBarrierRequest(lease=member.lease, name="b", epoch=1, n=2)
        waits = member.stub.Barrier.future(waiting)
        refused(grpc.StatusCode.ALREADY_EXISTS, lambda: member.stub.Barrier(waiting))  # it does wait
        daemon.process.terminate()
        refused(grpc.StatusCode.UNAVAILABLE, member.next, says="shutting down")
        refused(grpc.StatusCode.UNAVAILABLE, waits.result, says="shutting down")
    on_the_page(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        apart(sys.argv[1], folder)
    print("registry: passed")


if __name__ == "__main__":
    main()
