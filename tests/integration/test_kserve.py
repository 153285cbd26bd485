#!/usr/bin/env python3
"""KServe's clients, unmodified: tritonclient over gRPC, sync and asyncio, against echo, a language model and policies.

usage: test_kserve.py PARLEYD WRITE_TINY_MODEL WRITE_POLICY      (run by the interpreter that has them; see venv.sh)
"""
import asyncio
import json
import os
import queue
import shutil
import sys
import tempfile
import threading
import time

import grpc
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import children
import harness
from children import PATIENCE, until
from parley.v1 import embeddings_pb2, embeddings_pb2_grpc  # found by harness

ENDLESS = {"max_tokens": 100000, "ignore_eos": True}  # of model long


def text(value, name="text_input"):
    tensor = triton.InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([value.encode() if isinstance(value, str) else value], dtype=object))
    return tensor


def streamed(on=True):
    tensor = triton.InferInput("stream", [1], "BOOL")
    tensor.set_data_from_numpy(np.array([on]))
    return tensor


def texts(values, shape=None):
    data = np.array([v.encode() for v in values], dtype=object).reshape(shape or [len(values)])
    tensor = triton.InferInput("text_input", list(data.shape), "BYTES")
    tensor.set_data_from_numpy(data)
    return tensor


def observation(*numbers, shape=None, dtype=np.float32, name="observation"):
    data = np.array(numbers, dtype=dtype).reshape(shape or [len(numbers)])
    tensor = triton.InferInput(name, list(data.shape), {np.float32: "FP32", np.float64: "FP64"}[dtype])
    tensor.set_data_from_numpy(data)
    return tensor


def said(result):
    return b"".join(result.as_numpy("text_output")).decode()


def parameter(result, name):
    value = result.get_response().parameters[name]
    return getattr(value, value.WhichOneof("parameter_choice"))


def refused(call, code, *words):
    """The call fails with this status (None: in band), and its text has these words."""
    try:
        call()
    except InferenceServerException as e:
        assert e.status() == (None if code is None else f"StatusCode.{code}"), f"{e.status()} instead of {code}: {e}"
        for word in words:
            assert word in e.message(), f"'{word}' is not in '{e.message()}'"
        return
    raise AssertionError(f"it is not refused with {code}")


class Stream:
    """The one stream of a client; what comes on it, in order."""

    def __init__(self, client, **options):
        self.client = client
        self.came = queue.Queue()
        client.start_stream(lambda result, error: self.came.put((result, error)), **options)

    def ask(self, *args, **more):
        self.client.async_stream_infer(*args, **more)

    def next(self):
        return self.came.get(timeout=PATIENCE)

    def answer(self, request_id):
        """Results up to the final one of one request, of which alone something is under way."""
        results = []
        while True:
            result, error = self.next()
            if error is not None:
                raise error
            assert result.get_response().id == request_id, result.get_response().id
            results.append(result)
            if parameter(result, "triton_final_response"):
                return results

    def stop(self):
        self.client.stop_stream()


def n_conversations(client):
    return len(client.parley.conversations.List(harness.conversations.ConversationsListRequest()).conversations)


def statistics_of(client, name):
    (model,) = client.get_inference_statistics(name).model_stats
    assert model.name == name and int(model.version) == 1
    return model


def metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    server = client.get_server_metadata(as_json=True)
    assert server["name"] == "parleyd" and {"sequence", "sequence(string_id)", "statistics", "model_repository"} <= set(server["extensions"])
    assert not {"system_shared_memory", "cuda_shared_memory", "trace", "logging", "classification"} & set(server["extensions"])
    for name, platform, inputs, outputs in (
        ("echo", "parley_agent", ["text_input"], ["text_output"]),
        ("tiny", "parley_lm", ["text_input", "stream", "sampling_parameters"], ["text_output"]),
        ("cart", "parley_policy", ["observation"], ["action", "logp"]),
    ):
        assert client.is_model_ready(name)
        model = client.get_model_metadata(name, as_json=True)
        assert model["name"] == name and model["platform"] == platform and model["versions"] == ["1"], model
        assert [t["name"] for t in model["inputs"]] == inputs and [t["name"] for t in model["outputs"]] == outputs, model
        config = client.get_model_config(name).config
        assert config.max_batch_size == 0 and [t.name for t in config.input] == inputs
        assert config.model_transaction_policy.decoupled == (name == "tiny")
        assert config.HasField("sequence_batching") == (name == "tiny")
    assert client.get_model_metadata("cart").inputs[0].shape == [4]
    refused(lambda: client.get_model_metadata("nothing"), "NOT_FOUND", "nothing", "tiny, cart, memory, long, rows, echo")
    refused(lambda: client.is_model_ready("echo", "2"), "NOT_FOUND", "version")
    assert client.is_model_ready("echo", "1")
    print("metadata and configuration")


def inference(client):
    result = client.infer("echo", [text("good day, wörld")], request_id="r-1")
    assert said(result) == "good day, wörld" and result.get_response().id == "r-1" and result.get_response().model_version == "1"
    assert parameter(result, "finish_reason") == "stop"
    one, two = (client.infer("tiny", [text("hi")], parameters={"max_tokens": 6, "seed": 5}) for _ in range(2))
    assert said(one) == said(two) and parameter(one, "completion_tokens") == 6 and parameter(one, "finish_reason") == "length"
    assert said(client.infer("echo", [text("one two three"), text('{"max_tokens": 2}', "sampling_parameters")])) == "one two", "echo counts words"
    by_json = client.infer("tiny", [text("hi"), text(json.dumps({"max_tokens": 6, "seed": 5, "unheard_of": [1]}), "sampling_parameters")])
    assert said(by_json) == said(one), "the same parameters by tensor and by request"
    acted = client.infer("cart", [observation(0.1, 0.2, 0.3, 0.4)], outputs=[triton.InferRequestedOutput("action")])
    assert acted.as_numpy("action").shape == (1,) and acted.as_numpy("action")[0] in (0, 1) and acted.as_numpy("logp") is None
    acted = client.infer("cart", [observation(0.1, 0.2, 0.3, 0.4, shape=[1, 4])])
    assert acted.as_numpy("logp").dtype == np.float32 and acted.as_numpy("logp")[0] < 0 and parameter(acted, "params_version") == 1
    actions = {client.infer("cart", [observation(0, 0, 0, 0)]).as_numpy("action")[0] for _ in range(40)}
    assert actions == {0, 1}, "requests of no sequence draw each for itself"
    assert len({client.infer("cart", [observation(0, 0, 0, 0)], parameters={"seed": 3}).as_numpy("action")[0] for _ in range(8)}) == 1

    came = queue.Queue()
    for i in range(50):
        client.async_infer("echo", [text(f"number {i}")], lambda result, error: came.put((result, error)), request_id=str(i))
    answers = [came.get(timeout=PATIENCE) for _ in range(50)]
    assert all(error is None for _, error in answers)
    assert {r.get_response().id: said(r) for r, _ in answers} == {str(i): f"number {i}" for i in range(50)}
    print("inference, sync and async")


def typed_contents(client, address):
    """Contents in the field of their type, which tritonclient itself sends for nothing."""
    with grpc.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="echo")
        tensor = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(b"typed")
        response = stub.ModelInfer(request)
        assert response.raw_output_contents[0] == b"\5\0\0\0typed"
        request.raw_input_contents.append(b"\3\0\0\0raw")
        try:
            stub.ModelInfer(request)
            raise AssertionError("both were taken")
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and "raw_input_contents" in e.details()
    print("typed contents")


def bad_input(client):
    refused(lambda: client.infer("nothing", [text("x")]), "NOT_FOUND", "nothing", "tiny", "cart", "echo")
    refused(lambda: client.infer("echo", [text("x", "prompt")]), "INVALID_ARGUMENT", "prompt", "text_input")
    refused(lambda: client.infer("echo", []), "INVALID_ARGUMENT", "text_input")
    refused(lambda: client.infer("echo", [text("")]), "INVALID_ARGUMENT", "text_input")
    refused(lambda: client.infer("echo", [text(b"\xff\xfe")]), "INVALID_ARGUMENT", "text_input", "UTF-8")
    refused(lambda: client.infer("echo", [text("x"), text("y")]), "INVALID_ARGUMENT", "twice")
    refused(lambda: client.infer("cart", [observation(1, 2, 3)]), "INVALID_ARGUMENT", "observation", "[3]", "[4]")
    refused(lambda: client.infer("cart", [observation(*range(8), shape=[2, 4])]), "INVALID_ARGUMENT", "[2, 4]", "[4]")
    refused(lambda: client.infer("cart", [observation(1, 2, 3, 4, dtype=np.float64)]), "INVALID_ARGUMENT", "FP64", "FP32")
    refused(lambda: client.infer("cart", [observation(1, 2, 3, float("nan"))]), "INVALID_ARGUMENT", "observation")
    refused(lambda: client.infer("echo", [text("x")], outputs=[triton.InferRequestedOutput("y")]), "INVALID_ARGUMENT", "'y'", "text_output")
    refused(lambda: client.infer("echo", [text("x")], outputs=[triton.InferRequestedOutput("text_output", class_count=2)]), "UNIMPLEMENTED", "classification")
    refused(lambda: client.infer("tiny", [text("x")], parameters={"temperature": "hot"}), "INVALID_ARGUMENT", "temperature")
    refused(lambda: client.infer("tiny", [text("x")], parameters={"top_p": 7.0}), "INVALID_ARGUMENT", "top_p")
    refused(lambda: client.infer("tiny", [text("x"), text("{", "sampling_parameters")]), "INVALID_ARGUMENT", "sampling_parameters")
    assert said(client.infer("echo", [text("x")], parameters={"unheard_of": 3, "nor_of": "this"})) == "x"
    for call in (client.get_system_shared_memory_status, client.get_cuda_shared_memory_status,
                 lambda: client.register_system_shared_memory("a", "/a", 4), lambda: client.unregister_cuda_shared_memory()):
        refused(call, "UNIMPLEMENTED", "shared memory")
    assert client.get_trace_settings(as_json=True) == {} and client.get_log_settings(as_json=True) == {}
    refused(lambda: client.update_log_settings({"log_info": True}), "UNIMPLEMENTED", "--log-level")
    refused(lambda: client.update_trace_settings(settings={"trace_level": "TIMESTAMPS"}), "UNIMPLEMENTED", "tracing")
    print("bad input")


def streams(client):
    stream = Stream(client)
    stream.ask("tiny", [text("hi"), streamed()], request_id="parts", parameters={"max_tokens": 8, "seed": 5})
    parts = stream.answer("parts")
    whole = client.infer("tiny", [text("hi")], parameters={"max_tokens": 8, "seed": 5})
    assert len(parts) > 2 and "".join(said(p) for p in parts) == said(whole)
    assert [parameter(p, "triton_final_response") for p in parts] == [False] * (len(parts) - 1) + [True]
    stream.ask("tiny", [text("hi"), streamed()], request_id="empty", parameters={"max_tokens": 8, "seed": 5}, enable_empty_final_response=True)
    parts = stream.answer("empty")
    assert not parts[-1].get_response().outputs and "".join(said(p) for p in parts[:-1]) == said(whole)
    stream.ask("tiny", [text("hi")], request_id="one", parameters={"max_tokens": 8, "seed": 5})
    (only,) = stream.answer("one")
    assert said(only) == said(whole), "not streamed unless it is asked for"

    stream.ask("nothing", [text("x")], request_id="e1")
    stream.ask("cart", [observation(1)], request_id="e2")
    errors = [stream.next()[1] for _ in range(2)]
    assert all(e is not None and e.status() is None for e in errors)
    assert any("there is no model" in e.message() for e in errors) and any("[1]" in e.message() for e in errors)
    with grpc.insecure_channel(client.parley.address) as channel:  # what tritonclient does not show of it
        request = service_pb2.ModelInferRequest(model_name="nothing", id="e3")
        (answer,) = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]))
        assert answer.error_message and answer.infer_response.id == "e3" and answer.infer_response.parameters["triton_final_response"].bool_param
        assert answer.infer_response.parameters["status"].string_param == "NOT_FOUND"
    for i in range(100):
        stream.ask("echo" if i % 2 else "cart", [text(f"{i}") if i % 2 else observation(i, 0, 0, 0)], request_id=str(i))
    came = [stream.next() for _ in range(100)]
    assert all(e is None for _, e in came) and {r.get_response().id for r, _ in came} == {str(i) for i in range(100)}
    stream.stop()

    stream = Stream(client, stream_timeout=0.1)
    stream.ask("long", [text("hi"), streamed()], request_id="long", parameters=ENDLESS)
    while True:
        result, error = stream.next()
        if error is not None:
            break
    assert error.status() == "StatusCode.DEADLINE_EXCEEDED" or "deadline" in error.message(), error
    stream.stop()
    print("streams")


def sequences(client):
    for sequence_id in (41, "forty-one"):
        alone = [client.infer("tiny", [text("again")], sequence_id=sequence_id, sequence_start=i == 0, sequence_end=i == 2, parameters={"max_tokens": 4, "seed": 1}) for i in range(3)]
        prompts = [parameter(r, "prompt_tokens") for r in alone]
        assert prompts[0] < prompts[1] < prompts[2] and parameter(alone[2], "cached_tokens") > 0, prompts
        refused(lambda: client.infer("tiny", [text("again")], sequence_id=sequence_id), "INVALID_ARGUMENT", "START", str(sequence_id))

    # Many requests of one id at once stand in line; those of another id are another sequence.
    came = {7: queue.Queue(), "7": queue.Queue()}
    for key, answers in came.items():
        for i in range(5):
            client.async_infer("tiny", [text("on")], lambda result, error, answers=answers: answers.put((result, error)), request_id=str(i),
                               sequence_id=key, sequence_start=i == 0, parameters={"max_tokens": 2, "seed": 2})
            if i == 0:
                assert answers.get(timeout=PATIENCE)[1] is None  # so that it starts before the next is sent
    in_line = {}
    for key, answers in came.items():
        rest = [answers.get(timeout=PATIENCE) for _ in range(4)]
        assert all(error is None for _, error in rest), rest
        # Its end only now: calls that are under way together may arrive in any order.
        last = client.infer("tiny", [text("on")], request_id="5", sequence_id=key, sequence_end=True, parameters={"max_tokens": 2, "seed": 2})
        in_line[key] = sorted(parameter(r, "prompt_tokens") for r in [r for r, _ in rest] + [last])
        assert len(set(in_line[key])) == 5
    assert in_line[7] == in_line["7"]

    stream = Stream(client)
    for i in range(8):
        stream.ask("tiny", [text("on")], request_id=str(i), sequence_id=9, sequence_start=i == 0, sequence_end=i == 7, parameters={"max_tokens": 2})
    answers = [stream.next() for _ in range(8)]
    assert [r.get_response().id for r, e in answers] == [str(i) for i in range(8)], "in their order"
    stream.stop()

    # A start on an id that lives begins afresh.
    first = client.infer("tiny", [text("a")], sequence_id=5, sequence_start=True, parameters={"max_tokens": 1})
    client.infer("tiny", [text("b")], sequence_id=5, parameters={"max_tokens": 1})
    again = client.infer("tiny", [text("a")], sequence_id=5, sequence_start=True, sequence_end=True, parameters={"max_tokens": 1})
    assert parameter(again, "prompt_tokens") == parameter(first, "prompt_tokens")

    # The state of a recurrent policy is the sequence's: the same observation, another logp.
    steps = [client.infer("memory", [observation(1, 1, 1, 1)], sequence_id=3, sequence_start=i == 0, sequence_end=i == 3) for i in range(4)]
    assert len({float(s.as_numpy("logp")[0]) + 10 * s.as_numpy("action")[0] for s in steps}) == 4
    assert steps[0].as_numpy("value") is not None

    assert n_conversations(client) == 0, "each has ended"
    print("sequences")


def resumed_streams(client):
    """A turn of a sequence that has a number: its stream is cut at each response, and goes on from there by its cursor."""
    settings = {"max_tokens": 24, "seed": 5, "temperature": 1.0, "ignore_eos": True}
    stream = Stream(client)
    stream.ask("tiny", [text("hi"), streamed()], request_id="whole", sequence_id="whole", sequence_start=True, parameters={"turn": 1, **settings})
    whole = stream.answer("whole")
    cursors = [parameter(p, "cursor") for p in whole]
    assert cursors[-1] == "1.1.24" and all(c.startswith("1.1.") for c in cursors) and len(set(cursors[:-1])) > 2, cursors
    for i, cursor in enumerate(cursors):
        stream.ask("tiny", [text(""), streamed()], request_id=str(i), sequence_id="whole", parameters={"resume_from": cursor})
        rest = stream.answer(str(i))
        assert "".join(said(p) for p in whole[:i + 1] + rest) == "".join(said(p) for p in whole), cursor
        assert parameter(rest[-1], "completion_tokens") == 24 and parameter(rest[-1], "finish_reason") == "length"
    stream.stop()

    for cut in range(1, 6):
        stream = Stream(client)
        stream.ask("tiny", [text("hi"), streamed()], request_id="cut", sequence_id=cut, sequence_start=True, parameters={"turn": 1, **settings})
        first = [stream.next()[0] for _ in range(cut)]
        client.stop_stream(cancel_requests=True)
        stream = Stream(client)
        stream.ask("tiny", [text(""), streamed()], request_id="rest", sequence_id=cut, parameters={"resume_from": parameter(first[-1], "cursor")})
        rest = stream.answer("rest")
        assert "".join(said(p) for p in first + rest) == "".join(said(p) for p in whole), cut
        stream.stop()
        again = client.infer("tiny", [text("hi")], sequence_id=cut, sequence_end=True, parameters={"turn": 1, **settings})
        assert said(again) == "".join(said(p) for p in whole), "the number makes a retry safe"
    refused(lambda: client.infer("tiny", [text("")], sequence_id="whole", parameters={"resume_from": "1.1.99"}), "OUT_OF_RANGE")
    refused(lambda: client.infer("tiny", [text("")], sequence_id="whole", parameters={"resume_from": "nowhere"}), "INVALID_ARGUMENT", "resume_from")
    refused(lambda: client.infer("tiny", [text("x")], parameters={"turn": 1}), "INVALID_ARGUMENT", "sequence_id")
    client.infer("tiny", [text("bye")], sequence_id="whole", sequence_end=True, parameters={"max_tokens": 1})
    assert n_conversations(client) == 0, "each has ended"
    print("resumed streams")


def idle_sequences(client):
    """Closed when nothing came for as long as the daemon was told."""
    client.infer("memory", [observation(1, 1, 1, 1)], sequence_id="idle", sequence_start=True)  # idle before the next one is
    client.infer("echo", [text("x")], sequence_id="idle", sequence_start=True)
    until("the end of what is idle", lambda: n_conversations(client) == 0)
    refused(lambda: client.infer("echo", [text("x")], sequence_id="idle"), "ABORTED", "idle", "start it again")
    refused(lambda: client.infer("memory", [observation(1, 1, 1, 1)], sequence_id="idle"), "ABORTED", "closed after")
    assert said(client.infer("echo", [text("x")], sequence_id="idle", sequence_start=True, sequence_end=True)) == "x"
    print("idle sequences")


def deadlines(client):
    def failed():
        return statistics_of(client, "long").inference_stats.fail.count

    def steps():
        return statistics_of(client, "long").execution_count

    before = failed()
    refused(lambda: client.infer("long", [text("x")], parameters=ENDLESS, timeout=50000), "DEADLINE_EXCEEDED", "deadline")
    until("the count of a deadline", lambda: failed() == before + 1)
    came = queue.Queue()
    at = steps()
    call = client.async_infer("long", [text("x")], lambda result, error: came.put(error), parameters=ENDLESS)
    until("a reply under way", lambda: steps() > at + 3)
    call.cancel()
    assert "cancelled" in came.get(timeout=PATIENCE).message().lower()
    until("the count of a cancel", lambda: failed() == before + 2)
    at = steps()
    assert said(client.infer("echo", [text("x")])) == "x" and steps() == at, "its compute has ended"
    assert said(client.infer("echo", [text("x")], priority=1, timeout=600000000)) == "x"
    # The client's own, which may pass before the server hears of it.
    refused(lambda: client.infer("long", [text("x")], parameters=ENDLESS, client_timeout=0.1), "DEADLINE_EXCEEDED", "eadline")
    print("deadlines and cancellation")


def statistics(client):
    before = statistics_of(client, "cart")
    for _ in range(10):
        client.infer("cart", [observation(0, 0, 0, 0)])
    refused(lambda: client.infer("cart", [observation(0)]), "INVALID_ARGUMENT")
    after = statistics_of(client, "cart")
    stats = after.inference_stats
    assert stats.success.count == before.inference_stats.success.count + 10 and stats.fail.count == before.inference_stats.fail.count + 1
    assert after.inference_count == before.inference_count + 10 and after.execution_count == before.execution_count + 10
    assert sum(b.compute_infer.count for b in after.batch_stats) == after.execution_count
    assert stats.success.ns >= stats.queue.ns + stats.compute_input.ns + stats.compute_infer.ns + stats.compute_output.ns > 0
    assert abs(after.last_inference / 1000 - time.time()) < 60
    assert {m.name for m in client.get_inference_statistics().model_stats} == {m["name"] for m in client.get_model_repository_index(as_json=True)["models"] if m["state"] == "READY"}
    print("statistics")


def large(client):
    """Compressed messages above a mebibyte, both ways."""
    value = "".join(chr(ord("a") + i * i % 26) for i in range(1_500_000))
    for algorithm in (None, "gzip", "deflate"):
        assert said(client.infer("echo", [text(value)], compression_algorithm=algorithm)) == value
    stream = Stream(client, compression_algorithm="gzip")
    stream.ask("echo", [text(value)], request_id="large")
    assert said(stream.answer("large")[0]) == value
    stream.stop()
    refused(lambda: client.infer("echo", [text(value * 4)]), "RESOURCE_EXHAUSTED", "larger than max")
    print("large and compressed")


def repository(client, folder):
    def index():
        return {m["name"]: (m["state"], m.get("reason", "")) for m in client.get_model_repository_index(as_json=True)["models"]}

    assert index()["more"] == ("UNAVAILABLE", "unloaded") and index()["tiny"][0] == "READY"
    assert not client.is_model_ready("more")
    refused(lambda: client.infer("more", [text("x")]), "UNAVAILABLE", "not loaded")
    refused(lambda: client.load_model("elsewhere"), "NOT_FOUND", "elsewhere")
    refused(lambda: client.load_model("../more"), "NOT_FOUND")
    refused(lambda: client.load_model("more", config="{}"), "UNIMPLEMENTED", "config")

    health = [client.parley.health.Watch(harness.health_pb2.HealthCheckRequest(service="more"))]
    assert next(health[0]).status == harness.health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    client.load_model("more")
    status = next(health[0]).status
    while status != harness.health_pb2.HealthCheckResponse.SERVING:
        assert status != harness.health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        status = next(health[0]).status
    assert client.is_model_ready("more") and index()["more"][0] == "READY"
    assert parameter(client.infer("more", [text("x")], parameters={"max_tokens": 3, "ignore_eos": True}), "completion_tokens") == 3
    client.load_model("more")  # it is

    # An unload lets the turn in flight finish, refuses new ones, and closes what was said to it.
    client.infer("more", [text("x")], sequence_id=1, sequence_start=True, parameters={"max_tokens": 1})
    came, watched = queue.Queue(), queue.Queue()
    watch = client.parley.conversations.Watch(harness.conversations.ConversationsWatchRequest())

    def look():
        try:
            for event in watch:
                watched.put(event)
        except grpc.RpcError:
            watched.put(None)

    threading.Thread(target=look).start()
    until("the watch's first event", lambda: client.parley.close(client.parley.open("echo")) or not watched.empty())
    conversation = client.parley.open("more")
    client.async_infer("more", [text("x")], lambda result, error: came.put((result, error)), parameters={"max_tokens": 150, "ignore_eos": True})
    opened = []
    while conversation not in opened[:-1]:  # what was asked for last has begun
        event = watched.get(timeout=PATIENCE)
        opened += [event.conversation] if harness.word(event, "kind") == "opened" else []
    client.unload_model("more")
    result, error = came.get(timeout=PATIENCE)
    assert error is None and parameter(result, "completion_tokens") == 150
    assert next(health[0]).status == harness.health_pb2.HealthCheckResponse.NOT_SERVING
    assert not client.is_model_ready("more") and index()["more"] == ("UNAVAILABLE", "unloaded")
    refused(lambda: client.infer("more", [text("x")], sequence_id=1), "UNAVAILABLE", "not loaded")
    try:
        client.parley.get(conversation)
        raise AssertionError("its conversation is still there")
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.NOT_FOUND
    until("the end of its conversation", lambda: (event := watched.get(timeout=PATIENCE)).conversation == conversation and harness.word(event, "kind") == "closed"
          and "unloaded" in event.reason)
    watch.cancel()
    while watched.get(timeout=PATIENCE) is not None:
        pass

    # Through parley.v1 too; a file that is none is not loaded, and one that came later is found.
    models = harness.models
    assert harness.word(client.parley.models.Load(models.ModelsLoadRequest(name="more")), "state") == "ready"
    client.parley.models.Unload(models.ModelsUnloadRequest(name="more"))
    with open(os.path.join(folder, "broken.gguf"), "wb") as f:
        f.write(b"this is no model")
    refused(lambda: client.load_model("broken"), "DATA_LOSS", "broken")
    assert index()["broken"][0] == "UNAVAILABLE" and "gguf" in index()["broken"][1].lower()
    os.remove(os.path.join(folder, "broken.gguf"))
    assert "broken" not in index()

    # Loaded and unloaded under load: each request is answered, or refused with a sentence.
    stop, odd = threading.Event(), []

    def load():
        with triton.InferenceServerClient(client.parley.address) as other:
            while not stop.is_set():
                try:
                    other.infer("more", [text("x")], parameters={"max_tokens": 3})
                except InferenceServerException as e:
                    if e.status() != "StatusCode.UNAVAILABLE":
                        odd.append(e)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for t in threads:
        t.start()
    for _ in range(5):
        client.load_model("more")
        client.infer("more", [text("x")], parameters={"max_tokens": 3})
        client.unload_model("more")
    stop.set()
    for t in threads:
        t.join()
    assert not odd, odd
    client.unload_model("echo")
    refused(lambda: client.infer("echo", [text("x")]), "UNAVAILABLE", "not loaded")
    client.load_model("echo")
    assert said(client.infer("echo", [text("x")])) == "x"
    print("repository: index, load, unload")


async def with_asyncio(address):
    async with triton_aio.InferenceServerClient(address) as client:
        assert await client.is_server_ready() and await client.is_model_ready("tiny")
        results = await asyncio.gather(*(client.infer("echo", [text(f"{i}")], request_id=f"{i}") for i in range(20)))
        assert [said(r) for r in results] == [f"{i}" for i in range(20)]

        async def requests():
            for i in range(3):
                yield {"model_name": "tiny", "inputs": [text("hi"), streamed()], "request_id": f"{i}", "parameters": {"max_tokens": 3, "seed": 1}, "enable_empty_final_response": True}

        finals, texts = 0, {}
        async for result, error in client.stream_infer(requests()):
            assert error is None
            key = result.get_response().id
            texts[key] = texts.get(key, "") + said(result)
            finals += parameter(result, "triton_final_response")
            if finals == 3:
                break
        assert len(texts) == 3 and len(set(texts.values())) == 1, texts
        try:
            await client.infer("long", [text("x")], parameters=ENDLESS, client_timeout=0.1)
            raise AssertionError("it had no deadline")
        except InferenceServerException as e:
            assert "eadline" in e.message(), e
    print("asyncio")


def embeddings(client):
    """Rows of an embedding model, and of any language model that is asked for its output "embedding": the values that the other APIs give."""
    wanted = [triton.InferRequestedOutput("embedding")]
    said_by = embeddings_pb2_grpc.EmbeddingsStub(client.parley.channel)
    words = ["hello", "the hell in the hello", "no, in a hello " * 40]

    def by_parley(model, **more):
        inputs = [embeddings_pb2.EmbeddingInput(text=w) for w in words]
        answer = said_by.Embed(embeddings_pb2.EmbeddingsEmbedRequest(model=model, inputs=inputs, **more))
        return np.array([e.values for e in answer.embeddings], np.float32), answer.usage.prompt_tokens

    model = client.get_model_metadata("rows")
    width = by_parley("rows")[0].shape[1]
    assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs] == [("text_input", "BYTES", [-1])]
    assert [(t.name, t.datatype, list(t.shape)) for t in model.outputs] == [("embedding", "FP32", [-1, width])], model
    config = client.get_model_config("rows").config
    assert [list(t.dims) for t in config.output] == [[-1, width]] and not config.model_transaction_policy.decoupled and config.HasField("dynamic_batching")
    for name, outputs, shape in (("rows", None, None), ("rows", wanted, [3, 1]), ("tiny", wanted, None)):
        result = client.infer(name, [texts(words, shape)], outputs=outputs, request_id="e")
        expected, n_tokens = by_parley(name)
        got = result.as_numpy("embedding")
        assert got.dtype == np.float32 and got.shape == (3, width) and np.array_equal(got, expected), (name, got, expected)
        assert parameter(result, "prompt_tokens") == n_tokens and result.get_response().id == "e"
        assert np.allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)
    assert not np.array_equal(by_parley("rows")[0], by_parley("tiny")[0]), "one pools the last token, one all"
    assert np.array_equal(client.infer("rows", [text(words[0])]).as_numpy("embedding"), by_parley("rows")[0][:1])
    few = client.infer("rows", [texts(words)], parameters={"dimensions": 8}).as_numpy("embedding")
    assert few.shape == (3, 8) and np.array_equal(few, by_parley("rows", dimensions=8)[0])
    many = client.infer("tiny", [texts([f"text {i}" for i in range(70)])], outputs=wanted).as_numpy("embedding")
    assert many.shape == (70, width) and np.array_equal(many[69:], client.infer("tiny", [text("text 69")], outputs=wanted).as_numpy("embedding"))
    # Typed contents, the stream, and a model of embeddings that is asked to speak.
    typed = service_pb2.ModelInferRequest(model_name="rows")
    tensor = typed.inputs.add(name="text_input", datatype="BYTES", shape=[3])
    tensor.contents.bytes_contents.extend(w.encode() for w in words)
    answer = service_pb2_grpc.GRPCInferenceServiceStub(client.parley.channel).ModelInfer(typed)
    assert answer.raw_output_contents[0] == by_parley("rows")[0].tobytes() and list(answer.outputs[0].shape) == [3, width]
    stream = Stream(client)
    stream.ask("tiny", [texts(words)], outputs=wanted, request_id="7")
    (result,) = stream.answer("7")
    assert np.array_equal(result.as_numpy("embedding"), by_parley("tiny")[0])
    stream.stop()
    speaks = [triton.InferRequestedOutput("text_output")]
    assert parameter(client.infer("rows", [text("hi")], outputs=speaks, parameters={"max_tokens": 2}), "completion_tokens") <= 2
    before = n_conversations(client)
    for words_of, call in (
            (("text_input", "[]"), lambda: client.infer("rows", [triton.InferInput("text_input", [], "BYTES")])),
            (("text_input", "empty"), lambda: client.infer("rows", [texts(["a", ""])])),
            (("text_input", "[2, 2]", "[-1]"), lambda: client.infer("rows", [texts(list("abcd"), [2, 2])])),
            (("2049",), lambda: client.infer("rows", [texts(["a"] * 2049)])),
            (("dimensions",), lambda: client.infer("rows", [texts(["a"])], parameters={"dimensions": width + 1})),
            (("sequence_id",), lambda: client.infer("rows", [texts(["a"])], sequence_id=5, sequence_start=True)),
            (("text_output", "embedding"), lambda: client.infer("tiny", [texts(["a"])], outputs=wanted + speaks)),
            (("embedding", "text_output"), lambda: client.infer("echo", [text("a")], outputs=wanted))):
        refused(call, "INVALID_ARGUMENT", *words_of)
    refused(lambda: client.infer("rows", [texts(["a", "word " * 5000])]), "OUT_OF_RANGE", "input 1")
    until("no conversation of embeddings stays", lambda: n_conversations(client) <= before)
    print("embeddings")


def client_of(parley):
    client = triton.InferenceServerClient(parley.address)
    client.parley = parley
    return client


def main():
    parleyd, write_tiny_model, write_policy = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, f"{name}.gguf") for name in ("tiny", "cart", "memory", "long", "rows")}
        more = os.path.join(folder, "models")
        os.mkdir(more)
        children.run([write_tiny_model, paths["tiny"]], check=True)
        children.run([write_tiny_model, paths["long"], "65536"], check=True)
        children.run([write_tiny_model, paths["rows"], "llama.pooling_type=3"], check=True)
        children.run([write_policy, paths["cart"]], check=True)
        children.run([write_policy, paths["memory"], "lstm"], check=True)
        shutil.copy(paths["tiny"], os.path.join(more, "more.gguf"))
        flags = [f for name, path in paths.items() for f in ("--model", f"{name}={path}")]
        with harness.Parleyd(parleyd, *flags, "--model-dir", more, "--sequence-idle", "1h") as parley:
            client = client_of(parley)
            metadata(client)
            inference(client)
            typed_contents(client, parley.address)
            bad_input(client)
            streams(client)
            sequences(client)
            resumed_streams(client)
            deadlines(client)
            statistics(client)
            large(client)
            embeddings(client)
            repository(client, more)
            asyncio.run(with_asyncio(parley.address))
            client.close()
        with harness.Parleyd(parleyd, "--model", f"memory={paths['memory']}", "--sequence-idle", "600ms") as parley:
            client = client_of(parley)
            idle_sequences(client)
            client.close()


if __name__ == "__main__":
    main()
