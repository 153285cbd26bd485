#!/usr/bin/env python3
"""client/examples/durable.py, killed and run again from its beginning: the tools' effects happen once, the run ends as an undisturbed one, and
no turn that was answered is generated again, by the daemon's count of generated tokens. Killed are the client alone, or the daemon under it;
where, is counted in effects, with a random time behind it. Each loop: its own conversation, by each of the three clients in turn.

usage: test_durable.py PARLEYD WRITE_TINY_MODEL [KILLS [TURNS [SEED]]]      (run by the interpreter that has openai, anthropic and the package)"""
import http.client
import json
import os
import random
import re
import signal
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "integration"), os.path.join(here, "..", "..", "client", "examples"), os.environ["PARLEY_PACKAGE"]]
import children  # noqa: E402
import durable  # noqa: E402

HOWS = list(durable.LOOPS)
for package in "anthropic", "openai", "parley":  # once, not in each child
    __import__(package)


class Told(durable.Ledger):
    """Says through a pipe when it is about to have an effect, and when it had it."""

    def __init__(self, path, pipe):
        super().__init__(path)
        self.pipe = pipe

    def do(self, *call):
        os.write(self.pipe, b"[")
        result = super().do(*call)
        os.write(self.pipe, b"]")
        return result


def get(address, path):
    connection = http.client.HTTPConnection(address, timeout=children.PATIENCE)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def generated(daemon):
    """The tokens that this process of the daemon has generated."""
    found = re.findall(r'^parley_generated_tokens_total\{[^}]*\} (\d+)', get(daemon.http, "/metrics")[1], re.M)
    assert found
    return sum(map(int, found))


class Run:
    """One run of the loop, in a child."""

    def __init__(self, how, address, loop, ledger, turns):
        self.out, write_out = os.pipe()
        self.events, write_events = os.pipe()
        self.said = b""
        self.process = os.fork()
        if self.process == 0:
            try:
                for step in durable.LOOPS[how](address, loop, Told(ledger, write_events), turns):
                    os.write(write_out, json.dumps(step).encode() + b"\n")
                os._exit(0)
            except BaseException as e:
                print(f"{how} {loop}: {e!r}", file=sys.stderr, flush=True)
                os._exit(1)
        os.close(write_out)
        os.close(write_events)

    def await_events(self, n):
        """Until so many have come, or the run has ended."""
        while n > 0:
            got = os.read(self.events, n)
            if not got:
                return
            n -= len(got)

    def so_far(self):
        """The steps that it has told: tool, arguments, result, key, tokens."""
        os.set_blocking(self.out, False)
        try:
            while got := os.read(self.out, 65536):
                self.said += got
        except BlockingIOError:
            pass
        os.set_blocking(self.out, True)
        return [json.loads(line) for line in self.said.split(b"\n")[:-1]]

    def end(self):
        """Its exit status, and its steps."""
        while got := os.read(self.out, 65536):
            self.said += got
        os.close(self.out)
        os.close(self.events)
        _, status = os.waitpid(self.process, 0)
        return status, [json.loads(line) for line in self.said.split(b"\n")[:-1]]


def effects(path):
    return [list(row) for row in durable.Ledger(path).db.execute("SELECT tool, arguments, result, key FROM effects ORDER BY rowid")]


def restart(daemon):
    for flag, at in (("--listen", daemon.address), ("--http", daemon.http)):
        daemon.command[daemon.command.index(flag) + 1] = at
    daemon.__enter__()


class Disturbed:
    """A loop that is killed again and again."""

    def __init__(self, daemon, how, folder, loop, turns):
        self.daemon, self.how, self.loop, self.turns = daemon, how, loop, turns
        self.ledger = os.path.join(folder, loop + ".db")
        self.known = []  # the steps that some run has told
        self.n_clients = self.n_daemons = 0  # kills
        self.base = generated(daemon)  # of this process of the daemon, before the loop
        self.complete = (0, 0)  # how many turns were complete, at least and at most, before this process had any
        self.bounds = []  # of processes that were killed: what they had generated, of turns from … to

    def run(self):
        return Run(self.how, self.daemon.address if self.how == "parley" else self.daemon.http, self.loop, self.ledger, self.turns)

    def learn(self, steps):
        n = min(len(steps), len(self.known))
        assert steps[:n] == self.known[:n], (steps, self.known)
        if len(steps) > n:
            self.known = steps

    def kill_daemon(self, run):
        told = generated(self.daemon) - self.base
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.listener.join()
        self.learn(run.so_far())
        # A turn is durable before its answer goes out, and no later one is asked for before its effect is told.
        self.bounds.append((told, self.complete[0], len(self.known) + 2))
        self.complete, self.base = (len(self.known), len(self.known) + 1), 0
        self.n_daemons += 1

    def kill(self, rng):
        run = self.run()
        least = 2 * len(self.known) if rng.random() < 0.7 else 0
        run.await_events(rng.randint(min(least, 2 * self.turns), min(least + 8, 2 * self.turns)))
        time.sleep(rng.random() * rng.choice([0.001, 0.02]))  # waits for nothing: the kill comes at a random moment
        what = rng.choice(["client", "client", "client", "daemon", "both"])
        if what != "client":
            self.kill_daemon(run)
        if what != "daemon":
            os.kill(run.process, signal.SIGKILL)
            self.n_clients += 1
        if what != "client":
            restart(self.daemon)
        status, steps = run.end()
        assert status in ((0,) if what == "daemon" else (0, signal.SIGKILL)), (what, status)
        self.learn(steps)

    def finish(self):
        """Runs it to its end, and once more from its beginning. Returns its steps."""
        for n in range(2):
            had = generated(self.daemon)
            status, steps = self.run().end()
            assert status == 0 and len(steps) == self.turns, (status, len(steps))
            self.learn(steps)
            assert n == 0 or generated(self.daemon) == had
        tokens = [step[4] for step in steps]
        told = generated(self.daemon) - self.base
        # each turn that was not complete when this process began was generated once, and no other
        assert told in {sum(tokens[n:]) for n in self.complete}, (told, tokens, self.complete)
        for had, first, end in self.bounds:
            assert had <= sum(tokens[first:end]), (had, tokens, first, end)
        assert effects(self.ledger) == [step[:4] for step in steps]
        assert len({step[3] for step in steps}) == self.turns
        return steps


def result_again(address, conversation, call):
    """The status and the body of a chat completion that gives the call's result in the conversation."""
    connection = http.client.HTTPConnection(address, timeout=children.PATIENCE)
    body = json.dumps({"messages": [{"role": "tool", "tool_call_id": call, "content": "again"}]})
    connection.request("POST", "/v1/chat/completions", body, {"X-Conversation-Id": conversation})
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    return answer.status, said


def keys_elsewhere(daemon, loop, steps):
    """The keys of the parley loop's calls are the same in a transcript and in a fork's, and a result is taken once."""
    import parley
    from parley.v1 import conversations_pb2

    with parley.connect(daemon.address) as server:
        chat = server.open(request_id=loop)
        fork = server.conversation(chat.id).fork()
        for c in chat, fork:
            turns = c._call("Conversations/Get", conversations_pb2.ConversationsGetRequest(conversation=c.id), conversations_pb2.Conversation).transcript
            assert [call.idempotency_key for turn in turns for call in turn.message.tool_calls] == [step[3] for step in steps]
            calls = [turn.message.tool_calls[0] for turn in turns]
            again = server.conversation(c.id)
            for call in calls[0], calls[-2]:
                try:
                    again.ask([{"role": "tool", "tool_call_id": call.id, "text": "again"}])
                    raise SystemExit("a second result was taken")
                except parley.Error as e:
                    assert (e.code, e.reason) == ("ALREADY_EXISTS", "TURN_BODY_DIFFERS") and call.id in e.message, e
                again = server.conversation(c.id)
                status, said = result_again(daemon.http, c.id, call.id)
                assert (status, said["error"]["code"]) == (422, "tool_result_given") and call.id in said["error"]["message"], (status, said)
            pieces = again.turn([{"role": "tool", "tool_call_id": calls[-1].id, "text": "once"}], max_tokens=4).reply()  # the last one had none yet
            assert pieces.turn == len(steps) + 1
            newer = server.conversation(c.id).turn("More.", tools=[{"name": "pay", "parameters": durable.TOOLS["pay"][1]}], tool_choice="pay").reply()
            (call,) = newer.tool_calls
            assert call.idempotency_key not in {step[3] for step in steps} and json.loads(call.arguments)["amount"]
            told = server.conversation(c.id).get().transcript[-1].message.tool_calls[0]
            assert (told.id, told.name, told.arguments, told.idempotency_key) == (call.id, call.name, call.arguments, call.idempotency_key)


def keys_of_responses(daemon):
    """A response tells the same key in its body, when it is read, and in its events; a stream of chat tells one, once."""

    def post(path, body):
        connection = http.client.HTTPConnection(daemon.http, timeout=children.PATIENCE)
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        said = answer.read().decode()
        connection.close()
        assert answer.status == 200, said
        return said

    schema = durable.TOOLS["pay"][1]
    body = {"input": durable.TASK, "tools": [{"type": "function", "name": "pay", "parameters": schema}], "tool_choice": "required"}
    first = json.loads(post("/v1/responses", body))
    key = first["output"][0]["idempotency_key"]
    assert re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", key), first
    again = json.loads(get(daemon.http, f"/v1/responses/{first['id']}")[1])
    assert again["output"] == first["output"]
    events = get(daemon.http, f"/v1/responses/{first['id']}?stream=true")[1]
    assert set(re.findall('"idempotency_key":"([^"]*)"', events)) == {key}
    tool = {"type": "function", "function": {"name": "pay", "parameters": schema}}
    chunks = post("/v1/chat/completions", {"messages": [{"role": "user", "content": durable.TASK}], "tools": [tool], "tool_choice": "required", "stream": True})
    assert len(re.findall('"idempotency_key":"([^"]*)"', chunks)) == 1 and key not in chunks, chunks
    tool = {"name": "pay", "input_schema": schema}
    blocks = post("/v1/messages", {"messages": [{"role": "user", "content": durable.TASK}], "tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": 100, "stream": True})
    assert len(re.findall('"idempotency_key":"([^"]*)"', blocks)) == 1, blocks


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    kills, turns, seed = (list(map(int, sys.argv[3:])) + [9, 10, 1][len(sys.argv) - 3:])[:3]
    rng = random.Random(seed)
    undisturbed = {}
    clients = daemons = n = 0
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, model, "16384"], check=True)
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0", "--data", os.path.join(folder, "data"), "--linger", "300s") as daemon:
            keys_of_responses(daemon)
            for how in HOWS:
                loop = Disturbed(daemon, how, folder, f"{how}-whole", turns)
                undisturbed[how] = [step[:3] + step[4:] for step in loop.finish()]
                whole = loop
            while clients + daemons < kills:
                how = HOWS[n % len(HOWS)]
                loop = Disturbed(daemon, how, folder, f"{how}-{n}", turns)
                while loop.n_clients + loop.n_daemons < min(20, -(-kills // len(HOWS))):
                    loop.kill(rng)
                assert [step[:3] + step[4:] for step in loop.finish()] == undisturbed[how]
                clients, daemons, n = clients + loop.n_clients, daemons + loop.n_daemons, n + 1
            # The last loop of HOWS is parley's. This process uses gRPC only now: no child of it is forked behind that.
            keys_elsewhere(daemon, whole.loop, whole.known)
    print(f"loops of {turns} turns: {n}; killed: clients {clients}, daemons {daemons}; effects that were doubled: 0; turns generated twice: 0; ends that differ: 0")


if __name__ == "__main__":
    main()
