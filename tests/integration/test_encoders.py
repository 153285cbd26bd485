#!/usr/bin/env python3
"""Models that read a whole text at once: their embeddings and rankings over each API, against float64; what they refuse; and that
nothing beside a text changes its bits. A language model that ranks by its own head, and one that is made for embeddings.

usage: test_encoders.py PARLEYD PARLEY      (run by the interpreter that has the clients; see venv.sh)
"""
import itertools
import json
import math
import pathlib
import sys
import tempfile
import threading
import urllib.error
import urllib.request

import grpc
import jinja2
import numpy as np
import tokenizers
import tritonclient.grpc as triton

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "arch"))
import children
import encoders
import harness
import models
import test_safetensors
from children import PATIENCE
from parley.v1 import embeddings_pb2 as pb, embeddings_pb2_grpc  # found by harness

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far", "away", "!", "."]
ENDINGS = ["s", "ing", "er"]
SPACE_W = "\u0120w"  # a space and a letter, in the byte alphabet
PROMPT = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that '
          'the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant '
          'passages that answer the query\n<Query>: \1\n<Document>: \2<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n')
PAIR_TEMPLATE = """{%- set ns = namespace(instruct='Find what answers it') -%}
<|im_start|>user
<Instruct>: {{ ns.instruct }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["The cat sat on the mat.", "dogs ran FAR away!", "the mats", "the cat " * 20]


def words_vocab(w):
    """WordPiece as GGUF has it."""
    tokens = SPECIAL + ["\u2581" + t for t in WORDS] + ENDINGS
    w.add_tokenizer_model("bert")
    w.add_token_list(tokens)
    w.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    w.add_uint32("tokenizer.ggml.cls_token_id", 2)
    w.add_uint32("tokenizer.ggml.seperator_token_id", 3)
    w.add_uint32("tokenizer.ggml.unknown_token_id", 1)


def word_ids(text):
    ids = []
    for word in text.lower().replace(".", " .").replace("!", " !").split():
        end = next((e for e in ENDINGS if word.endswith(e) and word[:-len(e)] in WORDS), "")
        stem = word[:-len(end)] if end else word
        ids.append(len(SPECIAL) + WORDS.index(stem) if stem in WORDS else 1)
        if end:
            ids.append(len(SPECIAL) + len(WORDS) + ENDINGS.index(end))
    return ids


def unigram_vocab(w):
    """Unigrams as GGUF has them, of XLM-R's kind: <s> text </s>, and between two texts </s> twice."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>"] + ["\u2581" + t for t in WORDS] + ENDINGS
    w.add_tokenizer_model("t5")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * 4 + [-float(i + 2) for i in range(len(tokens) - 4)])
    w.add_token_types([3, 3, 3, 2] + [1] * (len(tokens) - 4))
    w.add_uint32("tokenizer.ggml.bos_token_id", 0)
    w.add_uint32("tokenizer.ggml.eos_token_id", 2)
    w.add_uint32("tokenizer.ggml.unknown_token_id", 3)


def byte_ids(text):
    alphabet = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = {b: i for i, b in enumerate(alphabet + [b for b in range(256) if b not in alphabet])}
    return [order[b] for b in text.encode()]


def byte_folder(path, model, architecture, more, appended=None, notes=()):
    """A model of models.byte_vocab's tokens as a folder, with one merge more; more: further files, by name; appended: what each text ends
    with; notes: further keys of config.json. Returns PyPI's tokenizer of it."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    alphabet = [chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]]
    alphabet += [chr(256 + i) for i in range(256 - len(alphabet))]
    scored = {"score.weight": model.tensors.pop("score.weight")} if "score.weight" in model.tensors else {}
    test_safetensors.write_folder(path, model, "qwen3", {"architectures": [architecture], "tie_word_embeddings": not scored} | dict(notes))
    test_safetensors.write_safetensors(path / "model.safetensors", test_safetensors.foreign_tensors(model, "qwen3") | scored)
    model.tensors.update(scored)
    texts = [{"Sequence": {"id": x, "type_id": 0}} for x in "AB"]
    end = [{"SpecialToken": {"id": appended, "type_id": 0}}] if appended else []
    files = {"tokenizer.json": {
        "version": "1.0", "added_tokens": [
            {"id": 256 + i, "content": text, "special": i < 3, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            for i, text in enumerate(special)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        "post_processor": {"type": "TemplateProcessing", "single": texts[:1] + end, "pair": texts[:1] + end + texts[1:] + end,
                           "special_tokens": {appended: {"id": appended, "ids": [256], "tokens": [appended]}} if appended else {}},
        "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate([*alphabet, *special, SPACE_W])}, "merges": [list(SPACE_W)]}},
        "tokenizer_config.json": {"eos_token": "<|im_end|>"}}
    for name, content in (files | more).items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))


class Bench:
    """The daemon, and what float64 makes of each model."""

    def __init__(self, folder):
        self.flags = ["--http", "127.0.0.1:0", "--kv-bytes", "16000000"]
        self.models, self.tokenizers = {}, {}
        for name, model, vocab in (("bert", encoders.bert(1, "cls"), words_vocab), ("nomic", encoders.nomic(2), words_vocab),
                                   ("modern", encoders.modern(3, "mean"), words_vocab), ("gemma", encoders.gemma(4), words_vocab),
                                   ("ranker", encoders.bert(5, "rank", rank="dense"), words_vocab),
                                   ("xlmr", encoders.bert(6, "rank", types=1, rank=1), unigram_vocab)):
            self.add(folder, name, model, vocab)
        self.add_language_models(folder)

    def add(self, folder, name, model, vocab):
        path = pathlib.Path(folder) / f"{name}.gguf"
        model.write(path, vocab)
        self.models[name] = model
        self.flags += ["--model", f"{name}={path}"]

    def add_language_models(self, folder):
        for name, pooling in (("judge", 4), ("embedder", 3)):
            model = models.build("qwen3", 13, dict(pooling_type=pooling), head_norms="each", vocab=300, ctx=2048)
            if name == "judge":
                model.matrix("cls.output.weight", 2, model.n["d"], 2.0)
            path = pathlib.Path(folder) / f"{name}.gguf"
            model.write(path, lambda w, n=name: models.byte_vocab(w, n == "embedder"))
            self.models[name] = model
            self.flags += ["--model", f"{name}={path}"]
        self.judges = {"judge": self.models["judge"].tensors["cls.output.weight"]}
        self.add_folders(folder)

    def add_folders(self, folder):
        """The same as transformers and sentence-transformers save them: a head of one score, of which the folder says how it is asked or
        does not; the logits of two tokens; a pooling."""
        yes, no = 88, 77
        classifier = "Qwen3ForSequenceClassification"
        cases = (("scorer", classifier, {}, None, {"classifier_from_token": ["no", "yes"]}), ("classifier", classifier, {}, None, {}),
                 ("classifier_padded", classifier, {}, "<|endoftext|>", {"pad_token_id": 256}),
                 ("labelled", classifier, {"README.md": "# Qwen3-Reranker"}, None, {}),
                 ("rendered", classifier, {"chat_template.jinja": PAIR_TEMPLATE}, None, {}),
                 ("opened", classifier, {"chat_template.jinja": PAIR_TEMPLATE, "sentence_bert_config.json": {
                     "processing_kwargs": {"chat_template": {"add_generation_prompt": True}}}}, None, {}),
                 ("rendered_padded", classifier, {"chat_template.jinja": PAIR_TEMPLATE + "<|endoftext|>" * 2, "README.md": "# Qwen3-Reranker"}, None,
                  {"pad_token_id": 256}),
                 ("logits", "Qwen3ForCausalLM", {"1_LogitScore/config.json": {"true_token_id": yes, "false_token_id": no}}, None, {}),
                 ("embedder_folder", "Qwen3Model", {"1_Pooling/config.json": {"pooling_mode": "lasttoken"}}, "<|endoftext|>", {}))
        for name, architecture, more, appended, notes in cases:
            model = self.models[name] = models.build("qwen3", 14, head_norms="each", vocab=300, ctx=2048)
            if architecture == classifier:
                model.matrix("score.weight", 1, model.n["d"])
                self.judges[name] = model.tensors["score.weight"]
            if name == "logits":
                model.tensors["token_embd.weight"] /= 4  # scores that are not all 0 or 1
                self.judges[name] = model.tensors["token_embd.weight"][[yes, no]]
            self.tokenizers[name] = byte_folder(pathlib.Path(folder) / name, model, architecture, more, appended, notes)
            self.flags += ["--model", f"{name}={pathlib.Path(folder) / name}"]
        self.flags += ["--chat-template", "rendered=zephyr"]  # which has no roles of a pair: the folder's own makes the prompt

    def vector(self, name, text):
        ids = [2, *word_ids(text), 3]
        want = encoders.Forward(self.models[name]).vector(np.array(ids), len(ids))
        return want / np.linalg.norm(want)

    def score(self, name, query, document):
        first, second = [2, *word_ids(query), 3], [*word_ids(document), 3]
        if name == "xlmr":
            first, second = ([0, *(i - 1 if i > 4 else 3 for i in word_ids(query)), 2, 2], [*(i - 1 if i > 4 else 3 for i in word_ids(document)), 2])
        return encoders.Forward(self.models[name]).vector(np.array(first + second), len(first))[0]


def post(parley, path, body):
    request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return json.load(reply)


def refused(parley, path, body, *says):
    try:
        answer = post(parley, path, body)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        assert 400 <= error.code < 600 and error.code != 500 and all(s in text for s in says), (error.code, text, says)
        return
    raise AssertionError(f"{path} {str(body)[:80]} was taken: {answer}")


def openai(parley, model, given, **more):
    return np.array([d["embedding"] for d in post(parley, "/v1/embeddings", {"model": model, "input": given} | more)["data"]], np.float32)


def near(got, want, most=2e-2):
    assert np.abs(np.asarray(got, np.float64) - want).max() < most, (got, want)


def embeddings(bench, parley):
    for name in ("bert", "nomic", "modern", "gemma"):
        want = np.array([bench.vector(name, text) for text in TEXTS])
        together = openai(parley, name, TEXTS)
        near(together, want)
        assert len({v.tobytes() for v in together}) == len(TEXTS), name
        alone = np.concatenate([openai(parley, name, text) for text in TEXTS])
        assert np.array_equal(alone, together), name
        near(post(parley, "/api/embed", {"model": name, "input": TEXTS})["embeddings"], want)
        n = len(word_ids(TEXTS[0])) + 2
        assert post(parley, "/v1/embeddings", {"model": name, "input": TEXTS[0]})["usage"]["prompt_tokens"] == n
        assert np.array_equal(openai(parley, name, [2, *word_ids(TEXTS[0]), 3]), alone[:1]), name  # ids are taken as they are
        grpc_values = embeddings_pb2_grpc.EmbeddingsStub(parley.channel).Embed(
            pb.EmbeddingsEmbedRequest(model=name, inputs=[pb.EmbeddingInput(text=t) for t in TEXTS]), timeout=PATIENCE)
        assert np.array_equal(np.array([e.values for e in grpc_values.embeddings], np.float32), together), name
        given = triton.InferInput("text_input", [len(TEXTS)], "BYTES")
        given.set_data_from_numpy(np.array([t.encode() for t in TEXTS], dtype=object))
        assert np.array_equal(triton.InferenceServerClient(parley.address).infer(name, [given]).as_numpy("embedding"), together), name
        cut = openai(parley, name, TEXTS, dimensions=20)
        near(cut, want[:, :20] / np.linalg.norm(want[:, :20], axis=1, keepdims=True))


def company(bench, parley):
    """Many at once, of other lengths: the bits are those of a text alone."""
    want = openai(parley, "modern", TEXTS)
    failures = []

    def ask():
        if not np.array_equal(openai(parley, "modern", TEXTS * 20), np.concatenate([want] * 20)):
            failures.append("other bits")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def ranking(bench, parley):
    query, documents = "the cat", [TEXTS[1], TEXTS[0], TEXTS[2], "cats"]
    for name in ("ranker", "xlmr"):
        if name == "xlmr":  # whose tokens have no capitals, and marks only as words
            documents = [d.lower().replace("!", "").replace(".", "") for d in documents]
        want = np.array([bench.score(name, query, d) for d in documents])
        order = sorted(range(len(documents)), key=lambda i: (-want[i], i))
        assert len(set(np.round(want, 3))) > 1, want
        for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
            results = post(parley, path, {"model": name, "query": query, "documents": documents, "return_documents": True})["results"]
            near([r["relevance_score"] for r in sorted(results, key=lambda r: r["index"])], want)
            assert [r["index"] for r in results] == order and results[0]["document"]["text"] == documents[order[0]], (results, want)
        scores = post(parley, "/v1/score", {"model": name, "text_1": query, "text_2": documents})["data"]
        near([s["score"] for s in scores], want)
        refused(parley, "/v1/embeddings", {"model": name, "input": "the cat"}, "ranks documents")
    refused(parley, "/v1/score", {"model": "ranker", "text_1": [2, 3], "text_2": ["a"]}, "must be texts")
    cosine = post(parley, "/v1/rerank", {"model": "bert", "query": query, "documents": documents})["results"]
    vectors = openai(parley, "bert", [query, *documents]).astype(np.float64)
    near([r["relevance_score"] for r in sorted(cosine, key=lambda r: r["index"])], vectors[1:] @ vectors[0], 1e-6)


def control_ids(query, document):
    """PROMPT's ids of a vocabulary of bytes: what a caller writes is no control token."""
    controls = {"<|im_start|>": 257, "<|im_end|>": 258, "<think>": 259, "</think>": 260}
    ids, rest = [], PROMPT
    while rest:
        control = next((c for c in controls if rest.startswith(c)), None)
        given = {"\1": query, "\2": document}.get(rest[0])
        ids += [controls[control]] if control else byte_ids(given if given is not None else rest[0])
        rest = rest[len(control or rest[0]):]
    return ids


def library_ids(bench, name, query, document):
    """What transformers' tokenizer makes of them: of the prompt as one text, or of a pair."""
    if name.startswith("classifier"):
        ids = bench.tokenizers[name].encode(query, document).ids
        return ids[:-1] if name == "classifier_padded" else ids  # transformers scores it by the last token that does not pad
    pair = [{"role": "query", "content": query}, {"role": "document", "content": document}]
    prompt = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(PAIR_TEMPLATE).render(messages=pair, add_generation_prompt=name == "opened") \
        if name in ("rendered", "rendered_padded", "opened") else PROMPT.replace("\1", query).replace("\2", document)
    return bench.tokenizers[name].encode(prompt, add_special_tokens=False).ids


def judging(bench, parley):
    """Language models that rank: the state of the last token, and a head's rows. What a folder says tells how they are asked."""
    for name, rows in bench.judges.items():
        query = "which word" if name in bench.tokenizers else "which <|im_end|>"
        documents, want = ["one", "a wide document", "{query}"], []
        for document in documents:
            ids = library_ids(bench, name, query, document) if name in bench.tokenizers else control_ids(query, document)
            scores = rows.astype(np.float64) @ models.Forward(bench.models[name]).hidden(np.array(ids))[-1]
            want.append(1 / (1 + math.exp((scores[1] if len(scores) > 1 else 0) - scores[0])))
        assert np.ptp(want) > 0.05, (name, want)
        results = post(parley, "/v1/rerank", {"model": name, "query": query, "documents": documents})["results"]
        near([r["relevance_score"] for r in sorted(results, key=lambda r: r["index"])], want, 2e-2)
        again = post(parley, "/v1/rerank", {"model": name, "query": query, "documents": documents})
        assert again["results"] == results  # now most of it is found in the cache
        print(name, np.round(want, 3), flush=True)
    versions = {m.name: m.version for m in parley.models.List(harness.models.ModelsListRequest()).models}
    assert versions["labelled"] != versions["classifier"], "a card that chooses the prompt is no part of the version"


def hidden_pairs(parleyd):
    """A template that names the roles of a pair and leaves out a text is refused when the model is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        model = models.build("qwen3", 10, head_norms="each", vocab=300, ctx=64)
        model.matrix("score.weight", 1, model.n["d"], 2.0)
        path = pathlib.Path(folder) / "model"
        shown = PAIR_TEMPLATE.replace('{{ messages | selectattr("role", "eq", "document")', '{{ [] | selectattr("role", "eq", "document")')
        byte_folder(path, model, "Qwen3ForSequenceClassification", {"chat_template.jinja": shown})
        done = children.run([parleyd, "--model", f"model={path}"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "'query' and 'document', but does not show both texts" in done.stderr, done


def ending(bench, parley):
    """Qwen3-Embedding's way: the state of <|endoftext|>, which stands behind each text."""
    for name, text in itertools.product(("embedder", "embedder_folder"), ("hello", "what is this?")):
        want = models.Forward(bench.models[name]).hidden(np.array([*byte_ids(text), 256]))[-1]
        near(openai(parley, name, text)[0], want / np.linalg.norm(want), 5e-2)
        assert np.array_equal(openai(parley, name, text), openai(parley, name, [*byte_ids(text), 256]))


def refusals(bench, parley):
    says = "the model is an encoder", "use a language model"
    chat = {"messages": [{"role": "user", "content": "the cat"}]}
    for name in ("bert", "ranker"):
        refused(parley, "/v1/chat/completions", chat | {"model": name}, *says)
        refused(parley, "/v1/chat/completions", chat | {"model": name, "stream": True}, *says)
        refused(parley, "/v1/completions", {"model": name, "prompt": "the cat"}, *says)
        refused(parley, "/api/chat", chat | {"model": name, "stream": False}, *says)
        refused(parley, "/v1/messages", chat | {"model": name, "max_tokens": 5}, "encoder")
        refused(parley, "/v1/responses", {"model": name, "input": "the cat"}, *says)
    long = "the cat " * 100
    refused(parley, "/v1/embeddings", {"model": "bert", "input": long}, "is 128 tokens", "in 202 tokens")
    refused(parley, "/v1/embeddings", {"model": "bert", "input": ["the", long]}, "is 128 tokens", "in 202 tokens")
    refused(parley, "/v1/embeddings", {"model": "bert", "input": "x" * 100000}, "100000 bytes", "context of 128")
    refused(parley, "/api/embed", {"model": "bert", "input": "x" * 100000}, "100000 bytes", "context of 128")
    refused(parley, "/v1/embeddings", {"model": "bert", "input": [5000]}, "5000")
    refused(parley, "/v1/rerank", {"model": "ranker", "query": "the", "documents": [long]}, "tokens", "128")
    assert openai(parley, "bert", "cat " * 126).shape == (1, 64)  # the whole context
    conversation = parley.client.open("bert") if hasattr(parley, "client") else parley.open("bert")
    parley.close(conversation)
    try:
        parley.open("bert", system="be brief")
    except grpc.RpcError as error:
        assert error.code() != grpc.StatusCode.INTERNAL, error
    listed = {m["id"]: m for m in json.load(urllib.request.urlopen(f"http://{parley.http}/v1/models", timeout=PATIENCE))["data"]}
    assert listed["bert"]["pooling"] == "cls" and listed["bert"]["embedding_dimensions"] == 64, listed["bert"]
    assert "pooling" not in listed["ranker"], listed["ranker"]


def inspected(bench, program):
    """`parley inspect` says that these load here, and of which kind they are."""
    for name, path in (value.split("=", 1) for flag, value in itertools.pairwise(bench.flags) if flag == "--model"):
        done = children.run([program, "inspect", path, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, (name, done)
        said = json.loads(done.stdout)
        kind = "lm" if said["architecture"] in ("qwen3", "llama") else "encoder"
        assert said["loads"] and said["kind"] == kind and said["tokenizer"] and (said["kv_bytes_per_token"]["f16"] > 0) == (kind == "lm"), (name, said)


def main():
    hidden_pairs(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        inspected(bench, sys.argv[2])
        with harness.Parleyd(sys.argv[1], *bench.flags) as parley:
            for test in (embeddings, company, ranking, judging, ending, refusals):
                test(bench, parley)
                print(f"{test.__name__}: good", flush=True)


if __name__ == "__main__":
    main()
