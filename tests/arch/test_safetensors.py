"""A model in a folder as transformers saves it computes what it does from a GGUF file, to the last bit.

usage: test_safetensors.py LOGITS [NAME…]
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import models

N_TOKENS = 90  # longer than the windows and original contexts of the models
QKV = models.QKV
LLAMA_PARTS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_qkv": "self_attn.qkv_proj",
               "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
               "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
               "ffn_down": "mlp.down_proj"}
AROUND = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
          "post_ffw_norm": "post_feedforward_layernorm"}
# What a family does with its tensors: permuted queries and keys, names of its own, what norms are stored less.
FAMILIES = {
    "llama": dict(pairs=True), "mistral": dict(pairs=True), "qwen2": {}, "qwen3": {},
    "gemma2": dict(parts=AROUND, norm_less=1), "gemma3_text": dict(parts=AROUND, norm_less=1),
    "gemma3": dict(parts=AROUND, norm_less=1, prefix="model.language_model."),
    "phi3": dict(parts={"ffn_up": "mlp.gate_up_proj"}), "smollm3": dict(pairs=True), "olmo2": dict(parts=AROUND),
    "olmo3": dict(parts=AROUND), "granite": dict(pairs=True), "minicpm": dict(pairs=True),
    "mixtral": dict(pairs=True, parts={"ffn_gate_inp": "block_sparse_moe.gate"},
                    experts=("block_sparse_moe.experts", {"gate": "w1", "up": "w3", "down": "w2"})),
    "qwen3_moe": dict(parts={"ffn_gate_inp": "mlp.gate"},
                      experts=("mlp.experts", {x: x + "_proj" for x in ("gate", "up", "down")})),
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONG = dict(rope_factors_long=(1, 9), rope_factors_short=(1, 2))


def halves(tensor, head_dim):
    """Rows of queries or keys: the first of all pairs of a head, then the second."""
    shape = tensor.shape
    return tensor.reshape(-1, head_dim // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def foreign_tensors(model, family):
    """transformers' name -> tensor"""
    known, out = FAMILIES[family], {}
    prefix, parts = known.get("prefix", "model."), LLAMA_PARTS | known.get("parts", {})
    whole = {"token_embd": prefix + "embed_tokens", "output_norm": prefix + "norm", "output": "lm_head"}
    for name, tensor in model.tensors.items():
        if name.startswith("rope_"):
            continue
        stem, ending = name.rsplit(".", 1)
        if stem.endswith("norm"):
            tensor = tensor - np.float32(known.get("norm_less", 0))
        if stem in whole:
            out[f"{whole[stem]}.{ending}"] = tensor
            continue
        _, layer, part = stem.split(".")
        if part.endswith("_exps"):
            folder, names = known["experts"]
            for e, one in enumerate(tensor):
                out[f"{prefix}layers.{layer}.{folder}.{e}.{names[part.split('_')[1]]}.{ending}"] = one
            continue
        if known.get("pairs") and part in ("attn_q", "attn_k"):
            tensor = halves(tensor, model.n["hd"])
        out[f"{prefix}layers.{layer}.{parts[part]}.{ending}"] = tensor
    if family == "gemma3":
        out["model.vision_tower.patch.weight"] = np.zeros((2, 2), np.float32)
    return out


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += np.ascontiguousarray(tensor).tobytes()
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def config_of(model, family, more):
    n = model.n
    activation = "gelu_pytorch_tanh" if family.startswith("gemma") else "silu"
    config = {"model_type": family, "hidden_act": activation, "hidden_size": n["d"], "intermediate_size": n["ff"],
              "num_hidden_layers": n["layers"], "num_attention_heads": n["heads"], "num_key_value_heads": n["kv"],
              "head_dim": n["hd"], "max_position_embeddings": n["ctx"], "rms_norm_eps": n["eps"],
              "rope_theta": n["base"], "vocab_size": n["vocab"], "tie_word_embeddings": "output.weight" not in model.tensors}
    config = {name: value for name, value in (config | more).items() if value is not None}
    return config if family != "gemma3" else {"model_type": family, "text_config": config | {"model_type": "gemma3_text"}}


def write_folder(folder, model, family, more):
    folder.mkdir()
    tokens = [chr(0x100 + i) for i in range(model.n["vocab"])]
    texts = {"config.json": config_of(model, family, more) | {"eos_token_id": 1}, "tokenizer.json": {
        "added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}}}
    for name, value in texts.items():
        (folder / name).write_text(json.dumps(value))
    write_safetensors(folder / "model.safetensors", foreign_tensors(model, family))


def exact_norms(model):
    """Norms whose weights less 1, as Gemma stores them, are exact."""
    for name, tensor in model.tensors.items():
        if "norm" in name:
            model.tensors[name] = np.round(tensor * 64) / np.float32(64)
    return model


def llama3_factors(model, factor, low, high, original):
    rot, base = model.n["rot"], model.n["base"]
    wave = 2 * np.pi * base ** (2 * np.arange(rot // 2) / rot)
    blend = (original / wave - low) / (high - low)
    middle = 1 / ((1 - blend) / factor + blend)
    model.tensors["rope_freqs.weight"] = np.where(wave < original / high, 1, np.where(wave > original / low, factor, middle)).astype(np.float32)
    return model


def long_factors(model, **more):
    return {"type": "longrope", "long_factor": model.tensors["rope_factors_long.weight"].tolist(),
            "short_factor": model.tensors["rope_factors_short.weight"].tolist()} | more


def pattern(every, layers):
    return ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)]


def cases():
    """name -> family, its model, and what config.json has beyond the sizes"""
    build, known = models.build, models.all_models()
    llama3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
    granite = dict(attention_multiplier=0.11, embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.5)
    gemma = dict(sliding_window=16, query_pre_attn_scalar=24)
    mixed = known["gemma3_global_scale"].keys["attention.sliding_window_pattern"]
    mixed_types = ["sliding_attention" if has else "full_attention" for has in mixed]
    long_phi = known["phi3_long"]
    # an amplitude of longrope follows from the contexts, where the file has none
    grown = models.with_factors(
        build("phi3", 17, {"rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": float(np.sqrt(1 + np.log(256 / 64) / np.log(64)))},
              fused_qkv=True, fused_gate=True), **LONG)
    return {
        "llama": ("llama", llama3_factors(build("llama", 1, bias=QKV + ("attn_output",), tied=False), 8.0, 1.0, 4.0, 64), dict(rope_scaling={"rope_type": "llama3"} | llama3)),
        "llama_linear": ("llama", known["llama_linear"], dict(rope_scaling={"type": "linear", "factor": 4.0})),
        "llama_yarn": ("llama", build("llama", 5, dict(models.YARN, **{"rope.scaling.attn_factor": 1.25 / (1 + 0.1 * float(np.log(4.0)))})),
                       dict(rope_parameters=YARN | {"rope_theta": 10000.0, "attention_factor": 1.25}, rope_theta=None)),
        "llama_longrope": ("llama", known["llama_longrope"], dict(rope_scaling=long_factors(known["llama_longrope"], attention_factor=1.2, original_max_position_embeddings=64))),
        "mistral": ("mistral", build("llama", 30, tied=False), dict(sliding_window=None)),
        # the window ends the context, which YaRN would otherwise be scaled by
        "mistral_window": ("mistral", build("llama", 33, models.YARN | {"rope.scaling.original_context_length": 256}),
                           dict(sliding_window=100, rope_scaling={"rope_type": "yarn", "factor": 4.0})),
        "qwen2": ("qwen2", build("qwen2", 8, bias=QKV, tied=False), dict(use_sliding_window=False, sliding_window=4)),
        "qwen2_yarn": ("qwen2", build("qwen2", 31, models.YARN, bias=QKV), dict(rope_scaling=YARN)),
        "qwen3": ("qwen3", known["qwen3"], dict(layer_types=["full_attention"] * 4, sliding_window=4)),
        "qwen3_moe": ("qwen3_moe", build("qwen3moe", 25, {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48},
                                         head_norms="each", experts=8, expert_ff=48, kv=1),
                      dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])),
        "mixtral": ("mixtral", known["mixtral"], dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)),
        "gemma2": ("gemma2", known["gemma2"], gemma | dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0, hidden_activation="gelu_pytorch_tanh")),
        # a scale that the model's size does not say
        "gemma2_scale": ("gemma2", build("gemma2", 36, {"attention.sliding_window": 16, "attention.scale": float(1 / np.sqrt(40))},
                                         norms="around", hd=24, layers=4),
                         gemma | dict(query_pre_attn_scalar=40)),
        "gemma3_text": ("gemma3_text", known["gemma3"], gemma | dict(query_pre_attn_scalar=32, sliding_window_pattern=6, rope_local_base_freq=10000.0)),
        "gemma3_mixed": ("gemma3_text", known["gemma3_global_scale"], gemma | dict(
            sliding_window=20, layer_types=mixed_types, final_logit_softcapping=4.0, rope_theta=None, rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 100000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}})),
        # the defaults of transformers' Gemma3TextConfig, which its files leave out
        "gemma3": ("gemma3", build("gemma3", 32, {"attention.sliding_window": 16, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
                                   norms="around", head_norms="each", layers=6, heads=8, kv=4, hd=256, eps=1e-6, base=1000000.0, ctx=131072),
                   dict(sliding_window=16, rope_scaling={"rope_type": "linear", "factor": 8.0}, num_attention_heads=None, num_key_value_heads=None,
                        head_dim=None, rms_norm_eps=None, rope_theta=None, max_position_embeddings=None, tie_word_embeddings=None)),
        "phi3": ("phi3", known["phi3_window"], dict(sliding_window=17)),
        "phi3_long": ("phi3", long_phi, dict(partial_rotary_factor=0.75, original_max_position_embeddings=64, rope_scaling=long_factors(long_phi, attention_factor=1.19))),
        "phi3_grown": ("phi3", grown, dict(original_max_position_embeddings=64, rope_scaling=long_factors(grown))),
        "smollm3": ("smollm3", known["smollm3"], dict(no_rope_layers=[1, 1, 1, 0, 1], tie_word_embeddings=None)),
        "olmo2": ("olmo2", known["olmo2"], {}),
        "olmo3": ("olmo3", known["olmo2_window"], dict(sliding_window=16, layer_types=pattern(4, 8), rope_scaling=YARN)),
        "granite": ("granite", known["granite"], granite),
        # scale_depth / sqrt(4 layers), a width of 80
        "minicpm": ("minicpm", known["minicpm"], dict(scale_emb=2, scale_depth=1.4, dim_model_base=80 / 1.5)),
    }


# What is not run as it says, and the words of its refusal.
REFUSED = {
    "smollm3": (dict(no_rope_layers=[1, 1, 0, 0, 1]), "'no_rope_layers'"),
    "gemma2": (dict(query_pre_attn_scalar=-1), "'query_pre_attn_scalar' is not above 0"),
    "qwen2_yarn": (dict(rope_scaling=YARN | {"beta_fast": 16}), "beta_fast of 16"),
    "phi3_long": (dict(rope_scaling={"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}), "long_factor of 1 numbers"),
    "qwen3_moe": (dict(num_experts=9), "has no expert 8"),
    "mixtral": (dict(num_local_experts=4), "experts.4.w1"),
    "olmo3": (dict(layer_types=["sliding_attention"]), "'layer_types' has 1 entries, it must have 8"),
    "qwen3": (dict(hidden_act="relu"), "'hidden_act' is 'relu'"),
    "minicpm": (dict(dim_model_base=0), "'dim_model_base' must be"),
}


def logits(program, path, ids, folder):
    """The bytes, or the text of the failure."""
    given, got = folder / "ids", folder / "logits"
    ids.astype(np.int32).tofile(given)
    done = subprocess.run([program, path, "ref", "f32", given, got], capture_output=True, text=True, check=False)
    return (got.read_bytes(), "") if done.returncode == 0 else (None, done.stderr.strip())


def check(program, folder, name, family, model, more):
    """None, or what is wrong."""
    whole, parts = folder / f"{name}.gguf", folder / name
    exact_norms(model).write(whole)
    write_folder(parts, model, family, more)
    ids = np.random.default_rng(99).integers(0, model.n["vocab"], N_TOKENS)
    want, why = logits(program, whole, ids, folder)
    if want is None:
        return f"GGUF: {why}"
    got, why = logits(program, parts, ids, folder)
    if got is None:
        return why
    return None if got == want else "other log-probabilities than of the GGUF file"


def check_refusal(program, folder, name, family, model, more):
    changed, words = REFUSED[name]
    parts = folder / f"{name}_refused"
    write_folder(parts, model, family, more | changed)
    got, why = logits(program, parts, np.zeros(1), folder)
    return None if got is None and words in why else f"not refused: {why}"


def main():
    program, *names = sys.argv[1:]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases().items():
            if names and name not in names:
                continue
            wrong = [check(program, pathlib.Path(folder), name, *case)]
            if name in REFUSED:
                wrong.append(check_refusal(program, pathlib.Path(folder), name, *case))
            wrong = [one for one in wrong if one is not None]
            failures += len(wrong)
            print(f"{name:16} {'; '.join(wrong) or 'same bits'}", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
