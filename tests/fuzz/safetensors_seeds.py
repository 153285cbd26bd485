#!/usr/bin/env python3
"""Writes the seeds of fuzz_safetensors: headers, good and broken, and the JSON of a folder.

usage: safetensors_seeds.py tests/fuzz/corpus/safetensors
"""
import json
import os
import struct
import sys


def head(tensors, data=b"", length=None):
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin, end, shape, kind="F32"):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


CONFIG = {"model_type": "llama", "hidden_act": "silu", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "vocab_size": 6, "eos_token_id": [4, 5], "tie_word_embeddings": True,
          "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False}]}
TOKENIZER = {"normalizer": {"type": "NFC"}, "pre_tokenizer": DIGITS,
             "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<b>", "type_id": 0}}]},
             "added_tokens": [{"id": 4, "content": "<b>", "special": True}, {"id": 5, "content": "<e>", "special": False}],
             "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}
ALL = {"config": CONFIG, "tokenizer": TOKENIZER, "tokenizer_config": {"bos_token": "<b>", "eos_token": {"content": "<e>"}, "chat_template": [
    {"name": "default", "template": "{{ messages }}"}]}, "generation_config": {"eos_token_id": 5},
    "names": ["model.embed_tokens.weight", "lm_head.weight", "model.layers.1.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.bias",
              "model.layers.7.mlp.up_proj.weight", "model.layers.0.mlp.experts.weight", "model.layers.", "x"]}

SEEDS = {
    "empty": b"", "no_tensors": head({}), "metadata": head({"__metadata__": {"format": "pt"}}),
    "good": head({"a": tensor(0, 16, [2, 2]), "b": tensor(16, 20, [2], "BF16")}, bytes(20)),
    "hole": head({"a": tensor(0, 16, [2, 2]), "b": tensor(20, 24, [1])}, bytes(24)),
    "overlap": head({"a": tensor(0, 16, [2, 2]), "b": tensor(12, 16, [1])}, bytes(16)),
    "cut": head({"a": tensor(0, 16, [2, 2])}, bytes(12)), "more": head({"a": tensor(0, 16, [2, 2])}, bytes(20)),
    "huge_shape": head({"a": tensor(0, 16, [1 << 62, 4])}, bytes(16)), "deep": head({"a": tensor(0, 16, [1, 2, 2])}, bytes(16)),
    "wrong_type": head({"a": tensor(0, 4, [4], "F8_E4M3")}, bytes(4)), "long_header": head({}, length=1 << 40),
    "folder": json.dumps(ALL).encode(), "gemma": json.dumps(ALL | {"config": CONFIG | {"model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh"}}).encode(),
    "no_ids": json.dumps(ALL | {"tokenizer": TOKENIZER | {"added_tokens": [{"id": -1, "content": "x"}, 3, {"content": None}]}}).encode(),
    "same_id": json.dumps(ALL | {"tokenizer": TOKENIZER | {"added_tokens": [{"id": 0, "content": "x"}]}}).encode(),
    "experts": json.dumps(ALL | {"config": CONFIG | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
                                 "names": ["model.layers.0.block_sparse_moe.experts.3.w1.weight", "model.layers.0.block_sparse_moe.experts.4.w1.weight"]}).encode(),
    "longrope": json.dumps(ALL | {"config": CONFIG | {"model_type": "phi3", "rope_scaling": {
        "type": "longrope", "long_factor": [1.0, 2.0], "short_factor": [1, 1], "original_max_position_embeddings": 32}}}).encode(),
    "windows": json.dumps(ALL | {"config": CONFIG | {"model_type": "olmo3", "rope_scaling": None, "sliding_window": 16,
                                                     "layer_types": ["sliding_attention", "full_attention"]}}).encode(),
    "nested": json.dumps(ALL | {"config": {"model_type": "gemma3", "text_config": CONFIG | {"hidden_act": "gelu_pytorch_tanh", "rope_scaling": None}},
                                "names": ["model.language_model.layers.0.mlp.up_proj.weight", "model.vision_tower.x"]}).encode(),
    "chunks": json.dumps(ALL | {"config": CONFIG | {
        "model_type": "llama4_text", "rope_scaling": None, "intermediate_size_mlp": 8, "num_local_experts": 2, "interleave_moe_layer_step": 2,
        "no_rope_layers": [1, 0], "layer_types": ["chunked_attention", "full_attention"], "moe_layers": [1]},
        "names": ["model.layers.1.feed_forward.experts.gate_up_proj", "model.layers.1.feed_forward.experts.gate_up_proj_scale_inv",
                  "model.layers.0.feed_forward.up_proj.weight", "layers.0.feed_forward.router.weight"]}).encode(),
    "latent": json.dumps(ALL | {"config": CONFIG | {"model_type": "minicpm3", "rope_scaling": None, "q_lora_rank": None, "kv_lora_rank": 4,
                                                    "qk_nope_head_dim": 4, "qk_rope_head_dim": 2},
                                "names": ["model.layers.0.self_attn.kv_b_proj.weight", "model.layers.0.self_attn.q_proj.weight"]}).encode(),
    "mamba2": json.dumps(ALL | {"config": {"model_type": "mamba2", "hidden_size": 8, "num_hidden_layers": 2, "num_heads": 2, "head_dim": 8,
                                           "state_size": 4, "n_groups": 1, "conv_kernel": 4, "vocab_size": 6},
                                "names": ["backbone.layers.0.mixer.in_proj.weight", "backbone.norm_f.weight"]}).encode(),
    "embedding": json.dumps(ALL | {"config": CONFIG | {"model_type": "gemma3_text", "hidden_act": "gelu_pytorch_tanh", "rope_scaling": None,
                                                       "use_bidirectional_attention": True},
                                   "names": ["layers.0.mlp.up_proj.weight", "embed_tokens.weight", "norm.weight"]}).encode(),
    "wide": json.dumps(ALL | {"config": CONFIG | {"hidden_size": 1 << 60}}).encode(),
}

for name, data in SEEDS.items():
    with open(os.path.join(sys.argv[1], name), "wb") as file:
        file.write(data)
