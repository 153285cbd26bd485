"""Judges a history: what clients sent, and what they were told. Knows nothing of the daemon but its promises, and shares no code with it.

A history is a list of records, each a dict with the client that made it, "c", and what it was, "op"; a client's own are in order, and a
conversation belongs to one client. Each record is what was told, so an operation whose answer did not come has none, but for streams.

open    request, conv            Open with this request_id gave conv
fork    request, parent, at, conv, turns
stream  conv, gen, turn, body, at, at_text, ids, text, accepted, done, error
                                 a stream of a turn, from the token at on: its ids and text, whether it said accepted, how it ended
                                 (done: finish, turn, tokens; else error: a status or None, if the client left). body: None for a read
taken   conv, gen, turn, body, error
                                 another body was sent under a number that was acknowledged: error is what was answered
get     conv, gen, turns, meta, replies
                                 replies: number, finish, text of the whole transcript
rewind  conv, gen, to, now       now: the new generation
update  conv, meta
close   conv
gone    conv, error              any call of a conversation that was closed before
keyed   key, body, status, reply an HTTP request with an Idempotency-Key; reply without times
refused step, error, why         an answer that can never come
final   step, ids, text, finish, is_cut, is_free
                                 what the client has of a step at its end. is_cut: it was cancelled, or its time was up, somewhere;
                                 is_free: its seed was drawn by the daemon

The rules: what was acknowledged is in every later answer; a turn has one body, and one byte at each place; numbers have no gaps; a fork's
past is its parent's; a request id has one conversation; a key has one reply; and a step's bytes are those of a run without kills.
"""
import json
import sys

NOT_ANSWERED = (None, "UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED")  # of streams: it may come again


class Turn:
    def __init__(self, body):
        self.body, self.ids, self.text, self.finish, self.n_tokens, self.is_acknowledged = body, [], "", None, None, False


class Conversation:
    def __init__(self, turns=()):
        self.turns = dict(enumerate(turns, 1))
        self.generation, self.meta, self.is_closed = 1, {}, False

    def ended(self):
        return max((n for n, t in self.turns.items() if t.finish is not None), default=0)


class Checker:
    def __init__(self):
        self.faults, self.requests, self.conversations, self.keys = [], {}, {}, {}
        self.counts = {"acknowledged": 0, "finished": 0, "compared": 0}

    def fault(self, kind, record, why):
        self.faults.append((kind, why, {k: v for k, v in record.items() if k not in ("ids", "replies")}))

    def check(self, records):
        for r in records:
            judge = getattr(self, r["op"], None)
            if judge is not None:
                judge(r)
        return self

    # --- conversations ---

    def open(self, r):
        had = self.requests.setdefault((r["c"], r["request"]), r["conv"])
        if had != r["conv"]:
            self.fault("lost", r, f"the request had opened {had}")
        self.conversations.setdefault(r["conv"], Conversation())

    def fork(self, r):
        parent = self.conversations[r["parent"]]
        past = [parent.turns[n] for n in range(1, r["at"] + 1) if n in parent.turns]
        if r["turns"] != r["at"] or len(past) != r["at"]:
            self.fault("fork", r, f"the fork has {r['turns']} turns, {len(past)} were told of")
        had = self.requests.setdefault((r["c"], r["request"]), r["conv"])
        if had != r["conv"]:
            self.fault("lost", r, f"the request had made {had}")
        self.conversations.setdefault(r["conv"], Conversation(past))

    def update(self, r):
        self.conversations[r["conv"]].meta = r["meta"]

    def rewind(self, r):
        c = self.conversations[r["conv"]]
        if r["now"] != r["gen"] + 1:
            self.fault("order", r, "a rewind raises the generation by one")
        c.generation = r["now"]
        c.turns = {n: t for n, t in c.turns.items() if n <= r["to"]}

    def close(self, r):
        self.conversations[r["conv"]].is_closed = True

    def gone(self, r):
        if r["error"] != "NOT_FOUND":
            self.fault("lost", r, "it was closed")

    def get(self, r):
        c = self.conversations[r["conv"]]
        if r["gen"] != c.generation:
            self.fault("lost", r, f"generation {c.generation} was told")
        if r["meta"] != c.meta:
            self.fault("lost", r, f"metadata {c.meta} were told")
        if r["turns"] < c.ended():
            self.fault("lost", r, f"{c.ended()} turns had ended")
        if r["turns"] > len(c.turns):
            self.fault("order", r, f"{len(c.turns)} turns were sent")
        if [n for n, _, _ in r["replies"]] != list(range(1, r["turns"] + 1)):
            self.fault("order", r, "the transcript has gaps")
        for n, finish, text in r["replies"]:
            t = c.turns.get(n)
            if t is not None and t.finish is None:  # nobody was told of its end: it is told now
                self.end(r, t, finish, None, text)
            elif t is not None and (t.text, t.finish) != (text, finish):
                self.fault("differs", r, f"turn {n} was {t.finish} {t.text!r}, is {finish} {text!r}")

    # --- turns ---

    def end(self, r, t, finish, tokens, text=None):
        if t.finish is None:
            self.counts["finished"] += 1
            t.finish = finish
        if t.n_tokens is None:
            t.n_tokens = tokens
        if t.finish != finish or (tokens is not None and t.n_tokens != tokens):
            self.fault("differs", r, f"the turn ended as {t.finish} with {t.n_tokens} tokens, and as {finish} with {tokens}")
        if tokens is not None and tokens != len(t.ids):
            self.fault("differs", r, f"{tokens} tokens are {len(t.ids)}")
        if text is not None:
            if not text.startswith(t.text):
                self.fault("differs", r, f"{t.text!r} was told")
            t.text = text

    @staticmethod
    def merge(known, at, new):
        """What is known with what was told from at on; None if that differs."""
        if at > len(known):
            return None
        overlap = known[at:at + len(new)]
        return None if new[:len(overlap)] != overlap else known[:at] + new + known[at + len(new):]

    def stream(self, r):
        c = self.conversations[r["conv"]]
        if r["gen"] != c.generation:
            self.fault("order", r, f"the generation is {c.generation}")
            return
        t = c.turns.get(r["turn"])
        if t is None:
            if r["turn"] != len(c.turns) + 1:
                self.fault("order", r, f"{len(c.turns)} turns were sent")
            t = c.turns[r["turn"]] = Turn(r["body"])
        if r["error"] not in NOT_ANSWERED and not (r["error"] == "OUT_OF_RANGE" and r["body"] is None and not t.is_acknowledged):
            self.fault("lost" if t.is_acknowledged else "refused", r, "it was refused")
            return
        if r["accepted"] and not t.is_acknowledged:
            self.counts["acknowledged"] += 1
            t.is_acknowledged = True
        ids, text = self.merge(t.ids, r["at"], r["ids"]), self.merge(t.text, r["at_text"], r["text"])
        if ids is None or text is None:
            self.fault("differs", r, f"{t.text!r} was told")
            return
        if t.finish is not None and text != t.text:
            self.fault("differs", r, f"it had ended as {t.text!r}")
        t.ids, t.text = ids, text
        if r["done"] is not None:
            finish, number, tokens = r["done"]
            if number != r["turn"]:
                self.fault("order", r, f"its number is {number}")
            self.end(r, t, finish, tokens)

    def taken(self, r):
        t = self.conversations[r["conv"]].turns[r["turn"]]
        if t.is_acknowledged and r["error"] != "ALREADY_EXISTS":
            self.fault("lost", r, "its number was acknowledged for another body")

    def refused(self, r):
        self.fault("refused", r, r["why"])

    def keyed(self, r):
        had = self.keys.setdefault((r["c"], r["key"]), r)
        if had["body"] != r["body"]:
            if r["status"] != 422:
                self.fault("lost", r, "the key was given before")
        elif r["status"] != 200:
            self.fault("refused", r, "it was refused")
        elif r["reply"] != had["reply"]:
            self.fault("differs", r, f"{had['reply']!r} was told")


def finals(records):
    return {r["step"]: r for r in records if r["op"] == "final"}


def compare(checker, records, reference):
    """Each step's end beside that of a run in which nothing was killed; what was cut there or here is a beginning of the whole."""
    whole = finals(reference)
    for step, r in finals(records).items():
        w = whole.get(step)
        if w is None:
            checker.fault("reference", r, "the run without kills lacks the step")
        elif r["is_free"]:
            continue
        elif r["is_cut"]:
            n = min(len(r["ids"]), len(w["ids"]))
            if r["ids"][:n] != w["ids"][:n]:
                checker.fault("differs", r, f"the beginning is {w['text']!r}")
        elif (r["ids"], r["text"], r["finish"]) != (w["ids"], w["text"], w["finish"]):
            checker.fault("differs", r, f"without kills it is {w['finish']} {w['text']!r}")
        else:
            checker.counts["compared"] += 1


def judge(records=(), reference=()):
    checker = Checker().check(records)
    if reference:
        compare(checker, records, reference)
        checker.faults += Checker().check(reference).faults
    return checker


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def main():
    checker = judge(*map(read, sys.argv[1:3]))
    for fault in checker.faults[:20]:
        print(*fault)
    print(*(f"{k}={v}" for k, v in checker.counts.items()), f"faults={len(checker.faults)}")
    sys.exit(len(checker.faults) > 0)


if __name__ == "__main__":
    main()
