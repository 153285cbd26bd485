#!/usr/bin/env python3
"""A model with recurrent state through parleyd: prefixes of requests over HTTP, forks and rewinds over gRPC, and a kept conversation that
goes on behind a kill; the replies are those of a daemon that computes each of them from nothing.

usage: test_states.py PARLEYD WRITE_TINY_MODEL PARLEY      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

from children import Daemon
from harness import Client, conversations, sampling

PARLEYD, WRITE_TINY_MODEL, PARLEY = sys.argv[1:4]
SYSTEM = "You are the guide of a small museum of rivers. " * 6
TURNS = ["Name a river.", "And a hill, hello.", "What is in the hell?"]


class Mortal(Daemon):
    """A daemon that may be killed inside its block, and started again."""

    def again(self):
        self.process.kill()
        self.process.wait()
        self.listener.join()
        return self.__enter__()


def chat(daemon, messages, conversation=None):
    """The text and the usage."""
    body = {"messages": messages, "max_tokens": 12, "temperature": 0.8, "seed": 7, "ignore_eos": True}
    headers = {"Content-Type": "application/json", **({"X-Conversation-Id": conversation} if conversation else {})}
    request = urllib.request.Request(f"http://{daemon.http}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        reply = json.load(answer)
    return reply["choices"][0]["message"]["content"], reply["usage"]


def user(text):
    return {"role": "user", "content": text}


def metric(daemon, name):
    with urllib.request.urlopen(f"http://{daemon.http}/metrics", timeout=60) as page:
        return next(float(line.split()[-1]) for line in page.read().decode().splitlines() if line.startswith(name + "{"))


def prefixes_are_found(model, lone):
    """The second request with a system prompt computes none of it again but for a page."""
    with Daemon(PARLEYD, "--http", "127.0.0.1:0", "--model", f"tiny={model}") as daemon:
        for i, text in enumerate(TURNS):
            messages = [{"role": "system", "content": SYSTEM}, user(text)]
            got, usage = chat(daemon, messages)
            want, _ = chat(lone, messages)
            assert got == want, (got, want)
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            assert i == 0 or cached >= usage["prompt_tokens"] - 64, usage
        assert metric(daemon, "parley_state_snapshots_used_total") >= 2
        assert metric(daemon, "parley_state_slots") > 4
        shown = subprocess.run([PARLEY, "status", "--server", daemon.address], capture_output=True, text=True, check=True).stdout
        assert "slots in use" in shown, shown


def kept_conversations_go_on(model, lone, folder):
    """Killed behind each turn: the reply is that of a conversation that was never interrupted."""
    with Mortal(PARLEYD, "--http", "127.0.0.1:0", "--model", f"tiny={model}", "--data", folder) as daemon:
        for text in TURNS:
            want, _ = chat(lone, [user(text)], "river")
            got, _ = chat(daemon, [user(text)], "river")
            assert got == want, (got, want)
            daemon = daemon.again()


def forks_and_rewinds(daemon):
    """The replies to all turns."""
    client = Client(daemon.address)
    how = sampling.Sampling(max_tokens=12, temperature=0.8, seed=7, ignore_eos=True)

    def ask(conversation, text):
        return client.conversations.Ask(conversations.TurnRequest(conversation=conversation, text=text, sampling=how)).message.text

    parent = client.open()
    said = [ask(parent, text) for text in TURNS]
    child = client.fork(parent, at_turn=2)
    assert ask(child, TURNS[2]) == said[2]
    client.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=parent, to_turn=1))
    assert [ask(parent, text) for text in TURNS[1:]] == said[1:]
    client.channel.close()
    return said


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "state.gguf")
        subprocess.run([WRITE_TINY_MODEL, model, "qwen35.context_length=2048"], check=True)
        with Daemon(PARLEYD, "--http", "127.0.0.1:0", "--model", f"tiny={model}", "--prefix-cache", "off") as lone:
            prefixes_are_found(model, lone)
            kept_conversations_go_on(model, lone, os.path.join(folder, "data"))
            want = forks_and_rewinds(lone)
        with Daemon(PARLEYD, "--model", f"tiny={model}") as daemon:
            assert forks_and_rewinds(daemon) == want


if __name__ == "__main__":
    main()
