#!/usr/bin/env python3
"""Embeddings by the unmodified `openai` client, by bare HTTP and over gRPC: their bits alone, in company and in either encoding,
their length, their dimensions, what is refused, and what goes on beside them.

usage: test_embeddings.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the clients; see venv.sh)
"""
import json
import math
import os
import sys
import tempfile
import threading
import urllib.error
import urllib.request

import grpc
import numpy as np
import openai

import children
import harness
from children import PATIENCE
from parley.v1 import embeddings_pb2 as pb, embeddings_pb2_grpc  # found by harness

TEXTS = ["hello", "the hell in the hello", "a", "no, in a hello " * 40]


def client_of(parley):
    return openai.OpenAI(base_url=f"http://{parley.http}/v1", api_key="any", timeout=PATIENCE, max_retries=0)


def post(parley, path, body):
    request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return json.load(reply)


def embed(parley, given, **more):
    return client_of(parley).embeddings.create(model=more.pop("model", "tiny"), input=given, **more)


def values(parley, given, **more):
    return np.array([d.embedding for d in embed(parley, given, **more).data], np.float32)


def refused(parley, param, says, given, **more):
    try:
        embed(parley, given, **more)
    except openai.BadRequestError as error:
        assert error.body["param"] == param and says in str(error), (param, says, error.body)
        return
    raise AssertionError(f"{str(given)[:60]} {more} was taken")


def shapes(parley):
    """Text and ids, one and several, float and base64 (which the client asks for by itself): the same bits."""
    one = embed(parley, TEXTS[0], encoding_format="float")
    assert one.object == "list" and one.model == "tiny" and one.data[0].object == "embedding" and one.data[0].index == 0
    assert one.usage.prompt_tokens == one.usage.total_tokens > 0
    assert abs(math.fsum(x * x for x in one.data[0].embedding) - 1) < 1e-6
    alone = np.concatenate([values(parley, text) for text in TEXTS])
    assert alone.shape == (len(TEXTS), 256) and len({a.tobytes() for a in alone}) == len(TEXTS)
    assert np.array_equal(alone[0], np.array(one.data[0].embedding, np.float32))
    together = embed(parley, TEXTS, user="somebody")
    assert np.array_equal(alone, np.array([d.embedding for d in together.data], np.float32)) and [d.index for d in together.data] == [0, 1, 2, 3]
    assert together.usage.prompt_tokens == sum(embed(parley, text).usage.prompt_tokens for text in TEXTS)
    ids = [post(parley, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"] for text in TEXTS]
    assert np.array_equal(values(parley, ids[1]), alone[1:2])
    assert np.array_equal(values(parley, ids), alone)
    bare = post(parley, "/v1/embeddings", {"input": TEXTS[0]})  # the default model, and floats
    assert bare["id"].startswith("embd-") and len(bare["id"]) == 21 and bare["id"] != post(parley, "/v1/embeddings", {"input": TEXTS[0]})["id"]
    assert np.array_equal(np.array(bare["data"][0]["embedding"], np.float32), alone[0])


def dimensions(parley):
    """The first so many values, scaled to length 1 again."""
    whole = values(parley, TEXTS)
    cut = values(parley, TEXTS, dimensions=40)
    want = whole[:, :40].astype(np.float64)
    assert np.abs(cut - want / np.linalg.norm(want, axis=1, keepdims=True)).max() < 1e-6
    assert np.array_equal(values(parley, TEXTS, dimensions=256), whole)
    refused(parley, "dimensions", "has 256", TEXTS, dimensions=257)


def over_grpc(parley):
    """The same bits; of any length where they are not to be scaled."""
    stub = embeddings_pb2_grpc.EmbeddingsStub(parley.channel)
    ids = post(parley, "/tokenize", {"prompt": TEXTS[3], "add_special_tokens": False})["tokens"]
    inputs = [pb.EmbeddingInput(text=text) for text in TEXTS[:3]] + [pb.EmbeddingInput(tokens=pb.EmbeddingTokens(ids=ids))]
    got = stub.Embed(pb.EmbeddingsEmbedRequest(model="tiny", inputs=inputs), timeout=PATIENCE)
    assert np.array_equal(np.array([e.values for e in got.embeddings], np.float32), values(parley, TEXTS))
    assert got.model == "tiny" and len(got.version) == 64
    assert got.usage.prompt_tokens == embed(parley, TEXTS).usage.prompt_tokens and got.usage.completion_tokens == 0
    raw = stub.Embed(pb.EmbeddingsEmbedRequest(inputs=inputs[:1], no_normalise=True), timeout=PATIENCE).embeddings[0].values
    length = math.sqrt(math.fsum(x * x for x in raw))
    assert length > 2 and np.abs(np.array(raw) / length - values(parley, TEXTS[0])[0]).max() < 1e-6
    many = [pb.EmbeddingInput(tokens=pb.EmbeddingTokens(ids=[3, 4]))] * 2048
    assert len(stub.Embed(pb.EmbeddingsEmbedRequest(inputs=many, dimensions=2), timeout=PATIENCE).embeddings) == 2048
    for says, given in [("inputs is empty", []), ("at most 2048 are allowed", many + many[:1]), ("entry that is empty", [pb.EmbeddingInput(text="")]),
                        ("-1 is not a token id", [pb.EmbeddingInput(tokens=pb.EmbeddingTokens(ids=[-1]))])]:
        try:
            stub.Embed(pb.EmbeddingsEmbedRequest(inputs=given), timeout=PATIENCE)
            raise AssertionError(says)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and says in error.details(), error


def wrong(parley):
    refused(parley, "input", "is empty", "")
    refused(parley, "input", "is empty", [])
    refused(parley, "input", "empty", ["a", ""])
    refused(parley, "input", "empty", [[1], []])
    refused(parley, "input", "4000000 is not a token id", [4000000])
    refused(parley, "input", "input 1: 263333 is not a token id", [[5], [263333]])
    refused(parley, "input", "at most 2048 are allowed", ["a"] * 2049)
    refused(parley, "input", "maximum context length is 2048 tokens", list(range(3, 203)) * 11)
    refused(parley, "input", "not a number", [1.5])
    refused(parley, "encoding_format", "float or base64", "a", encoding_format="int8")
    for name, says, value in [("normalize", "must be true", False), ("truncate_prompt_tokens", "read whole", 8), ("input_type", "prefix", "query"),
                              ("add_special_tokens", "must be true", False), ("dimensions", "a whole number", "8")]:
        refused(parley, name, says, "a", extra_body={name: value})
    assert embed(parley, "a", extra_body={"normalize": True, "truncate_prompt_tokens": None, "input_type": ""}).data  # they change nothing
    refused(parley, "model", "does not compute embeddings", "a", model="echo")
    assert values(parley, list(range(3, 203)) * 10 + list(range(3, 51))).shape == (1, 256)  # the whole context
    assert len(embed(parley, ["a"] * 100).data) == 100  # more than are in flight at once


def company(parley):
    """Beside chat that streams, and requests of others: neither changes the other's bits."""
    want = values(parley, TEXTS * 5)
    story = [{"role": "user", "content": "Tell me a long story."}]
    said, got, failures = [], [], []

    def tell():
        try:
            stream = client_of(parley).chat.completions.create(model="tiny", messages=story, max_tokens=100, seed=5, temperature=1,
                                                               stream=True, extra_body={"ignore_eos": True})
            said.append("".join(chunk.choices[0].delta.content or "" for chunk in stream))
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    def look():
        try:
            got.append(values(parley, TEXTS * 5))
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    tell()
    threads = [threading.Thread(target=what) for what in [tell, look] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert len(said) == 4 and len(set(said)) == 1 and all(np.array_equal(want, g) for g in got)


def reranked(parley):
    """Documents by their cosine to the query, the best first, in the forms of Jina's and Cohere's requests."""
    query, documents = TEXTS[1], [TEXTS[2], TEXTS[0], TEXTS[3], TEXTS[0]]
    whole = values(parley, [query, *documents])
    cosines = whole[1:] @ whole[0]
    order = sorted(range(len(documents)), key=lambda i: (-cosines[i], i))
    for path, body in {"/v1/rerank": documents, "/rerank": [{"text": d} for d in documents], "/v2/rerank": documents}.items():
        answer = post(parley, path, {"model": "tiny", "query": query, "documents": body})
        assert [r["index"] for r in answer["results"]] == order, (answer, cosines)
        assert np.allclose([r["relevance_score"] for r in answer["results"]], cosines[order], atol=1e-6)
        assert "document" not in answer["results"][0] and answer["usage"]["total_tokens"] > 0 and answer["model"] == "tiny"
    best = post(parley, "/v1/rerank", {"model": "tiny", "query": query, "documents": documents, "top_n": 2, "return_documents": True})
    assert [r["document"]["text"] for r in best["results"]] == [documents[i] for i in order[:2]]
    assert len(post(parley, "/v1/rerank", {"model": "tiny", "query": query, "documents": documents, "top_n": 99})["results"]) == 4
    for field, change in {"documents": {"documents": []}, "query": {"query": ""}, "top_n": {"top_n": 0},
                          "rank_fields": {"rank_fields": ["a"]}}.items():
        try:
            post(parley, "/v1/rerank", {"model": "tiny", "query": query, "documents": documents} | change)
        except urllib.error.HTTPError as e:
            assert e.code == 400 and field in json.load(e)["error"]["message"], field
        else:
            raise AssertionError(f"{change} was taken")


def listed(parley, pooling):
    model = client_of(parley).models.retrieve("tiny")
    assert model.embedding_dimensions == 256 and model.pooling == pooling
    assert not hasattr(client_of(parley).models.retrieve("echo"), "pooling")


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, tiny], check=True)
        flags = ["--model", f"tiny={tiny}", "--http", "127.0.0.1:0"]
        with harness.Parleyd(parleyd, *flags) as parley:
            for test in [shapes, dimensions, over_grpc, wrong, company, reranked]:
                test(parley)
                print(f"{test.__name__}: good", flush=True)
            listed(parley, "mean")
            mean = values(parley, TEXTS)
        with harness.Parleyd(parleyd, *flags, "--pooling", "last") as parley:
            listed(parley, "last")
            last = values(parley, TEXTS)
            assert not np.array_equal(last, mean)
            assert np.array_equal(last, values(parley, TEXTS))  # now most of it is found in the cache
        print("pooling: good", flush=True)


if __name__ == "__main__":
    main()
