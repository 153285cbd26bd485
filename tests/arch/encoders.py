"""Small random encoders of every architecture, and what they compute, in float64, by the definition."""

import math

import gguf
import numpy as np

POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}


class Encoder:
    """Keys and tensors of a file; Forward reads them as an engine would."""

    def __init__(self, arch, seed, pooling="mean", **numbers):
        self.arch, self.pooling = arch, pooling
        self.rng = np.random.default_rng(seed)
        self.n = dict(layers=3, d=64, heads=4, kv=4, hd=16, ff=96, vocab=160, ctx=128, eps=1e-5)
        self.n.update(numbers)
        self.keys, self.tensors = {}, {}

    def matrix(self, name, rows, cols, scale=1.0):
        self.tensors[name] = (self.rng.standard_normal((rows, cols)) * scale / math.sqrt(cols)).astype(np.float32)

    def vector(self, name, n, mean=1.0, spread=0.3):
        self.tensors[name] = (mean + self.rng.uniform(-spread, spread, n)).astype(np.float32)

    def norm(self, name, bias=True):
        self.vector(name + ".weight", self.n["d"])
        if bias:
            self.vector(name + ".bias", self.n["d"], 0.0)

    def linear(self, name, rows, cols, scale=1.0, bias=True):
        self.matrix(name + ".weight", rows, cols, scale)
        if bias:
            self.vector(name + ".bias", rows, 0.0, 0.5)

    def write(self, path, vocab=None):
        """vocab: writes a tokenizer's keys, given the writer."""
        w = gguf.GGUFWriter(path, self.arch)
        n, a = self.n, self.arch + "."
        for name, value in (("block_count", n["layers"]), ("context_length", n["ctx"]), ("embedding_length", n["d"]),
                            ("feed_forward_length", n["ff"]), ("attention.head_count", n["heads"]),
                            ("attention.head_count_kv", n["kv"]), ("attention.key_length", n["hd"]),
                            ("attention.value_length", n["hd"]), ("pooling_type", POOLINGS[self.pooling])):
            w.add_uint32(a + name, value)
        w.add_float32(a + f"attention.layer_norm_{'rms_' if self.arch == 'gemma-embedding' else ''}epsilon", n["eps"])
        w.add_bool(a + "attention.causal", False)
        for name, value in self.keys.items():
            if isinstance(value, bool):
                w.add_bool(a + name, value)
            elif isinstance(value, int):
                w.add_uint32(a + name, value)
            elif isinstance(value, float):
                w.add_float32(a + name, value)
            elif isinstance(value, str):
                w.add_string(a + name, value)
            else:
                w.add_array(a + name, value)
        if vocab is not None:
            vocab(w)
        for name, tensor in self.tensors.items():
            w.add_tensor(name, tensor)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def add_layers(m, up_rows, bias, gate=False, peak=2.0):
    n = m.n
    d, q, k = n["d"], n["heads"] * n["hd"], n["kv"] * n["hd"]
    for il in range(n["layers"]):
        b = f"blk.{il}."
        m.linear(b + "attn_q", q, d, peak, bias)
        m.linear(b + "attn_k", k, d, peak, bias)
        m.linear(b + "attn_v", k, d, 1.0, bias)
        m.linear(b + "attn_output", d, q, 1.0, bias)
        m.linear(b + "ffn_up", up_rows, d, 2.0, bias)
        m.linear(b + "ffn_down", d, n["ff"], 1.0, bias)
        if gate:
            m.linear(b + "ffn_gate", n["ff"], d, 2.0, bias)


def fuse(m):
    for il in range(m.n["layers"]):
        b = f"blk.{il}."
        m.tensors[b + "attn_qkv.weight"] = np.concatenate([m.tensors.pop(b + f"attn_{x}.weight") for x in "qkv"])
        if b + "attn_q.bias" in m.tensors:
            m.tensors[b + "attn_qkv.bias"] = np.concatenate([m.tensors.pop(b + f"attn_{x}.bias") for x in "qkv"])
    return m


def bert(seed, pooling="mean", types=2, rank=None, **numbers):
    m = Encoder("bert", seed, pooling, **dict(dict(eps=1e-12), **numbers))
    n = m.n
    m.matrix("token_embd.weight", n["vocab"], n["d"], 4.0)
    m.matrix("position_embd.weight", n["ctx"], n["d"], 4.0)
    if types:
        m.matrix("token_types.weight", types, n["d"], 3.0)
    m.norm("token_embd_norm")
    add_layers(m, n["ff"], True)
    for il in range(n["layers"]):
        m.norm(f"blk.{il}.attn_output_norm")
        m.norm(f"blk.{il}.layer_output_norm")
    return add_rank(m, rank)


def nomic(seed, pooling="mean", **numbers):
    m = Encoder("nomic-bert", seed, pooling, **numbers)
    n = m.n
    m.keys["rope.freq_base"] = 1000.0
    m.matrix("token_embd.weight", n["vocab"], n["d"], 4.0)
    m.matrix("token_types.weight", 2, n["d"], 3.0)
    m.norm("token_embd_norm")
    add_layers(m, n["ff"], False, gate=True)
    for il in range(n["layers"]):
        m.norm(f"blk.{il}.attn_output_norm")
        m.norm(f"blk.{il}.layer_output_norm")
    return fuse(m)


def modern(seed, pooling="cls", rank=None, **numbers):
    m = Encoder("modern-bert", seed, pooling, **dict(dict(layers=7), **numbers))
    n = m.n
    m.keys.update({"attention.sliding_window": 16, "rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0,
                   "attention.layer_norm_rms_epsilon": n["eps"], "hidden_activation": "gelu"})
    m.matrix("token_embd.weight", n["vocab"], n["d"], 4.0)
    m.norm("token_embd_norm", False)
    m.norm("output_norm", False)
    add_layers(m, 2 * n["ff"], False)
    for il in range(n["layers"]):
        if il > 0:
            m.norm(f"blk.{il}.attn_norm", False)
        m.norm(f"blk.{il}.ffn_norm", False)
    return add_rank(fuse(m), rank)


def gemma(seed, dense=True, **numbers):
    m = Encoder("gemma-embedding", seed, "mean", **dict(dict(layers=7, kv=2, hd=24, eps=1e-6), **numbers))
    n = m.n
    m.keys.update({"attention.sliding_window": 16, "rope.freq_base": 1000000.0})
    m.matrix("token_embd.weight", n["vocab"], n["d"], 1.0)
    m.norm("output_norm", False)
    add_layers(m, n["ff"], False, gate=True, peak=1.0)
    for il in range(n["layers"]):
        b = f"blk.{il}."
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.norm(b + name, False)
        m.vector(b + "attn_q_norm.weight", n["hd"], 1.4)
        m.vector(b + "attn_k_norm.weight", n["hd"], 1.4)
    if dense:
        m.matrix("dense_2.weight", 100, n["d"])
        m.matrix("dense_3.weight", n["d"], 100)
        m.keys.update({"dense_2_feat_in": n["d"], "dense_2_feat_out": 100, "dense_3_feat_in": 100, "dense_3_feat_out": n["d"]})
    return m


def add_rank(m, rank):
    """rank: the rows of cls.output, "dense" for one score behind a dense layer and a norm, or None."""
    d = m.n["d"]
    if rank == "dense":
        m.linear("cls", d, d, 2.0)
        if m.arch == "modern-bert":
            m.vector("cls.norm.weight", d)
        m.linear("cls.output", 1, d, 1.0)
    elif rank is not None:
        m.linear("cls.output", rank, d, 1.0)
    return m


def all_encoders():
    return {
        "bert": bert(1), "bert_cls": bert(2, "cls", types=1, heads=2, kv=2, hd=32), "bert_untyped": bert(3, "last", types=0, ctx=70),
        "bert_rank": bert(4, "rank", rank="dense"), "bert_yes_no": bert(5, "rank", rank=2),
        "nomic": nomic(6), "nomic_deep": nomic(7, layers=5, ff=130, d=96, hd=24),
        "modern": modern(8), "modern_mean": modern(9, "mean", layers=4), "modern_rank": modern(10, "rank", rank="dense"),
        "gemma": gemma(11), "gemma_plain": gemma(12, dense=False, kv=1), "gemma_deep": gemma(13, layers=13, kv=4),
    }


def erf(x):
    return np.vectorize(math.erf)(x)


def gelu_erf(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def silu(x):
    return x / (1 + np.exp(-x))


class Forward:
    def __init__(self, model):
        self.m, self.n = model, model.n
        self.t = {name: t.astype(np.float64) for name, t in model.tensors.items()}

    def layer_norm(self, x, name):
        mean = x.mean(axis=-1, keepdims=True)
        y = (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + self.n["eps"])
        return y * self.t[name + ".weight"] + self.t.get(name + ".bias", 0)

    def rms(self, x, name):
        return x / np.sqrt((x ** 2).mean(axis=-1, keepdims=True) + self.n["eps"]) * self.t[name + ".weight"]

    def norm(self, x, name):
        return self.rms(x, name) if self.m.arch == "gemma-embedding" else self.layer_norm(x, name)

    def linear(self, x, name):
        return x @ self.t[name + ".weight"].T + self.t.get(name + ".bias", 0)

    def is_windowed(self, il):
        if self.m.arch == "modern-bert":
            return il % 3 != 0
        return self.m.arch == "gemma-embedding" and il % 6 != 5

    def base(self, il):
        return 10000.0 if self.is_windowed(il) else self.m.keys["rope.freq_base"]

    def rotate(self, x, il):
        half = x.shape[-1] // 2
        angle = np.arange(len(x))[:, None] * self.base(il) ** (-np.arange(half) / half)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)

    def qkv(self, h, b):
        if b + "attn_qkv.weight" not in self.t:
            return [self.linear(h, b + "attn_" + x) for x in "qkv"]
        q = self.n["heads"] * self.n["hd"]
        return np.split(self.linear(h, b + "attn_qkv"), [q, q + self.n["kv"] * self.n["hd"]], axis=-1)

    def sees(self, n, il):
        """[n][n] whether a token sees another."""
        away = np.abs(np.arange(n)[:, None] - np.arange(n))
        return away <= self.m.keys["attention.sliding_window"] // 2 if self.is_windowed(il) else away >= 0

    def attention(self, h, il):
        n, b = self.n, f"blk.{il}."
        q, k, v = (x.reshape(len(h), -1, n["hd"]) for x in self.qkv(h, b))
        if self.m.arch == "gemma-embedding":
            q, k = self.rms(q, b + "attn_q_norm"), self.rms(k, b + "attn_k_norm")
        if self.m.arch != "bert":
            q, k = self.rotate(q, il), self.rotate(k, il)
        k, v = (np.repeat(x, n["heads"] // n["kv"], axis=1) for x in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(n["hd"])
        scores = np.where(self.sees(len(h), il), scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return self.linear(np.einsum("hij,jhd->ihd", p, v).reshape(len(h), -1), b + "attn_output")

    def network(self, h, il):
        b = f"blk.{il}."
        up = self.linear(h, b + "ffn_up")
        if self.m.arch == "bert":
            y = gelu_erf(up)
        elif self.m.arch == "modern-bert":
            gate, up = np.split(up, 2, axis=-1)
            y = gelu_erf(gate) * up
        else:
            y = (silu if self.m.arch == "nomic-bert" else gelu_tanh)(self.linear(h, b + "ffn_gate")) * up
        return self.linear(y, b + "ffn_down")

    def embed(self, ids, n_first):
        x = self.t["token_embd.weight"][ids]
        if self.m.arch == "gemma-embedding":
            x = x * math.sqrt(self.n["d"])
        types = self.t.get("token_types.weight")
        if types is not None:
            x = x + types[(np.arange(len(ids)) >= n_first).astype(int) * (len(types) > 1)]
        if self.m.arch == "bert":
            x = x + self.t["position_embd.weight"][:len(ids)]
        return self.layer_norm(x, "token_embd_norm") if "token_embd_norm.weight" in self.t else x

    def layer(self, x, il):
        b = f"blk.{il}."
        if self.m.arch in ("bert", "nomic-bert"):
            x = self.norm(x + self.attention(x, il), b + "attn_output_norm")
            return self.norm(x + self.network(x, il), b + "layer_output_norm")
        h = x if b + "attn_norm.weight" not in self.t else self.norm(x, b + "attn_norm")
        around = self.m.arch == "gemma-embedding"
        a = self.attention(h, il)
        x = x + (self.norm(a, b + "post_attention_norm") if around else a)
        f = self.network(self.norm(x, b + "ffn_norm"), il)
        return x + (self.norm(f, b + "post_ffw_norm") if around else f)

    def states(self, ids, n_first):
        x = self.embed(ids, n_first)
        for il in range(self.n["layers"]):
            x = self.layer(x, il)
        return self.norm(x, "output_norm") if "output_norm.weight" in self.t else x

    def head(self, x):
        if "dense_2.weight" in self.t:
            x = x @ self.t["dense_2.weight"].T @ self.t["dense_3.weight"].T
        if self.m.pooling != "rank":
            return x
        if "cls.weight" in self.t:
            x = self.linear(x, "cls")
            x = gelu_erf(x) if self.m.arch == "modern-bert" else np.tanh(x)
            if "cls.norm.weight" in self.t:
                x = self.layer_norm(x, "cls.norm")
        scores = self.linear(x, "cls.output")
        other = scores[1] if len(scores) > 1 else 0.0
        return np.array([1 / (1 + np.exp(other - scores[0]))])

    def vector(self, ids, n_first):
        x = self.states(ids, n_first)
        return self.head({"mean": x.mean(axis=0), "last": x[-1]}.get(self.m.pooling, x[0]))
