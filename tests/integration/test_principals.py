#!/usr/bin/env python3
"""Two principals with one server: what is alice's, mallory cannot read, list, watch, fork, change, cancel, repeat or guess, by any
method; what he is told is what he would be told of things that never were; and no page of the prefix cache is shared.

usage: test_principals.py PARLEYD WRITE_TINY_MODEL WRITE_POLICY PARLEY      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import json
import os
import sys
import tempfile
import threading

import grpc
from grpc import StatusCode

import children
import harness
import test_keys
from children import PATIENCE
from harness import content, conversations, conversations_pb2_grpc, params, params_pb2_grpc, tensor_pb2

sys.path.insert(0, os.environ["PARLEY_STUBS"])
from parley.v1 import act_pb2 as act, act_pb2_grpc, principal_pb2 as principal  # noqa: E402
from tritonclient.grpc import service_pb2 as kserve, service_pb2_grpc as kserve_grpc  # noqa: E402

SECRET = "The password of the vault is swordfish. " * 12  # several pages
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


class Person:
    def __init__(self, daemon, key):
        self.daemon, self.key = daemon, key
        self.channel = test_keys.with_key(daemon.address, key)
        self.conversations = conversations_pb2_grpc.ConversationsStub(self.channel)
        self.params = params_pb2_grpc.ParamsStub(self.channel)
        self.act = act_pb2_grpc.ActStub(self.channel)
        self.kserve = kserve_grpc.GRPCInferenceServiceStub(self.channel)

    def open(self, **more):
        return self.conversations.Open(conversations.ConversationsOpenRequest(model="tiny", **more)).conversation

    def ask(self, conversation, text=SECRET, turn=0):
        return self.conversations.Ask(conversations.TurnRequest(
            conversation=conversation, turn=turn, messages=[content.Message(role="user", text=text)], sampling=harness.sampling.Sampling(max_tokens=4)))

    def http(self, path, body=None, **headers):
        got, more, answer = test_keys.ask(self.daemon, "GET" if body is None else "POST", path, body, x_api_key=self.key, **headers)
        return got, json.loads(answer), more

    def list(self):
        return [c.conversation for c in self.conversations.List(conversations.ConversationsListRequest(page_size=1000)).conversations]


def refusal(act, *args):
    """Status and words of a call that fails."""
    try:
        got = act(*args)
        for _ in got if hasattr(got, "__next__") else ():
            pass
    except grpc.RpcError as e:
        return e.code(), e.details()
    raise AssertionError(f"{act} is done: {got}")


def conversation_calls(who, conversation):
    """Each way to use a conversation by its id."""
    c, stub = conversations, who.conversations
    message = [content.Message(role="user", text="What is the password?")]
    turn = c.TurnRequest(conversation=conversation, turn=1, messages=message)
    yield "Get", lambda: stub.Get(c.ConversationsGetRequest(conversation=conversation))
    yield "Fork", lambda: stub.Fork(c.ConversationsForkRequest(conversation=conversation))
    yield "Rewind", lambda: stub.Rewind(c.ConversationsRewindRequest(conversation=conversation, to_turn=0))
    yield "Cancel", lambda: stub.Cancel(c.ConversationsCancelRequest(conversation=conversation))
    yield "Close", lambda: stub.Close(c.ConversationsCloseRequest(conversation=conversation))
    yield "Update", lambda: stub.Update(c.ConversationsUpdateRequest(conversation=conversation, ttl_ms=1))
    yield "Watch", lambda: stub.Watch(c.ConversationsWatchRequest(conversation=conversation))
    yield "Ask", lambda: stub.Ask(turn)
    yield "Turn", lambda: stub.Turn(turn)


def state(who, conversation):
    got = who.conversations.Get(conversations.ConversationsGetRequest(conversation=conversation))
    got.ClearField("idle_ms")
    return got


def by_id(alice, mallory):
    ours, never = alice.open(metadata={"of": "alice"}), "0" * 32
    alice.ask(ours, turn=1)
    before = state(alice, ours)
    for (name, theirs), (_, nobodys) in zip(conversation_calls(mallory, ours), conversation_calls(mallory, never)):
        code, words = refusal(theirs)
        assert code == StatusCode.NOT_FOUND, (name, code, words)
        assert (code, words.replace(ours, never)) == refusal(nobodys), name  # as if it had never been
    assert state(alice, ours) == before
    chat = mallory.conversations.Chat(iter([conversations.ChatRequest(turn=conversations.TurnRequest(
        conversation=ours, turn=1, messages=[content.Message(role="user", text="x")]))]), timeout=PATIENCE)
    said = list(chat)
    assert len(said) == 1 and "there is no conversation" in str(said[0]) and "swordfish" not in str(said), said
    return ours


def by_list(alice, mallory, ours):
    assert ours in alice.list() and mallory.list() == []
    listed = mallory.conversations.List(conversations.ConversationsListRequest())
    assert listed.total == 0 and not listed.next_page_token, listed
    token = alice.conversations.List(conversations.ConversationsListRequest(page_size=1)).next_page_token
    assert not token or not mallory.conversations.List(conversations.ConversationsListRequest(page_token=token)).conversations
    for model in "", "tiny":
        assert mallory.conversations.List(conversations.ConversationsListRequest(model=model)).total == 0


def owner(conversation):
    """The name of its principal; None: it has none."""
    return conversation.principal.name if conversation.HasField("principal") else None


def owners(who, ours):
    """What each answer with the state of a conversation says of its owner; the watch's one is the snapshot."""
    c, stub = conversations, who.conversations
    yield "Get", owner(stub.Get(c.ConversationsGetRequest(conversation=ours)))
    yield "Update", owner(stub.Update(c.ConversationsUpdateRequest(conversation=ours, ttl_ms=3600000)))
    watch = stub.Watch(c.ConversationsWatchRequest(conversation=ours))
    yield "Watch", owner(next(watch).state)
    watch.cancel()
    yield from (("List", owner(one)) for one in stub.List(c.ConversationsListRequest(page_size=1000)).conversations)


def by_owner(alice, mallory, again):
    """Each reads its own name of what it owns, forks and with another key, too; so nobody reads another's."""
    ours, theirs = alice.open(), mallory.open()
    fork = alice.conversations.Fork(conversations.ConversationsForkRequest(conversation=ours)).conversation
    for who, conversation, name in (alice, ours, "alice"), (alice, fork, "alice"), (again, ours, "alice"), (mallory, theirs, "mallory"):
        said = list(owners(who, conversation))
        assert {way for way, _ in said} == {"Get", "Update", "Watch", "List"} and {told for _, told in said} == {name}, said
    return ours


def by_client(parley, alice, mallory, ours):
    """The client shows the owner; what it imports is the importer's, whoever exported it."""
    def told(who, *words, **more):
        done = test_keys.client(parley, who.daemon.address, "conversations", *words, key=who.key, **more)
        assert done.returncode == 0, done
        return done.stdout

    listed = [json.loads(line) for line in told(alice, "list", "--json").splitlines()]
    assert ours in [one["conversation"] for one in listed] and all(one["principal"] == {"name": "alice"} for one in listed), listed
    assert json.loads(told(alice, "show", ours, "--json"))["principal"] == {"name": "alice"}
    assert "  owner    alice\n" in told(alice, "show", ours)
    copy = json.loads(told(mallory, "import", input=told(alice, "export", ours)))["conversation"]
    assert set(dict(owners(mallory, copy)).values()) == {"mallory"}


def by_stored_list(parleyd, model, path, keys):
    """The list of those that are on disk alone names their owner, too. Without keys there is none."""
    with tempfile.TemporaryDirectory() as data:
        flags = ["--model", f"tiny={model}", "--http", "off", "--data", data]
        with children.Daemon(parleyd, *flags, "--keys", path) as daemon:
            opened = [Person(daemon, key).open() for key in keys]
        with children.Daemon(parleyd, *flags, "--keys", path) as daemon:
            for key, name, conversation in zip(keys, ("alice", "mallory"), opened):
                listed = Person(daemon, key).conversations.List(conversations.ConversationsListRequest()).conversations
                assert [(one.conversation, owner(one)) for one in listed] == [(conversation, name)], listed
    with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "off") as daemon:
        anybody = Person(daemon, "")
        assert {told for _, told in owners(anybody, anybody.open())} == {None}


def by_watch(alice, mallory):
    """Mallory's stream has his own events only, from the snapshot on, and with a resume token of alice's."""
    theirs = alice.conversations.Watch(conversations.ConversationsWatchRequest())
    token = next(theirs).resume_token
    theirs.cancel()
    his = set()
    for request in conversations.ConversationsWatchRequest(), conversations.ConversationsWatchRequest(resume_token=token):
        call = mallory.conversations.Watch(request)
        first = next(call)
        assert harness.word(first, "kind") == "synced", first
        ours = alice.open()
        alice.conversations.Close(conversations.ConversationsCloseRequest(conversation=ours))
        own = mallory.open()
        his.add(own)
        event = next(call)
        while event.conversation != own:  # one of his before, behind the resume token
            assert event.conversation in his, event
            event = next(call)
        mallory.conversations.Close(conversations.ConversationsCloseRequest(conversation=own))
        assert next(call).conversation == own
        call.cancel()


def by_request_id(alice, mallory):
    request = conversations.ConversationsOpenRequest(model="tiny", request_id="the first of May")
    ours, theirs = alice.conversations.Open(request).conversation, mallory.conversations.Open(request).conversation
    assert ours != theirs and alice.conversations.Open(request).conversation == ours
    request.system = "Another."  # no other's id is in the way
    assert refusal(mallory.conversations.Open, request)[0] == StatusCode.ALREADY_EXISTS
    mallory.conversations.Close(conversations.ConversationsCloseRequest(conversation=theirs))
    assert alice.conversations.Open(conversations.ConversationsOpenRequest(model="tiny", request_id="the first of May")).conversation == ours


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def by_name(alice, mallory):
    """The name of a conversation, its id as a name, a key, and a response's id."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": SECRET}], "max_tokens": 4, "temperature": 0}
    got, first, more = alice.http(CHAT, body, X_Conversation_Id="diary", Idempotency_Key="key")
    assert got == 200, first
    ours = more["X-Conversation-Id"]
    assert alice.http(CHAT, body, X_Conversation_Id="diary", Idempotency_Key="key")[1] == first
    got, other, more = mallory.http(CHAT, body, X_Conversation_Id="diary", Idempotency_Key="key")
    assert got == 200 and other["id"] != first["id"] and more["X-Conversation-Id"] != ours and cached(other) == 0, other
    other_body = {**body, "messages": [{"role": "user", "content": "Who are you?"}]}
    assert mallory.http(CHAT, other_body, Idempotency_Key="key")[0] == 422  # his own, by now
    got, other, more = mallory.http(CHAT, other_body, X_Conversation_Id=ours)
    assert got == 200 and more["X-Conversation-Id"] != ours, more  # a name like any other
    kept = alice.http(RESPONSES, {"model": "tiny", "input": SECRET, "max_output_tokens": 4})[1]
    follow = {"model": "tiny", "input": "What is the password?", "max_output_tokens": 4, "previous_response_id": kept["id"]}
    assert alice.http(RESPONSES, follow)[0] == 200
    got, error, _ = mallory.http(RESPONSES, follow)
    assert got == 404 and "swordfish" not in str(error), error
    assert mallory.http(RESPONSES, {**follow, "previous_response_id": "resp_" + "0" * 40})[1]["error"]["code"] == error["error"]["code"]
    one = f"{RESPONSES}/{kept['id']}"
    for method, path in (("GET", one), ("GET", one + "?stream=true"), ("GET", one + "/input_items"), ("POST", one + "/cancel"), ("DELETE", one)):
        got, _, said = test_keys.ask(mallory.daemon, method, path, x_api_key=mallory.key)
        assert got == 404 and b"swordfish" not in said, (method, path, got, said)
    assert alice.http(one)[1] == kept and SECRET in str(alice.http(one + "/input_items"))


def counted(root, name):
    lines = test_keys.ask(root.daemon, "GET", "/metrics", x_api_key=root.key)[2].decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


def by_cache(alice, mallory, root):
    """Pages by counter: what alice computed serves alice, and never mallory, however often he asks and whichever way."""
    text = "Whatever alice has computed before is hers alone. " * 12
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    answers = [alice.http(CHAT, body)[1] for _ in range(2)]
    assert cached(answers[0]) == 0 and cached(answers[1]) > 0, answers
    before = counted(root, "parley_cached_prompt_tokens_total")
    assert before == cached(answers[1])
    assert cached(mallory.http(CHAT, body)[1]) == 0
    # By the server's own count as by his answer; and no page of his is one of hers.
    assert counted(root, "parley_cached_prompt_tokens_total") == before and counted(root, "parley_kv_pages_shared") == 0
    assert cached(mallory.http(CHAT, body)[1]) > 0  # his own
    system = "You keep the secrets of whoever asks you to. " * 12
    usage = [who.ask(who.open(system=system), "Hello!").usage.cached_tokens for who in (alice, alice, mallory, mallory)]
    assert usage[0] < 100 < usage[1] and usage[2] < 100 < usage[3], usage  # the template's own beginning is each one's already


def infer(who, sequence, starts=False, text="Hello!"):
    request = kserve.ModelInferRequest(model_name="tiny")
    tensor = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(text.encode())
    request.parameters["sequence_id"].string_param = sequence
    request.parameters["sequence_start"].bool_param = starts
    request.parameters["max_tokens"].int64_param = 2
    return who.kserve.ModelInfer(request)


def by_sequence(alice, mallory):
    infer(alice, "7", starts=True, text=SECRET)
    assert refusal(infer, mallory, "7")[0] == StatusCode.INVALID_ARGUMENT
    assert refusal(infer, mallory, "7")[1].replace("7", "8") == refusal(infer, mallory, "8")[1]
    infer(mallory, "7", starts=True)  # does not end alice's
    infer(alice, "7")
    assert mallory.list() != [] and not set(mallory.list()) & set(alice.list())


def step(who, run_id, seq):
    import struct
    observation = tensor_pb2.Tensor(name="observation", dtype=tensor_pb2.DTYPE_F32, shape=[4], data=struct.pack("<4f", 0, 0, 0, 0))
    return who.act.Step(act.ActStepRequest(model="policy", env_id="env", run_id=run_id, seq=seq, observation=[observation]))


def by_session(alice, mallory):
    first = step(alice, 1, 1)
    step(mallory, 9, 1)  # another run of env_id "env" would end alice's
    assert step(alice, 1, 1) == first and step(alice, 1, 2).seq == 2
    assert refusal(step, mallory, 1, 2)[0] == StatusCode.OUT_OF_RANGE


def make_params(who, name, **access):
    config = params.ParamsConfig(name=name, access=principal.AccessList(**access), specs=[tensor_pb2.TensorSpec(name="w", dtype=tensor_pb2.DTYPE_F32, shape=[4])], round_size=1,
                                 optimiser=params.ParamsOptimiser(learning_rate=0.1))
    return who.params.Create(iter([params.ParamsCreateRequest(config=config)]))


def by_params(alice, mallory):
    make_params(alice, "weights")
    p = params
    header = p.ParamsUpload(header=p.ParamsUploadHeader(name="weights", client_id="m", step_id=1))
    ways = [lambda: mallory.params.Pull(p.ParamsPullRequest(name="weights")), lambda: mallory.params.Watch(p.ParamsWatchRequest(name="weights")),
            lambda: mallory.params.Delete(p.ParamsDeleteRequest(name="weights")), lambda: mallory.params.UpdateAndFetch(iter([header])),
            lambda: mallory.params.Push(iter([header]))]
    for way in ways:
        code, words = refusal(way)
        assert code == StatusCode.NOT_FOUND and words.endswith("nor any others"), words
    assert not mallory.params.List(p.ParamsListRequest()).params
    make_params(mallory, "weights")  # the name tells nothing
    mallory.params.Delete(p.ParamsDeleteRequest(name="weights"))
    assert [s.name for s in alice.params.List(p.ParamsListRequest()).params] == ["weights"]


def by_access_list(alice, mallory):
    """What alice shares has her name before its own; a reader pulls, a writer also pushes, none deletes; whom it is not shared with finds nothing."""
    p = params

    def header(name):
        return iter([p.ParamsUpload(header=p.ParamsUploadHeader(name=name, client_id="m", step_id=1))])

    def pull(name):
        return list(mallory.params.Pull(p.ParamsPullRequest(name=name)))

    make_params(alice, "read", readers=["mallory"])
    make_params(alice, "written", writers=["mallory"])
    make_params(alice, "others", readers=["carol"], writers=["dave"])
    assert [s.name for s in mallory.params.List(p.ParamsListRequest()).params] == ["alice/read", "alice/written"]
    for name in "alice/read", "alice/written":
        assert pull(name), name
        assert next(mallory.params.Watch(p.ParamsWatchRequest(name=name))).version == 0
        assert refusal(mallory.params.Delete, p.ParamsDeleteRequest(name=name))[0] == StatusCode.PERMISSION_DENIED
        assert refusal(pull, name.split("/")[1])[0] == StatusCode.NOT_FOUND  # not by a name that he could take
    for way in mallory.params.UpdateAndFetch, mallory.params.Push:
        assert refusal(way, header("alice/read"))[0] == StatusCode.PERMISSION_DENIED
        assert refusal(way, header("alice/written"))[0] == StatusCode.INVALID_ARGUMENT  # it may, but sends nothing
        code, words = refusal(way, header("alice/others"))
        assert code == StatusCode.NOT_FOUND and (code, words.replace("others", "no")) == refusal(way, header("alice/no")), words
    for way in mallory.params.Delete, mallory.params.Pull, mallory.params.Watch:
        assert refusal(way, p.ParamsDeleteRequest(name="alice/others") if way == mallory.params.Delete else p.ParamsPullRequest(name="alice/others")
                       if way == mallory.params.Pull else p.ParamsWatchRequest(name="alice/others"))[0] == StatusCode.NOT_FOUND
    for wrong in {"readers": ["a/b"]}, {"writers": [""]}, {"readers": ["a"] * 65}:
        code, words = refusal(lambda: make_params(alice, "wrong", **wrong))
        assert code == StatusCode.INVALID_ARGUMENT and f"access.{[*wrong][0]}" in words, words
    for name in "read", "written", "others":
        alice.params.Delete(p.ParamsDeleteRequest(name=name))
    assert not mallory.params.List(p.ParamsListRequest()).params


def by_weight(alice, mallory):
    """Both queue more than a step holds, mallory first: of what is generated meanwhile each has its share by weight, 4 to 1."""
    n, n_tokens, ended = 150, 128, {alice: 0, mallory: 0}
    people = [(person, person.open()) for person in (mallory, alice) for _ in range(n)]
    lock, is_over = threading.Lock(), threading.Event()
    then = {}

    def end(person, call):
        assert call.code() == StatusCode.OK, call
        with lock:
            ended[person] += 1
            if ended[person] == n and not then:
                then.update(ended)
            if sum(ended.values()) == 2 * n:
                is_over.set()

    calls = []
    for person, conversation in people:
        call = person.conversations.Ask.future(conversations.TurnRequest(
            conversation=conversation, messages=[content.Message(role="user", text="Go on.")],
            sampling=harness.sampling.Sampling(max_tokens=n_tokens, ignore_eos=True)), timeout=PATIENCE)
        call.add_done_callback(lambda call, person=person: end(person, call))
        calls.append(call)
    assert is_over.wait(PATIENCE)
    assert then[alice] == n and n / 8 < then[mallory] < n / 2, "by weight a quarter, by order of arrival nearly all: %d of %d" % (then[mallory], n)


def main(parleyd, write_tiny_model, write_policy, parley):
    with tempfile.TemporaryDirectory() as folder:
        model, policy, path = (os.path.join(folder, name) for name in ("tiny.gguf", "policy.gguf", "keys"))
        children.run([write_tiny_model, model], check=True)
        children.run([write_policy, policy], check=True)
        keys = [test_keys.new_key() for _ in range(2)]
        test_keys.write_keys(path, ("alice", keys[0]), ("mallory", keys[1]))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--model", f"policy={policy}", "--http", "127.0.0.1:0", "--keys", path) as daemon:
            alice, mallory = (Person(daemon, key) for key in keys)
            ours = by_id(alice, mallory)
            by_list(alice, mallory, ours)
            by_watch(alice, mallory)
            by_request_id(alice, mallory)
            by_name(alice, mallory)
            by_sequence(alice, mallory)
            by_session(alice, mallory)
            by_params(alice, mallory)
            by_access_list(alice, mallory)
        again = test_keys.new_key()
        test_keys.write_keys(path, ("alice", keys[0]), ("alice", again), ("mallory", keys[1]))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "off", "--keys", path) as daemon:
            alice, mallory, other = (Person(daemon, key) for key in (*keys, again))
            by_client(parley, alice, mallory, by_owner(alice, mallory, other))
        by_stored_list(parleyd, model, path, keys)
        root = test_keys.new_key()
        test_keys.write_keys(path, ("alice", keys[0]), ("mallory", keys[1]), ("root", root, "admin"))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0", "--keys", path) as daemon:
            by_cache(*(Person(daemon, key) for key in (*keys, root)))
        test_keys.write_keys(path, ("alice", keys[0], "weight=4"), ("mallory", keys[1]))
        with children.Daemon(parleyd, "--model", f"tiny={model}", "--max-conversations", "1000", "--keys", path) as daemon:
            by_weight(*(Person(daemon, key) for key in keys))


if __name__ == "__main__":
    main(*sys.argv[1:])
