#!/usr/bin/env python3
"""What a principal may use, over gRPC and HTTP: turns and tokens a minute, tokens in flight, conversations. What is above it is refused, with the
time after which it succeeds; others, and principals without quotas, notice nothing.

usage: test_quotas.py PARLEYD WRITE_TINY_MODEL WRITE_POLICY      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import os
import sys
import tempfile
import threading

import grpc
from grpc import StatusCode

import numpy as np

import children
import harness
import test_keys
import trainer
from children import PATIENCE
from harness import content, conversations, params
from test_principals import CHAT, Person, make_params, step


def refused(act):
    """Milliseconds of the hint, and the words."""
    try:
        act()
    except grpc.RpcError as e:
        trailers = dict(e.trailing_metadata())
        assert e.code() == StatusCode.RESOURCE_EXHAUSTED and b"QUOTA_EXCEEDED" in trailers["grpc-status-details-bin"], e
        assert b"google.rpc.RetryInfo" in trailers["grpc-status-details-bin"], e
        return int(trailers["retry-after-ms"]), e.details()
    raise AssertionError("it is done")


def chat(who, **more):
    return who.http(CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4, "ignore_eos": True, **more})


def metrics(who):
    lines = test_keys.ask(who.daemon, "GET", "/metrics", x_api_key=who.key)[2].decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def acts(alice, bob):
    """A step of Act is a request, once however often it is sent again."""
    for seq in 1, 2, 2, 3:
        step(alice, 1, seq)
    hint_ms, words = refused(lambda: step(alice, 1, 4))
    assert hint_ms > 0 and "3 requests a minute" in words, words
    step(alice, 1, 3)  # what was stored costs nothing
    step(bob, 1, 1)


def gradients(alice, bob):
    """A gradient is a request, refused before its values come; it is the writer's quota, not the set's owner's."""
    make_params(bob, "weights", writers=["alice"])

    def upload(number):
        return trainer.upload("bob/weights", "alice", number, np.ones(4, np.float32))

    for number in 1, 2:
        assert list(alice.params.UpdateAndFetch(upload(number)))
    alice.params.Push(upload(3))
    for way in alice.params.Push, lambda chunks: list(alice.params.UpdateAndFetch(chunks)):
        assert "3 requests a minute" in refused(lambda: way(upload(4)))[1]


def embeddings(alice):
    """A request with all its inputs is one."""
    for _ in range(3):
        got, answer, _ = alice.http("/v1/embeddings", {"model": "tiny", "input": ["Hello!"] * 40})
        assert got == 200 and len(answer["data"]) == 40, answer
    assert alice.http("/v1/embeddings", {"model": "tiny", "input": "Hello!"})[0] == 429


def requests(alice, bob):
    """60 a minute: they come back one a second, whichever way they were used."""
    ours = alice.open()
    got, _, headers = chat(alice)
    assert got == 200 and headers["x-ratelimit-limit-requests"] == "60", headers
    assert headers["x-ratelimit-remaining-requests"] == "59" and headers["x-ratelimit-reset-requests"].endswith(("s", "ms")), headers
    assert "x-ratelimit-limit-tokens" not in headers
    n = 0
    while n < 100 and chat(alice)[0] == 200:
        n += 1
    assert 59 <= n < 100, n
    got, error, headers = chat(alice)
    assert got == 429 and error["error"]["code"] == "rate_limit_exceeded", error
    assert headers["Retry-After"] == "1" and 0 < int(headers["retry-after-ms"]) <= 1000, headers
    assert headers["x-ratelimit-remaining-requests"] == "0", headers
    hint_ms, words = refused(lambda: alice.ask(ours, "Hello!"))
    assert 0 < hint_ms <= 1000 and "60 requests a minute" in words, words
    got, _, headers = chat(bob)
    assert got == 200 and not any("ratelimit" in name for name in headers), headers
    refusals = metrics(alice)
    assert refusals['parley_quota_refusals_total{limit="requests"}'] >= 3 and refusals['parley_quota_refusals_total{limit="tokens"}'] == 0, refusals
    assert refusals["parley_refusal_seconds_count"] == 1 and refusals["parley_refusal_seconds_sum"] > 0, refusals
    assert refusals['parley_refusal_seconds_bucket{le="0.001"}'] <= refusals['parley_refusal_seconds_bucket{le="0.01"}'] <= 1, refusals
    threading.Event().wait(hint_ms / 1000)  # what the hint asks for
    alice.ask(ours, "Hello!")


def tokens(alice):
    """A prompt takes of the minute at once, its reply as it is generated, over the end if it must."""
    got, answer, headers = chat(alice, max_tokens=300)
    assert got == 200 and answer["usage"]["total_tokens"] > 200, answer
    assert headers["x-ratelimit-limit-tokens"] == "200", headers
    got, _, headers = chat(alice)
    # 200 a minute, and more than 100 overdrawn: at least half a minute
    assert got == 429 and headers["x-ratelimit-remaining-tokens"] == "0" and int(headers["Retry-After"]) > 30, headers
    assert abs(int(headers["Retry-After"]) * 1000 - int(headers["retry-after-ms"])) < 1000, headers
    got, error, headers = alice.http("/v1/models")
    assert got == 200 and headers["x-ratelimit-remaining-tokens"] == "0", headers


def in_flight(alice):
    """What runs holds its tokens until it ends, also by a cancel; a prompt that never fits is told so."""
    ours = alice.open()
    turn = conversations.TurnRequest(conversation=ours, turn=1, messages=[content.Message(role="user", text="Go on.")],
                                     sampling=harness.sampling.Sampling(max_tokens=100000, ignore_eos=True))
    call = alice.conversations.Turn(turn, timeout=PATIENCE)
    n = 0
    for event in call:
        n += len(event.piece.token_ids) if event.HasField("piece") else 0
        if n > 100:
            break
    hint_ms, words = refused(lambda: alice.ask(alice.open(), "Hello!"))
    assert hint_ms > 0 and "100 tokens in flight" in words, words
    alice.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=ours))
    for _ in call:
        pass
    alice.ask(alice.open(), "Hello!")
    got, error, _ = chat(alice, messages=[{"role": "user", "content": "Much too long. " * 100}])
    assert got == 400 and "quota" in error["error"]["message"], error


def open_ones(alice):
    """HTTP's own conversations count while they last; a closed one makes room."""
    first, _ = alice.open(), alice.open()
    assert "2 open conversations" in refused(alice.open)[1]
    assert "2 open conversations" in refused(lambda: alice.conversations.Fork(conversations.ConversationsForkRequest(conversation=first)))[1]
    assert chat(alice)[0] == 429
    alice.conversations.Close(conversations.ConversationsCloseRequest(conversation=first))
    assert chat(alice)[0] == 200
    children.until("the end of HTTP's conversation", lambda: chat(alice)[0] == 200, alice.daemon.process)  # it may outlast its answer a little


def repeats(alice):
    """A keyed request is counted once, and a turn with a number."""
    assert chat(alice)[0] == 200
    before = [chat(alice)[1], alice.http(CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, Idempotency_Key="k")]
    for _ in range(10):
        again = alice.http(CHAT, {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, Idempotency_Key="k")
        assert again[0] == 200 and again[1] == before[1][1], again
    assert chat(alice)[0] == 429


def proofs(alice):
    """A turn that is verified is a request of whoever asks, and one that the quota refuses is unchecked."""
    ours = alice.open()
    for _ in range(2):
        alice.ask(ours, "Hello!")
    first, second = alice.conversations.Verify(conversations.ConversationsVerifyRequest(conversation=ours), timeout=PATIENCE).turns
    assert first.verdict == first.VERDICT_SAME and second.verdict == second.VERDICT_UNCHECKED and "3 requests a minute" in second.why, (first, second)


def main(parleyd, write_tiny_model, write_policy):
    with tempfile.TemporaryDirectory() as folder:
        model, policy, path = (os.path.join(folder, name) for name in ("tiny.gguf", "policy.gguf", "keys"))
        children.run([write_tiny_model, model], check=True)
        children.run([write_policy, policy], check=True)
        alice, bob = test_keys.new_key(), test_keys.new_key()

        def line(*quota):
            return ("alice", alice, *quota), ("bob", bob)

        test_keys.write_keys(path, ("alice", alice, "requests=60", "admin"), ("bob", bob))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0", "--keys", path, "--log-level", "info") as daemon:
            people = Person(daemon, alice), Person(daemon, bob)
            requests(*people)
            # Counts outlive a reload, of other limits too: what was used of 60 is more than all of 30.
            test_keys.reload(daemon, path, *line("requests=30"))
            assert chat(people[0])[0] == 429
            for quota, test in ("tokens=200", tokens), ("in-flight=100", in_flight):
                test_keys.reload(daemon, path, *line(quota))
                test(people[0])
        test_keys.write_keys(path, *line("conversations=2"))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0", "--keys", path, "--log-level", "info") as daemon:
            open_ones(Person(daemon, alice))
        test_keys.write_keys(path, *line("requests=3"))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0", "--keys", path, "--log-level", "info") as daemon:
            repeats(Person(daemon, alice))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--keys", path, "--data", os.path.join(folder, "data")) as daemon:
            proofs(Person(daemon, alice))
        for test in acts, gradients, lambda alice, bob: embeddings(alice):
            with children.Daemon(parleyd, "--model", f"tiny={model}", "--model", f"policy={policy}", "--http", "127.0.0.1:0", "--keys", path) as daemon:
                test(Person(daemon, alice), Person(daemon, bob))


if __name__ == "__main__":
    main(*sys.argv[1:])
