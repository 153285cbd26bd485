#!/usr/bin/env python3
"""The checker of histories finds each kind of fault in a history that has it, and none in one that has none.

usage: test_checker.py      (any python3; no packages)"""
import copy

from checker import judge


def stream(turn, text, finish="length", n_before=0, **more):
    ids = [ord(letter) for letter in text]
    return {"c": 0, "op": "stream", "conv": "A", "gen": 1, "turn": turn, "body": f"body {turn}", "at": 0, "at_text": 0, "ids": ids, "text": text,
            "accepted": True, "done": finish and [finish, turn, n_before + len(ids)], "error": None, **more}


def get(*replies, **more):
    return {"c": 0, "op": "get", "conv": "A", "gen": 1, "turns": len(replies), "meta": {},
            "replies": [[i, "length", text] for i, text in enumerate(replies, 1)], **more}


GOOD = [
    {"c": 0, "op": "open", "request": "a", "conv": "A"},
    stream(1, "hel", None, error="UNAVAILABLE"),
    {"c": 0, "op": "taken", "conv": "A", "gen": 1, "turn": 1, "body": "x", "error": "ALREADY_EXISTS"},
    stream(1, "lo", n_before=3, at=3, at_text=3, body=None),
    stream(1, "hello"),
    stream(2, "", None, accepted=False, error="UNAVAILABLE"),
    stream(2, "", None, accepted=False, error="OUT_OF_RANGE", body=None),
    get("hello"),
    stream(2, "you"),
    get("hello", "you"),
    {"c": 0, "op": "fork", "request": "f", "parent": "A", "at": 1, "conv": "F", "turns": 1},
    get("hello", conv="F"),
    {"c": 0, "op": "rewind", "conv": "A", "gen": 1, "to": 1, "now": 2},
    get("hello", gen=2),
    {"c": 0, "op": "update", "conv": "A", "meta": {"a": "b"}},
    get("hello", gen=2, meta={"a": "b"}),
    {"c": 0, "op": "open", "request": "a", "conv": "A"},
    {"c": 0, "op": "close", "conv": "A"},
    {"c": 0, "op": "gone", "conv": "A", "error": "NOT_FOUND"},
    {"c": 0, "op": "keyed", "key": "k", "body": "1", "status": 200, "reply": "so"},
    {"c": 0, "op": "keyed", "key": "k", "body": "1", "status": 200, "reply": "so"},
    {"c": 0, "op": "keyed", "key": "k", "body": "2", "status": 422, "reply": ""},
    {"c": 0, "op": "final", "step": "0/0/0", "ids": [1, 2], "text": "so", "finish": "length", "is_cut": False, "is_free": False},
    {"c": 0, "op": "final", "step": "0/0/1", "ids": [1], "text": "s", "finish": "cancelled", "is_cut": True, "is_free": False},
]

# Which record is another, how, and which kind of fault that is.
BAD = [
    (2, {"error": None}, "lost"),  # the number was free again: acknowledged and lost
    (3, {"error": "OUT_OF_RANGE", "ids": [], "text": "", "done": None}, "lost"),
    (4, {"text": "hellO", "ids": [104, 101, 108, 108, 79]}, "differs"),
    (4, {"text": "hell", "ids": [104, 101, 108, 108], "done": ["length", 1, 4]}, "differs"),
    (4, {"done": ["stop", 1, 5]}, "differs"),
    (4, {"error": "NOT_FOUND", "done": None}, "lost"),
    (5, {"turn": 3}, "order"),
    (5, {"error": "INVALID_ARGUMENT"}, "refused"),
    (7, {"turns": 0, "replies": []}, "lost"),
    (7, {"replies": [[1, "length", "hellO"]]}, "differs"),
    (8, {"done": ["length", 3, 3]}, "order"),
    (9, {"turns": 3, "replies": [[1, "length", "hello"], [2, "length", "you"], [3, "length", "?"]]}, "order"),
    (9, {"replies": [[1, "length", "hello"], [3, "length", "you"]]}, "order"),
    (10, {"turns": 0}, "fork"),
    (11, {"turns": 0, "replies": []}, "lost"),
    (11, {"replies": [[1, "length", "other"]]}, "differs"),
    (13, {"gen": 1}, "lost"),
    (12, {"now": 1}, "order"),
    (15, {"meta": {}}, "lost"),
    (16, {"conv": "B"}, "lost"),
    (18, {"error": None}, "lost"),
    (20, {"reply": "else"}, "differs"),
    (20, {"status": 500}, "refused"),
    (21, {"status": 200}, "lost"),
    (21, {"op": "refused", "error": "NOT_FOUND", "why": "no such conversation"}, "refused"),
    (22, {"ids": [1, 3]}, "differs"),
    (22, {"finish": "stop"}, "differs"),
    (23, {"ids": [2]}, "differs"),
    (22, {"step": "0/0/9"}, "reference"),
]


def main():
    whole = copy.deepcopy(GOOD)
    whole[-1] = {**whole[-1], "ids": [1, 5], "text": "sx", "finish": "length"}
    good = judge(GOOD, whole)
    assert good.faults == [], good.faults
    assert good.counts == {"acknowledged": 2, "finished": 2, "compared": 1}, good.counts
    for at, change, kind in BAD:
        bad = copy.deepcopy(GOOD)
        bad[at].update(change)
        kinds = {fault[0] for fault in judge(bad, whole).faults}
        assert kind in kinds, (at, change, kinds)
    print(f"{len(BAD)} faults are found")


if __name__ == "__main__":
    main()
