#!/usr/bin/env python3
"""Agents that take whole acts, and a teacher that judges replies, for test_worlds.py. Each batch and each judged reply is a line on stdout, in
JSON. usage: acts_worker.py ADDRESS"""
import json
import os
import sys
import threading

import parley

LOCK = threading.Lock()


def tell(**what):
    with LOCK:
        print(json.dumps(what), flush=True)


@parley.agent("acts")
class Acts:
    """Counts its turns; answers with all that an act can have."""

    turns = 0

    def observe(self, messages):
        self.turns += 1
        self.heard = [parley.act_of(message) for message in messages]

    def self_observe(self, reply):
        self.said = reply

    @staticmethod
    def batch_act(rows):
        tell(batch=[{**row.act, "turn": row.turn, "turns": row.agent.turns, "before": getattr(row.agent, "said", None)} for row in rows])
        if any(row.act["text"] == "die" for row in rows) and not os.path.exists(sys.argv[2]):
            with open(sys.argv[2], "w", encoding="utf-8"):
                os._exit(1)
        return [reply_to(row) for row in rows]


def reply_to(row):
    act = row.act
    if act["text"] == "wrong":
        return {"text": "x" * act["length"]} if "length" in act else act["wrong"]
    candidates = act.get("label_candidates") or []
    return {"text": f"{act['text']} {row.agent.turns}", "text_candidates": sorted(candidates), "mood": {"calm": [1, 2]}, "reward": 0.5,
            "metrics": {"length": len(act["text"]), "weighed": [3, 4], "seen": {"sum": 1}, "exs": 1, "deep": {"ppl": [2.0, 4]}}}


@parley.agent("few", rows=2)
class Few(Acts):
    pass


@parley.agent("kept", save_every=1)
class Kept(Acts):
    """What it saves and restores is of its chats; a world tells its episodes again."""

    def save(self):
        return b""

    def restore(self, state):
        pass


@parley.agent("single")
class Single:
    """Has act in place of batch_act, and yields pieces."""

    def observe(self, messages):
        self.text = messages[-1].text

    def act(self):
        if parley.act_of(self).get("text") is None:
            yield "never"
        yield from self.text.split(" ")

    role = name = ""


@parley.agent("pupil")
class Pupil:
    """Learns each text's label by heart. A label is a word; what it has seen as eval_labels it must not know."""

    known: dict[str, str] = {}

    def observe(self, messages):
        self.act = parley.act_of(messages[-1])

    @classmethod
    def batch_act(cls, rows):
        said = [{"text": cls.known.get(row.act["text"], ""), "metrics": {"known": len(cls.known)}} for row in rows]
        learned = [row.act for row in rows if "labels" in row.act]
        cls.known.update({act["text"]: act["labels"][0] for act in learned})
        tell(lesson=[len(rows), len(learned)])
        return said

    @classmethod
    def save_model(cls, path):
        tell(saved=[path, len(cls.known)])
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(cls.known, file)

    @classmethod
    def load_model(cls, path):
        with open(path, encoding="utf-8") as file:
            cls.known = json.load(file)


@parley.teacher("judged", evaluate=lambda act, labels, reply: tell(judged=[act, labels, reply]) or
                {"kept": reply.get("mood") == {"calm": [1, 2]}, "right": [len(labels), 2], "n": {"sum": 1}})
def judged(fold, argument):
    for i in range(int(argument or 5)):
        yield [{"text": f"q{i}", "labels": [f"q{i} 1"], "label_candidates": ["b", "a", f"q{i} 1"], "reward": 0.25, "hint": {"i": i}},
               {"text": "and", "labels": ["and 2", "other"]}]


@parley.teacher("plainly")
def plainly(fold, argument):
    for i in range(2 if (fold, argument) == ("train", "fewer") else 3):
        yield (f"q{i}", f"q{i} 1")


class Mapped:
    """A map-style data set as torch's: it has no end but its length."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return [(f"m{i}", f"m{i}")] * (1 + i % 2)


@parley.teacher("mapped")
def mapped(fold, argument):
    return Mapped()


class Collated(Mapped):
    """Of each two items, the second is left out; the number of items that came together is said."""

    def __len__(self):
        return 70

    def collate(self, items):
        return [turn if isinstance(turn, list) else [turn] for turn in items[::2]] + [[("together", str(len(items)))]]


@parley.teacher("collated")
def collated(fold, argument):
    return Collated()


if __name__ == "__main__":
    for what in Few, Kept, Single, Pupil, judged, plainly, mapped, collated:
        threading.Thread(target=parley.serve, args=(what, sys.argv[1]), kwargs={"worlds": what is Pupil}, daemon=True).start()
    threading.Thread(target=parley.serve, args=(Pupil, sys.argv[1], "wary"), daemon=True).start()
    parley.serve(Acts, sys.argv[1])
