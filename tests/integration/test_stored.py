#!/usr/bin/env python3
"""Stored conversations need no model: while it is not served they are read, listed, exported, updated, forked, rewound and closed; a
turn says what is missing; and with the model back they go on.

usage: test_stored.py PARLEYD WRITE_TINY_MODEL PARLEY WORD_COUNT      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""

import json
import os
import sys
import tempfile
import urllib.error
import urllib.request

import grpc

import children
import harness
from agent_process import Worker
from children import until
from harness import conversations
from parley.v1 import content_pb2, cursor_pb2  # harness knows where they are
from test_export import told
from test_journal import Mortal, everything, pages, refused, said, turn


def cli(parley, program, *arguments, lines=""):
    """Its exit status, its lines of JSON, its complaint."""
    done = children.run([program, "conversations", *arguments, "--json", "--server", parley.address], input=lines, stdout=-1, stderr=-1, text=True)
    return done.returncode, [json.loads(line) for line in done.stdout.split("\n") if line], done.stderr


def http(parley, method, path, body=None, **headers):
    request = urllib.request.Request(f"http://{parley.http}{path}", method=method, headers=headers, data=None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def says_of_model(error, name="tiny"):
    assert f"the conversation's model '{name}' is not served" in error.details(), error.details()


CLOSED, SYNCED = (getattr(conversations, f"CONVERSATION_EVENT_KIND_{name}") for name in ("CLOSED", "SYNCED"))


def watched(parley, conversation=""):
    """A watch, and the conversations of its snapshot."""
    watch, states = parley.conversations.Watch(conversations.ConversationsWatchRequest(conversation=conversation)), []
    for event in watch:
        if event.kind == SYNCED:
            return watch, states
        states.append(event.state.conversation)
    raise AssertionError(states)


def without_model(parleyd, tiny, program, folder):
    data, text = os.path.join(folder, "data"), {"model": "tiny", "input": "Tell me.", "temperature": 0, "top_p": 0.5, "max_output_tokens": 8}
    flags = ["--data", data, "--http", "127.0.0.1:0"]
    served = ["--model", f"tiny={tiny}"]
    with Mortal(parleyd, *served, *flags) as parley:
        c = parley.open("tiny", system="You are brief.", metadata={"who": "anna"}, request_id="mine")
        told_before = [said(parley, turn(c, number, f"{number}?", tokens=8, want_logprobs=2)).end() for number in (1, 2, 3)]
        gone = parley.open("tiny")
        also = parley.open("tiny")
        with_tools = turn(also, 1, tokens=4)
        with_tools.tools.add(name="look", description="Looks.", parameters='{"type":"object"}')
        said(parley, with_tools).end()
        with_reasoning = turn(also, 1, tokens=4)
        with_reasoning.reasoning.effort = content_pb2.Reasoning.EFFORT_LOW
        before = everything(parley, c)
        response = http(parley, "POST", "/v1/responses", text)[1]
        deleted = http(parley, "POST", "/v1/responses", text)[1]
        named = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        assert http(parley, "POST", "/v1/chat/completions", named, **{"X-Conversation-Id": "tour"})[0] == 200
        exported = cli(parley, program, "export")[1]
        assert len([line for line in exported if line["type"] == "conversation"]) == 6
    with Mortal(parleyd, *flags) as parley:  # the model was taken out of the configuration
        assert everything(parley, c) == before
        listed = list(pages(parley, 2))
        assert len(listed) == 6 and {one.model for one in listed} == {"tiny"}
        watch, states = watched(parley)
        assert states[0] == c and sorted(states) == sorted(one.conversation for one in listed), states
        one, states = watched(parley, gone)
        assert states == [gone], states
        one.cancel()
        assert [one["conversation"] for one in cli(parley, program, "list", "--model", "tiny")[1]] == [one.conversation for one in listed]
        status, _, complaint = cli(parley, program, "list", "--model", "typo")
        assert status == 1 and "no model 'typo'" in complaint, complaint
        status, again, complaint = cli(parley, program, "export")
        assert status == 0 and [told(line) for line in again] == [told(line) for line in exported], complaint
        # Turns are refused, and nothing of them is there.
        for refusal in (parley.conversations.Turn(turn(c, 4)), parley.conversations.Turn(conversations.TurnRequest(conversation=c, turn=4, text="x", observe_only=True)),
                        parley.conversations.Turn(turn(c, 0)), parley.conversations.Turn(with_tools),  # its tools are asked for as the model wants
                        parley.conversations.Turn(with_reasoning)):
            says_of_model(refused(grpc.StatusCode.NOT_FOUND, refusal))
        status, answer = http(parley, "POST", "/v1/chat/completions", named, **{"X-Conversation-Id": "tour"})
        assert status == 404 and "the conversation's model 'tiny' is not served" in answer["error"]["message"], answer
        status, answer = http(parley, "POST", "/v1/responses", {"input": "More.", "previous_response_id": response["id"]})
        assert status == 404 and "the conversation's model 'tiny' is not served" in answer["error"]["message"], answer
        assert everything(parley, c) == before
        # What was said is said again.
        assert said(parley, turn(c, 2, "2?", tokens=8, want_logprobs=2)).end() == told_before[1]
        place = cursor_pb2.Cursor(generation=1, turn=3, index=0)
        assert [event for event in parley.conversations.Turn(conversations.TurnRequest(conversation=c, resume_from=place))][-1].done.turn == 3
        refused(grpc.StatusCode.ALREADY_EXISTS, parley.conversations.Turn(turn(c, 2, "other")))
        got = http(parley, "GET", f"/v1/responses/{response['id']}")
        assert got == (200, response), (got, response)
        items = http(parley, "GET", f"/v1/responses/{response['id']}/input_items")
        assert items[0] == 200 and items[1]["data"][0]["content"][0]["text"] == "Tell me.", items
        assert http(parley, "DELETE", f"/v1/responses/{deleted['id']}")[0] == 200
        assert http(parley, "GET", f"/v1/responses/{deleted['id']}")[0] == 404
        # It can be changed.
        update = conversations.ConversationsUpdateRequest(conversation=c, metadata=conversations.ConversationMetadata(entries={"who": "ben"}))
        update.sampling.logit_bias[3] = -2
        assert parley.conversations.Update(update).metadata == {"who": "ben"}
        fork = parley.fork(c, at_turn=2, request_id="fork")
        assert cli(parley, program, "fork", c)[0] == 0 and parley.fork(c, at_turn=2, request_id="fork") == fork
        rewound = parley.fork(c)
        assert cli(parley, program, "rewind", rewound, "1")[0] == 0 and parley.get(rewound).turns == 1
        assert cli(parley, program, "close", gone)[0] == 0
        parley.close(also)
        closed = []
        while closed[-2:] != [gone, also]:
            event = next(watch)
            closed += [event.conversation] if event.kind == CLOSED else []
        watch.cancel()
        refused(grpc.StatusCode.NOT_FOUND, lambda: parley.get(gone))
        changed = [everything(parley, one) for one in (c, fork, rewound)]
        parley.daemon.kill()
        parley = parley.daemon.again()
        assert [everything(parley, one) for one in (c, fork, rewound)] == changed, "and is so in the journal"
        version = parley.get(c).version
        assert version == listed[0].version and len(version) == 64, "that of the model which it is of"
    os.rename(tiny, tiny + ".away")
    models = os.path.join(folder, "models")
    os.mkdir(models)
    with Mortal(parleyd, *flags, "--model-dir", models) as parley:  # its file comes back while the daemon runs
        assert everything(parley, c) == changed[0]
        os.rename(tiny + ".away", os.path.join(models, "tiny.gguf"))
        parley.models.Load(harness.models.ModelsLoadRequest(name="tiny"))
        assert [everything(parley, one) for one in (c, fork, rewound)] == changed
        assert said(parley, turn(c, 4, tokens=4)).done.turn == 4
        assert said(parley, turn(fork, 3, tokens=4)).done.turn == 3
        assert said(parley, turn(rewound, 2, tokens=4)).done.turn == 2
        assert http(parley, "POST", "/v1/chat/completions", named, **{"X-Conversation-Id": "tour"})[0] == 200
        parley.models.Unload(harness.models.ModelsUnloadRequest(name="tiny"))
        assert parley.get(c).turns == 4 and cli(parley, program, "export", c)[0] == 0
        error = refused(grpc.StatusCode.UNAVAILABLE, parley.conversations.Turn(turn(c, 5, tokens=4)))
        assert "model 'tiny' is not loaded" in error.details(), error.details()
    os.rename(os.path.join(models, "tiny.gguf"), tiny)


def without_its_turn(parleyd, long, folder):
    """A turn that was accepted, and whose model is gone, waits for the model."""
    with Mortal(parleyd, "--data", os.path.join(folder, "unended"), "--http", "127.0.0.1:0", "--model", f"tiny={long}") as parley:
        daemon = parley.daemon
        c = parley.open("tiny")
        said(parley, turn(c, 1, tokens=4))
        r = turn(c, 2, tokens=children.LONG_TURN // 10)
        body = {"model": "tiny", "input": "Tell me.", "max_output_tokens": children.LONG_TURN, "ignore_eos": True, "background": True}
        kept, unkept = (http(parley, "POST", "/v1/responses", body)[1]["id"] for _ in range(2))
        next(event for event in parley.conversations.Turn(r) if event.WhichOneof("event") == "piece")
        daemon.kill()
        model = daemon.command[-2:]
        del daemon.command[-2:]
        parley = daemon.again()
        assert parley.get(c).turns == 1
        assert said(parley, turn(c, 1, tokens=4)).done.turn == 1
        says_of_model(refused(grpc.StatusCode.NOT_FOUND, parley.conversations.Turn(r)))
        for response in kept, unkept:
            status, answer = http(parley, "GET", f"/v1/responses/{response}")
            assert status == 200 and answer["status"] == "in_progress" and answer["id"] == response, answer
        assert http(parley, "GET", f"/v1/responses/{kept}/input_items")[1]["data"][0]["content"][0]["text"] == "Tell me."
        assert http(parley, "POST", f"/v1/responses/{kept}/cancel")[0] == 404
        assert http(parley, "DELETE", f"/v1/responses/{unkept}")[0] == 200
        daemon.kill()
        daemon.command += model
        parley = daemon.again()
        assert said(parley, r).done.usage.completion_tokens == children.LONG_TURN // 10
        assert http(parley, "GET", f"/v1/responses/{unkept}")[0] == 404
        assert http(parley, "GET", f"/v1/responses/{kept}")[1]["status"] == "in_progress"
        assert http(parley, "POST", f"/v1/responses/{kept}/cancel")[1]["status"] == "cancelled"


def without_agent(parleyd, word_count, folder):
    """Agents of one's own: their program is not there, then it is again."""
    flags = ["--data", os.path.join(folder, "agents")]

    def says(parley, c, text):
        return parley.conversations.Ask(conversations.TurnRequest(conversation=c, text=text)).message.text

    with Mortal(parleyd, *flags, "--plugin", word_count) as parley:
        worker = Worker(parley)
        c, d = parley.open("words"), parley.open("word_count")
        first, counted = says(parley, c, "one two"), says(parley, d, "one two")
        worker.kill()
        until("its worker to be missed", lambda: refused(grpc.StatusCode.UNAVAILABLE, lambda: says(parley, c, "x")))
        assert parley.get(c).transcript[0].reply == first
        assert parley.fork(c)
    with Mortal(parleyd, *flags) as parley:
        assert parley.get(c).transcript[0].reply == first and parley.get(d).transcript[0].reply == counted
        says_of_model(refused(grpc.StatusCode.NOT_FOUND, lambda: says(parley, c, "x")), "words")
        says_of_model(refused(grpc.StatusCode.NOT_FOUND, lambda: says(parley, d, "x")), "word_count")
        fork = parley.fork(c)
        worker = Worker(parley)
        assert says(parley, c, "three") == says(parley, fork, "three")
        worker.kill()
    with Mortal(parleyd, *flags, "--plugin", word_count) as parley:
        assert says(parley, d, "three") == "3 words in 2 turns"


def main():
    parleyd, write_tiny_model, program, word_count = sys.argv[1:5]
    with tempfile.TemporaryDirectory() as folder:
        tiny, long = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_tiny_model, long, "65536"], check=True)
        without_model(parleyd, tiny, program, folder)
        without_its_turn(parleyd, long, folder)
        without_agent(parleyd, word_count, folder)


if __name__ == "__main__":
    main()
