"""Records folders as transformers saves them, and what it computes from them, for test_saved.py: config.json, the names and
shapes of the tensors, and log-probabilities. Needs torch and transformers (5.24), which CI does not have.

usage: record_saved.py OUT.json [NAME…]
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import saved_weights
import torch
import transformers

N_TOKENS, N_SHOWN = 40, 12  # of a prompt; of the log-probabilities of its last token
BASE = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
WIDE = BASE | dict(head_dim=32)
MOE = dict(moe_intermediate_size=32, num_experts_per_tok=2)
STATE = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16, num_hidden_layers=3,
             layer_types=["linear_attention", "full_attention", "linear_attention"])
STATE_MOE = STATE | MOE | dict(num_experts=4, shared_expert_intermediate_size=48, num_hidden_layers=2,
                               layer_types=["linear_attention", "full_attention"])
LATENT = dict(num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=20)
MAMBA = dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16,
             mamba_n_groups=2, mamba_chunk_size=16, shared_intermediate_size=48)
GEMMA4 = dict(sliding_window=16, head_dim=16, global_head_dim=32)
SCALES = dict(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.11, logits_scaling=2.5)


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=1e4, **more))


YARN = dict(factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
LONG = dict(partial_rotary_factor=1.0, original_max_position_embeddings=16,
            short_factor=[1 + 0.1 * i for i in range(8)], long_factor=[2 + 0.3 * i for i in range(8)])
# name -> class of the model, arguments of its config
RECIPES = {
    "llama": ("Llama", WIDE | dict(num_hidden_layers=2)),
    "llama_llama3": ("Llama", WIDE | dict(num_hidden_layers=2) | rope("llama3", **LLAMA3)),
    "llama_yarn": ("Llama", WIDE | dict(num_hidden_layers=2) | rope("yarn", **YARN, mscale=0.7, mscale_all_dim=1.3)),
    "mistral": ("Mistral", WIDE | dict(num_hidden_layers=2, sliding_window=None)),
    "mixtral": ("Mixtral", WIDE | dict(num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)),
    "ministral3": ("Ministral3", WIDE | dict(num_hidden_layers=2, sliding_window=None) |
                   rope("yarn", **YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    "qwen2": ("Qwen2", BASE | dict(num_hidden_layers=2)),
    "qwen3": ("Qwen3", WIDE | dict(num_hidden_layers=2)),
    "qwen3_moe": ("Qwen3Moe", WIDE | MOE | dict(num_hidden_layers=2, num_experts=4, norm_topk_prob=True)),
    "qwen2_moe": ("Qwen2Moe", BASE | MOE | dict(num_hidden_layers=2, num_experts=4, shared_expert_intermediate_size=48)),
    "gemma2": ("Gemma2", WIDE | dict(num_hidden_layers=2, sliding_window=16, query_pre_attn_scalar=24)),
    "gemma3": ("Gemma3:Gemma3Text", WIDE | dict(num_hidden_layers=7, sliding_window=16, query_pre_attn_scalar=24)),
    "phi3": ("Phi3", BASE | dict(num_hidden_layers=2, partial_rotary_factor=0.75)),
    "phi3_window": ("Phi3", BASE | dict(num_hidden_layers=2, sliding_window=16)),
    "phi3_long": ("Phi3", BASE | dict(num_hidden_layers=2, original_max_position_embeddings=16) | rope("longrope", **LONG)),
    "phimoe": ("Phimoe", BASE | dict(num_hidden_layers=2, num_local_experts=8, attention_bias=True, lm_head_bias=True)),
    # of no longer context: transformers 5.24 takes the short divisors whatever the length
    "phimoe_short": ("Phimoe", BASE | dict(num_hidden_layers=2, num_local_experts=8) | rope(
        "longrope", **LONG | dict(original_max_position_embeddings=256), short_mscale=1.24, long_mscale=1.24)),
    "smollm3": ("SmolLM3", BASE | dict(num_hidden_layers=4)),
    "olmo2": ("Olmo2", BASE | dict(num_hidden_layers=2)),
    "olmo3": ("Olmo3", BASE | dict(num_hidden_layers=4, sliding_window=16)),
    "granite": ("Granite", BASE | SCALES | dict(num_hidden_layers=2)),
    "granitemoe": ("GraniteMoe", BASE | SCALES | dict(num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2)),
    "seed_oss": ("SeedOss", WIDE | dict(num_hidden_layers=2)),
    "gpt_oss": ("GptOss", WIDE | dict(num_hidden_layers=2, sliding_window=16, num_local_experts=4, num_experts_per_tok=2)),
    "glm4": ("Glm4", WIDE | dict(num_hidden_layers=2, attention_bias=True)),
    "glm4_moe": ("Glm4Moe", WIDE | MOE | dict(num_hidden_layers=2, n_routed_experts=4, first_k_dense_replace=1, use_qk_norm=True,
                                             attention_bias=True, routed_scaling_factor=2.5)),
    "ernie4_5": ("Ernie4_5_", WIDE | dict(num_hidden_layers=2)),
    "ernie4_5_moe": ("Ernie4_5_Moe", BASE | dict(num_hidden_layers=2, moe_intermediate_size=32, moe_k=2, moe_num_experts=4,
                                                 moe_num_shared_experts=2, moe_layer_end_index=1)),
    "hunyuan_dense": ("HunYuanDenseV1", WIDE | dict(num_hidden_layers=2)),
    "hunyuan_moe": ("HunYuanMoEV1", WIDE | dict(num_hidden_layers=2, num_experts=4, moe_topk=2)),
    "exaone4": ("Exaone4", BASE | dict(num_hidden_layers=4, sliding_window=16)),
    "cohere": ("Cohere", BASE | dict(num_hidden_layers=2)),
    "cohere2": ("Cohere2", BASE | dict(num_hidden_layers=4, sliding_window=16)),
    "starcoder2": ("Starcoder2", BASE | dict(num_hidden_layers=2)),
    "lfm2": ("Lfm2", BASE | dict(num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], block_multiple_of=32,
                                 block_auto_adjust_ff_dim=True)),
    "lfm2_moe": ("Lfm2Moe", BASE | MOE | dict(num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], num_experts=4,
                                              num_dense_layers=1)),
    "qwen3_5": ("Qwen3_5:Qwen3_5Text", WIDE | STATE),
    "qwen3_5_moe": ("Qwen3_5Moe:Qwen3_5MoeText", {k: v for k, v in WIDE.items() if k != "intermediate_size"} | STATE_MOE),
    "qwen3_next": ("Qwen3Next", WIDE | STATE_MOE),
    "gemma4": ("Gemma4:Gemma4Text", BASE | GEMMA4 | dict(
        num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2, use_double_wide_mlp=True,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=96, final_logit_softcapping=30.0)),
    "gemma4_moe": ("Gemma4:Gemma4Text", BASE | GEMMA4 | dict(
        num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], num_global_key_value_heads=1, attention_k_eq_v=True,
        enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=32, hidden_size_per_layer_input=0)),
    "gemma4_even": ("Gemma4:Gemma4Text", BASE | GEMMA4 | dict(
        num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], head_dim=32, hidden_size_per_layer_input=0)),
    "deepseek_v3": ("DeepseekV3", BASE | MOE | LATENT | dict(
        num_hidden_layers=2, q_lora_rank=24, n_routed_experts=8, n_group=4, topk_group=2, first_k_dense_replace=1) |
        rope("yarn", **YARN, mscale=0.7, mscale_all_dim=1.3)),
    "deepseek_v2": ("DeepseekV2", BASE | MOE | LATENT | dict(
        num_hidden_layers=2, q_lora_rank=None, n_routed_experts=8, n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=1.5)),
    "granitehybrid": ("GraniteMoeHybrid", BASE | SCALES | MAMBA | dict(num_local_experts=4, num_experts_per_tok=2, position_embedding_type="nope")),
    "granitehybrid_dense": ("GraniteMoeHybrid", BASE | SCALES | MAMBA | dict(num_local_experts=0, position_embedding_type="rope")),
    "falcon_h1": ("FalconH1", BASE | dict(
        num_hidden_layers=2, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=16, mamba_n_groups=1, mamba_chunk_size=16,
        embedding_multiplier=2.0, lm_head_multiplier=0.5, key_multiplier=0.7, attention_in_multiplier=1.2, attention_out_multiplier=0.8,
        ssm_in_multiplier=1.1, ssm_out_multiplier=0.9, ssm_multipliers=[0.5, 0.6, 0.7, 0.8, 0.9], mlp_multipliers=[0.9, 0.8])),
    "nemotron_h": ("NemotronH", WIDE | MOE | dict(
        layers_block_type=["linear_attention", "moe", "full_attention", "mlp"], ssm_state_size=16, mamba_num_heads=8, mamba_head_dim=16,
        n_groups=2, chunk_size=16, time_step_min=1e-9, n_routed_experts=4, moe_shared_expert_intermediate_size=48,
        routed_scaling_factor=2.5)),
    "gemma3n": ("Gemma3n:Gemma3nText", BASE | dict(
        num_hidden_layers=5, layer_types=["sliding_attention", "full_attention"] * 2 + ["full_attention"], sliding_window=16, head_dim=16,
        num_kv_shared_layers=2, hidden_size_per_layer_input=8, vocab_size_per_layer_input=90, laurel_rank=8,
        activation_sparsity_pattern=[0.95, 0.8, 0.0, 0.0, 0.0], final_logit_softcapping=30.0)),
    "llama4": ("Llama4:Llama4Text", WIDE | dict(
        num_hidden_layers=4, intermediate_size=48, intermediate_size_mlp=80, num_local_experts=4, num_experts_per_tok=1,
        interleave_moe_layer_step=2, attention_chunk_size=16, floor_scale=16)),
    "minicpm3": ("MiniCPM3", BASE | LATENT | dict(num_hidden_layers=2, q_lora_rank=24, dim_model_base=32)),
    "mamba2": ("Mamba2", dict(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_heads=8, head_dim=16, state_size=16, n_groups=2,
                              chunk_size=16, time_step_min=1e-9, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "stablelm": ("StableLm", BASE | dict(num_hidden_layers=2, use_qkv_bias=True)),
}

TEXTS = {k: v for k, v in BASE.items() if k != "num_key_value_heads"} | dict(num_hidden_layers=2, max_position_embeddings=64)
XLM = TEXTS | dict(pad_token_id=1, type_vocab_size=1)
MODERN = TEXTS | dict(num_hidden_layers=4, local_attention=8, cls_token_id=1, sep_token_id=2)
# name -> class of the encoder, how its class ends, arguments of its config
ENCODERS = {
    "bert": ("Bert", "Model", TEXTS),
    "bert_rank": ("Bert", "ForSequenceClassification", TEXTS | dict(num_labels=1)),
    "xlm_roberta": ("XLMRoberta", "ForMaskedLM", XLM),
    "xlm_roberta_rank": ("XLMRoberta", "ForSequenceClassification", XLM | dict(num_labels=1)),
    "gemma_embedding": ("Gemma3Text", "Model", TEXTS | dict(
        num_hidden_layers=7, num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=24, sliding_window=16,
        use_bidirectional_attention=True)),
    "nomic_bert": ("NomicBert", "Model", TEXTS),
    "modernbert": ("ModernBert", "ForMaskedLM", MODERN),
    "modernbert_rank": ("ModernBert", "ForSequenceClassification", MODERN | dict(num_labels=1)),
}
ROWS = [(40, 17), (9, 9)]  # texts of so many tokens, of which so many are the first of two


def class_of(stem, end):
    return getattr(transformers, stem.rstrip("_") + end)


def save_known(path, model):
    """Saves the model with weights that its tensors' names give: its config and its tensors."""
    model.float().save_pretrained(path)
    saved = (path / "model.safetensors").read_bytes()
    header = json.loads(saved[8:8 + int.from_bytes(saved[:8], "little")])
    data = saved[8 + int.from_bytes(saved[:8], "little"):]
    tensors = {}
    for tensor, info in header.items():
        if tensor == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        mean = np.frombuffer(data[begin:end], np.float32).mean()
        tensors[tensor] = [info["shape"], *saved_weights.base_and_scale(tensor, info["shape"], mean)]
    saved_weights.write(path / "model.safetensors", {
        n: ("F32", shape, saved_weights.values(n, shape, base, scale).tobytes()) for n, (shape, base, scale) in tensors.items()})
    return json.loads((path / "config.json").read_text()), tensors


def record_encoder(name, folder):
    stem, end, arguments = ENCODERS[name]
    path = pathlib.Path(folder) / name
    config, tensors = save_known(path, class_of(stem, end)(class_of(stem, "Config")(**arguments)))
    ranks = end == "ForSequenceClassification"
    loaded = class_of(stem, end if ranks else "Model").from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    rows, vectors = [], []
    for i, (n, first) in enumerate(ROWS):
        ids = np.random.RandomState(i).randint(3, 96, n)
        types = {"token_type_ids": torch.tensor([[0] * first + [1] * (n - first)])} if config.get("type_vocab_size") == 2 else {}
        with torch.no_grad():
            out = loaded(input_ids=torch.tensor(ids)[None], **types)
        vector = torch.sigmoid(out.logits[0]) if ranks else torch.nn.functional.normalize(out.last_hidden_state[0, 0], dim=0)
        rows.append([first, *ids.tolist()])
        vectors.append([round(float(x), 6) for x in vector[:N_SHOWN]])
    return {"config": config, "tensors": tensors, "rows": rows, "vectors": vectors}


def record(name, folder):
    stem, arguments = RECIPES[name]
    model, _, config = stem.partition(":")
    path = pathlib.Path(folder) / name
    config, tensors = save_known(path, class_of(model, "ForCausalLM")(class_of(config or model, "Config")(**arguments)))
    loaded = class_of(model, "ForCausalLM").from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    ids = np.random.RandomState(5).randint(3, 96, N_TOKENS)
    with torch.no_grad():
        logits = loaded(input_ids=torch.tensor(ids)[None], use_cache=False).logits[0].double()
    logprobs = torch.log_softmax(logits, -1)[:, :].numpy()
    return {"config": config, "tensors": tensors, "ids": ids.tolist(),
            "last": [round(float(x), 6) for x in logprobs[-1, :N_SHOWN]],
            "own": [round(float(logprobs[i, ids[i + 1]]), 6) for i in range(N_TOKENS - 1)]}


def main():
    out, *names = sys.argv[1:]
    recorded = {"transformers": transformers.__version__}
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [*RECIPES, *ENCODERS]:
            recorded[name] = record_encoder(name, folder) if name in ENCODERS else record(name, folder)
            print(name, recorded[name].get("last", recorded[name].get("vectors"))[:1], flush=True)
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in recorded.items())
    pathlib.Path(out).write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
