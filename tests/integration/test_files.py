#!/usr/bin/env python3
"""A model in other files than one GGUF: split, and as transformers saves it. The replies are those of the whole file, to the last bit.

usage: test_files.py PARLEYD PARLEY WRITE_TINY_MODEL      (the Python of build/venv)
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import children
from harness import Parleyd, conversations, sampling

U32, I32, F32, BOOL, TEXT, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
SIZES = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q"}


class Gguf:
    """The small model's file, taken apart: keys as bytes and as values, F32 tensors."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        self.at, self.keys, self.values, self.tensors = 4, {}, {}, {}
        _, n_tensors, n_keys = self.take("<I"), self.take("<Q"), self.take("<Q")
        for _ in range(n_keys):
            name, begin = self.text(), self.at
            self.values[name] = self.value(self.take("<I"))
            self.keys[name] = self.bytes[begin : self.at]
        infos = []
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.take("<Q") for _ in range(self.take("<I"))]
            kind, offset = self.take("<I"), self.take("<Q")
            assert kind == 0
            infos.append((name, dims, offset))
        data = (self.at + 31) // 32 * 32
        for name, dims, offset in infos:
            n = 4
            for dim in dims:
                n *= dim
            self.tensors[name] = (dims, self.bytes[data + offset : data + offset + n])

    def take(self, form):
        (value,) = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.bytes[self.at - n : self.at].decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            kind, n = self.take("<I"), self.take("<Q")
            return [self.value(kind) for _ in range(n)]
        return self.take(SIZES[kind])


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def write_gguf(path, keys, tensors):
    """keys: bytes with their types; tensors: (dims, F32 bytes) by name."""
    infos, data = b"", b""
    for name, (dims, values) in tensors.items():
        infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", 0, len(data))
        data += values + bytes(-len(values) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(text(name) + value for name, value in keys.items()) + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def write_split(folder, model, n):
    """The first file has keys alone, as some tools write it."""
    names = list(model.tensors)
    per_file = -(-len(names) // (n - 1))
    paths = [os.path.join(folder, f"parts-{i + 1:05}-of-{n:05}.gguf") for i in range(n)]
    for i, path in enumerate(paths):
        keys = dict(model.keys) if i == 0 else {}
        keys |= {name: struct.pack("<II", U32, value) for name, value in [("split.no", i), ("split.count", n), ("split.tensors.count", len(names))]}
        write_gguf(path, keys, {name: model.tensors[name] for name in names[per_file * (i - 1) : per_file * i] if i > 0})
    return paths


PARTS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}


def foreign_name(name):
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    if name in whole:
        return whole[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{PARTS[part]}.weight"


def halves(dims, values, head_dim):
    """Rows of queries or keys as transformers has them: the first of all pairs of a head, then the second."""
    row = 4 * dims[0]
    rows = [values[i * row : (i + 1) * row] for i in range(dims[1])]
    return b"".join(rows[h + 2 * i + s] for h in range(0, dims[1], head_dim) for s in (0, 1) for i in range(head_dim // 2))


def as_bf16(values):
    return b"".join(values[i + 2 : i + 4] for i in range(0, len(values), 4))


def cut_to_bf16(values):
    """F32 numbers that a bfloat16 holds."""
    return b"".join(b"\0\0" + values[i + 2 : i + 4] for i in range(0, len(values), 4))


def write_safetensors(path, tensors, type_name="F32"):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dims, values) in tensors.items():
        values = as_bf16(values) if type_name == "BF16" else values
        header[name] = {"dtype": type_name, "shape": dims[::-1], "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file)


def write_foreign(folder, model, type_name="F32", n_files=1, **more):
    """The folder that transformers' save_pretrained would write."""
    v = model.values
    os.mkdir(folder)
    head_dim = v["llama.rope.dimension_count"]
    tensors = {}
    for name, (dims, values) in model.tensors.items():
        is_rotated = ".attn_q." in name or ".attn_k." in name
        tensors[foreign_name(name)] = (dims, halves(dims, values, head_dim) if is_rotated else values)
    tokens = v["tokenizer.ggml.tokens"]
    special = [i for i, kind in enumerate(v["tokenizer.ggml.token_type"]) if kind == 3]
    write_json(folder, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": v["llama.embedding_length"],
        "intermediate_size": v["llama.feed_forward_length"], "num_hidden_layers": v["llama.block_count"],
        "num_attention_heads": v["llama.attention.head_count"], "num_key_value_heads": v["llama.attention.head_count_kv"],
        "max_position_embeddings": v["llama.context_length"], "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": len(tokens),
        "tie_word_embeddings": "output.weight" not in model.tensors, "eos_token_id": v["tokenizer.ggml.eos_token_id"],
        "bos_token_id": v["tokenizer.ggml.bos_token_id"], "torch_dtype": "float32"} | more)
    write_json(folder, "tokenizer.json", {
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": tokens[i], "special": True} for i in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "model": {"type": "BPE", "byte_fallback": False, "ignore_merges": False, "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in v["tokenizer.ggml.merges"]]}})
    write_json(folder, "tokenizer_config.json", {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": v["tokenizer.chat_template"]})
    if n_files == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors, type_name)
        return
    names, weight_map = list(tensors), {}
    for i in range(n_files):
        own = names[i::n_files]
        file = f"model-{i + 1:05}-of-{n_files:05}.safetensors"
        write_safetensors(os.path.join(folder, file), {name: tensors[name] for name in own}, type_name)
        weight_map |= {name: file for name in own}
    write_json(folder, "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def reply(client, model):
    """Token ids and log-probabilities of a turn."""
    opened = client.open(model)
    request = conversations.TurnRequest(conversation=opened, text="hello there 123", want_logprobs=3,
                                        sampling=sampling.Sampling(temperature=0.8, seed=7, max_tokens=40, ignore_eos=True))
    done = client.conversations.Ask(request)
    assert len(done.token_ids) == 40
    return list(done.token_ids), [(t.logprob, [(top.id, top.logprob) for top in t.top]) for t in done.logprobs]


def inspect(parley, path, code=0):
    result = subprocess.run([parley, "inspect", path, "--json"], capture_output=True, text=True)
    assert result.returncode == code, result
    return json.loads(result.stdout) if code == 0 else result.stderr


def refusals(parley, folder, model):
    """What cannot be read is named: a missing file, a missing key, another kind of model."""
    def broken(name, **more):
        path = os.path.join(folder, name)
        write_foreign(path, model, **more)
        return path

    path = broken("gone", n_files=3)
    os.unlink(os.path.join(path, "model-00002-of-00003.safetensors"))
    assert "model-00002-of-00003.safetensors is missing" in inspect(parley, path, code=1)
    path = broken("listless", n_files=3)
    os.unlink(os.path.join(path, "model.safetensors.index.json"))
    for given in path, os.path.join(path, "model-00001-of-00003.safetensors"):
        assert "Those in several files need model.safetensors.index.json, which is missing" in inspect(parley, given, code=1)
    path = broken("shortened", n_files=3)
    last = os.path.join(path, "model-00003-of-00003.safetensors")
    os.truncate(last, os.path.getsize(last) // 2)
    said = inspect(parley, path, code=1)
    assert "model-00003-of-00003.safetensors: " in said and "truncated" in said, said
    path = broken("kind", model_type="mamba")
    assert "config.json: key 'model_type' is 'mamba'" in inspect(parley, path, code=1)
    path = broken("rope", rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert "'rope_scaling' of type 'dynamic'" in inspect(parley, path, code=1)
    path = broken("keyless", hidden_size=None)
    assert "key 'hidden_size' is absent" in inspect(parley, path, code=1)
    path = broken("headless")
    os.unlink(os.path.join(path, "tokenizer.json"))
    assert "tokenizer.json: No such file" in inspect(parley, path, code=1)


def main():
    parleyd, parley, writer = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        whole = os.path.join(folder, "whole.gguf")
        children.run([writer, whole], check=True)
        model = Gguf(whole)
        parts = write_split(folder, model, 3)
        plain, several, short = (os.path.join(folder, name) for name in ("plain", "several", "short"))
        write_foreign(plain, model)
        write_foreign(several, model, n_files=3)
        model.tensors = {name: (dims, cut_to_bf16(values)) for name, (dims, values) in model.tensors.items()}
        write_foreign(short, model, type_name="BF16")
        cut = os.path.join(folder, "cut.gguf")
        write_gguf(cut, model.keys, model.tensors)
        named = {"whole": whole, "split": parts[0], "plain": plain, "several": several, "short": short, "cut": cut}
        flags = [f"--model={name}={path}" for name, path in named.items()]
        with Parleyd(parleyd, *flags, "--kv-bytes", "4000000") as client:
            replies = {name: reply(client, name) for name in named}
        for name in "split", "plain", "several":
            assert replies[name] == replies["whole"], name
        assert replies["short"] == replies["cut"] != replies["whole"]
        told = inspect(parley, several)
        assert told["loads"] and told["template"] == "chatml" and told["files"] == 7 and told["quantisation"] == "F32", told
        assert inspect(parley, short)["types"][0]["type"] == "BF16"
        assert inspect(parley, parts[0])["files"] == 3
        os.unlink(parts[2])
        assert "parts-00003-of-00003.gguf: missing" in inspect(parley, parts[0], code=1)
        refusals(parley, folder, model)


if __name__ == "__main__":
    main()
