#!/usr/bin/env python3
"""One model of each architecture through parleyd: what a conversation says alone, it says among others, behind a fork, behind a
rewind, and after the daemon was killed.

usage: test_families.py PARLEYD      (run by the interpreter that has grpcio, numpy and the stubs; see venv.sh)"""
import os
import pathlib
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "arch"))
import models
from harness import conversations, sampling
from test_journal import Mortal

PARLEYD = sys.argv[1]
TURNS = ["Name a river, and a hill beside it.", "Which is older?"]
N_BESIDE = 3
HOW = sampling.Sampling(max_tokens=6, temperature=0.8, seed=7, ignore_eos=True)


TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}<|im_start|>assistant\\n"


def vocab(w):
    models.byte_vocab(w)
    w.add_chat_template(TEMPLATE)


def one_of_each():
    """architecture -> model, small and with the tokens of a chat"""
    models.Model.usual = models.Model.usual | dict(vocab=300, ctx=1024)
    chosen = {}
    for model in models.all_models().values():
        if model.n["layers"] <= 12:
            chosen.setdefault(model.arch, model)
    return chosen


def ask(client, conversation, text):
    return client.conversations.Ask(conversations.TurnRequest(conversation=conversation, text=text, sampling=HOW)).message.text


def talk(client, model, said):
    conversation = client.open(model)
    said += [ask(client, conversation, text) for text in TURNS]
    return conversation


def check(client, model):
    want = []
    parent = talk(client, model, want)
    beside = [[] for _ in range(N_BESIDE)]
    threads = [threading.Thread(target=talk, args=(client, model, said)) for said in beside]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert beside == [want] * N_BESIDE, (model, want, beside)
    assert ask(client, client.fork(parent, at_turn=1), TURNS[1]) == want[1], model
    client.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=parent, to_turn=1))
    assert ask(client, parent, TURNS[1]) == want[1], model
    return parent, want


def main():
    chosen = one_of_each()
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--kv-bytes", "4M", "--data", os.path.join(folder, "data")]
        for name, model in chosen.items():
            path = os.path.join(folder, f"{name}.gguf")
            model.write(path, vocab)
            flags += ["--model", f"{name}={path}"]
        with Mortal(PARLEYD, *flags) as client:
            known = {name: check(client, name) for name in chosen}
            client.daemon.kill()
            client = client.daemon.again()
            for name, (parent, want) in known.items():
                assert ask(client, client.fork(parent, at_turn=1), TURNS[1]) == want[1], name
                turns = client.conversations.Verify(conversations.ConversationsVerifyRequest(conversation=parent)).turns
                assert len(turns) == len(TURNS) + 1 and all(t.verdict == t.VERDICT_SAME for t in turns), (name, turns)
    said = {name: want for name, (_, want) in known.items()}
    assert len({tuple(texts) for texts in said.values()}) > len(said) / 2, said  # replies that models share would say little
    print(len(said), "architectures")


if __name__ == "__main__":
    main()
