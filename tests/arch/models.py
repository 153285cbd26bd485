"""Small random models of every architecture, and what they compute, in float64, by the definition.

Weights are chosen so that a wrong rule is seen: attention is peaked, norms are not 1, heads are not
width / heads wide, and prompts are longer than windows and original contexts.
"""

import math

import gguf
import numpy as np


class Model:
    """Keys and tensors of a file; the forward pass reads them as an engine would."""

    usual = dict(layers=4, d=80, heads=4, kv=2, hd=24, ff=112, vocab=160, ctx=256, eps=1e-5, base=10000.0, peak=2.0)

    def __init__(self, arch, seed, **numbers):
        self.arch = arch
        self.rng = np.random.default_rng(seed)
        self.n = self.usual | numbers
        self.n.setdefault("rot", self.n["hd"])
        self.keys = {}  # beyond the numbers: name -> value
        self.tensors = {}  # name -> float32 array

    def matrix(self, name, rows, cols, scale=1.0):
        self.tensors[name] = (self.rng.standard_normal((rows, cols)) * scale / math.sqrt(cols)).astype(np.float32)

    def vector(self, name, n, mean=1.0, spread=0.3):
        self.tensors[name] = (mean + self.rng.uniform(-spread, spread, n)).astype(np.float32)

    def has_experts(self, il):
        step = self.keys.get("interleave_moe_layer_step", 1)
        return il >= self.keys.get("leading_dense_block_count", 0) and (il + 1) % step == 0

    def write(self, path, vocab=None):
        """vocab: writes a tokenizer's keys, given the writer."""
        w = gguf.GGUFWriter(path, self.arch)
        n, a = self.n, self.arch + "."
        for name, value in (("block_count", n["layers"]), ("context_length", n["ctx"]), ("embedding_length", n["d"]),
                            ("feed_forward_length", n["ff"]), ("attention.head_count", n["heads"]),
                            ("attention.head_count_kv", n["kv"]), ("attention.key_length", n["hd"]),
                            ("attention.value_length", n["hd"]), ("rope.dimension_count", n["rot"])):
            if "whole" in n and name in ("attention.key_length", "attention.value_length"):
                value = n["plain"] + n["rot"] if name == "attention.key_length" else n["value"]
            elif "rank" in n and name in ("attention.key_length", "attention.value_length", "attention.head_count_kv") and "whole" not in n:
                value = {"attention.key_length": n["rank"] + n["rot"], "attention.value_length": n["rank"]}.get(name, 1)
            if name == "attention.head_count_kv" and isinstance(value, list):
                w.add_array(a + name, value)
                continue
            if name == "feed_forward_length" and "ffs" in n:
                w.add_array(a + name, n["ffs"])
                continue
            w.add_uint32(a + name, value)
        if "rank" in n:
            w.add_uint32(a + "attention.kv_lora_rank", n["rank"])
        if "rank" in n and "whole" not in n:
            w.add_uint32(a + "attention.key_length_mla", n["plain"] + n["rot"])
            w.add_uint32(a + "attention.value_length_mla", n["value"])
        if "query_rank" in n:
            w.add_uint32(a + "attention.q_lora_rank", n["query_rank"])
        w.add_float32(a + "rope.freq_base", n["base"])
        kind = "" if (self.arch in LAYER_NORMED and self.arch != "phimoe") or self.arch.startswith("nemotron") else "rms_"
        w.add_float32(a + f"attention.layer_norm_{kind}epsilon", n["eps"])
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


def byte_vocab(w, adds_eos=False):
    """Byte-level BPE whose only merge is of two zeros: else a token is a byte."""
    alphabet = [chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]]
    alphabet += [chr(256 + i) for i in range(256 - len(alphabet))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(alphabet + ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "\u0100\u0100"])
    w.add_token_types([1] * 256 + [3] * 3 + [4] * 2 + [1])
    w.add_token_merges(["\u0100 \u0100"])
    w.add_uint32("tokenizer.ggml.eos_token_id", 256)
    if adds_eos:
        w.add_add_eos_token(True)


def build(arch, seed, keys=None, norms="before", head_norms=None, bias=(), tied=True, fused_qkv=False,
          fused_gate=False, out_bias=False, norm_bias=False, parallel=False, ungated=False,
          **numbers):
    """A model with the parts that its architecture has."""
    m = Model(arch, seed, **numbers)
    n = m.n
    q, k, d, ff = n["heads"] * n["hd"], n["kv"] * n["hd"], n["d"], n["ff"]
    m.keys.update(keys or {})
    m.matrix("token_embd.weight", n["vocab"], d, math.sqrt(d) * 0.3)
    m.vector("output_norm.weight", d)
    if norm_bias:
        m.vector("output_norm.bias", d, 0.0)
    pre2 = "post_attention_norm" if arch in PRE2_POST else "ffn_norm"
    if not tied:
        m.matrix("output.weight", n["vocab"], d, 2.0)
    if out_bias:
        m.vector("output.bias", n["vocab"], 0.0, 1.0)
    for il in range(n["layers"]):
        b = f"blk.{il}."
        if norms != "after":
            for name in ("attn_norm",) if parallel else ("attn_norm", pre2):
                m.vector(b + name + ".weight", d)
                if norm_bias:
                    m.vector(b + name + ".bias", d, 0.0)
        if norms != "before":
            m.vector(b + "post_attention_norm.weight", d)
            m.vector(b + "post_ffw_norm.weight", d)
        if "rank" in n:
            add_latent(m, b)
        else:
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
        if "sinks" in bias:
            m.vector(b + "attn_sinks.weight", n["heads"], 1.0, 2.0)
        if "experts" in n and m.has_experts(il):
            add_experts(m, b, n["experts"], n.get("expert_ff", ff), bias)
            continue
        if ungated:
            m.matrix(b + "ffn_up.weight", ff, d, 2.0)
        else:
            m.matrix(b + "ffn_gate.weight", ff, d, 2.0)
            m.matrix(b + "ffn_up.weight", ff, d)
        m.matrix(b + "ffn_down.weight", d, ff)
        for name, width in (("ffn_up", ff), ("ffn_down", d)):
            if name in bias:
                m.vector(b + name + ".bias", width, 0.0, 0.5)
        if fused_qkv:
            parts = [m.tensors.pop(b + f"attn_{x}.weight") for x in "qkv"]
            m.tensors[b + "attn_qkv.weight"] = np.concatenate(parts)
            if "attn_q" in bias:
                m.tensors[b + "attn_qkv.bias"] = np.concatenate([m.tensors.pop(b + f"attn_{x}.bias") for x in "qkv"])
        if fused_gate:
            gate = m.tensors.pop(b + "ffn_gate.weight")
            m.tensors[b + "ffn_up.weight"] = np.concatenate([gate, m.tensors[b + "ffn_up.weight"]])
    return m


def add_latent(m, b):
    """Latent keys and values: rank numbers, and rot that are rotated; queries of plain + rot, outputs of value. whole: what
    makes keys and what makes values is one tensor."""
    n = m.n
    d, heads, key = n["d"], n["heads"], n["plain"] + n["rot"]
    if "query_rank" in n:
        m.matrix(b + "attn_q_a.weight", n["query_rank"], d)
        m.vector(b + "attn_q_a_norm.weight", n["query_rank"])
        m.matrix(b + "attn_q_b.weight", heads * key, n["query_rank"], n["peak"])
    else:
        m.matrix(b + "attn_q.weight", heads * key, d, n["peak"])
    m.matrix(b + "attn_kv_a_mqa.weight", n["rank"] + n["rot"], d, n["peak"])
    m.vector(b + "attn_kv_a_norm.weight", n["rank"])
    for name, rows, cols in (("k", n["rank"], n["plain"]), ("v", n["value"], n["rank"])):
        m.tensors[b + f"attn_{name}_b.weight"] = \
            (m.rng.standard_normal((heads, rows, cols)) / math.sqrt(n["rank"])).astype(np.float32)
    if "whole" in n:
        k, v = (m.tensors.pop(b + f"attn_{name}_b.weight") for name in "kv")
        m.tensors[b + "attn_kv_b.weight"] = np.concatenate([k.swapaxes(1, 2), v], axis=1).reshape(-1, n["rank"])
    m.matrix(b + "attn_output.weight", d, heads * n["value"])


def add_experts(m, b, n, ff, bias=()):
    d = m.n["d"]
    m.matrix(b + "ffn_gate_inp.weight", n, d, 2.0)
    for name, rows, cols, scale in (("gate", ff, d, 2.0), ("up", ff, d, 1.0), ("down", d, ff, 1.0)):
        m.tensors[b + f"ffn_{name}_exps.weight"] = \
            (m.rng.standard_normal((n, rows, cols)) * scale / math.sqrt(cols)).astype(np.float32)
        if "experts" in bias:
            m.tensors[b + f"ffn_{name}_exps.bias"] = m.rng.standard_normal((n, rows)).astype(np.float32)
    if "experts" in bias:
        m.vector(b + "ffn_gate_inp.bias", n, 0.0, 1.0)
    if "select" in bias:
        m.vector(b + "exp_probs_b.bias", n, 0.0, 0.5)
    shared = m.n.get("shared", 0)
    if shared:
        m.matrix(b + "ffn_gate_shexp.weight", shared, d, 2.0)
        m.matrix(b + "ffn_up_shexp.weight", shared, d)
        m.matrix(b + "ffn_down_shexp.weight", d, shared)
    if "shared" in bias:
        m.vector(b + "ffn_gate_inp_shexp.weight", d, 0.0, 0.4)


def build_gemma4(seed, kinds, keys=None, kv=2, window_kv=2, experts=0, embedding=0, n_shared=0, own_values=True, wide=False,
                 rotated=0.25, **numbers):
    """kinds: of each layer, whether it has a window. Layers without one have heads of hd, the others of window_hd."""
    m = Model("gemma4", seed, layers=len(kinds), base=1000000.0, **dict(dict(hd=32, window_hd=16, peak=1.0, eps=1e-6, spread=1.0), **numbers))
    n = m.n
    d, ff = n["d"], n["ff"]
    n["kv"] = [window_kv if w else kv for w in kinds]
    n["ffs"] = [2 * ff if wide and il >= len(kinds) - n_shared else ff for il in range(len(kinds))]
    m.keys.update({"attention.sliding_window": 16, "attention.sliding_window_pattern": kinds, "attention.key_length_swa": n["window_hd"],
                   "attention.value_length_swa": n["window_hd"], "attention.shared_kv_layers": n_shared,
                   "embedding_length_per_layer_input": embedding})
    m.keys.update(keys or {})
    m.matrix("token_embd.weight", n["vocab"], d, n["spread"])
    m.vector("output_norm.weight", d)
    pairs = np.arange(n["hd"] // 2)
    m.tensors["rope_freqs.weight"] = np.where(pairs < rotated * len(pairs), 1, 1e30).astype(np.float32)
    if embedding:
        m.matrix("per_layer_token_embd.weight", n["vocab"], len(kinds) * embedding)
        m.matrix("per_layer_model_proj.weight", len(kinds) * embedding, d)
        m.vector("per_layer_proj_norm.weight", embedding)
    for il, windowed in enumerate(kinds):
        b, hd, heads = f"blk.{il}.", n["window_hd"] if windowed else n["hd"], n["heads"]
        for name in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"):
            m.vector(b + name + ".weight", d)
        m.matrix(b + "attn_q.weight", heads * hd, d)
        m.vector(b + "attn_q_norm.weight", hd, n["peak"])
        if il < len(kinds) - n_shared:
            m.matrix(b + "attn_k.weight", n["kv"][il] * hd, d)
            m.vector(b + "attn_k_norm.weight", hd, n["peak"])
            if own_values or windowed:
                m.matrix(b + "attn_v.weight", n["kv"][il] * hd, d)
        m.matrix(b + "attn_output.weight", d, heads * hd)
        m.matrix(b + "ffn_gate.weight", n["ffs"][il], d, 2.0)
        m.matrix(b + "ffn_up.weight", n["ffs"][il], d)
        m.matrix(b + "ffn_down.weight", d, n["ffs"][il])
        if embedding:
            m.matrix(b + "inp_gate.weight", embedding, d, 2.0)
            m.matrix(b + "proj.weight", d, embedding)
            m.vector(b + "post_norm.weight", d)
        m.vector(b + "layer_output_scale.weight", 1, 0.9)
        if experts:
            add_experts(m, b, experts, n["expert_ff"])
            both = [m.tensors.pop(b + f"ffn_{x}_exps.weight") for x in ("gate", "up")]
            m.tensors[b + "ffn_gate_up_exps.weight"] = np.concatenate(both, axis=1)
            m.vector(b + "ffn_down_exps.scale", experts)
            m.vector(b + "ffn_gate_inp.scale", d)
            for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                m.vector(b + name + ".weight", d)
    return m


def build_gemma3n(seed, kinds, keys=None, streams=4, laurel=8, embedding=8, n_shared=0, n_cut=0, cut=1.6449, **numbers):
    """kinds: of each layer, whether it has a window; the gates of the first n_cut are cut."""
    m = Model("gemma3n", seed, layers=len(kinds), base=1000000.0, **dict(dict(hd=32, ff=64, peak=1.0, eps=1e-6), **numbers))
    n = m.n
    n["window_hd"] = n["hd"]
    d, ff, hd = n["d"], n["ff"], n["hd"]
    m.keys.update({"attention.sliding_window": 16, "attention.sliding_window_pattern": kinds, "attention.shared_kv_layers": n_shared,
                   "embedding_length_per_layer_input": embedding, "altup.num_inputs": streams, "altup.active_idx": 0,
                   "activation_sparsity_scale": [cut if il < n_cut else -math.inf for il in range(len(kinds))]})
    m.keys.update(keys or {})
    m.matrix("token_embd.weight", n["vocab"], d, 1.5)
    m.vector("output_norm.weight", d)
    m.matrix("per_layer_token_embd.weight", n["vocab"], len(kinds) * embedding)
    m.matrix("per_layer_model_proj.weight", len(kinds) * embedding, d)
    m.vector("per_layer_proj_norm.weight", embedding)
    for name in ("altup_proj", "altup_unembd_proj"):
        m.matrix(name + ".weight", (streams - 1) * d, d)
    for il in range(len(kinds)):
        b = f"blk.{il}."
        for name in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "post_norm", "laurel_post_norm", "altup_router_norm",
                     "altup_correct_scale"):
            m.vector(b + name + ".weight", d)
        m.matrix(b + "attn_q.weight", n["heads"] * hd, d)
        m.vector(b + "attn_q_norm.weight", hd, n["peak"])
        if il < len(kinds) - n_shared:
            m.matrix(b + "attn_k.weight", n["kv"] * hd, d)
            m.matrix(b + "attn_v.weight", n["kv"] * hd, d)
            m.vector(b + "attn_k_norm.weight", hd, n["peak"])
        m.matrix(b + "attn_output.weight", d, n["heads"] * hd)
        m.matrix(b + "ffn_gate.weight", ff, d, 2.0)
        m.matrix(b + "ffn_up.weight", ff, d)
        m.matrix(b + "ffn_down.weight", d, ff)
        m.matrix(b + "inp_gate.weight", embedding, d, 2.0)
        m.matrix(b + "proj.weight", d, embedding)
        m.matrix(b + "laurel_l.weight", laurel, d)
        m.matrix(b + "laurel_r.weight", d, laurel)
        m.matrix(b + "altup_router.weight", streams, d, 3.0 * math.sqrt(d))  # scores are divided by d
        m.matrix(b + "altup_predict_coef.weight", streams * streams, streams, 0.4)
        m.matrix(b + "altup_correct_coef.weight", streams, streams, 0.6)
    return m


def build_lfm2(arch, seed, kinds, keys=None, experts=0, taps=3, **numbers):
    """kinds: of each layer, whether it attends; else it is a convolution."""
    m = build(arch, seed, keys, head_norms="each", experts=experts, **dict(dict(layers=len(kinds), hd=32, peak=1.0), **numbers)) \
        if experts else build(arch, seed, keys, head_norms="each", **dict(dict(layers=len(kinds), hd=32, peak=1.0), **numbers))
    d = m.n["d"]
    m.tensors["token_embd_norm.weight"] = m.tensors.pop("output_norm.weight")
    m.keys["shortconv.l_cache"] = taps
    m.n["kv"] = [m.n["kv"] if attends else 0 for attends in kinds]
    for il, attends in enumerate(kinds):
        b = f"blk.{il}."
        if attends:
            continue
        for name in [name for name in m.tensors if name.startswith(b + "attn_") and "attn_norm" not in name]:
            del m.tensors[name]
        m.matrix(b + "shortconv.in_proj.weight", 3 * d, d)
        m.matrix(b + "shortconv.conv.weight", d, taps, 2.0)
        m.matrix(b + "shortconv.out_proj.weight", d, d)
    return m


def build_delta(arch, seed, kinds, keys=None, key_heads=2, heads=4, state=16, taps=4, **numbers):
    """kinds: of each layer, whether it attends; else it is a gated delta net, of so many heads of state x state numbers."""
    m = build(arch, seed, keys, head_norms="each", **dict(dict(layers=len(kinds), hd=32, rot=8, peak=1.0, eps=1e-6), **numbers))
    d, channels = m.n["d"], (2 * key_heads + heads) * state
    m.n.update(key_heads=key_heads, state_heads=heads, state=state)
    m.keys.update({"ssm.conv_kernel": taps, "ssm.state_size": state, "ssm.group_count": key_heads, "ssm.time_step_rank": heads,
                   "ssm.inner_size": heads * state})
    if kinds != [(il + 1) % 4 == 0 for il in range(len(kinds))]:
        m.keys["attention.recurrent_layers"] = [not attends for attends in kinds]
    for il, attends in enumerate(kinds):
        b = f"blk.{il}."
        if attends:
            m.matrix(b + "attn_q.weight", 2 * m.n["heads"] * m.n["hd"], d, m.n["peak"])
            continue
        for name in [name for name in m.tensors if name.startswith(b + "attn_") and "attn_norm" not in name]:
            del m.tensors[name]
        m.matrix(b + "attn_qkv.weight", channels, d, 1.5)
        m.matrix(b + "attn_gate.weight", heads * state, d, 1.5)
        if arch in TILED:
            m.matrix(b + "ssm_beta.weight", heads, d, 1.5)
            m.matrix(b + "ssm_alpha.weight", heads, d, 1.5)
        else:
            m.matrix(b + "ssm_ba.weight", 2 * heads, d, 1.5)
        m.matrix(b + "ssm_conv1d.weight", channels, taps, 2.0)
        m.tensors[b + "ssm_a"] = -np.exp(m.rng.uniform(-3, 1, heads)).astype(np.float32)
        m.vector(b + "ssm_dt.bias", heads, -1.0, 1.0)
        m.vector(b + "ssm_norm.weight", state)
        m.matrix(b + "ssm_out.weight", d, heads * state)
    return m


def add_mamba(m, b, heads, head, state, groups, taps):
    """Mamba-2: heads of state x head numbers, whose keys and queries are of groups."""
    d, inner = m.n["d"], heads * head
    channels = inner + 2 * groups * state
    m.matrix(b + "ssm_in.weight", inner + channels + heads, d, 1.5)
    m.matrix(b + "ssm_conv1d.weight", channels, taps, 2.0)
    m.vector(b + "ssm_conv1d.bias", channels, 0.0, 0.5)
    m.tensors[b + "ssm_a"] = -np.exp(m.rng.uniform(-3, 1, (heads, 1))).astype(np.float32)
    m.tensors[b + "ssm_d"] = m.rng.uniform(0.5, 1.5, (heads, 1)).astype(np.float32)
    m.vector(b + "ssm_dt.bias", heads, -1.0, 1.0)
    m.tensors[b + "ssm_norm.weight"] = (1 + m.rng.uniform(-0.3, 0.3, (groups, inner // groups))).astype(np.float32)
    m.matrix(b + "ssm_out.weight", d, inner)


def mamba_keys(heads, head, state, groups, taps):
    return {"ssm.conv_kernel": taps, "ssm.state_size": state, "ssm.group_count": groups, "ssm.time_step_rank": heads,
            "ssm.inner_size": heads * head}


def build_granitehybrid(seed, kinds, keys=None, heads=8, head=16, state=16, groups=1, taps=4, **numbers):
    """kinds: of each layer, whether it attends; else it is Mamba-2."""
    m = build("granitehybrid", seed, keys, layers=len(kinds), **numbers)
    m.keys.update(mamba_keys(heads, head, state, groups, taps))
    m.n.update(state_heads=heads, groups=groups, state=state, kv=[m.n["kv"] if attends else 0 for attends in kinds])
    for il, attends in enumerate(kinds):
        if attends:
            continue
        for name in [name for name in m.tensors if name.startswith(f"blk.{il}.attn_") and "attn_norm" not in name]:
            del m.tensors[name]
        add_mamba(m, f"blk.{il}.", heads, head, state, groups, taps)
    return m


def build_falcon_h1(seed, keys=None, heads=4, head=16, state=16, groups=1, taps=4, normed=False, **numbers):
    """Each layer attends and has Mamba-2 beside it."""
    m = build("falcon-h1", seed, keys, **dict(dict(hd=32, layers=3, tied=False), **numbers))
    m.keys.update(mamba_keys(heads, head, state, groups, taps))
    m.n.update(state_heads=heads, groups=groups, state=state)
    for il in range(m.n["layers"]):
        b = f"blk.{il}."
        add_mamba(m, b, heads, head, state, groups, taps)
        if not normed:
            del m.tensors[b + "ssm_norm.weight"]
        m.n["is_bare"] = not normed
        m.tensors[b + "ffn_norm"] = m.tensors.pop(b + "ffn_norm.weight")
    return m


def build_nemotron(arch, seed, kinds, keys=None, heads=8, head=16, state=16, groups=2, taps=4, experts=0, **numbers):
    """kinds: of each layer, M for Mamba-2, * for attention, - for a network, E for experts."""
    m = Model(arch, seed, layers=len(kinds), **dict(dict(hd=32), **numbers))
    n = m.n
    d, ff, q, k = n["d"], n["ff"], n["heads"] * n["hd"], n["kv"] * n["hd"]
    m.keys.update(mamba_keys(heads, head, state, groups, taps) | (keys or {}))
    n.update(state_heads=heads, groups=groups, state=state, experts=experts)
    m.matrix("token_embd.weight", n["vocab"], d, math.sqrt(d) * 0.3)
    m.vector("output_norm.weight", d)
    m.matrix("output.weight", n["vocab"], d, 2.0)
    n["kv"] = [n["kv"] if kind == "*" else 0 for kind in kinds]
    n["ffs"] = [{"-": n.get("expert_ff", ff), "E": n.get("expert_ff", ff)}.get(kind, 0) for kind in kinds]
    for il, kind in enumerate(kinds):
        b = f"blk.{il}."
        m.vector(b + "attn_norm.weight", d)
        if kind == "M":
            add_mamba(m, b, heads, head, state, groups, taps)
        elif kind == "*":
            for name, rows, cols, scale in (("q", q, d, n["peak"]), ("k", k, d, n["peak"]), ("v", k, d, 1.0), ("output", d, q, 1.0)):
                m.matrix(b + f"attn_{name}.weight", rows, cols, scale)
        elif kind == "-":
            m.matrix(b + "ffn_up.weight", ff, d, 2.0)
            m.matrix(b + "ffn_down.weight", d, ff)
        else:
            add_experts(m, b, experts, n["expert_ff"], ("select",))
            for name in ("ffn_gate_exps", "ffn_gate_shexp"):
                del m.tensors[b + name + ".weight"]
    return m


def build_mamba2(seed, keys=None, heads=8, head=16, state=16, groups=1, taps=4, **numbers):
    """Each layer is Mamba-2, and nothing else."""
    m = Model("mamba2", seed, **dict(dict(layers=3, heads=0, kv=0, ff=0), **numbers))
    m.keys.update(mamba_keys(heads, head, state, groups, taps) | (keys or {}))
    m.n.update(state_heads=heads, groups=groups, state=state)
    m.matrix("token_embd.weight", m.n["vocab"], m.n["d"], math.sqrt(m.n["d"]) * 0.3)
    m.vector("output_norm.weight", m.n["d"])
    for il in range(m.n["layers"]):
        m.vector(f"blk.{il}.attn_norm.weight", m.n["d"])
        add_mamba(m, f"blk.{il}.", heads, head, state, groups, taps)
    return m


HALVED = {"nemotron_h", "nemotron_h_moe", "mamba2"}  # layers have one half
HALVED_UNROTATED = HALVED  # and their attention no positions
TILED = {"qwen35", "qwen35moe"}  # heads of state have the key heads in turn
GATED = {"qwen35", "qwen35moe", "qwen3next"}  # attention's output
HALVES = {"qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3", "olmo2", "seed_oss", "qwen2moe", "gpt-oss", "glm4moe",
          "hunyuan-dense", "hunyuan-moe", "exaone4", "starcoder2", "stablelm", "phimoe", "falcon-h1", "minicpm3"}
WINDOW_PATTERN = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gemma4": 6, "olmo2": 4, "gpt-oss": 2, "exaone4": 4, "cohere2": 4, "llama4": 4}
WINDOW = {"gemma2": 4096, "llama4": 8192}  # where the file names none
LAYER_NORMED = {"command-r", "cohere2", "starcoder2", "stablelm", "phimoe"}
PRE2_POST = {"qwen35", "qwen35moe", "qwen3next", "gpt-oss", "seed_oss", "glm4moe"}  # where post_attention_norm is the norm before the network
NORM_AFTER_ROPE = {"hunyuan-dense", "hunyuan-moe"}
UNROTATED_GLOBAL = {"exaone4", "cohere2", "llama4"}
LOGIT_FACTOR = {"command-r", "cohere2"}


def rms(x, w, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w


def sigmoid(x):
    return 1 / (1 + np.exp(-np.maximum(x, -500.0)))


class Forward:
    """The logits of all positions of one prompt."""

    def __init__(self, model):
        self.m = model
        self.t = {name: x.astype(np.float64) for name, x in model.tensors.items()}

    def key(self, name, default):
        return self.m.keys.get(name, default)

    def is_windowed(self, il):
        arch, pattern = self.m.arch, self.key("attention.sliding_window_pattern", None)
        if arch in ("phi3", "phimoe"):  # a window without a pattern is ignored, as by all who run such files
            return pattern is not None and self.window() > 0
        if arch not in WINDOW_PATTERN or self.window() == 0:
            return False
        if isinstance(pattern, list):
            return pattern[il]
        n = WINDOW_PATTERN[arch] if pattern is None else pattern
        return n == 0 or il % n < n - 1

    def window(self):
        return self.key("attention.sliding_window", WINDOW.get(self.m.arch, 0))

    def unseen(self, at):
        """[query][key] of a layer with a window: what lies before it, or before the chunk that the query is in."""
        if self.m.arch == "llama4":
            return at[:, None] // self.window() != at[None, :] // self.window()
        return at[:, None] - at[None, :] >= self.window()

    def unit_heads(self, x):
        """By the root mean square, without a weight."""
        if self.m.arch != "llama4" or not self.key("attention.norms_heads", self.m.n.get("experts", 0) != 128):
            return x
        return rms(x, 1.0, self.m.n["eps"])

    def temperature(self, at):
        """What queries of layers that are not rotated are multiplied by."""
        if self.m.arch != "llama4":
            return np.ones(len(at))
        every = self.key("attention.temperature_length", 8192)
        return 1 + self.key("attention.temperature_scale", 0.1) * np.log(1 + (at + 1) // every)

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
        if arch in ("phi3", "phimoe", "minicpm3") or kind == "longrope":
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

        if arch == "gpt-oss":
            low, high = max(0, place(fast)), min(rot - 1, place(slow))
        else:
            low, high = max(0, math.floor(place(fast))), min(rot - 1, math.ceil(place(slow)))
        ramp = 1 - np.clip((np.arange(rot // 2) - low) / max(0.001, high - low), 0, 1)
        if arch == "deepseek2":
            return f * ((1 - ramp) / factor + ramp), amplitude
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
        own = self.key("attention.scale", 0.0) if arch in ("llama", "granite", "granitemoe", "granitehybrid", "gemma2", "gemma3", *HALVED) else 0.0
        if not own and (arch, n["layers"]) in (("gemma2", 46), ("gemma3", 62)):
            return 1 / math.sqrt(n["d"] / n["heads"])
        return own or 1 / math.sqrt(n["hd"])

    def latent_attention(self, b, il, h):
        """With keys and values of every head: the form that is not absorbed."""
        n = self.m.n
        heads, plain, rank = n["heads"], n["plain"], n["rank"]
        if b + "attn_q_a.weight" in self.t:
            q = self.linear(b + "attn_q_b", self.norm(b + "attn_q_a_norm", self.linear(b + "attn_q_a", h)))
        else:
            q = self.linear(b + "attn_q", h)
        q = q.reshape(len(h), heads, plain + n["rot"])
        z = self.linear(b + "attn_kv_a_mqa", h)
        c, pe = self.norm(b + "attn_kv_a_norm", z[:, :rank]), self.rope(z[:, None, rank:], il)
        if b + "attn_kv_b.weight" in self.t:
            k, v = np.split(self.linear(b + "attn_kv_b", c).reshape(len(h), heads, -1), [plain], axis=2)
        else:
            k = np.einsum("jr,hrn->jhn", c, self.t[b + "attn_k_b.weight"])
            v = np.einsum("jr,hvr->jhv", c, self.t[b + "attn_v_b.weight"])
        s = np.einsum("ihn,jhn->hij", q[..., :plain], k) + \
            np.einsum("ihn,jn->hij", self.rope(q[..., plain:], il), pe[:, 0])
        factor = self.key("rope.scaling.factor", 1.0)
        s *= (1 + self.key("rope.scaling.yarn_log_multiplier", 0.0) * math.log(factor)) ** 2 / math.sqrt(plain + n["rot"])
        at = np.arange(len(h))
        s = np.where(at[:, None] < at[None, :], -np.inf, s)
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return self.linear(b + "attn_output", np.einsum("hij,jhv->ihv", p, v).reshape(len(h), -1))

    def convolution(self, b, h):
        gate, out_gate, x = np.split(self.linear(b + "shortconv.in_proj", h), 3, axis=1)
        taps = self.t[b + "shortconv.conv.weight"]
        n_taps = taps.shape[1]
        rows = np.concatenate([np.zeros((n_taps - 1, x.shape[1])), gate * x])
        y = sum(rows[t:t + len(h)] * taps[:, t] for t in range(n_taps))
        return self.linear(b + "shortconv.out_proj", out_gate * y)

    def unit(self, x):
        return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-6)

    def query_scale(self, dk):
        return 1 / math.sqrt(dk)

    def key_head(self, j):
        n = self.m.n
        return j % n["key_heads"] if self.m.arch in TILED else j // (n["state_heads"] // n["key_heads"])

    def delta_step(self, S, k, v, decay, beta):
        S = decay * S
        return S + np.outer(k, beta * (v - S.T @ k))

    def delta_output(self, o, z, w):
        return rms(o, w, self.m.n["eps"]) * z * sigmoid(z)

    def delta(self, b, h):
        """A gated delta net."""
        n, t = self.m.n, self.t
        hk, hv, dk = n["key_heads"], n["state_heads"], n["state"]
        x, taps = self.linear(b + "attn_qkv", h), t[b + "ssm_conv1d.weight"]
        rows = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1])), x])
        u = self.convolved(sum(rows[i:i + len(h)] * taps[:, i] for i in range(taps.shape[1])))
        q, k, v = np.split(u, [hk * dk, 2 * hk * dk], axis=1)
        q, k = (self.unit(y.reshape(len(h), hk, dk)) for y in (q, k))
        q, v = q * self.query_scale(dk), v.reshape(len(h), hv, dk)
        if b + "ssm_ba.weight" in t:
            ba = self.linear(b + "ssm_ba", h).reshape(len(h), hk, 2, hv // hk)
            beta, alpha = ba[:, :, 0].reshape(len(h), hv), ba[:, :, 1].reshape(len(h), hv)
        else:
            beta, alpha = self.linear(b + "ssm_beta", h), self.linear(b + "ssm_alpha", h)
        g = t[b + "ssm_a"] * np.logaddexp(0, alpha + t.get(b + "ssm_dt.bias", 0.0))
        o = np.zeros((len(h), hv, dk))
        for j in range(hv):
            S = np.zeros((dk, dk))
            for i in range(len(h)):
                S = self.delta_step(S, k[i, self.key_head(j)], v[i, j], np.exp(g[i, j]), sigmoid(beta[i, j]))
                o[i, j] = q[i, self.key_head(j)] @ S
        z = self.linear(b + "attn_gate", h).reshape(o.shape)
        return self.linear(b + "ssm_out", self.delta_output(o, z, t.get(b + "ssm_norm.weight", 1.0)).reshape(len(h), -1))

    def convolved(self, x):
        return x * sigmoid(x)

    def mamba_group(self, j):
        return j // (self.m.n["state_heads"] // self.m.n["groups"])

    def mamba_decay(self, a):
        return a

    def mamba_output(self, y, z, w):
        """y, z [tokens][inner]; w [groups][inner / groups]"""
        if w is None:
            return y * z * sigmoid(z)
        y = (y * z * sigmoid(z)).reshape(len(y), *np.shape(w))
        return rms(y, w, self.m.n["eps"]).reshape(len(y), -1)

    def mamba(self, b, h):
        """Mamba-2, one token after the other."""
        n, t = self.m.n, self.t
        heads, groups, state = n["state_heads"], n["groups"], n["state"]
        inner = t[b + "ssm_out.weight"].shape[1]
        z, x, dt = np.split(self.linear(b + "ssm_in", h), [inner, 2 * inner + 2 * groups * state], axis=1)
        taps = t[b + "ssm_conv1d.weight"]
        rows = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1])), x])
        u = self.convolved(sum(rows[i:i + len(h)] * taps[:, i] for i in range(taps.shape[1])) + t.get(b + "ssm_conv1d.bias", 0.0))
        x, B, C = np.split(u, [inner, inner + groups * state], axis=1)
        x, B, C = x.reshape(len(h), heads, -1), B.reshape(len(h), groups, state), C.reshape(len(h), groups, state)
        dt = np.logaddexp(0, dt + t.get(b + "ssm_dt.bias", 0.0))
        a, skip = self.mamba_decay(t[b + "ssm_a"][:, 0]), t[b + "ssm_d"][:, 0] if b + "ssm_d" in t else np.zeros(heads)
        y = np.zeros_like(x)
        for j in range(heads):
            S, g = np.zeros((x.shape[2], state)), self.mamba_group(j)
            for i in range(len(h)):
                S = np.exp(dt[i, j] * a[j]) * S + dt[i, j] * np.outer(x[i, j], B[i, g])
                y[i, j] = S @ C[i, g] + skip[j] * x[i, j]
        w = t.get(b + "ssm_norm.weight", None if n.get("is_bare") else np.ones((groups, inner // groups)))
        return self.linear(b + "ssm_out", self.mamba_output(y.reshape(len(h), -1), z, w))

    def gated_queries(self, q):
        """Queries, and what their heads' outputs are multiplied by."""
        q, gate = np.split(q.reshape(len(q), self.m.n["heads"], -1), 2, axis=2)
        return q.reshape(len(q), -1), sigmoid(gate).reshape(len(q), -1)

    def attention(self, b, il, h):
        if b + "ssm_in.weight" not in self.t:
            return self.attention_alone(b, il, h)
        mixed = self.mamba(b, h)
        if b + "attn_q.weight" not in self.t:
            return mixed
        return mixed + self.attention_alone(b, il, self.beside(h, mixed))

    def beside(self, h, mixed):
        """What attention reads beside a state."""
        return h

    def attention_alone(self, b, il, h):
        n, arch = self.m.n, self.m.arch
        if b + "ssm_ba.weight" in self.t or b + "ssm_beta.weight" in self.t:
            return self.delta(b, h)
        if b + "shortconv.conv.weight" in self.t:
            return self.convolution(b, h)
        if "rank" in n:
            return self.latent_attention(b, il, h)
        q, k, v = self.qkv(b, h)
        q, gate = self.gated_queries(q) if arch in GATED else (q, 1.0)
        late = arch in NORM_AFTER_ROPE
        q = self.head_norm("" if late else b + "attn_q_norm.weight", q, n["heads"])
        n_kv = n["kv"][il] if isinstance(n["kv"], list) else n["kv"]
        k = self.head_norm("" if late else b + "attn_k_norm.weight", k, n_kv)
        v = v.reshape(len(v), n_kv, n["hd"])
        unrotated = (arch == "smollm3" and (il + 1) % 4 == 0) or arch in HALVED_UNROTATED or \
                    (arch.startswith("granite") and not self.key("rope.scaling.finetuned", True)) or \
                    (arch in UNROTATED_GLOBAL and self.window() > 0 and not self.is_windowed(il))
        if not unrotated:
            q, k = self.unit_heads(self.rope(q, il)), self.unit_heads(self.rope(k, il))
        else:
            q = q * self.temperature(np.arange(len(q)))[:, None, None]
        if late:
            q = self.head_norm(b + "attn_q_norm.weight", q, n["heads"])
            k = self.head_norm(b + "attn_k_norm.weight", k, n_kv)
        at = np.arange(len(h))
        if arch == "mistral3":
            rise = self.key("attention.temperature_scale", 0.0)
            every = self.key("rope.scaling.original_context_length", n["ctx"])
            q = q * (1 + rise * np.log(1 + at // every))[:, None, None]
        k, v = (np.repeat(x, n["heads"] // n_kv, axis=1) for x in (k, v))
        s = np.einsum("ihd,jhd->hij", q, k) * self.scale()
        cap = self.key("attn_logit_softcapping", 50.0 if arch == "gemma2" else 0.0)
        if cap > 0 and arch == "gemma2":
            s = cap * np.tanh(s / cap)
        far = at[:, None] - at[None, :]
        hidden = (far < 0) | (self.unseen(at) if self.is_windowed(il) else False)
        s = np.where(hidden, -np.inf, s)
        if b + "attn_sinks.weight" in self.t:
            sink = np.broadcast_to(self.t[b + "attn_sinks.weight"][:, None, None], s.shape[:2] + (1,))
            s = np.concatenate([s, sink], axis=-1)
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        p = (p / p.sum(axis=-1, keepdims=True))[..., :len(h)]
        y = np.einsum("hij,jhd->ihd", p, v).reshape(len(h), -1)
        return self.linear(b + "attn_output", y * gate)

    def routing(self):
        """(what the router's scores become, whether the shares are divided by their sum)"""
        arch = self.m.arch
        default = {"qwen2moe": ("softmax", False), "glm4moe": ("sigmoid", False), "deepseek2": ("softmax", False), "lfm2moe": ("sigmoid", True),
                   "ernie4_5-moe": ("softmax", True), "nemotron_h_moe": ("sigmoid", False)}
        kind, renorm = default.get(arch, ("softmax", True))
        kind = {0: kind, 1: "softmax", 2: "sigmoid"}[self.key("expert_gating_func", 0)]
        return kind, self.key("expert_weights_norm", renorm)

    def near(self, scores, most):
        """Which scores the share of the best is among."""
        return ~((most - scores) / np.maximum(np.abs(scores), most) > 0.02)

    def shares_one_by_one(self, scores):
        left, chosen, shares = np.ones(len(scores), bool), [], []
        for _ in range(self.key("expert_used_count", 0)):
            most = scores[left].max()
            p = np.where(left & self.near(scores, most), np.exp(scores - most), 0.0)
            chosen.append(int(np.argmax(np.where(left, scores, -np.inf))))
            shares.append(p[chosen[-1]] / p.sum())
            left[chosen[-1]] = False
        return chosen, np.array(shares)

    def shares(self, b, scores):
        """The experts of one token, and their shares."""
        if self.m.arch == "phimoe":
            return self.shares_one_by_one(scores)
        if self.m.arch == "llama4":
            chosen = np.argsort(-scores, kind="stable")[:self.key("expert_used_count", 0)]
            return chosen, sigmoid(scores[chosen])
        kind, renorm = self.routing()
        p = sigmoid(scores) if kind == "sigmoid" else np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        merit = p + self.t.get(b + "exp_probs_b.bias", 0.0)
        groups = self.key("expert_group_count", 0)
        if groups > 1:
            best = np.sort(merit.reshape(groups, -1), axis=1)[:, -2:].sum(axis=1)
            used = np.argsort(-best, kind="stable")[:self.key("expert_group_used_count", 0)]
            merit = np.where(np.isin(np.arange(len(merit)) // (len(merit) // groups), used), merit, -np.inf)
        chosen = np.argsort(-merit, kind="stable")[:self.key("expert_used_count", 0)]
        share = p[chosen] / (p[chosen].sum() if renorm else 1.0)
        return chosen, share * (self.key("expert_weights_scale", 0.0) or 1.0)

    def activated(self, gate, up):
        arch = self.m.arch
        if arch == "gpt-oss":
            gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
            return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
        if arch in HALVED:
            return np.maximum(gate, 0.0) ** 2 * up
        if arch.startswith("gemma") or arch == "starcoder2":
            return 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3))) * up
        return gate / (1 + np.exp(-np.maximum(gate, -500.0))) * up

    def weighed(self, row, share):
        """What an expert reads, and what its output is multiplied by."""
        return (row * share, 1.0) if self.m.arch == "llama4" else (row, share)

    def experts(self, b, h):
        """Softmax, the best few, renormed, is the same as softmax over those."""
        scores = self.linear(b + "ffn_gate_inp", h)
        up, down = (self.t[b + f"ffn_{x}_exps.weight"] for x in ("up", "down"))
        gate = self.t.get(b + "ffn_gate_exps.weight", up)
        gate_bias, up_bias, down_bias = (self.t.get(b + f"ffn_{x}_exps.bias", np.zeros(len(gate)))
                                         for x in ("gate", "up", "down"))
        out = np.zeros_like(h)
        for i, row in enumerate(h):
            for e, share in zip(*self.shares(b, scores[i])):
                read, share = self.weighed(row, share)
                y = self.activated(gate[e] @ read + gate_bias[e], 1.0 if gate is up else up[e] @ read + up_bias[e])
                out[i] += share * (down[e] @ y + down_bias[e])
        assert self.m.n["experts"] == len(gate)
        if b + "ffn_up_shexp.weight" in self.t:
            up = self.linear(b + "ffn_up_shexp", h)
            y = self.activated(up, 1.0) if self.m.arch in HALVED else self.activated(self.linear(b + "ffn_gate_shexp", h), up)
            y = self.linear(b + "ffn_down_shexp", y)
            if b + "ffn_gate_inp_shexp.weight" in self.t:
                y = y * sigmoid(h @ self.t[b + "ffn_gate_inp_shexp.weight"])[:, None]
            out = out + y
        return out

    def network(self, b, h):
        if b + "ffn_gate_inp.weight" in self.t:
            return self.experts(b, h)
        up = self.linear(b + "ffn_up", h)
        if b + "ffn_gate.weight" in self.t:
            gate = self.linear(b + "ffn_gate", h)
        elif self.m.arch == "starcoder2" or self.m.arch in HALVED:
            gate, up = up, 1.0
        else:
            gate, up = np.split(up, 2, axis=1)
        return self.linear(b + "ffn_down", self.activated(gate, up))

    def norm(self, name, x):
        """name + .weight, and .bias; none where the model has no such norm."""
        if name in self.t:  # Falcon's
            return rms(x, self.t[name], self.m.n["eps"])
        if name + ".weight" not in self.t:
            return x
        if self.m.arch in LAYER_NORMED:
            x = x - x.mean(axis=-1, keepdims=True)
            y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.m.n["eps"]) * self.t[name + ".weight"]
            return y + self.t.get(name + ".bias", 0.0)
        return rms(x, self.t[name + ".weight"], self.m.n["eps"])

    def gemma4_attention(self, b, il, h, kv):
        """kv: of each layer so far, its keys and values."""
        n, eps = self.m.n, self.m.n["eps"]
        windowed = self.is_windowed(il)
        hd, heads = n["window_hd" if windowed else "hd"], n["heads"]
        first_shared = n["layers"] - self.key("attention.shared_kv_layers", 0)
        q = self.gemma4_rope(self.gemma4_norm(b + "attn_q_norm", self.linear(b + "attn_q", h).reshape(len(h), heads, hd)), windowed)
        if il < first_shared:
            k = self.linear(b + "attn_k", h).reshape(len(h), -1, hd)
            v = self.linear(b + "attn_v", h).reshape(k.shape) if b + "attn_v.weight" in self.t else k
            kv.append((self.gemma4_rope(self.gemma4_norm(b + "attn_k_norm", k), windowed), self.gemma4_values(v, eps)))
            source = il
        else:
            source = max(j for j in range(first_shared) if self.is_windowed(j) == windowed)
        k, v = (np.repeat(x, heads // x.shape[1], axis=1) for x in kv[source])
        s = np.einsum("ihd,jhd->hij", q, k) * self.gemma4_scale(hd)
        at = np.arange(len(h))
        far = at[:, None] - at[None, :]
        s = np.where((far < 0) | ((far >= self.window()) if windowed else False), -np.inf, s)
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return self.linear(b + "attn_output", np.einsum("hij,jhd->ihd", p, v).reshape(len(h), -1))

    def gemma4_norm(self, name, x):
        return rms(x, self.t[name + ".weight"], self.m.n["eps"]) if name + ".weight" in self.t else x

    def gemma4_values(self, v, eps):
        return rms(v, 1.0, eps)

    def gemma4_scale(self, hd):
        return 1.0

    def gemma4_rope(self, x, windowed):
        half = x.shape[-1] // 2
        base = self.key("rope.freq_base_swa", 10000.0) if windowed else self.m.n["base"]
        f = base ** (-np.arange(half) / half)
        if not windowed:
            f = f / self.t.get("rope_freqs.weight", 1.0)
        angle = np.arange(len(x))[:, None, None] * f
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], axis=-1)

    def gemma4_experts(self, b, x):
        h, d = self.gemma4_norm(b + "pre_ffw_norm_2", x), self.m.n["d"]
        scores = (rms(x, self.t.get(b + "ffn_gate_inp.scale", 1.0), self.m.n["eps"]) / math.sqrt(d)) @ self.t[b + "ffn_gate_inp.weight"].T
        out = np.zeros_like(x)
        for i, row in enumerate(h):
            for e, share in zip(*self.shares(b, scores[i])):
                gate, up = np.split(self.t[b + "ffn_gate_up_exps.weight"][e] @ row, 2)
                share = share * (self.t[b + "ffn_down_exps.scale"][e] if b + "ffn_down_exps.scale" in self.t else 1.0)
                out[i] += share * (self.t[b + "ffn_down_exps.weight"][e] @ self.activated(gate, up))
        return self.gemma4_norm(b + "post_ffw_norm_2", out)

    def cut(self, gate, times):
        """What of a gate lies so many standard deviations above its mean."""
        return np.maximum(gate - gate.mean(axis=-1, keepdims=True) - times * gate.std(axis=-1, keepdims=True), 0.0) if np.isfinite(times) else gate

    def stream_scores(self, b, x):
        return np.tanh(self.linear(b + "altup_router", self.gemma4_norm(b + "altup_router_norm", x)) / x.shape[1])

    def resized(self, x, size):
        return x * size / np.sqrt(np.maximum((x * x).mean(axis=-1, keepdims=True), 1e-5))

    def predicted(self, b, X):
        c = (self.stream_scores(b, X[0]) @ self.t[b + "altup_predict_coef.weight"].T).reshape(X.shape[1], len(X), len(X))
        return X + np.einsum("tji,itd->jtd", c, X)

    def corrected(self, b, P, y):
        return P + (1 + self.stream_scores(b, y) @ self.t[b + "altup_correct_coef.weight"].T).T[:, :, None] * (y - P[0])

    def laurel(self, b, h):
        return h + self.gemma4_norm(b + "laurel_post_norm", self.linear(b + "laurel_r", self.linear(b + "laurel_l", h)))

    def gemma3n_hidden(self, ids):
        n, streams = self.m.n, self.key("altup.num_inputs", 4)
        x = self.t["token_embd.weight"][ids] * math.sqrt(n["d"])
        own = self.own_embeddings(ids, x)
        size = np.sqrt((x * x).mean(axis=-1, keepdims=True))
        to, back = (self.t[f"altup_{name}.weight"].reshape(streams - 1, n["d"], n["d"]) for name in ("proj", "unembd_proj"))
        X, kv = np.array([x] + [self.resized(x @ w.T, size) for w in to]), []
        for il in range(n["layers"]):
            b = f"blk.{il}."
            P = self.predicted(b, X)
            h = self.norm(b + "attn_norm", P[0])
            a = self.norm(b + "post_attention_norm", self.gemma4_attention(b, il, h, kv))
            s = (P[0] + a + self.laurel(b, h)) * math.sqrt(0.5)
            h = self.norm(b + "ffn_norm", s)
            gate = self.cut(self.linear(b + "ffn_gate", h), self.key("activation_sparsity_scale", [-math.inf] * n["layers"])[il])
            y = s + self.norm(b + "post_ffw_norm", self.linear(b + "ffn_down", self.activated(gate, self.linear(b + "ffn_up", h))))
            X = self.corrected(b, P, y)
            gate = self.activated(self.linear(b + "inp_gate", X[0] * self.t.get(b + "altup_correct_scale.weight", 1.0)), own[:, il])
            X[1:] += self.gemma4_norm(b + "post_norm", self.linear(b + "proj", gate))
        size = np.sqrt((X[0] * X[0]).mean(axis=-1, keepdims=True))
        return self.norm("output_norm", (X[0] + sum(self.resized(x @ w.T, size) for x, w in zip(X[1:], back))) / streams)

    def own_embeddings(self, ids, x):
        """[token][layer][width]"""
        n, width = self.m.n, self.key("embedding_length_per_layer_input", 0)
        own = (self.t["per_layer_token_embd.weight"][ids] * math.sqrt(width)).reshape(len(ids), n["layers"], width)
        context = (x @ self.t["per_layer_model_proj.weight"].T / math.sqrt(n["d"])).reshape(own.shape)
        return (own + self.gemma4_norm("per_layer_proj_norm", context)) * math.sqrt(0.5)

    def gemma4_hidden(self, ids):
        n = self.m.n
        x = self.t["token_embd.weight"][ids] * math.sqrt(n["d"])
        kv, width = [], self.key("embedding_length_per_layer_input", 0)
        if width:
            own = self.own_embeddings(ids, x)
        for il in range(n["layers"]):
            b = f"blk.{il}."
            a = self.gemma4_attention(b, il, self.norm(b + "attn_norm", x), kv)
            x = x + self.norm(b + "post_attention_norm", a)
            h = self.norm(b + "ffn_norm", x)
            f = self.linear(b + "ffn_down", self.activated(self.linear(b + "ffn_gate", h), self.linear(b + "ffn_up", h)))
            if b + "ffn_gate_inp.weight" in self.t:
                f = self.gemma4_norm(b + "post_ffw_norm_1", f) + self.gemma4_experts(b, x)
            x = x + self.norm(b + "post_ffw_norm", f)
            if width:
                gate = self.activated(self.linear(b + "inp_gate", x), own[:, il])
                x = x + self.gemma4_norm(b + "post_norm", self.linear(b + "proj", gate))
            x = x * self.t.get(b + "layer_output_scale.weight", 1.0)
        return self.norm("output_norm", x)

    def hidden(self, ids):
        n, arch = self.m.n, self.m.arch
        if arch == "gemma4":
            return self.gemma4_hidden(ids)
        if arch == "gemma3n":
            return self.gemma3n_hidden(ids)
        of_depth = arch == "minicpm3"
        scale = math.sqrt(n["d"]) if arch.startswith("gemma") else self.key("embedding_scale", 12.0 if of_depth else 1.0)
        residual = self.key("residual_scale", 1.4 / math.sqrt(n["layers"]) if of_depth else 1.0)
        x = self.t["token_embd.weight"][ids] * scale
        for il in range(n["layers"]):
            b = f"blk.{il}."
            h = self.norm(b + "attn_norm", x)
            if arch in HALVED:
                mixes = b + "ssm_in.weight" in self.t or b + "attn_q.weight" in self.t
                x = x + (self.attention(b, il, h) if mixes else self.network(b, h))
                continue
            a, f = self.attention(b, il, h), None
            if b + "ffn_norm.weight" not in self.t and arch in LAYER_NORMED:
                f = self.network(b, h)  # in parallel
            x = x + residual * (a if arch in PRE2_POST else self.norm(b + "post_attention_norm", a))
            if f is None:
                pre2 = "post_attention_norm" if arch in PRE2_POST else "ffn_norm"
                f = self.network(b, self.norm(b + pre2, x))
            x = x + residual * self.norm(b + "post_ffw_norm", f)
        return self.norm("token_embd_norm" if arch.startswith("lfm2") else "output_norm", x)

    def logits(self, ids):
        return self.logits_of(self.hidden(ids))

    def logits_of(self, hidden):
        arch = self.m.arch
        head = self.t.get("output.weight", self.t["token_embd.weight"])
        y = hidden @ head.T
        if "output.bias" in self.t:
            y = y + self.t["output.bias"]
        if arch.startswith("granite") or arch.startswith("minicpm"):
            y = y / self.key("logit_scale", self.m.n["d"] / 256 if arch == "minicpm3" else 1.0)
        if arch in LOGIT_FACTOR:
            y = y * self.key("logit_scale", 1.0)
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
        "gemma4": build_gemma4(51, ([True] * 4 + [False]) * 2, {"final_logit_softcapping": 30.0}, embedding=8, n_shared=5, wide=True,
                               kv=1, ff=64, peak=0.7, spread=2.0),
        "gemma4_experts": build_gemma4(52, [True, False, True, False], {
            "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32, "final_logit_softcapping": 10.0,
            "rope.freq_base_swa": 5000.0}, experts=8, expert_ff=32, kv=1, own_values=False, rotated=0.5),
        "gemma4_wide_heads": build_gemma4(53, [True, False, True], hd=512, window_hd=256, heads=2, kv=1, window_kv=1, d=64, ff=64,
                                          embedding=16),
        # more layers, or sharper attention, make of the rounding of weights more than the tolerance
        "gemma3n": build_gemma3n(81, [True, True, False] * 2, {"final_logit_softcapping": 30.0}, n_shared=3, n_cut=2, peak=0.5),
        "gemma3n_narrow": build_gemma3n(82, [True, False, True], {"rope.freq_base_swa": 5000.0, "attention.sliding_window": 30}, streams=3,
                                        laurel=20, embedding=16, hd=24, kv=1, heads=3, d=96, n_cut=3, cut=0.4),
        "gemma3n_two": build_gemma3n(83, [False, True], streams=2, laurel=64, embedding=32, hd=256, heads=2, kv=1, d=64),
        "lfm2": build_lfm2("lfm2", 54, [False, False, True, False, False, True]),
        "lfm2_bare": build_lfm2("lfm2", 85, [False, False], taps=8, d=72),  # no layer attends
        "lfm2_last": build_lfm2("lfm2", 55, [True, False, False], {}, taps=4, kv=1, hd=24, d=96),
        "lfm2moe": build_lfm2("lfm2moe", 56, [False, False, True, False], {
            "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 40, "leading_dense_block_count": 1},
            experts=8, expert_ff=40, bias=("select",)),
        "qwen35": build_delta("qwen35", 57, [False, False, False, True]),
        "qwen35_last": build_delta("qwen35", 58, [True, False, False], key_heads=1, heads=3, state=40, taps=3, d=96, hd=24, rot=6),
        "qwen35_wide": build_delta("qwen35", 59, [False, True], key_heads=2, heads=2, state=128, d=64),
        "qwen35moe": build_delta("qwen35moe", 60, [False, False, False, True], {
            "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 48},
            experts=8, expert_ff=32, shared=48, bias=("shared",), tied=False),
        "qwen3next": build_delta("qwen3next", 61, [False, False, False, True, False], {
            "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 48,
            "full_attention_interval": 4, "attention.recurrent_layers": [True, True, True, False, True]},
            experts=8, expert_ff=32, shared=48, bias=("shared",), tied=False),
        "granitehybrid": build_granitehybrid(62, [False, False, True, False], {
            "attention.scale": 0.11, "embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.5, "rope.scaling.finetuned": False,
            "expert_count": 6, "expert_used_count": 3, "expert_shared_feed_forward_length": 40}, experts=6, shared=40, peak=1.0),
        # dense, rotated, with groups of heads, and a state as wide as those of real models
        "granitehybrid_dense": build_granitehybrid(63, [True, False], {
            "attention.scale": 0.2, "embedding_scale": 1.5, "residual_scale": 0.7, "logit_scale": 0.5}, groups=2, heads=6, head=24,
            state=128, taps=3),
        "falcon-h1": build_falcon_h1(69),
        "falcon-h1_normed": build_falcon_h1(70, heads=6, head=24, state=24, groups=2, taps=3, normed=True, kv=1, layers=2),
        "mamba2": build_mamba2(78),
        "mamba2_groups": build_mamba2(79, groups=2, heads=6, head=24, state=24, taps=3, layers=2, d=96),
        "mamba2_wide": build_mamba2(80, groups=2, heads=4, head=32, state=128, layers=2),
        "nemotron_h": build_nemotron("nemotron_h", 64, "M-*-M"),
        "nemotron_h_moe": build_nemotron("nemotron_h_moe", 65, "ME*-ME", {
            "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 40, "expert_shared_count": 1,
            "expert_shared_feed_forward_length": 56, "expert_weights_norm": True, "expert_weights_scale": 2.5},
            experts=8, expert_ff=40, shared=56, groups=4),
        "phi3": build("phi3", 16, {"attention.sliding_window": 17}, fused_qkv=True, fused_gate=True, tied=False),
        "phi3_long": with_factors(
            build("phi3", 17, {"rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": 1.19},
                  fused_qkv=True, fused_gate=True, hd=32, rot=24), rope_factors_long=(1, 9), rope_factors_short=(1, 2)),
        "phi3_short": with_factors(
            build("phi3", 18, {"rope.scaling.original_context_length": 256}, fused_qkv=True, fused_gate=True, hd=40,
                  rot=10), rope_factors_long=(1, 9), rope_factors_short=(1, 2)),
        "phimoe": build("phimoe", 67, {"expert_count": 8, "expert_used_count": 2}, bias=QKV + ("attn_output",), norm_bias=True,
                        out_bias=True, tied=False, experts=8, layers=3, peak=1.0),
        # its experts' scores are so alike that shares are among several
        "phimoe_long": with_factors(build("phimoe", 68, {
            "expert_count": 32, "expert_used_count": 2, "rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": 1.24},
            bias=QKV + ("attn_output",), norm_bias=True, experts=32, tied=False, layers=2, hd=32, kv=4),
            rope_factors_long=(1, 9), rope_factors_short=(1, 2)),
        "llama4": build("llama4", 71, {
            "expert_count": 4, "expert_used_count": 1, "expert_feed_forward_length": 40, "interleave_moe_layer_step": 2,
            "attention.sliding_window": 16, "attention.temperature_length": 16}, tied=False, experts=4, expert_ff=40, shared=40, hd=32,
            peak=1.0, layers=5),
        # as files are: chunks and temperature of 8192, and 128 experts whose heads are not normed; here the chunk is the context
        "llama4_128": build("llama4", 72, {"expert_count": 128, "expert_used_count": 2, "expert_feed_forward_length": 16},
                            tied=False, experts=128, expert_ff=16, shared=16, peak=1.0, d=64, kv=1),
        "llama4_pattern": build("llama4", 73, {
            "expert_count": 3, "expert_used_count": 1, "attention.sliding_window": 37, "attention.norms_heads": True,
            "attention.sliding_window_pattern": [False, True, True], "attention.temperature_scale": 0.4,
            "attention.temperature_length": 30}, tied=False, experts=3, shared=112, layers=3, heads=6, kv=3, hd=14, peak=1.0),
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
        "granitemoe": build("granitemoe", 28, {
            "attention.scale": 0.11, "embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.5, "expert_count": 6,
            "expert_used_count": 3}, experts=6, shared=40, peak=1.0),
        "minicpm": build("minicpm", 29, {"embedding_scale": 2.0, "residual_scale": 0.7, "logit_scale": 1.5}),
        "minicpm3": build("minicpm3", 74, {}, whole=True, rank=32, rot=8, plain=16, value=20, query_rank=24, peak=1.5),
        "minicpm3_long": with_factors(build("minicpm3", 75, {
            "embedding_scale": 3.0, "residual_scale": 0.6, "logit_scale": 0.4, "rope.scaling.original_context_length": 64,
            "rope.scaling.attn_factor": 1.19}, whole=True, rank=24, rot=16, plain=10, value=14, heads=5, kv=5, layers=2, peak=1.5),
            rope_factors_long=(1, 9), rope_factors_short=(1, 2)),
        "minicpm3_wide": build("minicpm3", 76, {}, whole=True, rank=256, rot=32, plain=64, value=64, query_rank=64, heads=2, layers=2,
                               d=128),
        "seed_oss": build("seed_oss", 30, bias=QKV, tied=False, hd=32),
        "qwen2moe": build("qwen2moe", 31, {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 40},
                          bias=QKV + ("shared",), tied=False, experts=8, expert_ff=40, shared=56),
        "gpt-oss": build("gpt-oss", 32, dict(YARN, **{
            "attention.sliding_window": 16, "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 48}),
            bias=QKV + ("attn_output", "sinks", "experts"), tied=False, experts=8, expert_ff=48, hd=32, base=150000.0),
        "gpt-oss_wide": build("gpt-oss", 33, {
            "attention.sliding_window": 30, "expert_count": 4, "expert_used_count": 4, "expert_feed_forward_length": 32},
            bias=QKV + ("attn_output", "sinks", "experts"), tied=False, experts=4, expert_ff=32, heads=8, kv=1, hd=64, layers=3),
        "glm4": build("glm4", 34, norms="around", bias=QKV, fused_gate=True, tied=False, hd=32, rot=16),
        "glm4moe": build("glm4moe", 35, {
            "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 40, "expert_shared_count": 1,
            "leading_dense_block_count": 1, "expert_weights_norm": True, "expert_weights_scale": 2.5},
            head_norms="each", bias=QKV + ("select",), tied=False, experts=8, expert_ff=40, shared=40, hd=32, rot=16),
        "glm4moe_groups": build("glm4moe", 36, {
            "expert_count": 12, "expert_used_count": 3, "expert_feed_forward_length": 40, "expert_shared_count": 1,
            "leading_dense_block_count": 1, "expert_group_count": 4, "expert_group_used_count": 2, "expert_gating_func": 1},
            bias=QKV + ("select",), tied=False, experts=12, expert_ff=40, shared=40, hd=32, rot=16, peak=1.0),
        "deepseek2": build("deepseek2", 48, dict(YARN, **{"rope.scaling.original_context_length": 32,
            "rope.scaling.yarn_log_multiplier": 0.1, "expert_count": 8, "expert_used_count": 2, "expert_group_count": 4,
            "expert_group_used_count": 2, "expert_feed_forward_length": 40, "expert_shared_count": 1,
            "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5}),
            bias=("select",), tied=False, experts=8, expert_ff=40, shared=40, rank=32, rot=8, plain=16, value=20, query_rank=24,
            peak=1.5),
        "deepseek2_lite": build("deepseek2", 49, {
            "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 40, "expert_shared_count": 2,
            "leading_dense_block_count": 1}, tied=False, experts=6, expert_ff=40, shared=80, rank=64, rot=16, plain=32, value=24,
            heads=3, peak=1.0),
        "deepseek2_wide": build("deepseek2", 50, {}, tied=False, rank=512, rot=64, plain=64, value=64, heads=2, layers=2),
        # as older converters wrote it
        "deepseek2_whole": build("deepseek2", 84, dict(YARN, **{
            "rope.scaling.original_context_length": 32, "rope.scaling.yarn_log_multiplier": 0.1}), tied=False, whole=True,
                                 rank=48, rot=8, plain=24, value=16, heads=3, kv=3, layers=2),
        "ernie4_5": build("ernie4_5", 37, hd=32),
        "ernie4_5-moe": build("ernie4_5-moe", 38, {
            "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 40, "expert_shared_count": 2,
            "leading_dense_block_count": 1, "interleave_moe_layer_step": 2, "expert_shared_feed_forward_length": 7},
            bias=("select",), experts=8, expert_ff=40, shared=80, peak=1.0),
        "hunyuan-dense": build("hunyuan-dense", 39, head_norms="each", hd=32),
        "hunyuan-moe": build("hunyuan-moe", 40, {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 40,
                                                 "expert_shared_count": 1, "expert_shared_feed_forward_length": 48},
                             head_norms="each", experts=8, expert_ff=40, shared=48, hd=32),
        "exaone4": build("exaone4", 41, norms="after", head_norms="each", tied=False),
        "exaone4_window": build("exaone4", 42, {"attention.sliding_window": 16}, norms="after", head_norms="each", layers=5),
        "command-r": build("command-r", 43, {"logit_scale": 0.4}, parallel=True),
        "cohere2": build("cohere2", 44, {"attention.sliding_window": 16, "logit_scale": 0.6}, parallel=True, layers=5),
        "starcoder2": build("starcoder2", 45, bias=QKV + ("attn_output", "ffn_up", "ffn_down"), norm_bias=True, ungated=True),
        "stablelm": build("stablelm", 46, bias=QKV, norm_bias=True, tied=False, hd=32, rot=8),
        "stablelm_parallel": build("stablelm", 47, norm_bias=True, parallel=True, tied=False, hd=32, rot=8),
    }
