#!/usr/bin/env python3
"""Agents that other programs compute: workers attach, are served through every API, form batches, are lost and replaced, and end
alone when they are at fault.

usage: test_attach.py PARLEYD PARLEY EXAMPLE WORDS_WORKER [TEST…]      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import numpy as np
import openai
import tritonclient.grpc as triton

import children
import harness
from agent_process import Worker
from children import until
from harness import conversations, sampling, word
from parley.v1 import agents_pb2 as agents, agents_pb2_grpc  # harness knows where they are

HERE = os.path.dirname(os.path.abspath(__file__))


def turn(client, c, text, number=0, **more):
    """The reply, and how it ended."""
    reply, done = "", None
    for event in client.conversations.Turn(conversations.TurnRequest(conversation=c, text=text, turn=number, **more)):
        if event.WhichOneof("event") == "piece":
            reply += event.piece.text
        elif event.WhichOneof("event") == "done":
            done = event.done
    return reply, word(done, "finish_reason")


def batching(client, name="words"):
    return next(m for m in client.models.List(harness.models.ModelsListRequest()).models if m.name == name).batching


def failure(call):
    """How a call fails."""
    try:
        call()
    except grpc.RpcError as e:
        return e
    raise AssertionError("it did not fail")


def test_one_worker(parleyd):
    """A worker that can do nothing but answer serves conversations, each with a state of its own; a fork and a rewind are made
    from the transcript."""
    with harness.Parleyd(parleyd) as client:
        worker = Worker(client)
        a, b = client.open("words"), client.open("words")
        assert turn(client, a, "one two") == ("2 words in turn 1", "stop")
        assert turn(client, b, "one") == ("1 words in turn 1", "stop")
        assert turn(client, a, "three four five") == ("5 words in turn 2", "stop")
        assert turn(client, b, "slowly two") == ("3 words in turn 2", "stop")
        fork = client.fork(a, at_turn=1)
        assert turn(client, fork, "three") == ("3 words in turn 2", "stop")
        assert turn(client, a, "six") == ("6 words in turn 3", "stop")
        client.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=a, to_turn=1))
        assert turn(client, a, "three") == ("3 words in turn 2", "stop")
        e = failure(lambda: turn(client, a, "now fail"))
        assert (e.code(), e.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "it was told to fail"), e
        assert turn(client, a, "four") == ("4 words in turn 3", "stop")
        for c in (a, b, fork):
            client.close(c)
        until("its clones are closed", lambda: len(worker.has("close")) == len(worker.has("open")), worker.process)
        worker.kill()


def test_sampling(parleyd):
    """A worker is told every sampling parameter, also those that nobody gave: it has no defaults to fill in."""
    numbers = "temperature top_k top_p min_p repetition_penalty presence_penalty frequency_penalty"
    with harness.Parleyd(parleyd) as client:
        worker = Worker(client, can="stateless")
        c = client.open("words")
        assert turn(client, c, "sampling")[0] == f"{numbers} seed max_tokens min_tokens ignore_eos False"
        given = sampling.Sampling(ignore_eos=True, stop=["END"])
        assert turn(client, c, "sampling", sampling=given)[0] == f"{numbers} seed stop max_tokens min_tokens ignore_eos True"
        worker.kill()


def ask(client, c, text, number=0):
    """The turn as a future of its reply."""
    return client.conversations.Ask.future(conversations.TurnRequest(conversation=c, text=text, turn=number))


def test_batches(parleyd):
    """What waits while a step runs is in the next one, of all conversations."""
    with harness.Parleyd(parleyd) as client:
        worker = Worker(client, can="fork,rewind")
        first = ask(client, client.open("words"), "please hold")
        until("the step is there", lambda: worker.has("step"), worker.process)
        chats = [client.open("words") for _ in range(64)]
        turns = [ask(client, c, "w " * i + "w") for i, c in enumerate(chats)]
        until("they wait", lambda: batching(client).waiting == 64, worker.process)
        worker.go()
        assert first.result().message.text == "2 words in turn 1"
        assert [t.result().message.text for t in turns] == [f"{i + 1} words in turn 1" for i in range(64)]
        until("it has told of the second step", lambda: len(worker.has("step")) >= 2, worker.process)  # a reply may overtake its lines
        assert worker.has("step")[1] == "step 64", worker.has("step")
        # slots and rows bound what is sent
        narrow = Worker(client, "narrow", rows=5, slots=2)
        turns = [ask(client, client.open("narrow"), "one") for _ in range(20)]
        assert all(t.result().message.text == "1 words in turn 1" for t in turns)
        rows = lambda: [int(line.split()[1]) for line in narrow.has("step")]
        until("it has told of all steps", lambda: sum(rows()) >= 20, narrow.process)
        assert sum(rows()) == 20 and max(rows()) <= 5, rows()
        narrow.kill()
        worker.kill()


def test_capabilities(parleyd):
    """Forks, rewinds, cancels and deadlines reach a worker that can, and take effect at once, whatever it does meanwhile."""
    with harness.Parleyd(parleyd) as client:
        worker = Worker(client, can="fork,rewind,save", every=2)
        a = client.open("words")
        for i in range(3):
            assert turn(client, a, "one") == (f"{i + 1} words in turn {i + 1}", "stop")
        fork = client.fork(a, at_turn=1)
        assert turn(client, fork, "two") == ("2 words in turn 2", "stop")
        assert worker.has("fork") == ["fork 2 1"] and worker.has("open") == ["open 1 0"] and worker.has("save")[0] == "save 1"
        client.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=a, to_turn=2))
        assert turn(client, a, "three four") == ("4 words in turn 3", "stop")
        assert worker.has("rewind") == ["rewind 1 2"]
        # a cancel, and a deadline, while the worker does nothing
        n_steps = len(worker.has("step"))
        held = ask(client, a, "hold this")
        until("it holds", lambda: len(worker.has("step")) == n_steps + 1, worker.process)
        client.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=a))
        assert word(held.result(), "finish_reason") == "cancelled"
        late = client.conversations.Ask.future(conversations.TurnRequest(conversation=fork, text="late", deadline_ms=100))
        assert late.exception() is not None or word(late.result(), "finish_reason") == "deadline"
        worker.go()
        until("its cancels are told", lambda: worker.has("cancel"), worker.process)
        n = len(client.get(a).transcript)
        assert turn(client, a, "five") == (f"{4 + 1 + 2 * (n == 4)} words in turn {n + 1}", "stop"), client.get(a)
        worker.kill()


def retried(client, c, text, number):
    """Asks until there is a worker, as a client does; how many tries it took."""
    for tries in range(1, 10000):
        try:
            return client.conversations.Ask(conversations.TurnRequest(conversation=c, text=text, turn=number)).message.text, tries
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.UNAVAILABLE, e
            assert "worker" in e.details(), e
            time.sleep(0.02)  # as its retry-after says, in small
    raise AssertionError("no worker came")


def test_lost_worker(parleyd):
    """A worker is killed in mid-step: whoever asks again with the turn's number gets it once, from the clone's saved state or its
    transcript at the next worker."""
    with harness.Parleyd(parleyd, "--http", "127.0.0.1:0") as client:
        worker = Worker(client, can="save", every=2, number=1)
        chats = [client.open("words") for _ in range(8)]
        for number in (1, 2, 3):
            for i, c in enumerate(chats):
                assert turn(client, c, "w " * (i + 1), number)[0] == f"{number * (i + 1)} words in turn {number}"
        got = queue.SimpleQueue()
        threads = [threading.Thread(target=lambda i=i, c=c: got.put((i, retried(client, c, "kill-1 " + "w " * i, 4))))
                   for i, c in enumerate(chats)]
        for t in threads:
            t.start()
        worker.process.wait()
        until("it is gone", lambda: list_models(client) == ["echo"])
        e = failure(lambda: client.open("words"))
        assert (e.code(), e.details()) == (grpc.StatusCode.UNAVAILABLE, "no worker of model 'words' is attached"), e
        second = Worker(client, can="save", every=2, number=2)
        for t in threads:
            t.join()
        replies = sorted(got.get() for _ in chats)
        assert [r[0] for _, r in replies] == [f"{4 * (i + 1)} words in turn 4" for i in range(8)], replies
        assert max(r[1] for _, r in replies) > 1, "nobody had to ask again"
        assert [len(client.get(c).transcript) for c in chats] == [4] * 8
        assert all(line.split()[2] == "2" for line in second.has("open")), second.said  # the saved state
        assert len(second.has("open")) == len(second.has("replay")) == 8
        second.kill()


def test_two_workers(parleyd):
    """Two workers of a name share its conversations; when one is lost the other goes on with its turns, unless a part of a reply
    was sent that it might not say again."""
    with harness.Parleyd(parleyd) as client:
        one, two = Worker(client, number=1), Worker(client, number=2)
        chats = [client.open("words") for _ in range(16)]
        for c in chats:
            assert turn(client, c, "one")[0] == "1 words in turn 1"
        assert len(one.has("open")) == len(two.has("open")) == 8
        pending = [ask(client, c, "two kill-1", 2) for c in chats]
        assert [p.result().message.text for p in pending] == ["3 words in turn 2"] * 16
        assert len(two.has("open")) == 16 and [len(client.get(c).transcript) for c in chats] == [2] * 16
        one.process.wait()
        # a part was sent
        three = Worker(client, number=3)
        c = client.open("words")
        assert turn(client, c, "later-3", 1) == ("1 ", "worker_lost")
        assert turn(client, c, "one more", 2) == ("3 words in turn 2", "stop")
        three.process.wait()
        two.kill()
    with harness.Parleyd(parleyd) as client:
        both = [Worker(client, number=n, can="deterministic") for n in (1, 2)]
        c = client.open("words")
        assert turn(client, c, "later-1", 1) == ("1 words in turn 1", "stop")
        assert turn(client, c, "two", 2) == ("2 words in turn 2", "stop")
        both[0].process.wait()
        # another version, or other capabilities, are not the same agent
        for other, why in (({"version": "2", "can": "deterministic"}, "version"), ({"can": ""}, "capabilities")):
            e = failure(lambda other=other: raw_attach(client, [offer(name="words", **wire(other))]))
            assert e.code() == grpc.StatusCode.FAILED_PRECONDITION and why in e.details(), e
        both[1].kill()


def test_stateless(parleyd):
    """A stateless worker gets the whole conversation with each row, whichever worker had it before."""
    with harness.Parleyd(parleyd) as client:
        workers = [Worker(client, can="stateless", number=n) for n in (1, 2)]
        c = client.open("words")
        assert turn(client, c, "one two")[0] == "2 words in turn 1"
        assert turn(client, c, "slowly three") == ("4 words in turn 2", "stop")
        fork = client.fork(c, at_turn=1)
        assert turn(client, c, "later-1 later-2") == ("6 ", "worker_lost")  # the second went on, and was lost too
        for w in workers:
            w.process.wait()
        third = Worker(client, can="stateless", number=3)
        assert turn(client, fork, "three")[0] == "3 words in turn 2"
        assert not third.has("open") and not third.has("replay")
        third.kill()


def test_restart(parleyd):
    """A conversation that is kept on disk goes on after the daemon was killed, at a worker that is given its turns."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = harness.Parleyd(parleyd, "--data", folder)
        client = daemon.__enter__()
        worker = Worker(client)
        c = client.open("words")
        assert turn(client, c, "one two", 1)[0] == "2 words in turn 1"
        assert turn(client, c, "slowly three", 2)[0] == "4 words in turn 2"
        n_steps = len(worker.has("step"))
        held = ask(client, c, "hold this", 3)
        until("it holds", lambda: len(worker.has("step")) == n_steps + 1, worker.process)
        daemon.process.kill()
        daemon.process.wait()
        assert held.exception() is not None
        worker.kill()
        client.channel.close()
        with harness.Parleyd(parleyd, "--data", folder, "--log-level", "error") as client:
            again = Worker(client)
            # the agent did not say that it would give the same reply again: the turn ends without one
            assert turn(client, c, "hold this", 3) == ("", "error")
            assert turn(client, c, "five", 4) == ("7 words in turn 4", "stop")
            assert again.has("replay") == ["replay 1 1", "replay 1 2", "replay 1 3"], again.said
            again.kill()


def is_refused(client):
    """Whether the daemon takes no new conversations."""
    try:
        client.close(client.open("echo"))
        return False
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.UNAVAILABLE, e
        return True


def test_drain(parleyd):
    """A daemon that stops lets workers answer the turns in flight, and ends on time without them."""
    daemon = harness.Parleyd(parleyd)
    with daemon as client:
        worker = Worker(client)
        held = ask(client, client.open("words"), "hold this")
        until("it holds", lambda: worker.has("step"), worker.process)
        daemon.process.send_signal(signal.SIGTERM)
        until("it drains", lambda: is_refused(client), daemon.process)
        worker.go()
        assert held.result().message.text == "2 words in turn 1"
        until("it is told", lambda: worker.has("ended"))
        daemon.process.wait(children.PATIENCE)
    daemon = harness.Parleyd(parleyd, "--drain-timeout", "200ms", "--log-level", "error")
    with daemon as client:
        worker = Worker(client)
        held = ask(client, client.open("words"), "hold this")
        until("it holds", lambda: worker.has("step"), worker.process)
        daemon.process.send_signal(signal.SIGTERM)
        assert held.exception() is not None or word(held.result(), "finish_reason") == "cancelled"
        daemon.process.wait(children.PATIENCE)
        worker.kill()


def list_models(client):
    return sorted(m.name for m in client.models.List(harness.models.ModelsListRequest()).models if word(m, "state") == "ready")


def wire(options):
    can = [agents.AgentCapability.Value("AGENT_CAPABILITY_" + c.upper()) for c in filter(None, options["can"].split(","))]
    return {"version": options.get("version", ""), "capabilities": can}


def offer(name="bad", **more):
    return agents.AgentsAttachRequest(offer=agents.AgentOffer(name=name, **more))


def result(step, *rows):
    return agents.AgentsAttachRequest(result=agents.AgentStepResult(step=step, rows=rows))


def row(number, text="", outcome=agents.AGENT_ROW_OUTCOME_DONE, **more):
    return agents.AgentRowResult(row=number, text=text, outcome=outcome, **more)


def raw_attach(client, requests, answer=None):
    """Attaches by hand: sends requests, and what answer makes of each order; reads until the stream ends."""
    out = queue.SimpleQueue()
    for r in requests:
        out.put(r)
    for order in agents_pb2_grpc.AgentsStub(client.channel).Attach(iter(out.get, None), timeout=children.PATIENCE):
        for r in answer(order) if answer else ():
            out.put(r)
    out.put(None)


def at_fault(client, requests, code, why, answer=None):
    e = failure(lambda: raw_attach(client, requests, answer))
    assert e.code() == getattr(grpc.StatusCode, code) and why in e.details() and "\n" not in e.details(), (why, e)


def test_hostile_workers(parleyd):
    """Whoever breaks the rules of the stream ends with one sentence, and nobody else is disturbed."""
    with harness.Parleyd(parleyd, "--attach-timeout", "30s", "--log-level", "error") as client:
        good, lost = Worker(client), None
        c, n = client.open("words"), 0
        for requests, code, why in [
                ([result(1)], "INVALID_ARGUMENT", "offer is missing"),
                ([agents.AgentsAttachRequest()], "INVALID_ARGUMENT", "offer is missing"),
                ([offer(""),], "INVALID_ARGUMENT", "name"),
                ([offer("a/b")], "INVALID_ARGUMENT", "name"),
                ([offer("x" * 64)], "INVALID_ARGUMENT", "offer"),
                ([offer("echo")], "ALREADY_EXISTS", "another model 'echo'"),
                ([offer(version="1 2")], "INVALID_ARGUMENT", "offer.version"),
                ([offer(max_rows=1025)], "INVALID_ARGUMENT", "offer.max_rows"),
                ([offer(slots=17)], "INVALID_ARGUMENT", "offer.slots"),
                ([offer(capabilities=[99])], "INVALID_ARGUMENT", "offer.capabilities"),
                ([offer(cost_unit=99)], "INVALID_ARGUMENT", "offer.cost_unit"),
                ([offer(), offer()], "INVALID_ARGUMENT", "offer")]:
            at_fault(client, requests, code, why)
            n += 1
            assert turn(client, c, "w")[0] == f"{n} words in turn {n}"

        def on_accepted(*answers):
            return lambda order: answers if order.WhichOneof("what") == "accepted" else ()

        for answers, why in [
                ([result(1)], "has no row 0"),
                ([result(2, row(0))], "is 2, but no such step"),
                ([result(1, row(1))], "has row 1, but step 1 has only 1 rows"),
                ([result(1, row(0), row(0))], "has row 0 of step 1 twice"),
                ([result(1, row(0, outcome=0))], "has outcome 0"),
                ([result(1, row(0, outcome=77))], "has outcome 77"),
                ([result(1, row(0, "x" * 65537))], "at most 65536"),
                ([agents.AgentsAttachRequest()], "result is missing"),
                ([agents.AgentsAttachRequest(state=agents.AgentState(clone=1))], "was not asked for")]:
            def answer(order, answers=answers):
                nonlocal lost
                if order.WhichOneof("what") == "accepted":
                    lost = ask(client, client.open("bad"), "hello")
                return answers if order.WhichOneof("what") == "step" else ()

            at_fault(client, [offer("bad")], "INVALID_ARGUMENT", why, answer)
            assert lost.exception().code() == grpc.StatusCode.UNAVAILABLE, lost.exception()
            n += 1
            assert turn(client, c, "w")[0] == f"{n} words in turn {n}"
        flood = [agents.AgentsAttachRequest(state=agents.AgentState(clone=i, state=b"x" * 1000)) for i in range(2000)]
        at_fault(client, [offer("bad")], "INVALID_ARGUMENT", "was not asked for", on_accepted(*flood))
        at_fault(client, [offer("bad")], "RESOURCE_EXHAUSTED", "larger than max",
                 on_accepted(agents.AgentsAttachRequest(state=agents.AgentState(clone=1, state=b"x" * (8 << 20)))))

        def big_state(order):  # it was asked for, but not for so much
            nonlocal lost
            what = order.WhichOneof("what")
            if what == "accepted":
                lost = ask(client, client.open("bad"), "hello")
            if what == "step":
                return [result(1, row(0, "hi"))]
            return [agents.AgentsAttachRequest(state=agents.AgentState(clone=order.save.clone, state=b"x" * (2 << 20)))] if what == "save" else ()

        can = [agents.AGENT_CAPABILITY_SAVE]
        at_fault(client, [offer("bad", capabilities=can, save_every=1)], "INVALID_ARGUMENT", "at most 1048576", big_state)
        for garbage in (b"\xff" * 100, b"\x0a\x80\x80\x80\x80\x01", bytes(range(256))):
            call = client.channel.stream_stream("/parley.v1.Agents/Attach", None, None)
            e = failure(lambda call=call, garbage=garbage: list(call(iter([garbage]), timeout=children.PATIENCE)))
            assert e.code() == grpc.StatusCode.INVALID_ARGUMENT, e
        assert turn(client, c, "w")[0] == f"{n + 1} words in turn {n + 1}"
        good.kill()
    with harness.Parleyd(parleyd, "--attach-timeout", "300ms", "--log-level", "error") as client:
        at_fault(client, [], "DEADLINE_EXCEEDED", "no offer came within 300 ms")
        good, lost = Worker(client), []

        def silent(order):
            if order.WhichOneof("what") == "accepted":
                lost.append(ask(client, client.open("bad"), "hello"))
            return ()

        at_fault(client, [offer("bad")], "DEADLINE_EXCEEDED", "step 1 was not answered within 300 ms", silent)
        assert lost[0].exception().code() == grpc.StatusCode.UNAVAILABLE
        assert turn(client, client.open("words"), "w")[0] == "1 words in turn 1"
        good.kill()


def test_who_may_attach(parleyd):
    """Without keys: whoever is on this machine, if only that can reach the server, or as --attach says. With keys: who has the
    role."""
    with harness.Parleyd(parleyd, "--attach", "off") as client:
        at_fault(client, [offer()], "PERMISSION_DENIED", "may not attach")
    with harness.Parleyd(parleyd, listen="0.0.0.0:0") as client:
        at_fault(client, [offer()], "PERMISSION_DENIED", "may not attach")
    with harness.Parleyd(parleyd, "--attach", "on", listen="0.0.0.0:0") as client:
        Worker(client).kill()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
            for principal, roles in (("worker", "attach"), ("admin", "admin")):
                print(principal, hashlib.sha256(f"pk-{principal}".encode()).hexdigest(), roles, file=f)
        with harness.Parleyd(parleyd, "--keys", path, listen="0.0.0.0:0") as client:
            attach = agents_pb2_grpc.AgentsStub(client.channel).Attach
            e = failure(lambda: next(attach(iter([offer("words")]), metadata=[("authorization", "Bearer pk-admin")])))
            assert (e.code(), e.details()) == (grpc.StatusCode.PERMISSION_DENIED, "this needs a key with the role attach"), e
            held = queue.SimpleQueue()
            held.put(offer("words"))
            call = attach(iter(held.get, None), metadata=[("authorization", "Bearer pk-worker")])
            assert next(call).WhichOneof("what") == "accepted"
            call.cancel()


def test_front_doors(parleyd):
    """The example of docs/serving.md behind OpenAI's client, KServe's and `parley chat`; listed while it is attached."""
    parley, example = sys.argv[2:4]
    with harness.Parleyd(parleyd, "--http", "127.0.0.1:0") as client:
        openai_client = openai.OpenAI(base_url=f"http://{client.http}/v1", api_key="any", timeout=children.PATIENCE, max_retries=0)
        assert [m.id for m in openai_client.models.list()] == ["echo"]
        package = os.environ["PARLEY_PACKAGE"]
        worker = children.start([sys.executable, example, client.address], env={**os.environ, "PYTHONPATH": package})
        until("it is listed", lambda: [m.id for m in openai_client.models.list()] == ["echo", "words"], worker)
        hello = [{"role": "user", "content": "one two three"}]
        reply = openai_client.chat.completions.create(model="words", messages=hello).choices[0]
        assert (reply.message.content, reply.finish_reason) == ("3 words", "stop")
        more = [*hello, {"role": "assistant", "content": "3 words"}, {"role": "user", "content": "four"}]
        stream = openai_client.chat.completions.create(model="words", messages=more, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in stream) == "4 words"
        assert openai_client.responses.create(model="words", input="one two").output_text == "2 words"
        chat = children.run([parley, "chat", "--server", client.address, "--model", "words"], input="one two\nthree\n",
                            capture_output=True, text=True)
        assert chat.stdout == "2 words\n3 words\n", chat
        with triton.InferenceServerClient(client.address) as kserve:
            assert kserve.is_model_ready("words")
            tensor = triton.InferInput("text_input", [1], "BYTES")
            tensor.set_data_from_numpy(np.array([b"one two three four five"], dtype=object))
            assert kserve.infer("words", [tensor]).as_numpy("text_output").tolist() == [b"5 words"]
            c = client.open("words")
            worker.kill()
            worker.wait()
            until("it is not listed", lambda: [m.id for m in openai_client.models.list()] == ["echo"])
            assert not kserve.is_model_ready("words")
        for call in (lambda: openai_client.chat.completions.create(model="words", messages=hello),
                     lambda: openai_client.responses.create(model="words", input="one")):
            try:
                call()
                raise AssertionError("it was answered")
            except openai.APIStatusError as e:
                assert e.status_code == 503 and "no worker of model 'words' is attached" in str(e), e
                assert e.response.headers["retry-after"] == "1"
        e = failure(lambda: turn(client, c, "one"))
        assert (e.code(), e.details()) == (grpc.StatusCode.UNAVAILABLE, "no worker of model 'words' is attached"), e
        client.models.Unload(harness.models.ModelsUnloadRequest(name="words"))
        again = Worker(client)
        assert turn(client, client.open("words"), "one")[0] == "1 words in turn 1"
        client.models.Unload(harness.models.ModelsUnloadRequest(name="words"))
        until("it is told", lambda: "ended UNAVAILABLE model 'words' was unloaded" in again.said)


def test_c_workers(parleyd):
    """The example in C: two of a name share the conversations, one is killed with all its states, another takes its turns over from
    what was saved; after the daemon's restart they attach themselves again, and the transcripts are replayed to them."""
    with tempfile.TemporaryDirectory() as folder:
        flags, where = ["--data", os.path.join(folder, "data")], {"listen": f"unix:{folder}/socket"}
        with harness.Parleyd(parleyd, *flags, **where) as client:
            one, two = (children.start([sys.argv[4], where["listen"]]) for _ in range(2))
            until("it is attached", lambda: list_models(client) == ["echo", "words"], one, two)
            chats = [client.open("words") for _ in range(16)]

            def all_say(number, words):
                pending = [ask(client, c, "w " * (i + 1), number) for i, c in enumerate(chats)]
                replies = [p.result().message.text for p in pending]
                assert replies == [f"{words * (i + 1)} words" for i in range(16)], replies

            for number in range(1, 10):
                all_say(number, number)
            fork = client.fork(chats[3], at_turn=2)
            assert turn(client, fork, "one")[0] == "9 words"
            client.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=chats[0], to_turn=3))
            assert turn(client, chats[0], "w")[0] == "4 words"
            client.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=chats[0], to_turn=3))
            for number in range(4, 10):
                assert turn(client, chats[0], "w")[0] == f"{number} words"
            one.kill()
            one.wait()
            all_say(10, 10)
        with harness.Parleyd(parleyd, *flags, **where) as client:
            until("it is attached again", lambda: list_models(client) == ["echo", "words"], two)
            all_say(11, 11)
            client.models.Unload(harness.models.ModelsUnloadRequest(name="words"))
            assert two.wait(children.PATIENCE) == 1


def test_teachers(parleyd):
    """Data of a worker are a task: each example comes once, also where its worker is killed in mid-pass and another goes on, and where
    a pass takes several conversations; what is wrong is one line."""
    parley, examples = sys.argv[2], os.path.dirname(sys.argv[3])
    env = {**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]}
    with harness.Parleyd(parleyd) as client, tempfile.TemporaryDirectory() as folder:
        def command(verb, task, *more):
            return [parley, verb, "-t", task, "--server", client.address, *map(str, more)]

        def report(task, *more):
            done = children.run(command("eval", task, "--json", *more), capture_output=True, text=True)
            assert done.returncode == 0, done
            return json.loads(done.stdout)

        def refused(task, why, *more):
            done = children.run(command("eval", task, *more), capture_output=True, text=True)
            assert done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1, done

        worker = children.start([sys.executable, os.path.join(examples, "sums.py"), client.address], env=env)
        until("it is attached", lambda: list_models(client) == ["echo", "sums"], worker)
        whole = report("attached:sums:50")
        assert (whole["exs"], whole["accuracy"]) == (100, 1) and report("attached:sums:50", "-bs", 8, "-nt", 2) == whole, whole
        shown = children.run(command("display", "attached:sums:1"), capture_output=True, text=True)
        assert "What is 0 and 1?" in shown.stdout and "2 examples" in shown.stdout, shown
        built = os.path.join(folder, "built")
        children.run(command("build-data", "attached:sums:30", "--datafile", built), check=True, capture_output=True)
        assert report(f"data:{built}", "-dt", "valid:stream")["exs"] == 60
        refused("attached:none", "there is no model 'none'")
        refused("attached:sums:x", "attached:sums: ValueError")
        refused("attached:sums:0", "no examples")
        refused("attached:echo", "attached:echo: line 1: ")
        refused("attached:sums", "needs --datafile FILE", "-dt", "valid:stream")
        worker.kill()
        worker.wait()
        command_of = [sys.executable, os.path.join(HERE, "teacher_worker.py"), client.address]
        first = children.start([*command_of, "550"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        until("it is attached", lambda: "long" in list_models(client), first)
        logs = os.path.join(folder, "logs")
        running = children.start(command("eval", "attached:long:700x10000", "--json", "--world-logs", logs), stdout=subprocess.PIPE, text=True)
        held = []
        threading.Thread(target=lambda: held.extend(first.stdout), daemon=True).start()
        until("it holds", lambda: held == ["it holds\n"], running)  # after more than the conversation that is begun anew at 4 MiB
        first.kill()
        first.wait()
        second = children.start(command_of, env=env)
        whole = json.loads(running.communicate(timeout=children.PATIENCE)[0])
        assert running.returncode == 0 and (whole["exs"], whole["accuracy"]) == (700, 1), whole
        with open(logs, encoding="utf-8") as file:
            said = [json.loads(line)["dialog"][0][0] for line in file]
        assert sorted(int(a["text"].split()[1]) for a in said) == list(range(700))
        assert all(a["text"].startswith(f'valid {int(2 * a["reward"])} "\u2028\n') for a in said), said[0]["text"][:20]
        second.kill()
        second.wait()


SERVES = """import asyncio, multiprocessing.util, os, sys, threading
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
import parley.aio

@parley.agent("any")
class Agent:
    def observe(self, observation):
        pass

    def act(self):
        return "done"

def lives():
    for name, thread in threads.items():
        thread.join(0.5)
        print(name, thread.is_alive(), flush=True)

silent = "127.0.0.1:1"
threads = {name: threading.Thread(target=serve, args=(Agent, address, name), daemon=True)
           for name, serve, address in (("sync", parley.serve, sys.argv[1]), ("sync silent", parley.serve, silent),
                                        ("aio", lambda *args: asyncio.run(parley.aio.serve(*args)), sys.argv[1]),
                                        ("aio silent", lambda *args: asyncio.run(parley.aio.serve(*args)), silent))}
multiprocessing.util.Finalize(None, lives, exitpriority=0)
for thread in threads.values():
    thread.start()
sys.stdin.readline()
"""


def test_serving_ends(parleyd):
    """What serves on daemon threads of a process, also while its daemon is not there, has ended before the interpreter does, without a trace."""
    with harness.Parleyd(parleyd) as client:
        worker = children.start([sys.executable, "-c", SERVES, client.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until("they are attached", lambda: list_models(client) == ["aio", "echo", "sync"], worker)
        printed, said = worker.communicate("\n", timeout=children.PATIENCE)
        assert worker.returncode == 0 and printed == "sync False\nsync silent False\naio False\naio silent False\n" and "Traceback" not in said, (printed, said)
        until("they are gone", lambda: list_models(client) == ["echo"])


TESTS = [test_one_worker, test_sampling, test_batches, test_capabilities, test_lost_worker, test_two_workers, test_stateless, test_drain, test_restart,
         test_hostile_workers, test_who_may_attach, test_front_doors, test_c_workers, test_teachers, test_serving_ends]


def main():
    parleyd, wanted = sys.argv[1], sys.argv[5:]
    for test in TESTS:
        if wanted and test.__name__ not in wanted:
            continue
        print(test.__name__, flush=True)
        test(parleyd)


main()
