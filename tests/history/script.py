"""What the clients of a history do. The plan of a round, what is said and asked for, follows from (seed, client, round) alone; how a client
goes on after a failure is drawn anew, since it may change nothing."""
import http.client
import json
import random
import threading

import children
import grpc
from harness import Client, conversations, word
from parley.v1 import cursor_pb2  # harness knows where they are

CLIENTS = 64
WORDS = "river stone paper lamp winter garden seven engine letter bridge silver morning".split()


SCHEMA = {"type": "object", "properties": {"word": {"enum": WORDS}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
          "required": ["word", "n"], "additionalProperties": False}
BOUND = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}}
TOOL = {"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]}


class Gone(Exception):
    """No answer came: what was asked for may be done or not."""


class Refused(Exception):
    """What can only be right was refused: the checker says so."""


def status(error):
    return "CANCELLED" if isinstance(error, ValueError) else error.code().name  # ValueError: of a channel that was closed


class Plan:
    """The steps of one round: (kind, what it needs)."""

    def __init__(self, seed, client, number):
        chance = random.Random(f"{seed}/{client}/{number}")
        self.name = f"{client}/{number}"
        self.is_free = chance.random() < 0.2  # its seeds are the daemon's
        self.system = "You are brief." if chance.random() < 0.3 else ""
        self.steps = [(kind, self.need(chance, kind)) for kind in chance.choices(
            ["turn", "observe", "fork", "rewind", "cancel", "deadline", "update", "keyed"], [10, 2, 2, 1, 2, 1, 1, 2], k=chance.randint(4, 7))]
        self.is_closed = chance.random() < 0.3

    def need(self, chance, kind):
        text = " ".join(chance.choices(WORDS, k=chance.randint(1, 6)))
        tokens = chance.choice([3, 10, 20, 40])
        return {"text": text, "tokens": 400 if kind in ("cancel", "deadline") else tokens, "seed": chance.randrange(1, 2**31), "part": chance.random(),
                "logprobs": chance.choice([0, 0, 2]), "patience": chance.randint(1, 12)}


class Part:
    """What a client has of one turn."""

    def __init__(self):
        self.ids, self.text, self.index, self.is_acknowledged, self.done = [], "", 0, False, None


class Walk:
    """One client. daemon has client (of gRPC), http (its address) and is_back; with may_fail something may kill it at any time."""

    has_constraints = False  # whether the daemon has the grammar module

    def __init__(self, daemon, number, seed, may_fail):
        self.daemon, self.number, self.seed, self.may_fail = daemon, number, seed, may_fail
        self.chance = random.Random()
        self.records = []
        self.n_rounds, self.is_ended = 0, False

    def note(self, op, **more):
        self.records.append({"c": self.number, "op": op, **more})

    def patiently(self, act):
        """Until it is answered, however often the daemon is killed."""
        tries = life = 0
        while tries < 300:
            tries, life = (tries + 1, life) if life == self.daemon.life else (0, self.daemon.life)
            try:
                return act(self.daemon.client)
            except (grpc.RpcError, ValueError) as error:
                if status(error) not in ("UNAVAILABLE", "CANCELLED"):
                    self.note("refused", step=self.step, error=status(error), why=error.details())
                    raise Refused(error) from error
                why = f"{status(error)}: {error if isinstance(error, ValueError) else error.details()}"
            except Gone as error:
                why = str(error)
            self.wait(why)
        self.note("refused", step=self.step, error=None, why="it is never answered")
        raise Refused

    def wait(self, why):
        assert self.may_fail, f"step {self.step} failed, and nobody killed the daemon: {why}"
        assert self.daemon.is_back.wait(children.PATIENCE), "the daemon does not come back"

    # --- rounds ---

    def round(self):
        plan = Plan(self.seed, self.number, self.n_rounds)
        self.n_rounds += 1
        self.step = f"{plan.name}/open"
        self.plan, self.meta, self.gen, self.turns, self.sent = plan, {}, 1, 0, {}
        self.root = self.open(plan)
        self.conv = self.root
        for i, (kind, need) in enumerate(plan.steps):
            self.step = f"{plan.name}/{i}"
            getattr(self, "do_" + kind)(need)
        self.audit()
        if plan.is_closed:
            self.patiently(lambda parley: self.closed(parley))

    def run(self, is_over):
        try:
            while not is_over():
                self.round()
        except Refused:
            pass  # the record says so
        finally:
            self.is_ended = True
        return self

    def open(self, plan):
        r = conversations.ConversationsOpenRequest(model="tiny", system=plan.system, request_id=plan.name)
        conv = self.patiently(lambda parley: parley.conversations.Open(r)).conversation
        self.note("open", request=plan.name, conv=conv)
        return conv

    def closed(self, parley):
        try:
            parley.close(self.conv)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:  # of a retry: an earlier one had closed it
                raise
        self.note("close", conv=self.conv)
        self.patiently(self.look_for_closed)

    def look_for_closed(self, parley):
        try:
            parley.get(self.conv)
            error = None
        except grpc.RpcError as e:
            if status(e) in ("UNAVAILABLE", "CANCELLED"):
                raise
            error = status(e)
        self.note("gone", conv=self.conv, error=error)

    def get(self, parley):
        kept = parley.get(self.conv)
        replies = [[t.turn, word(t, "finish_reason"), t.reply] for t in kept.transcript]
        self.note("get", conv=self.conv, gen=kept.generation, turns=kept.turns, meta=dict(kept.metadata), replies=replies)
        return kept

    def audit(self):
        """All again: the request that opened it, what is there, each turn from its start."""
        r = conversations.ConversationsOpenRequest(model="tiny", system=self.plan.system, request_id=self.plan.name)
        self.note("open", request=self.plan.name, conv=self.patiently(lambda parley: parley.conversations.Open(r)).conversation)
        self.patiently(self.get)
        for n in list(self.sent):
            if n <= self.turns:
                self.patiently(lambda parley, n=n: self.stream(parley, n, self.sent[n], Part()))

    # --- turns ---

    def request(self, need, number, observe=False):
        r = conversations.TurnRequest(conversation=self.conv, turn=number, text=need["text"], observe_only=observe)
        if observe:
            return r
        r.want_logprobs = need["logprobs"]
        r.sampling.max_tokens = need["tokens"]
        r.sampling.ignore_eos = True
        r.sampling.temperature = 1
        if not self.plan.is_free:
            r.sampling.seed = need["seed"]
        return r

    def stream(self, parley, number, r, part, leave_at=None, is_read=False):
        """Reads what comes. What part has is passed over, if it is a read; else the turn is sent with its body."""
        at, at_text = (len(part.ids), len(part.text)) if is_read else (0, 0)
        if is_read:
            r = conversations.TurnRequest(conversation=self.conv, resume_from=cursor_pb2.Cursor(generation=self.gen, turn=number, index=part.index))
        ids, text, accepted, done, error, why, index = [], "", False, None, None, "", 0
        call = parley.conversations.Turn(r)
        try:
            for event in call:
                kind = event.WhichOneof("event")
                if kind == "accepted":
                    accepted = True
                elif kind == "piece":
                    ids += event.piece.token_ids
                    text += event.piece.text
                    index = event.piece.next_index
                elif kind == "done":
                    done = [word(event.done, "finish_reason"), event.done.turn, event.done.usage.completion_tokens]
                if leave_at is not None and len(ids) >= leave_at:
                    call.cancel()
                    break
        except (grpc.RpcError, ValueError) as e:
            error, why = status(e), str(e)
        self.note("stream", conv=self.conv, gen=self.gen, turn=number, body=None if is_read else self.step, at=at, at_text=at_text, ids=ids, text=text,
                  accepted=accepted, done=done, error=error)
        part.is_acknowledged = part.is_acknowledged or accepted
        if at + len(ids) >= len(part.ids):
            part.ids, part.text, part.index = part.ids[:at] + ids, part.text[:at_text] + text, max(part.index, index)
        part.done = part.done or done
        if error in ("UNAVAILABLE", "CANCELLED"):
            raise Gone(why)
        if error is not None and error != "DEADLINE_EXCEEDED" and not (error == "OUT_OF_RANGE" and is_read):
            raise Refused(error)  # the record says so
        return error

    def go_on(self, parley, number, r, part, leave_at):
        """Behind what it has of an acknowledged turn."""
        if self.stream(parley, number, r, part, leave_at, is_read=True) == "OUT_OF_RANGE":
            raise Refused  # the record says so

    def taken(self, parley, number, r):
        """Another body under the number of a turn that was acknowledged."""
        other = conversations.TurnRequest()
        other.CopyFrom(r)
        other.text += " Or else."
        try:
            list(parley.conversations.Turn(other))
            error = None
        except (grpc.RpcError, ValueError) as e:
            error, why = status(e), str(e)
        if error in ("UNAVAILABLE", "CANCELLED"):
            raise Gone(why)
        self.note("taken", conv=self.conv, gen=self.gen, turn=number, body="other", error=error)

    def turn(self, need, number, observe=False):
        """Sends a turn until it is done, in some way each time."""
        r, part = self.request(need, number, observe), Part()
        self.sent[number] = r

        def once(parley):
            if part.is_acknowledged and self.chance.random() < 0.3:
                self.taken(parley, number, r)
            if self.chance.random() < 0.2:
                self.get(parley)
            leave_at = self.chance.randint(1, 20) if self.chance.random() < 0.2 and not observe else None
            how = self.chance.random() if part.is_acknowledged and not observe else 1
            if how < 0.5:
                self.go_on(parley, number, r, part, leave_at)
            else:
                self.stream(parley, number, r, part, leave_at)
            if part.done is None:
                if leave_at is not None and self.daemon.is_back.is_set():
                    return once(parley)
                raise Gone(f"turn {number} ended without done, leave_at {leave_at}")
            return None

        self.patiently(once)
        self.turns = number
        return part

    def final(self, part, is_cut=False):
        self.note("final", step=self.step, ids=part.ids, text=part.text, finish=part.done and part.done[0], is_cut=is_cut, is_free=self.plan.is_free)

    # --- steps ---

    def do_turn(self, need):
        self.final(self.turn(need, self.turns + 1))

    def do_observe(self, need):
        self.turn(need, self.turns + 1, observe=True)

    def do_update(self, need):
        meta = {"said": need["text"]}
        r = conversations.ConversationsUpdateRequest(conversation=self.conv, metadata=conversations.ConversationMetadata(entries=meta))
        self.patiently(lambda parley: parley.conversations.Update(r))
        self.note("update", conv=self.conv, meta=meta)
        self.meta = meta
        self.patiently(self.get)

    def do_fork(self, need):
        at, name = int(need["part"] * (self.turns + 1)), f"fork {self.step}"
        r = conversations.ConversationsForkRequest(conversation=self.conv, at_turn=at, request_id=name)
        got = self.patiently(lambda parley: parley.conversations.Fork(r))
        self.note("fork", request=name, parent=self.conv, at=at, conv=got.conversation, turns=got.turns)
        if need["logprobs"] == 0:  # the parent goes on; the fork is to have nothing of that
            self.turn(need, self.turns + 1)
        self.conv, self.turns, self.gen, self.sent, self.meta = got.conversation, at, 1, {}, {}
        self.patiently(self.get)

    def rewind(self, to):
        gen = self.gen
        r = conversations.ConversationsRewindRequest(conversation=self.conv, to_turn=to, generation=gen)
        got = self.patiently(lambda parley: parley.conversations.Rewind(r))
        self.note("rewind", conv=self.conv, gen=gen, to=to, now=got.generation)
        self.gen, self.turns, self.sent = got.generation, to, {n: r for n, r in self.sent.items() if n <= to}

    def do_rewind(self, need):
        self.rewind(int(need["part"] * (self.turns + 1)))
        self.patiently(self.get)

    def do_cancel(self, need):
        """A turn is cancelled on its way, where nothing is killed not; then it is forgotten."""
        number, part = self.turns + 1, Part()
        r = self.request(need, number)
        self.sent[number] = r

        def cancelled(parley):
            if part.index > 0:  # what it has is not cut away: it goes on behind that
                self.go_on(parley, number, r, part, leave_at=1)
            if part.done is None:
                self.stream(parley, number, r, part, leave_at=need["patience"])
            if part.done is None:
                parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=self.conv, turn=number))
                self.stream(parley, number, r, part)

        if self.may_fail:
            self.patiently(cancelled)
        if part.done is None:
            part = self.turn(need, number)
        self.cut(number, r, part)

    def do_deadline(self, need):
        """The time of a turn is up on its way; then it is forgotten."""
        number, part = self.turns + 1, Part()
        r = self.request(need, number)
        r.deadline_ms = need["patience"] if self.may_fail else 0
        self.sent[number] = r

        def timed(parley):
            if self.stream(parley, number, r, part) == "DEADLINE_EXCEEDED" and part.done is None:
                kept = self.get(parley)
                part.done = ["deadline", number, kept.turns]

        self.patiently(timed)
        self.cut(number, r, part)

    def cut(self, number, r, part):
        """What is told of it again is the same; then it is dropped."""
        if self.chance.random() < 0.5 and part.ids:
            self.patiently(lambda parley: self.stream(parley, number, r, Part()))
        self.patiently(self.get)
        self.final(part, is_cut=True)
        self.rewind(number - 1)

    def do_keyed(self, need):
        """An HTTP request with a key, sent until it is answered, and once more; then another one with its key. Of one choice or three, of free
        text, of what a schema binds, or of a tool's call."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": need["text"]}], "max_tokens": need["tokens"], "temperature": 1,
                "seed": need["seed"], "ignore_eos": True, "n": 3 if need["logprobs"] else 1}
        if self.has_constraints and need["patience"] % 3 == 0:
            body.update(BOUND, max_tokens=60, ignore_eos=False)
        elif self.has_constraints and need["patience"] % 3 == 1:
            body.update(TOOL, max_tokens=60, ignore_eos=False)
        said = self.patiently(lambda _: self.ask(body))
        text = json.dumps([self.told(choice["message"]) for choice in said["choices"]])
        self.note("final", step=self.step, ids=[], text=text, finish=said["choices"][0]["finish_reason"], is_cut=False, is_free=False)
        self.patiently(lambda _: self.ask(body))
        self.patiently(lambda _: self.ask({**body, "seed": need["seed"] + 1}))

    @staticmethod
    def told(message):
        """Without what is drawn anew each time: a call's id."""
        return [message["content"], *([call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", []))]

    def ask(self, body):
        try:
            connection = http.client.HTTPConnection(self.daemon.http, timeout=children.PATIENCE)
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Idempotency-Key": self.step})
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Gone(error) from error
        finally:
            connection.close()
        if answer.status == 503:
            raise Gone(said)
        if answer.status == 200:
            del said["usage"]["prompt_tokens_details"]
        self.note("keyed", key=self.step, body=json.dumps(body), status=answer.status, reply=json.dumps(said) if answer.status == 200 else "")
        return said


def start_all(pool, daemon, seed, may_fail, is_over_of):
    """Every client in a thread of its own."""
    daemon.walks = [Walk(daemon, i, seed, may_fail) for i in range(CLIENTS)]
    return [pool.submit(walk.run, is_over_of(walk)) for walk in daemon.walks]


__all__ = ["CLIENTS", "Client", "Plan", "Walk", "start_all", "threading"]
