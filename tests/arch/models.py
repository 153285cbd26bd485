"""Small random models of every architecture, and what they compute, in float64, by the definition.

Weights are chosen so that a wrong rule is seen: attention is peaked, norms are not 1, heads are not
width / heads wide, and prompts are longer than windows and original contexts.
"""

import math

import gguf
import numpy as np


class Model:
    """Keys and tensors of a file; the forward pass reads them as an engine would."""

    def __init__(self, arch, seed, **numbers):
        self.arch = arch
        self.rng = np.random.default_rng(seed)
        self.n = dict(layers=4, d=80, heads=4, kv=2, hd=24, ff=112, vocab=160, ctx=256, eps=1e-5, base=10000.0,
                      peak=2.0)
        self.n.update(numbers)
        self.n.setdefault("rot", self.n["hd"])
        self.keys = {}  # beyond the numbers: name -> value
        self.tensors = {}  # name -> float32 array

    def matrix(self, name, rows, cols, scale=1.0):
        self.tensors[name] = (self.rng.standard_normal((rows, cols)) * scale / math.sqrt(cols)).astype(np.float32)

    def vector(self, name, n, mean=1.0, spread=0.3):
        self.tensors[name] = (mean + self.rng.uniform(-spread, spread, n)).astype(np.float32)

    def write(self, path):
        w = gguf.GGUFWriter(path, self.arch)
        n, a = self.n, self.arch + "."
        for name, value in (("block_count", n["layers"]), ("context_length", n["ctx"]), ("embedding_length", n["d"]),
                            ("feed_forward_length", n["ff"]), ("attention.head_count", n["heads"]),
                            ("attention.head_count_kv", n["kv"]), ("attention.key_length", n["hd"]),
                            ("attention.value_length", n["hd"]), ("rope.dimension_count", n["rot"])):
            w.add_uint32(a + name, value)
        w.add_float32(a + "rope.freq_base", n["base"])
        w.add_float32(a + "attention.layer_norm_rms_epsilon", n["eps"])
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
        for name, tensor in self.tensors.items():
            w.add_tensor(name, tensor)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def build(arch, seed, keys=None, norms="before", head_norms=None, bias=(), tied=True, fused_qkv=False,
          fused_gate=False, out_bias=False, **numbers):
    """A model with the parts that its architecture has."""
    m = Model(arch, seed, **numbers)
    n = m.n
    q, k, d, ff = n["heads"] * n["hd"], n["kv"] * n["hd"], n["d"], n["ff"]
    m.keys.update(keys or {})
    m.matrix("token_embd.weight", n["vocab"], d, math.sqrt(d) * 0.3)
    m.vector("output_norm.weight", d)
    if not tied:
        m.matrix("output.weight", n["vocab"], d, 2.0)
    if out_bias:
        m.vector("output.bias", n["vocab"], 0.0, 1.0)
    for il in range(n["layers"]):
        b = f"blk.{il}."
        if norms != "after":
            m.vector(b + "attn_norm.weight", d)
            m.vector(b + "ffn_norm.weight", d)
        if norms != "before":
            m.vector(b + "post_attention_norm.weight", d)
            m.vector(b + "post_ffw_norm.weight", d)
        m.matrix(b + "attn_q.weight", q, d, n["peak"])
        m.matrix(b + "attn_k.weight", k, d, n["peak"])
        m.matrix(b + "attn_v.weight", k, d)
        m.matrix(b + "attn_output.weight", d, q)
        for name, width in (("attn_q", q), ("attn_k", k), ("attn_v", k), ("attn_output", d)):
            if name in bias:
                m.vector(b + name + ".bias", width, 0.0, 1.0)
        if head_norms is not None:
            m.vector(b + "attn_q_norm.weight", n["hd"] if head_norms == "each" else q, 1.4)
            m.vector(b + "attn_k_norm.weight", n["hd"] if head_norms == "each" else k, 1.4)
        if "experts" in n:
            add_experts(m, b, n["experts"], n.get("expert_ff", ff))
            continue
        m.matrix(b + "ffn_gate.weight", ff, d, 2.0)
        m.matrix(b + "ffn_up.weight", ff, d)
        m.matrix(b + "ffn_down.weight", d, ff)
        if fused_qkv:
            parts = [m.tensors.pop(b + f"attn_{x}.weight") for x in "qkv"]
            m.tensors[b + "attn_qkv.weight"] = np.concatenate(parts)
            if "attn_q" in bias:
                m.tensors[b + "attn_qkv.bias"] = np.concatenate([m.tensors.pop(b + f"attn_{x}.bias") for x in "qkv"])
        if fused_gate:
            gate = m.tensors.pop(b + "ffn_gate.weight")
            m.tensors[b + "ffn_up.weight"] = np.concatenate([gate, m.tensors[b + "ffn_up.weight"]])
    return m


def add_experts(m, b, n, ff):
    d = m.n["d"]
    m.matrix(b + "ffn_gate_inp.weight", n, d, 2.0)
    for name, rows, cols, scale in (("gate", ff, d, 2.0), ("up", ff, d, 1.0), ("down", d, ff, 1.0)):
        m.tensors[b + f"ffn_{name}_exps.weight"] = \
            (m.rng.standard_normal((n, rows, cols)) * scale / math.sqrt(cols)).astype(np.float32)


HALVES = {"qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3", "olmo2"}
WINDOW_PATTERN = {"gemma2": 2, "gemma3": 6, "olmo2": 4}


def rms(x, w, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w


class Forward:
    """The logits of all positions of one prompt."""

    def __init__(self, model):
        self.m = model
        self.t = {name: x.astype(np.float64) for name, x in model.tensors.items()}

    def key(self, name, default):
        return self.m.keys.get(name, default)

    def is_windowed(self, il):
        arch, pattern = self.m.arch, self.key("attention.sliding_window_pattern", None)
        if arch == "phi3":  # a window without a pattern is ignored, as by all who run such files
            return pattern is not None and self.window() > 0
        if arch not in WINDOW_PATTERN or self.window() == 0:
            return False
        if isinstance(pattern, list):
            return pattern[il]
        n = WINDOW_PATTERN[arch] if pattern is None else pattern
        return n == 0 or il % n < n - 1

    def window(self):
        return self.key("attention.sliding_window", 4096 if self.m.arch == "gemma2" else 0)

    def frequencies(self, il):
        """Inverse frequencies and the amplitude."""
        n, arch = self.m.n, self.m.arch
        rot, base = n["rot"], n["base"]
        local = self.is_windowed(il)
        if local and arch == "gemma3":
            base = self.key("rope.freq_base_swa", 10000.0)
            return base ** (-2.0 * np.arange(rot // 2) / rot), 1.0
        f = base ** (-2.0 * np.arange(rot // 2) / rot)
        if local and arch == "olmo2":
            return f, 1.0
        kind = self.key("rope.scaling.type", "linear")
        factor = self.key("rope.scaling.factor", 0.0) or self.key("rope.scale_linear", 0.0) or 1.0
        original = self.key("rope.scaling.original_context_length", n["ctx"])
        amplitude = self.key("rope.scaling.attn_factor", 1.0)
        if arch == "phi3" or kind == "longrope":
            name = "rope_factors_long.weight" if n["ctx"] > original else "rope_factors_short.weight"
        else:
            name = "rope_freqs.weight"
        if name in self.t:
            f = f / self.t[name]
        if kind == "none":
            return f, amplitude
        if kind != "yarn":
            return f / factor, amplitude
        fast, slow = 32.0, 1.0
        if arch == "mistral3":
            fast, slow = self.key("rope.scaling.yarn_beta_fast", 32.0), self.key("rope.scaling.yarn_beta_slow", 1.0)

        def place(turns):
            return rot * math.log(original / (2 * math.pi * turns)) / (2 * math.log(base))

        low, high = max(0, math.floor(place(fast))), min(rot - 1, math.ceil(place(slow)))
        ramp = 1 - np.clip((np.arange(rot // 2) - low) / max(0.001, high - low), 0, 1)
        multiplier = self.key("rope.scaling.yarn_log_multiplier", 0.0)
        amplitude *= 1 + 0.1 * math.log(factor)
        if multiplier != 0:
            amplitude /= 1 + 0.1 * multiplier * math.log(factor)
        return f * ((1 - ramp) / factor + ramp), amplitude

    def rope(self, x, il):
        """x [tokens][heads][hd]"""
        rot, halves = self.m.n["rot"], self.m.arch in HALVES
        f, amplitude = self.frequencies(il)
        angle = np.arange(len(x))[:, None] * f
        c, s = amplitude * np.cos(angle)[:, None], amplitude * np.sin(angle)[:, None]
        first = slice(0, rot // 2) if halves else slice(0, rot, 2)
        second = slice(rot // 2, rot) if halves else slice(1, rot, 2)
        a, b, out = x[..., first], x[..., second], x.copy()
        out[..., first], out[..., second] = a * c - b * s, a * s + b * c
        return out

    def linear(self, name, x):
        y = x @ self.t[name + ".weight"].T
        return y + self.t[name + ".bias"] if name + ".bias" in self.t else y

    def qkv(self, b, h):
        n = self.m.n
        q, k = n["heads"] * n["hd"], n["kv"] * n["hd"]
        if b + "attn_qkv.weight" in self.t:
            return np.split(self.linear(b + "attn_qkv", h), [q, q + k], axis=1)
        return [self.linear(b + "attn_" + x, h) for x in "qkv"]

    def head_norm(self, name, x, heads):
        n = self.m.n
        w = self.t.get(name)
        if w is None:
            return x.reshape(len(x), heads, n["hd"])
        if len(w) == n["hd"] and self.m.arch != "olmo2":
            return rms(x.reshape(len(x), heads, n["hd"]), w, n["eps"])
        return rms(x, w, n["eps"]).reshape(len(x), heads, n["hd"])

    def scale(self):
        n, arch = self.m.n, self.m.arch
        own = self.key("attention.scale", 0.0) if arch in ("llama", "granite", "gemma2", "gemma3") else 0.0
        if not own and (arch, n["layers"]) in (("gemma2", 46), ("gemma3", 62)):
            return 1 / math.sqrt(n["d"] / n["heads"])
        return own or 1 / math.sqrt(n["hd"])

    def attention(self, b, il, h):
        n, arch = self.m.n, self.m.arch
        q, k, v = self.qkv(b, h)
        q = self.head_norm(b + "attn_q_norm.weight", q, n["heads"])
        k = self.head_norm(b + "attn_k_norm.weight", k, n["kv"])
        v = v.reshape(len(v), n["kv"], n["hd"])
        unrotated = (arch == "smollm3" and (il + 1) % 4 == 0) or \
                    (arch == "granite" and not self.key("rope.scaling.finetuned", True))
        if not unrotated:
            q, k = self.rope(q, il), self.rope(k, il)
        at = np.arange(len(h))
        if arch == "mistral3":
            rise = self.key("attention.temperature_scale", 0.0)
            every = self.key("rope.scaling.original_context_length", n["ctx"])
            q = q * (1 + rise * np.log(1 + at // every))[:, None, None]
        k, v = (np.repeat(x, n["heads"] // n["kv"], axis=1) for x in (k, v))
        s = np.einsum("ihd,jhd->hij", q, k) * self.scale()
        cap = self.key("attn_logit_softcapping", 50.0 if arch == "gemma2" else 0.0)
        if cap > 0 and arch == "gemma2":
            s = cap * np.tanh(s / cap)
        far = at[:, None] - at[None, :]
        hidden = (far < 0) | ((far >= self.window()) if self.is_windowed(il) else False)
        s = np.where(hidden, -np.inf, s)
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        y = np.einsum("hij,jhd->ihd", p, v).reshape(len(h), -1)
        return self.linear(b + "attn_output", y)

    def experts(self, b, h):
        """Softmax, the best few, renormed: the same as softmax over those."""
        n, used = self.m.n["experts"], self.key("expert_used_count", 0)
        scores = h @ self.t[b + "ffn_gate_inp.weight"].T
        gate, up, down = (self.t[b + f"ffn_{x}_exps.weight"] for x in ("gate", "up", "down"))
        out = np.zeros_like(h)
        for i, row in enumerate(h):
            chosen = np.argsort(-scores[i], kind="stable")[:used]
            p = np.exp(scores[i] - scores[i].max())
            p /= p.sum()
            for e in chosen:
                g = gate[e] @ row
                out[i] += p[e] / p[chosen].sum() * (down[e] @ (g / (1 + np.exp(-g)) * (up[e] @ row)))
        assert n == len(gate)
        return out * (self.key("expert_weights_scale", 0.0) or 1.0)

    def network(self, b, h):
        if "experts" in self.m.n:
            return self.experts(b, h)
        up = h @ self.t[b + "ffn_up.weight"].T
        if b + "ffn_gate.weight" in self.t:
            gate = h @ self.t[b + "ffn_gate.weight"].T
        else:
            gate, up = np.split(up, 2, axis=1)
        if self.m.arch.startswith("gemma"):
            gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3)))
        else:
            gate = gate / (1 + np.exp(-np.maximum(gate, -500.0)))
        return (gate * up) @ self.t[b + "ffn_down.weight"].T

    def norm(self, name, x):
        return rms(x, self.t[name], self.m.n["eps"]) if name in self.t else x

    def hidden(self, ids):
        n, arch = self.m.n, self.m.arch
        scale = math.sqrt(n["d"]) if arch.startswith("gemma") else self.key("embedding_scale", 1.0)
        residual = self.key("residual_scale", 1.0)
        x = self.t["token_embd.weight"][ids] * scale
        for il in range(n["layers"]):
            b = f"blk.{il}."
            a = self.attention(b, il, self.norm(b + "attn_norm.weight", x))
            x = x + residual * self.norm(b + "post_attention_norm.weight", a)
            f = self.network(b, self.norm(b + "ffn_norm.weight", x))
            x = x + residual * self.norm(b + "post_ffw_norm.weight", f)
        return self.norm("output_norm.weight", x)

    def logits(self, ids):
        arch = self.m.arch
        head = self.t.get("output.weight", self.t["token_embd.weight"])
        y = self.hidden(ids) @ head.T
        if "output.bias" in self.t:
            y = y + self.t["output.bias"]
        if arch == "granite":
            y = y / self.key("logit_scale", 1.0)
        cap = self.key("final_logit_softcapping", 30.0 if arch == "gemma2" else 0.0)
        return cap * np.tanh(y / cap) if cap > 0 and arch.startswith("gemma") else y


def with_factors(m, **tensors):
    for name, (low, high) in tensors.items():
        m.tensors[name + ".weight"] = np.linspace(low, high, m.n["rot"] // 2).astype(np.float32)
    return m


QKV = ("attn_q", "attn_k", "attn_v")
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}


def all_models():
    """name -> model"""
    return {
        "llama": build("llama", 1),
        "llama_bias_scale": build("llama", 2, {"attention.scale": 0.3}, bias=QKV + ("attn_output",), tied=False),
        "llama_freqs": with_factors(build("llama", 3, fused_qkv=True), rope_freqs=(1, 8)),
        "llama_linear": build("llama", 4, {"rope.scaling.factor": 4.0}),
        "llama_yarn": build("llama", 5, dict(YARN, **{"rope.scaling.attn_factor": 1.1}), heads=6, kv=1, hd=32),
        "llama_longrope": with_factors(
            build("llama", 6, {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 64,
                               "rope.scaling.attn_factor": 1.2}), rope_factors_long=(1, 9), rope_factors_short=(1, 2)),
        "mistral3": build("mistral3", 7, dict(YARN, **{
            "rope.scaling.yarn_log_multiplier": 1.0, "rope.scaling.yarn_beta_fast": 16.0,
            "rope.scaling.yarn_beta_slow": 2.0, "attention.temperature_scale": 0.4,
            "rope.scaling.original_context_length": 32})),
        "qwen2": build("qwen2", 8, bias=QKV, out_bias=True, tied=False, hd=20),
        "qwen2_fused": build("qwen2", 9, bias=QKV, fused_qkv=True, heads=6, kv=3, hd=14, rot=14),
        "qwen3": build("qwen3", 10, head_norms="each", hd=40, eps=1e-6),
        "mixtral": build("llama", 24, {"expert_count": 5, "expert_used_count": 2}, experts=5, tied=False, layers=2,
                         peak=1.0),
        "qwen3moe": build("qwen3moe", 25, {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48,
                                           "expert_weights_scale": 1.5},
                          head_norms="each", experts=8, expert_ff=48, kv=1),
        "gemma2": build("gemma2", 11, {"attention.sliding_window": 16, "attn_logit_softcapping": 2.0,
                                       "final_logit_softcapping": 3.0}, norms="around"),
        "gemma2_defaults": build("gemma2", 12, norms="around", heads=3, kv=1, hd=48),
        "gemma3": build("gemma3", 13, {"attention.sliding_window": 16}, norms="around", head_norms="each", layers=12,
                        base=1000000.0, hd=32),
        "gemma3_global_scale": build(
            "gemma3", 14, {"attention.sliding_window": 20, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
                           "attention.sliding_window_pattern": [True, False, True, True, False, True],
                           "final_logit_softcapping": 4.0, "rope.freq_base_swa": 5000.0},
            norms="around", head_norms="each", layers=6, base=100000.0),
        "gemma3_wide_heads": build("gemma3", 15, {"attention.sliding_window": 33}, norms="around", head_norms="each",
                                   layers=6, d=640, heads=4, kv=1, hd=256, ff=64),
        "phi3_window": build("phi3", 16, {"attention.sliding_window": 17, "attention.sliding_window_pattern": 0},
                             fused_qkv=True, fused_gate=True, tied=False),
        "phi3": build("phi3", 16, {"attention.sliding_window": 17}, fused_qkv=True, fused_gate=True, tied=False),
        "phi3_long": with_factors(
            build("phi3", 17, {"rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": 1.19},
                  fused_qkv=True, fused_gate=True, hd=32, rot=24), rope_factors_long=(1, 9), rope_factors_short=(1, 2)),
        "phi3_short": with_factors(
            build("phi3", 18, {"rope.scaling.original_context_length": 256}, fused_qkv=True, fused_gate=True, hd=40,
                  rot=10), rope_factors_long=(1, 9), rope_factors_short=(1, 2)),
        "smollm3": build("smollm3", 19, layers=5),
        "olmo2": build("olmo2", 20, norms="after", head_norms="all", tied=False),
        "olmo2_window": build("olmo2", 21, dict(YARN, **{"attention.sliding_window": 16}), norms="after",
                              head_norms="all", tied=False, layers=8),
        "granite": build("granite", 22, {"attention.scale": 0.11, "embedding_scale": 3.0, "residual_scale": 0.4,
                                         "logit_scale": 2.5}),
        "granite_partial": build("granite", 26, {"attention.scale": 0.2, "logit_scale": 1.0}, hd=36, rot=20),
        # the number of layers says how the 27B model scales its scores
        "gemma2_27b": build("gemma2", 27, norms="around", layers=46, d=32, heads=4, hd=16, ff=32, peak=1.0),
        "granite_unrotated": build("granite", 23, {"attention.scale": 0.2, "embedding_scale": 1.5,
                                                   "residual_scale": 0.7, "logit_scale": 0.5,
                                                   "rope.scaling.finetuned": False}),
    }
