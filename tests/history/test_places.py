#!/usr/bin/env python3
"""What one daemon has as a whole, of three that share a PostgreSQL: groups of Registry, tasks of Work, keys of Store, tables of Replay, sets of
parameters, rooms. Whichever daemon is asked, the answer is the same. Daemons are killed with what they have, and what was kept goes on elsewhere.
So it does for rooms, and for the people of the chat service, where their daemon is stopped, wakes, and gets them back.

usage: postgres.sh test_places.py PARLEYD PARLEY"""
import concurrent.futures
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
import grpc  # noqa: E402
import numpy as np  # noqa: E402
import children  # noqa: E402
import parley  # noqa: E402
import parley.optim  # noqa: E402
import test_keys  # noqa: E402
import test_registry  # noqa: E402
import test_rooms  # noqa: E402
import test_service  # noqa: E402
import test_together  # noqa: E402
from parley.parallel import World  # noqa: E402
from parley.v1 import registry_pb2, rooms_pb2, rooms_pb2_grpc, work_pb2, work_pb2_grpc  # noqa: E402

CLI = sys.argv[2]
OPTIM = os.path.join(os.path.dirname(__file__), "..", "integration", "test_optim.py")
ROUNDS, KIND = 25, {"kind": "adam", "lr": 0.01}  # of its trainers
SHAPES = (7, 33), (33,), (33, 1), (1,)
PLACES = {"params", "store", "replay", "registry", "work", "rooms"}


def listed(client):
    said = children.run([CLI, "cluster", "--json", "--server", client.address], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(said)["daemons"]


def places(client):
    """Which daemon has each place, by its address."""
    return {place: row["address"] for row in listed(client) if int(row["lease_ms"]) > 0 for place in row.get("places", [])}


def eventually(call, *args, **more):
    """Until the daemon that had it is known to have ended."""
    got = []

    def once():
        with contextlib.suppress(parley.Error, grpc.RpcError):
            got.append(call(*args, **more))
        return got

    children.until(getattr(call, "__name__", "the call"), once)
    return got[0]


def fails(call):
    with contextlib.suppress(grpc.RpcError):
        call()


def registry(a, b, c):
    """Members, entries, events and barriers of one group by three daemons."""
    one = test_registry.Member(a.address, "g", "one")
    two = test_registry.Member(b.address, "g", "two", lease_ms=60000)
    assert two.seen == ["+one", "+two"] and one.next() == ["+two"], two.seen
    two.stub.Renew(registry_pb2.RegistryRenewRequest(lease=two.lease))
    one.put("k", b"value")
    assert two.next() == ["k=one"]
    got = test_registry.registry.RegistryStub(grpc.insecure_channel(c.address)).Get(registry_pb2.RegistryGetRequest(group="g", key="k"))
    assert got.entry.value == b"value" and got.entry.member == "one", got
    waits = [member.stub.Barrier.future(registry_pb2.RegistryBarrierRequest(lease=member.lease, name="b", epoch=1, n=2), timeout=children.PATIENCE)
             for member in (one, two)]
    assert [wait.result().epoch for wait in waits] == [1, 1]
    three = test_registry.Member(c.address, "g", "three")
    one.stub.Leave(registry_pb2.RegistryLeaveRequest(lease=one.lease))
    three.events.cancel()  # lost, at whatever daemon it had joined
    assert two.next(4) == ["+three", "k~one", "-one", "!three"]
    two.events.cancel()


def world(a, b, c):
    """parley.parallel: a world of three, each by another daemon."""
    results = {}

    def run(i, client):
        with World(str(i), i, 3, world="w", address=client.address, secret="of this test") as w, w.create_rpc_group("g", ["0", "1", "2"]) as g:
            g.pair(f"p{i}", i * i)
            g.barrier()
            results[i] = g.get_paired(f"p{(i + 1) % 3}").to_here()
            g.barrier()

    threads = [threading.Thread(target=run, args=(i, client), daemon=True) for i, client in enumerate((a, b, c))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(children.PATIENCE)
    assert results == {0: 1, 1: 4, 2: 0}, results


def work(a, b, c):
    """A worker at one daemon computes what two others submit."""
    out = queue.SimpleQueue()
    worker = work_pb2_grpc.WorkStub(grpc.insecure_channel(a.address)).Attach(iter(out.get, None), timeout=2 * children.PATIENCE)
    out.put(work_pb2.WorkAttachRequest(offer=work_pb2.WorkOffer(functions=["turned"])))
    assert next(worker).accepted.silence_ms > 0

    def compute():
        for said in worker:
            for order in said.orders:
                out.put(work_pb2.WorkAttachRequest(answers=[work_pb2.WorkAnswer(task=order.task, payload=order.payload[::-1])]))

    thread = threading.Thread(target=lambda: fails(compute), daemon=True)
    thread.start()
    for client in (b, c):
        submit = work_pb2.WorkSubmitRequest(tasks=[work_pb2.WorkTask(function="turned", payload=b"abc")])
        said = list(work_pb2_grpc.WorkStub(grpc.insecure_channel(client.address)).Map(iter([submit]), timeout=children.PATIENCE))
        assert b"".join(result.payload for results in said for result in results.results) == b"cba", said
    worker.cancel()
    thread.join(children.PATIENCE)


class Person:
    """A person in rooms, by gRPC."""

    def __init__(self, client, name, token=""):
        self.out, self.heard = queue.SimpleQueue(), []
        self.call = rooms_pb2_grpc.RoomsStub(grpc.insecure_channel(client.address)).Attach(iter(self.out.get, None), timeout=2 * children.PATIENCE)
        self.send(hello=rooms_pb2.RoomHello(name=name, token=token))
        self.token = self.until("welcome").welcome.token

    def send(self, **frame):
        self.out.put(rooms_pb2.RoomsAttachRequest(**frame))

    def until(self, kind):
        """The next frame of this kind; no frame on the way is an error."""
        for frame in self.call:
            assert frame.WhichOneof("frame") != "error", frame
            if frame.entry.text:
                self.heard.append(frame.entry.text)
            if frame.WhichOneof("frame") == kind:
                return frame
        raise AssertionError(f"the call has ended before {kind}")

    def join(self, room):
        self.send(join=rooms_pb2.RoomJoin(room=room))
        self.until("snapshot")

    def say(self, room, text, number):
        self.send(say=rooms_pb2.RoomSay(room=room, text=text, client_seq=number))
        return self.until("ack").ack.seq

    def hears(self, text):
        while text not in self.heard:
            self.until("entry")


def rooms(a, b, c):
    """People in one room by three daemons, by gRPC and by WebSockets; who comes back by another daemon has missed nothing."""
    ann, bob, cem = (eventually(Person, client, name) for client, name in ((a, "Ann"), (b, "Bob"), (c, "Cem")))
    for person in ann, bob, cem:
        person.join("den")
    for i, person in enumerate((ann, bob, cem)):
        assert person.say("den", f"I am {i}", 1) > 0
    for person, text in ((ann, "I am 2"), (bob, "I am 0"), (cem, "I am 1")):
        person.hears(text)
    cem.call.cancel()
    back = Person(a, "", cem.token)
    back.join("den")
    back.hears("I am 2")
    assert back.heard == ["I am 0", "I am 1", "I am 2"], back.heard
    sockets = [test_rooms.Socket(client, name) for client, name in ((a, "Dan"), (b, "Eve"), (c, "Fay"))]
    for i, socket in enumerate(sockets):
        socket.join("den")
        told = socket.until("entry", lambda entry, i=i: entry.get("text") == f"I am {2 + i}")
        assert [text for _, _, kind, text in test_rooms.entries(told) if kind == "SAID"] == [f"I am {n}" for n in range(3 + i)], told
        socket.say("den", f"I am {3 + i}", 1)
    back.hears("I am 5")
    for socket in sockets:
        socket.send(join={"room": "x" * 1000})  # refused, and the socket goes on
        socket.until("error")
        socket.say("den", "again", 2)
        socket.close()
    for client in a, b, c:
        socket = test_rooms.Socket(client)
        socket.send(hello={"name": "", "token": "no token"})
        assert "error" in socket.read() and socket.read()[0] == 4003
        socket.close()
    for person in ann, bob, back:
        person.out.put(None)
        fails(lambda person=person: list(person.call))


COLUMNS = {"x": ("float32", ())}


def kept(a, b, c):
    """Keys and tables by three daemons, with checkpoints."""
    stores = [parley.OrderedStore(client.address) for client in (a, b, c)]
    big = np.random.default_rng(1).bytes((5 << 19) + 1)
    assert stores[0].push("key", big, 1, None) and stores[1].push("key", "second", 2, 1)
    for store in stores:
        assert store.pull("key", 1) == (big, 1) and store.pull("key") == ("second", 2)
    stores[2].checkpoint("key")
    replays = [parley.Replay(client.address, "table", COLUMNS, max_items=50, seed=1) for client in (a, b, c)]
    replays[0].insert_all({"x": np.arange(10, dtype=np.float32)})
    replays[1].insert({"x": np.float32(10)})
    assert len(replays[2]) == 11 and set(replays[2].sample(200)["x"].tolist()) <= set(range(11))
    replays[2].checkpoint()


def trained(a, b, c):
    """Three trainers of one set, each by another daemon: they end with the same bytes."""
    trainers = [children.start([sys.executable, OPTIM, "train", client.address, str(i), "3", "adam"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True) for i, client in enumerate((a, b, c))]
    first = [t.stdout.readline().split() for t in trainers]
    assert len({f[1] for f in first}) == 1, "all begin with the same"
    for t in trainers:
        t.stdin.write("\n")
        t.stdin.flush()
    last = [t.communicate()[0].split() for t in trainers]
    assert [t.returncode for t in trainers] == [0, 0, 0] and len({x[2] for x in last}) == 1 and last[0][1] == str(ROUNDS), last
    return bytes.fromhex(last[0][2])


def pulled(address):
    """The newest version of the set, as one that only reads has it."""
    with parley.connect(address, patience=children.PATIENCE) as server:
        values = [np.zeros(shape, np.float32) for shape in SHAPES]
        with contextlib.closing(parley.optim.RemoteOptimizer(values, server, "adam", round_size=3, **KIND)) as optimizer:
            return optimizer.version, np.concatenate([p.reshape(-1) for p in values]).tobytes()


def go_on(all, daemons, values):
    """Each daemon is killed that has one of the places, until one daemon is left: it has all that was kept."""
    for dead in daemons[:2]:
        left = [d for d in daemons if d is not dead and d.process.poll() is None]
        all.kill(dead)
        client = left[0].client
        assert eventually(parley.OrderedStore(client.address).pull, "key", 2) == ("second", 2)
        replay = eventually(parley.Replay, client.address, "table", COLUMNS, max_items=50, seed=1)
        assert eventually(len, replay) == 11
        version, bytes_now = eventually(pulled, client.address)
        assert (version, bytes_now) == (ROUNDS, values), version
        now = places(client)
        assert dead.client.address not in now.values(), now
    assert set(places(daemons[2].client).values()) == {daemons[2].client.address}


def quotas(parleyd):
    """60 requests a minute, at three daemons at once: together they answer all of these, and no more."""
    with tempfile.TemporaryDirectory() as folder:
        path, key = os.path.join(folder, "keys"), test_keys.new_key()
        test_keys.write_keys(path, ("alice", key, "requests=60"))
        all = test_together.Together(parleyd, "quotas", "--keys", path)
        with all.daemon() as a, all.daemon() as b, all.daemon() as c:
            children.until("each daemon to have a slice", lambda: all.sql("SELECT count(*) FROM parley.quota_slice WHERE n > 0") == "3")
            answered, refused, is_over = [], [], threading.Event()

            def ask(client):
                body = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
                while not is_over.is_set():
                    status, headers, said = test_together.posted(client, "/v1/chat/completions", body, [("Authorization", f"Bearer {key}")])
                    assert status in (200, 429), (status, said)
                    (answered if status == 200 else refused).append(headers)

            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                asking = [pool.submit(ask, client) for client in (a, b, c)]
                try:
                    children.until("all that the quota allows", lambda: len(answered) >= 60)
                    n = len(refused)
                    children.until("further refusals", lambda: len(refused) > n + 30)
                finally:
                    is_over.set()
                for one in asking:
                    one.result()
            took = time.monotonic() - began
            assert 60 <= len(answered) <= 60 + took + 1, (len(answered), took)
            assert not [headers for headers in refused if "Retry-After" not in headers]
            print(f"quotas: {len(answered)} answered and {len(refused)} refused in {took:.1f} s")


class Talker:
    """Somebody who talks and listens in a room by one daemon, and goes on by itself where that is lost."""

    def __init__(self, client, name):
        self.name, self.acked, self.heard, self.failure, self.is_over = name, {}, [], None, threading.Event()
        self.room = parley.rooms.join(parley.connect(client.address, patience=children.PATIENCE), "hall", name)
        self.threads = [threading.Thread(target=self.run, args=(act,), daemon=True) for act in (self.talk, self.listen)]
        for thread in self.threads:
            thread.start()

    def run(self, act):
        try:
            act()
        except Exception as error:  # whatever its kind is: the test's thread asks
            self.failure = None if self.is_over.is_set() else error

    def talk(self):
        while not self.is_over.is_set():
            text = f"{self.name} says {len(self.acked) + 1} to Echo"
            self.acked[text] = self.room.say(text)

    def listen(self):
        for message in self.room:
            self.heard.append((message.seq, message.name, message.text))

    def goes_on(self):
        """Until more of what it says is acknowledged, and more of what the agent says is heard."""
        n, said = len(self.acked), self.answers()

        def holds():
            assert self.failure is None, f"{self.name}: {self.failure}"
            return len(self.acked) > n + 1 and self.answers() > said

        children.until(f"more by {self.name}", holds)

    def answers(self):
        return sum(name == "Echo" for _, name, _ in self.heard)

    def end(self):
        self.is_over.set()
        self.room.close()
        for thread in self.threads:
            thread.join(children.PATIENCE)


def rooms_move(parleyd):
    """People talk by all daemons while the one that has the rooms is stopped until another one has them, wakes, that one is killed, and the third
    one, too, so that the first one has them again: what was acknowledged is there, once, and all have heard the same."""
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "service.yaml")
        with open(plan, "w", encoding="utf-8") as file:
            file.write("task_name: test\nworld_module: parley.worlds\noverworld: menu\nmax_workers: 1\ngrace: 600\n"
                       "tasks:\n  alone: {task_world: echo, welcome: You are alone.}\n")
        all = test_together.Together(parleyd, "rooms_move", "--service", plan)
        all.flags[all.flags.index("--lease") + 1] = "3s"
        daemons = [all.daemon() for _ in range(3)]
        for daemon in daemons:
            daemon.__enter__()
        children.until("each to know the others", lambda: len(listed(daemons[0])) == 3)
        ann = eventually(Person, daemons[0], "Ann")
        ann.join("hall")
        ann.send(invite=rooms_pb2.RoomInvite(room="hall", agent="echo", name="Echo"))
        ann.until("entry")
        at = places(daemons[0])["rooms"]
        first, *others = sorted(daemons, key=lambda d: d.address != at)
        bob = Person(first, "Bob")
        bob.join("hall")
        eve = test_service.Person(first, "a secret of 16 characters")
        eve.say("hello")
        eve.told("Welcome. Choose what to do.", quick_replies=["alone"])
        eve.say("alone")
        eve.told("You are alone.")
        talkers = {d: Talker(d, f"By {i}") for i, d in enumerate(others)}
        for talker in talkers.values():
            talker.goes_on()
        first.process.send_signal(signal.SIGSTOP)
        children.until("another to have the rooms", lambda: places(others[0]).get("rooms", at) != at)
        at = places(others[0])["rooms"]
        second, third = sorted(others, key=lambda d: d.address != at)
        for talker in talkers.values():
            talker.goes_on()
        first.process.send_signal(signal.SIGCONT)
        ended = test_together.fails(grpc.StatusCode.UNAVAILABLE, lambda: list(bob.call))
        assert "another parleyd has this now" in ended.details(), ended
        eve.ended(1013, "another parleyd has this now")
        talkers[first] = Talker(first, "By 2")
        talkers[first].goes_on()
        for dead in second, third:
            talkers[dead].end()
            all.kill(dead)
            for daemon, talker in talkers.items():
                if daemon.process.poll() is None:
                    talker.goes_on()
        assert places(first)["rooms"] == first.address
        children.until("Eve's task", lambda: echoes(first, eve.secret))
        talkers[first].end()
        n_heard = judged(first, talkers.values())
        print(f"rooms moved: {n_heard} entries, {sum(len(t.acked) for t in talkers.values())} acknowledged", flush=True)
        first.__exit__(None, None, None)


def echoes(client, secret):
    """Whether the person of the chat service is in its task."""
    person = test_service.Person(client, secret)
    person.say("again")
    told = person.read()
    person.close()
    return told == {"text": "again", "quick_replies": None}


def judged(client, talkers):
    """What was acknowledged is in the log, once, in order; what was heard is the log, without a gap."""
    last = max(seq for talker in talkers for seq in talker.acked.values())
    reader, log = Person(client, "Reader"), {}
    reader.send(join=rooms_pb2.RoomJoin(room="hall"))
    while last not in log:
        entry = reader.until("entry").entry
        log[entry.seq] = (entry.name, entry.text)
    assert sorted(log) == list(range(1, len(log) + 1)), log
    for talker in talkers:
        said = [(seq, text) for seq, (name, text) in sorted(log.items()) if name == talker.name and text not in ("", "left")]
        assert set(talker.acked.items()) <= {(text, seq) for seq, text in said} and len(said) <= len(talker.acked) + 1, (said, talker.acked)
        assert [text for _, text in said] == [f"{talker.name} says {i} to Echo" for i in range(1, len(said) + 1)], said
        heard = {seq: (name, text) for seq, name, text in talker.heard}
        assert len(talker.heard) == len(heard) and sorted(heard) == list(range(1, len(heard) + 1)), talker.heard
        assert all(log[seq] == heard[seq] for seq in heard if seq <= last), talker.heard
    reader.call.cancel()
    return len(log)


def main():
    all = test_together.Together(sys.argv[1], "places", "--checkpoint-interval", "100ms", "--checkpoint-rounds", "1")
    daemons = [all.daemon() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(daemon) for daemon in daemons[2:]]
        clients = [daemon.__enter__() for daemon in daemons[:2]] + clients
        children.until("each to know the others", lambda: len(listed(clients[0])) == 3)
        for check in (registry, world, work, rooms, kept):
            check(*clients)
            print(check.__name__, flush=True)
        values = trained(*clients)
        at = places(clients[0])
        assert set(at) == PLACES and set(at.values()) <= {client.address for client in clients}, at
        print("places", *(f"{place}={[c.address for c in clients].index(address)}" for place, address in sorted(at.items())), flush=True)
        assert not any(int(row["lag_ms"]) > 60000 for row in listed(clients[0]))
        go_on(all, daemons, values)
    quotas(sys.argv[1])
    rooms_move(sys.argv[1])


if __name__ == "__main__":
    main()
