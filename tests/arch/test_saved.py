"""A folder as transformers 5 saves it computes what transformers computes: saved.json has recordings (record_saved.py). The
same in FP8 and MXFP4 computes, to the last bit, what the numbers that these stand for do.

usage: test_saved.py LOGITS [NAME…]
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import saved_weights

MOST = 1e-4
N_BLOCK = 32
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def fp8_table():
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    value = np.where(exponent == 0, mantissa * 2.0 ** -9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    value[[127, 255]] = np.nan
    return np.where(byte >= 128, -value, value).astype(np.float32)


FP8 = fp8_table()


def nearest(table, values):
    order = np.argsort(table[np.isfinite(table)], kind="stable")
    known = np.flatnonzero(np.isfinite(table))[order]
    at = np.clip(np.searchsorted(table[known], values), 1, len(known) - 1)
    lower = np.abs(values - table[known[at - 1]]) < np.abs(table[known[at]] - values)
    return known[at - lower].astype(np.uint8)


def to_fp8(name, weight, block):
    """The tensors in FP8, and what they stand for."""
    rows, cols = weight.shape
    high, wide = block or (rows, cols)
    scales = np.empty((-(-rows // high), -(-cols // wide)), np.float32)
    codes = np.empty(weight.shape, np.uint8)
    for r in range(scales.shape[0]):
        for c in range(scales.shape[1]):
            part = np.s_[r * high:(r + 1) * high, c * wide:(c + 1) * wide]
            scales[r, c] = np.abs(weight[part]).max() / 448
            codes[part] = nearest(FP8, weight[part] / scales[r, c])
    spread = np.repeat(np.repeat(scales, high, 0)[:rows], wide, 1)[:, :cols]
    shape = scales.shape if block else ()
    return ({name: ("F8_E4M3", weight.shape, codes.tobytes()),
             name + "_scale_inv": ("F32", shape, scales.tobytes())}, FP8[codes] * spread)


def to_mxfp4(name, weight):
    """Of [experts][columns][rows], in blocks of [experts][rows]."""
    rows = np.ascontiguousarray(weight.swapaxes(1, 2))
    blocks = rows.reshape(*rows.shape[:2], -1, N_BLOCK)
    exponents = np.clip(np.floor(np.log2(np.abs(blocks).max(-1))) - 2, -127, 127).astype(np.int32)
    codes = nearest(FP4, blocks / 2.0 ** exponents[..., None])
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    real = (FP4[codes] * (2.0 ** exponents[..., None]).astype(np.float32)).reshape(rows.shape).swapaxes(1, 2)
    return ({name + "_blocks": ("U8", packed.shape, packed.tobytes()),
             name + "_scales": ("U8", exponents.shape, (exponents + 127).astype(np.uint8).tobytes())},
            np.ascontiguousarray(real))


def write_folder(folder, config, tensors):
    folder.mkdir()
    tokens = {chr(0x100 + i): i for i in range(config["vocab_size"])}
    texts = {"config": config, "generation_config": {"eos_token_id": 2},
             "tokenizer_config": {"model_max_length": 1000000000000000019884624838656},
             "tokenizer": {"added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                           "model": {"type": "BPE", "vocab": tokens, "merges": []}}}
    for name, value in texts.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    saved_weights.write(folder / "model.safetensors", tensors)


# What is not run as it says, and the words of its refusal.
REFUSED = {
    "qwen3_5": [({"layer_types": ["linear_attention", "full_attention"]}, "'layer_types' has 2 entries"),
                ({"layer_types": ["linear_attention", "mamba", "linear_attention"]}, "unsupported type of layer 1"),
                ({"linear_value_head_dim": 8}, "values of 8"), ({"linear_num_key_heads": 3}, "4 of values for 3 of keys"),
                ({"attn_output_gate": False}, "without a gate"), ({"linear_conv_kernel_dim": None}, "'linear_conv_kernel_dim' is absent")],
    "qwen3_next": [({"linear_num_value_heads": 8}, "a size or a type that is not supported")],
    "gemma4": [({"per_layer_config": {"1": {"head_dim": 32}, "3": {"head_dim": 16}}}, "different heads"),
               ({"per_layer_config": {"0": {"head_dim": 32}}}, "no layer without a window"),
               ({"per_layer_config": {"1": {"hidden_act": "relu"}}}, "'hidden_act'"),
               ({"num_kv_shared_layers": 4}, "'num_kv_shared_layers'"), ({"use_bidirectional_attention": "all"}, "is 'all'")],
    "deepseek_v3": [({"rope_interleave": False}, "'rope_interleave'"), ({"qk_nope_head_dim": 12}, "a size or a type")],
    "granitehybrid": [({"layer_types": ["linear_attention", "moe"]}, "unsupported type 'moe'"), ({"mamba_n_groups": 3}, "a size or a type"),
                      ({"time_step_limit": [0.1, 1]}, "'time_step_limit'"), ({"mamba_d_conv": 0}, "'mamba_d_conv' is 0")],
    "nemotron_h": [({"layers_block_type": ["linear_attention"] * 3}, "does not belong"), ({"moe_latent_size": 32}, "'moe_latent_size'"),
                   ({"mlp_hidden_act": "silu"}, "'relu2'"), ({"layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"]}, "does not belong")],
    "gemma3n": [({"altup_active_idx": 1}, "'altup_active_idx'"), ({"altup_num_inputs": 5}, "'altup_num_inputs'"),
                ({"activation_sparsity_pattern": [0.5]}, "'activation_sparsity_pattern' has 1"),
                ({"activation_sparsity_pattern": [1.0] * 5}, "'activation_sparsity_pattern' has an entry"),
                ({"num_kv_shared_layers": 5}, "'num_kv_shared_layers'"), ({"intermediate_size": [96] * 4 + [64]}, "not the same for all layers"),
                ({"altup_num_inputs": 3}, "altup_proj.2.weight")],
    "llama4": [({"moe_layers": [0, 2]}, "'moe_layers' is not every"), ({"moe_layers": [1]}, "'moe_layers' has 1 layers"),
               ({"layer_types": ["full_attention"] * 4}, "'layer_types' and 'no_rope_layers'"), ({"no_rope_layers": [1]}, "'no_rope_layers' has 1"),
               ({"attention_chunk_size": None}, "'attention_chunk_size' is absent"), ({"floor_scale": 0}, "'floor_scale' is 0"),
               ({"layer_types": ["full_attention"]}, "'layer_types' has 1 entries")],
    "minicpm3": [({"dim_model_base": 0}, "'dim_model_base'"), ({"qk_nope_head_dim": 12}, "a size or a type"),
                 ({"v_head_dim": 0}, "'v_head_dim' is 0")],
    "mamba2": [({"n_groups": 3}, "a size or a type"), ({"num_heads": 0}, "'num_heads' is 0"), ({"state_size": 24}, "must be"),
               ({"hidden_act": "gelu"}, "'silu'")],
    "deepseek_v2": [({"topk_method": "group_limited_greedy"}, "'topk_method'"), ({"kv_lora_rank": 0}, "'kv_lora_rank' is 0")],
}


class Test:
    def __init__(self, program, folder):
        self.program, self.folder, self.failures = program, pathlib.Path(folder), 0

    def logprobs(self, path, ids, n_vocab):
        """Of each token, or the words of the failure."""
        np.array(ids, np.int32).tofile(self.folder / "ids")
        done = subprocess.run([self.program, path, "ref", "f32", self.folder / "ids", self.folder / "logits", "0", "once"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.stderr.strip()
        logits = np.fromfile(self.folder / "logits", np.float32)[:len(ids) * n_vocab].reshape(len(ids), n_vocab).astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def say(self, name, wrong, good):
        self.failures += wrong is not None
        print(f"{name:16} {wrong or good}", flush=True)

    def loads(self, path, config):
        """One that is made for embeddings needs no head."""
        got = self.logprobs(path, [1], config["vocab_size"])
        self.say(path.name, got if isinstance(got, str) else None, "loads")

    def recorded(self, name, known, config, tensors):
        write_folder(self.folder / name, config, tensors)
        got = self.logprobs(self.folder / name, known["ids"], config["vocab_size"])
        if isinstance(got, str):
            return self.say(name, got, "")
        n = len(known["ids"])
        own = np.abs(got[np.arange(n - 1), known["ids"][1:]] - known["own"]).max()
        most = max(own, np.abs(got[-1, :len(known["last"])] - known["last"]).max())
        self.say(name, None if most <= MOST else f"differs by {most:.1e}", f"at most {most:.1e}")

    def refused(self, name, config, tensors):
        for i, (changed, words) in enumerate(REFUSED.get(name, [])):
            write_folder(self.folder / f"{name}_refused{i}", config | changed, tensors)
            got = self.logprobs(self.folder / f"{name}_refused{i}", [1], config["vocab_size"])
            self.say(f"{name}_refused{i}", None if isinstance(got, str) and words in got else f"not refused by '{words}': {got}", "refused")

    def quantised(self, name, known, config, small, real):
        write_folder(self.folder / f"{name}_small", config, small)
        write_folder(self.folder / f"{name}_real", {k: v for k, v in config.items() if k != "quantization_config"}, real)
        small, real = (self.logprobs(self.folder / f"{name}_{x}", known["ids"], config["vocab_size"]) for x in ("small", "real"))
        wrong = small if isinstance(small, str) else None if np.array_equal(small, real) else "other bits than of what it stands for"
        self.say(name, wrong, "same bits")


def quantise(tensors, convert, chosen):
    small, real = {}, {}
    for name, (dtype, shape, data) in tensors.items():
        if not chosen(name):
            small[name] = real[name] = (dtype, shape, data)
            continue
        packed, values = convert(name, np.frombuffer(data, np.float32).reshape(shape))
        small |= packed
        real[name] = ("F32", shape, values.astype(np.float32).tobytes())
    return small, real


def fp8(test, name, known, config, tensors, block):
    quantization = {"quant_method": "fp8", "weight_block_size": block and list(block)}
    small, real = quantise(tensors, lambda n, w: to_fp8(n, w, block), lambda n: n.endswith("_proj.weight"))
    if block is None:
        small["model.layers.0.self_attn.q_proj.activation_scale"] = ("F32", (), np.float32(1).tobytes())
    test.quantised(f"{name}_fp8", known, config | {"quantization_config": quantization}, small, real)


def heads(test, name, known, config, tensors):
    """A head that was saved counts, whatever config.json says of it; without one the embeddings are it only where that says so."""
    test.recorded(f"{name}_tied", known, config | {"tie_word_embeddings": True}, tensors)
    path = test.folder / f"{name}_headless"
    write_folder(path, config, {n: t for n, t in tensors.items() if n != "lm_head.weight"})
    got = test.logprobs(path, [1], config["vocab_size"])
    test.say(path.name, None if isinstance(got, str) and "'lm_head.weight' is missing" in got else f"not refused: {got}", "refused")
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    test.loads(path, config)


OLDER_NESTED = ("qwen3_5", "qwen3_5_moe", "gemma4_moe", "gemma3n")


def older_nemotron(test, known, config, tensors):
    """Kinds of layers as a pattern; what predicts further tokens."""
    older = config | {"hybrid_override_pattern": "ME*-", "num_hidden_layers": 4}
    del older["layers_block_type"]
    more = {"mtp.layers.0.norm.weight": ("F32", (64,), bytes(256))}
    test.recorded("nemotron_h_older", known, older, tensors | more)


def fused(tensors, n_experts):
    """The same with all experts of a layer in one tensor: of each the gate's rows, then those of up."""
    out = {name: t for name, t in tensors.items() if ".experts." not in name}
    for layer in {name.split(".experts.")[0] for name in tensors if ".experts." in name}:
        gate, up, down = ([np.frombuffer(tensors[f"{layer}.experts.{e}.{x}_proj.weight"][2], np.float32).reshape(
            tensors[f"{layer}.experts.{e}.{x}_proj.weight"][1]) for e in range(n_experts)] for x in ("gate", "up", "down"))
        for x, all_experts in (("gate_up", np.concatenate([gate, up], axis=1)), ("down", np.array(down))):
            out[f"{layer}.experts.{x}_proj"] = ("F32", all_experts.shape, all_experts.tobytes())
    return out


def fused_fp8(test, name, known, config, tensors, block):
    """Experts that are in one tensor, with scales for each."""
    tensors = fused(tensors, config["num_experts"])
    test.recorded(f"{name}_fused", known, config, tensors)

    def convert(tensor, weight):
        parts = [to_fp8(f"{tensor}.weight", w, block) for w in weight]
        packed = {k: (parts[0][0][k][0], (len(parts), *parts[0][0][k][1]), b"".join(p[0][k][2] for p in parts)) for k in parts[0][0]}
        return ({k.replace(".weight", ""): v for k, v in packed.items()}, np.array([real for _, real in parts]))

    quantization = {"quant_method": "fp8", "weight_block_size": list(block)}
    small, real = quantise(tensors, convert, lambda n: n.endswith("_proj") and "experts" in n)
    test.quantised(f"{name}_fp8", known, config | {"quantization_config": quantization}, small, real)
    for i, odd in enumerate([[block[0] + 1, block[1]], None]):
        path = test.folder / f"{name}_fp8_odd{i}"
        write_folder(path, config | {"quantization_config": quantization | {"weight_block_size": odd}}, small)
        got = test.logprobs(path, known["ids"], config["vocab_size"])
        test.say(path.name, None if isinstance(got, str) and "whole blocks" in got else f"not refused: {got}", "refused")


def unused_keys(config, tensors):
    """What layers have that read another one's keys and values."""
    n, parts = config["num_hidden_layers"], ("k_proj", "v_proj", "k_norm")
    return {f"model.layers.{il}.self_attn.{part}.weight": tensors[f"model.layers.0.self_attn.{part}.weight"]
            for il in range(n - config["num_kv_shared_layers"], n) for part in parts}


def older(test, name, known, config, tensors):
    """As such models are published: nested beside what sees and what predicts further tokens, in transformers 4's spelling."""
    text = dict(config)
    wide = text.pop("per_layer_config", {})
    for keys in wide.values():
        text |= {"global_head_dim": keys["head_dim"], "num_global_key_value_heads": keys.get("num_key_value_heads")}
    if "qwen" in name:
        text |= {"full_attention_interval": 2, "attn_output_gate": True, "mtp_num_hidden_layers": 1}
        types = text.pop("layer_types")
        text |= {"layer_types": types} if types[0] == types[-1] else {}
    if name == "gemma3n":
        ropes = text.pop("rope_parameters")
        text |= {"rope_theta": ropes["full_attention"]["rope_theta"], "rope_local_base_freq": ropes["sliding_attention"]["rope_theta"],
                 "query_pre_attn_scalar": 256, "rope_scaling": None}
        tensors = tensors | unused_keys(config, tensors)
    nested = {"model_type": config["model_type"].removesuffix("_text"), "text_config": text, "vocab_size": config["vocab_size"],
              "tie_word_embeddings": config["tie_word_embeddings"]}
    renamed = {(n if n.startswith("lm_head") else n.replace("model.", "model.language_model.", 1)): t for n, t in tensors.items()}
    one = ("F32", (1, 64), bytes(256))
    renamed |= {"model.visual.blocks.0.attn.qkv.weight": one, "mtp.layers.0.mlp.up_proj.weight": one} if "qwen" in name else \
        {"model.vision_tower.patch.weight": one, "model.embed_vision.embedding_projection.weight": one,
         "model.audio_tower.conformer.0.norm.weight": one, "model.embed_audio.embedding.weight": one}
    test.recorded(f"{name}_older", known, nested, renamed)
    path = test.folder / f"{name}_bare"
    bare = {n.removeprefix("model."): t for n, t in renamed.items() if n.startswith("model.language_model.")}
    untied = nested | {"tie_word_embeddings": False, "text_config": text | {"tie_word_embeddings": False}}
    write_folder(path, untied, bare)
    test.loads(path, config)


def twice(test, known, config, tensors):
    """Experts in one tensor and alone, or scales of experts that are in one: refused."""
    head = ("F32", (96, 64), bytes(96 * 64 * 4))
    small, _ = quantise(tensors, to_mxfp4, lambda n: n.endswith("_proj") and "experts" in n)
    for i, (base, more) in enumerate([(tensors, {"model.layers.0.mlp.experts.1.gate_proj.weight": head}),
                                      (small, {"model.layers.0.mlp.experts.3.gate_proj.weight_scale_inv": ("F32", (1, 1), bytes(4))})]):
        write_folder(test.folder / f"twice{i}", config, base | more)
        got = test.logprobs(test.folder / f"twice{i}", known["ids"], config["vocab_size"])
        test.say(f"gpt_oss_twice{i}", None if isinstance(got, str) and "ffn_gate_exps" in got else f"not refused: {got}", "refused")


def main():
    program, *names = sys.argv[1:]
    all_known = json.loads((pathlib.Path(__file__).parent / "saved.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        test = Test(program, folder)
        for name, known in all_known.items():
            if name == "transformers" or "vectors" in known or (names and name not in names):
                continue
            config, tensors = known["config"], {
                n: ("F32", shape, saved_weights.values(n, shape, base, scale).tobytes())
                for n, (shape, base, scale) in known["tensors"].items()}
            test.recorded(name, known, config, tensors)
            test.refused(name, config, tensors)
            if name in ("llama", "nemotron_h", "falcon_h1", "qwen3_5"):
                heads(test, name, known, config, tensors)
            if name == "nemotron_h":
                older_nemotron(test, known, config, tensors)
            if name.startswith("granitehybrid"):
                older_names = {"linear_attention": "mamba", "full_attention": "attention"}
                test.recorded(f"{name}_older", known, config | {"layer_types": [older_names[x] for x in config["layer_types"]]}, tensors)
            if name == "mamba2":
                test.recorded("mamba2_older", known, config | {"time_step_limit": [0.0, float("inf")]}, tensors)
            if name in OLDER_NESTED:
                older(test, name, known, config, tensors)
            if name in ("llama", "qwen3_moe"):  # blocks that do not divide the matrices; permuted rows; experts
                fp8(test, name, known, config, tensors, (40, 24))
            if name in ("qwen3_next", "qwen3_5_moe"):
                fused_fp8(test, name, known, config, tensors, (16, 24))
            if name == "ministral3":
                fp8(test, name, known, config, tensors, None)
            if name == "gpt_oss":
                small, real = quantise(tensors, to_mxfp4, lambda n: n.endswith("_proj") and "experts" in n)
                test.quantised("gpt_oss_mxfp4", known, config | {"quantization_config": {"quant_method": "mxfp4"}}, small, real)
                twice(test, known, config, tensors)
    sys.exit(test.failures > 0)


if __name__ == "__main__":
    main()
