#!/usr/bin/env python3
"""Requests with an Idempotency-Key are answered once: many at a time generate once, a later one has the same bytes, and a stream that
was cut at any place goes on behind it.

usage: test_idempotency.py PARLEYD WRITE_TINY_MODEL      (any python3; no packages)"""
import concurrent.futures
import contextlib
import hashlib
import http.client
import itertools
import json
import os
import re
import sys
import tempfile

import children
from children import PATIENCE, until

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
STORY = [{"role": "user", "content": "Tell me a long story."}]
FREE = {"temperature": 1, "seed": 7, "ignore_eos": True}
N = 24  # tokens
STRIDE = children.STRIDE
keys = (f"key {i}" for i in itertools.count())


def bodies(n=N):
    """What is streamed: API, body."""
    return [
        (CHAT, {"model": "tiny", "messages": STORY, "max_tokens": n, "n": 2, "logprobs": True, "top_logprobs": 2, **FREE}),
        (CHAT, {"model": "tiny", "messages": STORY, "max_tokens": n, "stream_options": {"include_usage": True}, **FREE}),
        (COMPLETIONS, {"model": "tiny", "prompt": "Once upon a time", "max_tokens": n, "n": 2, "logprobs": 2,
                       "stream_options": {"include_usage": True, "continuous_usage_stats": True}, **FREE}),
        (RESPONSES, {"model": "tiny", "input": "Name a river.", "instructions": "Be brief.", "max_output_tokens": n, **FREE}),
    ]


def ask(daemon, path, body=None, key=None, last=None, **more):
    """The answer, whose body is to be read; and its connection."""
    connection = http.client.HTTPConnection(daemon.http, timeout=PATIENCE)
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    if key is not None:
        headers["Idempotency-Key"] = key
    if last is not None:
        headers["Last-Event-ID"] = last
    connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
    return connection.getresponse(), connection


def call(daemon, *args, **more):
    """Status, body and headers."""
    answer, connection = ask(daemon, *args, **more)
    with contextlib.closing(connection):
        return answer.status, answer.read(), dict(answer.getheaders())


def error(daemon, *args, **more):
    status, body, _ = call(daemon, *args, **more)
    return status, json.loads(body)["error"]["code"], json.loads(body)["error"]["message"]


def metric(daemon, name, *labels):
    lines = [line.split() for line in call(daemon, "/metrics")[1].decode().splitlines() if line.startswith((name + " ", name + "{"))]
    return sum(float(line[-1]) for line in lines if all(label in line[0] for label in labels))


def answered(daemon):
    return metric(daemon, "nv_inference_request_success", '"tiny"')


def is_idle(daemon):
    return metric(daemon, "parley_live_turns") == 0


# --- streams ---


def events(daemon, path, body, key, last=None):
    """Each event's id and its data, as they come."""
    answer, connection = ask(daemon, path, {**body, "stream": True}, key, last)
    with contextlib.closing(connection):
        assert answer.status == 200, answer.read()
        id, data = None, []
        for line in iter(answer.readline, b""):
            if line.startswith(b"id: "):
                id = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                data.append(line[6:].strip().decode())
            elif line == b"\n":
                yield id, "\n".join(data)
                id, data = None, []
            else:
                assert line.startswith(b"event: "), line


def meaning(path, stream, is_whole=True):
    """What a client has of a stream: pieces may be joined, nothing else may differ. For responses nothing may."""
    if path == RESPONSES:
        numbers = [json.loads(data)["sequence_number"] for _, data in stream]
        assert numbers == list(range(len(numbers))), numbers
        return [data for _, data in stream]
    heads, choices, usage = set(), {}, None
    assert stream[-1][1] == "[DONE]" and [data for _, data in stream].count("[DONE]") == 1
    for _, data in stream[:-1]:
        chunk = json.loads(data)
        heads.add(tuple(chunk[name] for name in ("id", "created", "model", "object", "system_fingerprint")))
        usage = chunk.get("usage") or usage
        for c in chunk["choices"]:
            mine = choices.setdefault(c["index"], {"text": "", "roles": [], "finish": [], "logprobs": {}})
            mine["text"] += c.get("text", "") + c.get("delta", {}).get("content", "")
            mine["roles"] += [c["delta"]["role"]] if "role" in c.get("delta", {}) else []
            mine["finish"] += [c["finish_reason"]] if c["finish_reason"] else []
            for name, values in (c["logprobs"] or {}).items():
                mine["logprobs"].setdefault(name, []).extend(values)
        if is_whole and chunk["choices"] and chunk.get("usage") is not None:
            so_far = sum(len(c["logprobs"].get("tokens", [])) for c in choices.values())
            assert chunk["usage"]["completion_tokens"] == so_far, (chunk["usage"], so_far)
    return heads, choices, usage


def cut_everywhere(daemon):
    """A stored reply, from each of the places that its own stream named; also where text was held back, which might have been a stop."""
    path, body = bodies()[1]
    said = json.loads(call(daemon, path, body)[1])["choices"][0]["message"]["content"]
    held = {**body, "stop": [said[i:i + 3] + "~" for i in range(0, len(said) - 3, 5)][:4]}
    for path, body in [*bodies(), (path, held)]:
        key = next(keys)
        whole = list(events(daemon, path, body, key))
        want = meaning(path, whole)
        assert meaning(path, list(events(daemon, path, body, key))) == want, path
        seen = [i for i, (id, _) in enumerate(whole) if id is not None]
        assert len({whole[i][0] for i in seen}) == len(seen) > N / 4, whole
        for i in seen[(len(seen) - 1) % STRIDE::STRIDE]:  # the last among them
            rest = list(events(daemon, path, body, key, whole[i][0]))
            assert meaning(path, whole[:i + 1] + rest) == want, (path, whole[i][0])
        assert all(id is None for id, _ in rest), rest  # all was there


def every_index(daemon):
    """Also places between which a stream had no event: of both choices, in any combination."""
    for path, body in bodies():
        key, n = next(keys), body.get("n", 1)
        whole = list(events(daemon, path, body, key))
        want = meaning(path, whole)
        for a in range(1, N + 2, STRIDE):
            places = [a, (7 * a) % (N + 2)][:n]
            rest = list(events(daemon, path, body, key, "1.1." + ",".join(map(str, places))))
            if path == RESPONSES:
                got = [data for _, data in rest]
                assert got == (want[4 + a:] if a <= N else []), a
                continue
            got = meaning(path, rest, is_whole=False)
            assert got[2] == want[2], (path, places)
            for choice, index in enumerate(places):
                have = got[1].get(choice, {"text": "", "logprobs": {}, "roles": [], "finish": []})
                assert want[1][choice]["text"].endswith(have["text"]), (path, places)
                for name, values in want[1][choice]["logprobs"].items():
                    assert have["logprobs"].get(name, []) == values[index:], (path, places, name)
                assert have["finish"] == (["length"] if index <= N else []), (path, places)
                assert have["roles"] == (["assistant"] if index == 0 and path == CHAT else []), (path, places)


def relay(daemon, path, body, every):
    """A stream of which each connection lives for so many events."""
    key, got, last = next(keys), [], None
    while True:
        n = 0
        stream = events(daemon, path, body, key, last)
        for id, data in stream:
            got.append((id, data))
            n += id is not None
            if n == every:
                break
        stream.close()
        if n < every:
            return got
        while got[-1][0] is None:
            got.pop()
        last = got[-1][0]


def cut_while_it_runs(daemon, neighbours=0):
    """As above while the turns run, beside others that generate."""
    with concurrent.futures.ThreadPoolExecutor(neighbours + 8) as pool:
        beside = [pool.submit(call, daemon, CHAT, {"model": "tiny", "messages": STORY, "max_tokens": 4 * N, **FREE}) for _ in range(neighbours)]

        def one(path, body, every):
            got = meaning(path, relay(daemon, path, body, every))
            want = meaning(path, list(events(daemon, path, body, next(keys))))
            if path == RESPONSES:  # another response, which says the same
                said = [[(e["type"], e.get("delta"), e.get("text")) for e in map(json.loads, stream)] for stream in (got, want)]
                assert said[0] == said[1], every
            else:
                assert got[1] == want[1], (path, every)
                assert len(got[0]) == 1 and got[2] is None or got[2]["completion_tokens"] == want[2]["completion_tokens"], (got[0], got[2])

        running = [pool.submit(one, path, body, every) for every in range(1, N, 3 * STRIDE) for path, body in bodies()]
        for done in running + beside:
            done.result()


# --- once ---


def once(daemon):
    """Twenty at once generate once, whole or as a stream; and so does one more, later."""
    for path, body in bodies(60):
        n = body.get("n", 1)
        for stream in (False, True):
            before, key = answered(daemon), next(keys)
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                got = [f.result() for f in [pool.submit(call, daemon, path, {**body, "stream": stream}, key) for _ in range(20)]]
            got.append(call(daemon, path, {**body, "stream": stream}, key))
            assert all(status == 200 for status, _, _ in got), got
            if stream and path != RESPONSES:
                streams = [[(None, e.split("data: ")[-1]) for e in text.decode().strip().split("\n\n")] for _, text, _ in got]
                texts = [meaning(path, s)[:2] for s in streams]
            else:
                texts = [text for _, text, _ in got]
            assert all(t == texts[0] for t in texts), (path, stream)
            assert answered(daemon) == before + n, (path, stream)
    other = call(daemon, *bodies()[0], next(keys))[1], call(daemon, *bodies()[0])[1], call(daemon, *bodies()[0])[1]
    assert len(set(other)) == 3, "another key, or none, is another request"


def refused(daemon):
    key = next(keys)
    path, body = bodies()[1]
    assert call(daemon, path, body, key)[0] == 200
    for status, code, says in [error(daemon, path, {**body, "max_tokens": 3}, key),
                               error(daemon, COMPLETIONS, {"model": "tiny", "prompt": "a"}, key),
                               error(daemon, path, body, key, X_Conversation_Id="one")]:
        assert (status, code) == (422, "idempotency_key_reused") and "another request" in says, (status, code, says)
    for bad in ("", "k" * 256, "a\tb", "ä".encode().decode("latin-1")):
        status, _, says = error(daemon, path, body, bad)
        assert status == 400 and "Idempotency-Key has 1 to 255" in says, (bad, says)
    assert call(daemon, path, body, "k" * 255)[0] == 200

    streamed, other = {**body, "stream": True}, next(keys)
    ids = [id for id, _ in events(daemon, path, body, other) if id is not None]
    status, _, says = error(daemon, path, streamed, last=ids[0])
    assert status == 400 and "needs the request's Idempotency-Key" in says, says
    for bad in ("", "1", "1.1", "1.1.", "1.1.1,", "1.1.x", "1.1.01", " 1.1.-1", "1.1.1.1", "99999999999.1.1", "1.1." + "9" * 30):
        status, _, says = error(daemon, path, streamed, other, bad)
        assert status == 400 and "is no id of an event" in says, (bad, says)
    for never in ("1.1.0", "2.1.1", "1.2.1", "1.1.1,1", "1.1." + "9" * 15, f"1.1.{N + 2}"):
        status, code, says = error(daemon, path, streamed, other, never)
        assert (status, code) == (400, "invalid_value"), (never, code, says)
        assert "is not an event of this reply" in says or "there is no place" in says, (never, says)
    assert error(daemon, path, streamed, next(keys), ids[0])[0] == 400  # a reply that is not kept is not begun in its midst
    whole = next(keys)
    assert call(daemon, path, body, whole)[0] == 200
    assert "is for streams" in error(daemon, path, body, whole, "1.1.1")[2]

    # A request that was refused has not used its key.
    unknown = next(keys)
    assert [error(daemon, path, {**body, "model": "none"}, unknown)[0] for _ in range(2)] == [404, 404]
    assert call(daemon, path, body, unknown)[0] == 200


def conversations(daemon):
    """Where a request goes on in a conversation, its retry does not go on again."""
    body = {"model": "tiny", "messages": STORY, "max_tokens": 8, **FREE}
    first = [call(daemon, CHAT, body, "bound", X_Conversation_Id="tour") for _ in range(3)]
    assert len({text for _, text, _ in first}) == 1 and len({headers["X-Conversation-Id"] for _, _, headers in first}) == 1
    second = [json.loads(call(daemon, CHAT, body, key, X_Conversation_Id="tour")[1]) for key in ("next", "next")]
    assert second[0] == second[1] and second[0]["usage"]["prompt_tokens"] > json.loads(first[0][1])["usage"]["prompt_tokens"]
    whole = list(events_of_bound(daemon, body, "third"))
    assert whole[0][0].startswith("1.3."), whole[0]

    said = json.loads(call(daemon, RESPONSES, bodies()[3][1], "first response")[1])
    goes_on = {"model": "tiny", "input": "Where is it?", "previous_response_id": said["id"], "max_output_tokens": 8, **FREE}
    before = metric(daemon, "parley_conversations")
    got = {call(daemon, RESPONSES, goes_on, "second response")[1] for _ in range(4)}
    assert len(got) == 1 and metric(daemon, "parley_conversations") == before + 1
    reply = json.loads(got.pop())
    assert reply["previous_response_id"] == said["id"] and reply["instructions"] == "Be brief."
    assert call(daemon, RESPONSES, {**goes_on, "previous_response_id": reply["id"]})[0] == 200  # it is stored, once


def events_of_bound(daemon, body, key):
    answer, connection = ask(daemon, CHAT, {**body, "stream": True}, key, X_Conversation_Id="tour")
    with contextlib.closing(connection):
        for line in answer.read().decode().splitlines():
            if line.startswith("id: "):
                yield line[4:], None


# --- who goes away ---


LONG = {"model": "long", "messages": STORY, "max_tokens": children.LONG_TURN, "stream": True, **FREE}


def hang_up(daemon, key, body):
    stream = events(daemon, CHAT, body, key)
    id, _ = next(stream)
    stream.close()
    return id


def outlives_its_client(daemon):
    """The turn goes on without its client, who finds all of it later; nobody's goes on without a key."""
    before, key = answered(daemon), next(keys)
    body = {"model": "tiny", "messages": STORY, "max_tokens": 200, **FREE}
    last = hang_up(daemon, key, body)
    until("the end of the turn", lambda: answered(daemon) == before + 1 and is_idle(daemon))
    whole = list(events(daemon, CHAT, body, key))
    assert meaning(CHAT, whole)[1][0]["finish"] == ["length"] and answered(daemon) == before + 1
    assert len(list(events(daemon, CHAT, body, key, last))) >= 1
    assert metric(daemon, "parley_conversations") == 0, "a reply is kept without its conversation"
    cancelled = metric(daemon, "parley_cancelled_turns_total")
    hang_up(daemon, None, LONG)
    until("the end of the turn", lambda: metric(daemon, "parley_cancelled_turns_total") == cancelled + 1 and is_idle(daemon))


def lingers(daemon):
    """Whoever stays away for longer finds what was said until then."""
    key = next(keys)
    last = hang_up(daemon, key, LONG)
    until("the end of the turn", lambda: is_idle(daemon))
    rest = list(events(daemon, CHAT, LONG, key, last))
    assert json.loads(rest[-2][1])["choices"][0]["finish_reason"] == "cancelled", rest[-2]
    assert list(events(daemon, CHAT, LONG, key))[-2][1] == rest[-2][1]


def drained(parleyd, models):
    """What lingers does not hold a daemon up that is to stop."""
    with children.Daemon(parleyd, *models, "--http", "127.0.0.1:0", "--linger", "1h", "--drain-timeout", "1h") as daemon:
        hang_up(daemon, next(keys), LONG)
        assert not is_idle(daemon)


# --- kills, with --data ---


def killed(daemon):
    """kill -9, and another process on the same address and files."""
    daemon.process.kill()
    daemon.process.wait()
    daemon.listener.join()
    for flag, address in (("--listen", daemon.address), ("--http", daemon.http)):
        daemon.command[daemon.command.index(flag) + 1] = address
    daemon.__enter__()


def timeless(answer):
    """A reply without how much of its prompt was in the cache, which a restart empties."""
    assert answer[0] == 200, answer
    return re.sub(rb'"cached_tokens":\d+', b"", answer[1])


def survives(daemon):
    """The stored reply has the same bytes in another process; what had not ended is computed again, and streams go on; the key is taken."""
    told = [(path, body, key, timeless(call(daemon, path, body, key))) for path, body in bodies() for key in [next(keys)]]
    bound = {"model": "tiny", "messages": STORY, "max_tokens": 8, **FREE}
    named = [call(daemon, CHAT, bound, f"at home {i}", X_Conversation_Id="home") for i in range(2)]
    streams = []
    for path, body in bodies(2000):
        body["model"], key = "long", next(keys)
        stream = events(daemon, path, body, key)
        streams.append((path, body, key, [next(stream) for _ in range(9)], stream))
    killed(daemon)
    for path, body, key, seen, stream in streams:
        stream.close()
        while seen[-1][0] is None:
            seen.pop()
        seen += events(daemon, path, body, key, seen[-1][0])
        assert meaning(path, seen)[1:] == meaning(path, list(events(daemon, path, body, key)))[1:], path
    before = answered(daemon)
    for path, body, key, reply in told:
        assert timeless(call(daemon, path, body, key)) == reply, path
        assert error(daemon, path, {**body, "seed": 8}, key)[:2] == (422, "idempotency_key_reused")
    assert error(daemon, CHAT, bound, "at home 0", X_Conversation_Id="else")[0] == 422
    for i, answer in enumerate(named):
        again = call(daemon, CHAT, bound, f"at home {i}", X_Conversation_Id="home")
        assert timeless(again) == timeless(answer) and again[2]["X-Conversation-Id"] == answer[2]["X-Conversation-Id"]
    assert answered(daemon) == before, "nothing is generated again"
    third = json.loads(call(daemon, CHAT, bound, "at home 2", X_Conversation_Id="home")[1])
    assert third["usage"]["prompt_tokens"] > json.loads(named[1][1])["usage"]["prompt_tokens"]
    killed(daemon)
    assert [timeless(call(daemon, path, body, key)) for path, body, key, _ in told] == [reply for *_, reply in told]


def is_whole(parleyd, models, folder):
    """What a request opens is stored in one transaction with its turn, so that a kill leaves neither alone."""
    with children.Daemon(parleyd, *models, "--http", "127.0.0.1:0", "--data", os.path.join(folder, "whole")) as daemon:
        response = {"model": "tiny", "input": "Name a river.", "max_output_tokens": 4, **FREE}
        chat = {"model": "tiny", "messages": STORY, "max_tokens": 4, **FREE}
        first = json.loads(call(daemon, RESPONSES, response)[1])["id"]
        for path, body, key, more in ((RESPONSES, response, "whole 1", {}), (RESPONSES, response, None, {}), (CHAT, chat, "whole 2", {}),
                                      (RESPONSES, {**response, "previous_response_id": first}, "whole 3", {}),
                                      (CHAT, chat, "whole 4", {"X_Conversation_Id": "whole"}), (CHAT, chat, None, {"X_Conversation_Id": "more"})):
            before = [metric(daemon, f"parley_journal_{what}_total") for what in ("records", "transactions")]
            assert call(daemon, path, body, key, **more)[0] == 200
            after = [metric(daemon, f"parley_journal_{what}_total") for what in ("records", "transactions")]
            assert [b - a for a, b in zip(before, after)] == [3, 2], (path, key, "opened and accepted; finished")


def survives_apart(parleyd, models, folder):
    """A key of one principal is not another's, before a kill and after it."""
    keyed = {"alice": "a" * 32, "mallory": "m" * 32}
    path = os.path.join(folder, "keys")
    with open(path, "w", encoding="utf-8") as file:
        for name, secret in keyed.items():
            file.write(f"{name} {hashlib.sha256(secret.encode()).hexdigest()}\n")
    os.chmod(path, 0o600)
    bodies_of = {name: {"model": "tiny", "messages": STORY, "max_tokens": 8, "user": name, **FREE} for name in keyed}
    with children.Daemon(parleyd, *models, "--http", "127.0.0.1:0", "--keys", path, "--data", os.path.join(folder, "apart")) as daemon:
        first = {name: timeless(call(daemon, CHAT, bodies_of[name], "one", X_Api_Key=secret)) for name, secret in keyed.items()}
        assert len(set(first.values())) == 2
        killed(daemon)
        assert {name: timeless(call(daemon, CHAT, bodies_of[name], "one", X_Api_Key=secret)) for name, secret in keyed.items()} == first
        assert call(daemon, CHAT, bodies_of["alice"], "one", X_Api_Key=keyed["mallory"])[0] == 422


def drained_and_back(parleyd, models, folder):
    """With --data what lingers is not cut for it, but goes on in the next process."""
    key, body = next(keys), {**LONG, "max_tokens": children.LONG_TURN}
    with children.Daemon(parleyd, *models, "--http", "127.0.0.1:0", "--linger", "1h", "--drain-timeout", "1h", "--data",
                         os.path.join(folder, "drained")) as daemon:
        last = hang_up(daemon, key, body)
        daemon.process.terminate()
        assert daemon.process.wait(PATIENCE) == 0, daemon.said
        killed(daemon)
        rest = list(events(daemon, CHAT, body, key, last))
        assert json.loads(rest[-2][1])["choices"][0]["finish_reason"] == "length", rest[-2]


def pages(daemon):
    """Pages may send both headers."""
    connection = http.client.HTTPConnection(daemon.http, timeout=PATIENCE)
    connection.request("OPTIONS", CHAT, headers={"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST",
                                                 "Access-Control-Request-Headers": "idempotency-key,last-event-id"})
    with contextlib.closing(connection):
        assert connection.getresponse().getheader("Access-Control-Allow-Headers") == "idempotency-key,last-event-id"


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    only = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        tiny, long = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_tiny_model, long, "65536"], check=True)
        models = ["--model", f"tiny={tiny}", "--model", f"long={long}"]

        def run(test, *args, **more):
            if not only or test.__name__ in only:
                test(*args, **more)
                print(f"{test.__name__}: good", flush=True)

        with children.Daemon(parleyd, *models, "--http", "127.0.0.1:0", "--speculate", "off") as daemon:
            for test in (outlives_its_client, once, refused, conversations, cut_everywhere, every_index, cut_while_it_runs, pages):
                run(test, daemon)
        with children.Daemon(parleyd, *models, "--http", "127.0.0.1:0", "--linger", "300ms") as daemon:
            run(lingers, daemon)
        with children.Daemon(parleyd, *models, "--http", "127.0.0.1:0", "--speculate", "on") as daemon:
            run(cut_everywhere, daemon)
            run(cut_while_it_runs, daemon, neighbours=64)
        run(drained, parleyd, models)
        run(drained_and_back, parleyd, models, folder)
        with children.Daemon(parleyd, *models, "--http", "127.0.0.1:0", "--data", os.path.join(folder, "data")) as daemon:
            run(survives, daemon)
        run(is_whole, parleyd, models, folder)
        run(survives_apart, parleyd, models, folder)


if __name__ == "__main__":
    main()
