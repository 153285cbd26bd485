/* The families of models that a folder may hold, by config.json's model_type: what each is in
 * GGUF's terms, and what transformers takes for a key that config.json leaves out. */
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { SHOWN_MAX = 40 };

#define GEMMA_ACTIVATION "gelu_pytorch_tanh"
#define GEMMA                                                                              \
    .activation = GEMMA_ACTIVATION, .names = names_around, .is_tied = true, .norm_add = 1, \
    .window = HF_WINDOW_KEY
#define GEMMA3                                                                           \
    GEMMA, .defaults = {{"rms_norm_eps", 1e-6},     {"head_dim", 256},                   \
                        {"num_attention_heads", 8}, {"num_key_value_heads", 4},          \
                        {"vocab_size", 262208},     {"max_position_embeddings", 131072}, \
                        {"rope_theta", 1e6},        {"query_pre_attn_scalar", 256},      \
                        {"sliding_window", 4096}}
#define MINISTRAL3                                                                          \
    .architecture = "mistral3", .activation = "silu", .has_pairs = true, .has_betas = true, \
    .defaults = {{"num_key_value_heads", 8}, {"head_dim", 128}, {"rms_norm_eps", 1e-5}}
#define STATE_DEFAULTS                                                             \
    {"rms_norm_eps", 1e-6}, {"head_dim", 256}, {"max_position_embeddings", 32768}, \
        {"partial_rotary_factor", 0.25}, {"linear_conv_kernel_dim", 4},            \
        {"linear_key_head_dim", 128}, {"linear_value_head_dim", 128},              \
        {"linear_num_key_heads", 16},                                              \
    {                                                                              \
        "linear_num_value_heads", 32                                               \
    }
#define QWEN_STATE .activation = "silu", .norm_add = 1, .has_state = true, .has_later_layers = true
#define QWEN35                                                   \
    .architecture = "qwen35", .names = names_qwen35, QWEN_STATE, \
    .defaults = {{"num_key_value_heads", 4}, STATE_DEFAULTS}
#define QWEN35_MOE                                                                       \
    .architecture = "qwen35moe", .names = names_qwen35, .has_experts = true, QWEN_STATE, \
    .defaults = {{"num_key_value_heads", 2}, {"num_experts_per_tok", 8}, STATE_DEFAULTS}
#define GEMMA4                                                                                     \
    .architecture = "gemma4", .activation = GEMMA_ACTIVATION, .names = names_gemma4,               \
    .is_tied = true, .has_two_heads = true, .has_experts = true, .experts_if = "enable_moe_block", \
    .window = HF_WINDOW_KEY,                                                                       \
    .defaults = {{"rms_norm_eps", 1e-6},     {"head_dim", 256},                                    \
                 {"num_attention_heads", 8}, {"num_key_value_heads", 4},                           \
                 {"vocab_size", 262144},     {"max_position_embeddings", 131072},                  \
                 {"rope_theta", 1e6},        {"partial_rotary_factor", 0.25},                      \
                 {"sliding_window", 512},    {"hidden_size_per_layer_input", 256}}
#define DEEPSEEK                                                                \
    .architecture = "deepseek2", .activation = "silu", .names = names_deepseek, \
    .has_experts = true, .has_latent = true, .has_later_layers = true
#define GEMMA3N                                                                        \
    .architecture = "gemma3n", .activation = GEMMA_ACTIVATION, .names = names_gemma3n, \
    .is_tied = true, .has_streams = true, .window = HF_WINDOW_KEY,                     \
    .defaults = {{"rms_norm_eps", 1e-6},                                               \
                 {"head_dim", 256},                                                    \
                 {"num_attention_heads", 8},                                           \
                 {"num_key_value_heads", 2},                                           \
                 {"vocab_size", 262400},                                               \
                 {"max_position_embeddings", 32768},                                   \
                 {"rope_theta", 1e6},                                                  \
                 {"intermediate_size", 16384},                                         \
                 {"sliding_window", 512},                                              \
                 {"hidden_size_per_layer_input", 256},                                 \
                 {"num_kv_shared_layers", 15},                                         \
                 {"altup_num_inputs", 4},                                              \
                 {"final_logit_softcapping", 30}}
#define LLAMA4                                                                                  \
    .architecture = "llama4", .activation = "silu", .names = names_llama4, .has_experts = true, \
    .has_chunks = true, .dense_width = "intermediate_size_mlp",                                 \
    .defaults = {{"intermediate_size_mlp", 16384},                                              \
                 {"intermediate_size", 8192},                                                   \
                 {"num_attention_heads", 40},                                                   \
                 {"num_key_value_heads", 8},                                                    \
                 {"head_dim", 128},                                                             \
                 {"rms_norm_eps", 1e-5},                                                        \
                 {"rope_theta", 500000},                                                        \
                 {"max_position_embeddings", 131072},                                           \
                 {"num_local_experts", 16},                                                     \
                 {"num_experts_per_tok", 1},                                                    \
                 {"attention_chunk_size", 8192},                                                \
                 {"attn_scale", 0.1},                                                           \
                 {"floor_scale", 8192}}
#define NO_WINDOW_UNLESS_USED .window_is_optional = true

/* Where post_attention_layernorm follows the attention. */
static const struct hf_name names_around[] = {
    {.from = "post_attention_layernorm", .to = "post_attention_norm"},
    {.from = "pre_feedforward_layernorm", .to = "ffn_norm"},
    {.from = "post_feedforward_layernorm", .to = "post_ffw_norm"},
    {0},
};

/* GGUF calls the norm before the network post_attention_norm in some architectures. */
static const struct hf_name names_seed_oss[] = {
    {.from = "post_attention_layernorm", .to = "post_attention_norm"},
    {0},
};
static const struct hf_name names_glm4[] = {
    {.from = "post_self_attn_layernorm", .to = "post_attention_norm"},
    {.from = "post_mlp_layernorm", .to = "post_ffw_norm"},
    {0},
};
static const struct hf_name names_glm4_moe[] = {
    {.from = "post_attention_layernorm", .to = "post_attention_norm"},
    {.from = "mlp.gate.e_score_correction_bias", .to = "exp_probs_b.bias"},
    {.from = "mlp.shared_experts.gate_proj", .to = "ffn_gate_shexp"},
    {.from = "mlp.shared_experts.up_proj", .to = "ffn_up_shexp"},
    {.from = "mlp.shared_experts.down_proj", .to = "ffn_down_shexp"},
    {0},
};
static const struct hf_name names_qwen2_moe[] = {
    {.from = "mlp.shared_expert.gate_proj", .to = "ffn_gate_shexp"},
    {.from = "mlp.shared_expert.up_proj", .to = "ffn_up_shexp"},
    {.from = "mlp.shared_expert.down_proj", .to = "ffn_down_shexp"},
    {.from = "mlp.shared_expert_gate", .to = "ffn_gate_inp_shexp"},
    {0},
};
static const struct hf_name names_granitemoe[] = {
    {.from = "block_sparse_moe.router.layer", .to = "ffn_gate_inp"},
    {.from = "block_sparse_moe.input_linear", .to = "ffn_gate_exps", .kind = HF_SLAB_GATE_UP},
    {.from = "block_sparse_moe.output_linear", .to = "ffn_down_exps", .kind = HF_SLAB},
    {.from = "shared_mlp.input_linear", .to = "ffn_gate_shexp", .kind = HF_GATE_UP},
    {.from = "shared_mlp.output_linear", .to = "ffn_down_shexp"},
    {0},
};
#define MAMBA_NAMES(of)                                                            \
    {.from = of ".in_proj", .to = "ssm_in", .factor = HF_FACTOR_STATE_IN},         \
        {.from = of ".conv1d.weight", .to = "ssm_conv1d.weight", .kind = HF_SLAB}, \
        {.from = of ".conv1d.bias", .to = "ssm_conv1d.bias"},                      \
        {.from = of ".A_log", .to = "ssm_a", .is_whole = true, .kind = HF_DECAYS}, \
        {.from = of ".D", .to = "ssm_d", .is_whole = true},                        \
        {.from = of ".dt_bias", .to = "ssm_dt.bias"},                              \
        {.from = of ".norm.weight", .to = "ssm_norm.weight", .kind = HF_GROUPS},   \
    {                                                                              \
        .from = of ".out_proj", .to = "ssm_out", .factor = HF_FACTOR_STATE_OUT     \
    }
static const struct hf_name names_granitehybrid[] = {
    MAMBA_NAMES("mamba"),
    {.from = "block_sparse_moe.router.layer", .to = "ffn_gate_inp"},
    {.from = "block_sparse_moe.input_linear", .to = "ffn_gate_exps", .kind = HF_SLAB_GATE_UP},
    {.from = "block_sparse_moe.output_linear", .to = "ffn_down_exps", .kind = HF_SLAB},
    {.from = "shared_mlp.input_linear", .to = "ffn_gate_shexp", .kind = HF_GATE_UP},
    {.from = "shared_mlp.output_linear", .to = "ffn_down_shexp"},
    {0},
};
static const struct hf_name names_granitehybrid_dense[] = {
    MAMBA_NAMES("mamba"),
    {.from = "shared_mlp.input_linear", .to = "ffn_gate", .kind = HF_GATE_UP},
    {.from = "shared_mlp.output_linear", .to = "ffn_down"},
    {0},
};
static const struct hf_name names_falcon_h1[] = {
    MAMBA_NAMES("mamba"),
    {.from = "pre_ff_layernorm.weight", .to = "ffn_norm", .is_whole = true},
    {.from = "feed_forward.gate_proj", .to = "ffn_gate", .factor = HF_FACTOR_GATE},
    {.from = "feed_forward.up_proj", .to = "ffn_up"},
    {.from = "feed_forward.down_proj", .to = "ffn_down", .factor = HF_FACTOR_DOWN},
    {0},
};
static const struct hf_name names_nemotron[] = {
    MAMBA_NAMES("mixer"),
    {.from = "norm", .to = "attn_norm"},
    {.from = "mixer.q_proj", .to = "attn_q"},
    {.from = "mixer.k_proj", .to = "attn_k"},
    {.from = "mixer.v_proj", .to = "attn_v"},
    {.from = "mixer.o_proj", .to = "attn_output"},
    {.from = "mixer.up_proj", .to = "ffn_up"},
    {.from = "mixer.down_proj", .to = "ffn_down"},
    {.from = "mixer.gate.e_score_correction_bias", .to = "exp_probs_b.bias"},
    {.from = "mixer.gate", .to = "ffn_gate_inp"},
    {.from = "mixer.shared_experts.up_proj", .to = "ffn_up_shexp"},
    {.from = "mixer.shared_experts.down_proj", .to = "ffn_down_shexp"},
    {.from = "mixer.experts.up_proj", .to = "ffn_up_exps.weight", .kind = HF_SLAB},
    {.from = "mixer.experts.down_proj", .to = "ffn_down_exps.weight", .kind = HF_SLAB},
    {0},
};
static const struct hf_name names_mamba2[] = {
    MAMBA_NAMES("mixer"),
    {.from = "norm", .to = "attn_norm"},
    {0},
};
static const struct hf_name names_bert[] = {
    {.from = "attention.self.query", .to = "attn_q"},
    {.from = "attention.self.key", .to = "attn_k"},
    {.from = "attention.self.value", .to = "attn_v"},
    {.from = "attention.output.dense", .to = "attn_output"},
    {.from = "attention.output.LayerNorm", .to = "attn_output_norm"},
    {.from = "intermediate.dense", .to = "ffn_up"},
    {.from = "output.dense", .to = "ffn_down"},
    {.from = "output.LayerNorm", .to = "layer_output_norm"},
    {0},
};
static const struct hf_name names_nomic[] = {
    {.from = "attn.Wqkv", .to = "attn_qkv"},      {.from = "attn.out_proj", .to = "attn_output"},
    {.from = "mlp.fc11", .to = "ffn_up"},         {.from = "mlp.fc12", .to = "ffn_gate"},
    {.from = "mlp.fc2", .to = "ffn_down"},        {.from = "norm1", .to = "attn_output_norm"},
    {.from = "norm2", .to = "layer_output_norm"}, {0},
};
static const struct hf_name names_modernbert[] = {
    {.from = "attn.Wqkv", .to = "attn_qkv"},
    {.from = "attn.Wo", .to = "attn_output"},
    {.from = "attn_norm", .to = "attn_norm"},
    {.from = "mlp.Wi", .to = "ffn_up"},
    {.from = "mlp.Wo", .to = "ffn_down"},
    {.from = "mlp_norm", .to = "ffn_norm"},
    {0},
};
#define BERT                                                           \
    .architecture = "bert", .activation = "gelu", .names = names_bert, \
    .encoder_layers = "encoder.layer.",                                \
    .defaults = {{"layer_norm_eps", 1e-12}, {"max_position_embeddings", 512}}
static const struct hf_name names_gpt_oss[] = {
    {.from = "post_attention_layernorm", .to = "post_attention_norm"},
    {.from = "self_attn.sinks", .to = "attn_sinks.weight"},
    {.from = "mlp.router", .to = "ffn_gate_inp"},
    {.from = "mlp.experts.gate_up_proj", .to = "ffn_gate_exps.weight", .kind = HF_COLUMNS_GATE_UP},
    {.from = "mlp.experts.gate_up_proj_bias", .to = "ffn_gate_exps.bias", .kind = HF_ROWS_GATE_UP},
    {.from = "mlp.experts.gate_up_proj_blocks",
     .to = "ffn_gate_exps.weight",
     .kind = HF_BLOCKS_GATE_UP},
    {.from = "mlp.experts.down_proj", .to = "ffn_down_exps.weight", .kind = HF_COLUMNS},
    {.from = "mlp.experts.down_proj_bias", .to = "ffn_down_exps.bias", .kind = HF_ROWS},
    {.from = "mlp.experts.down_proj_blocks", .to = "ffn_down_exps.weight", .kind = HF_BLOCKS},
    {0},
};
static const struct hf_name names_ernie_moe[] = {
    {.from = "mlp.moe_statics.e_score_correction_bias", .to = "exp_probs_b.bias"},
    {.from = "mlp.shared_experts.gate_proj", .to = "ffn_gate_shexp"},
    {.from = "mlp.shared_experts.up_proj", .to = "ffn_up_shexp"},
    {.from = "mlp.shared_experts.down_proj", .to = "ffn_down_shexp"},
    {0},
};
static const struct hf_name names_hunyuan[] = {
    {.from = "self_attn.query_layernorm", .to = "attn_q_norm"},
    {.from = "self_attn.key_layernorm", .to = "attn_k_norm"},
    {.from = "mlp.gate.wg", .to = "ffn_gate_inp"},
    {.from = "mlp.shared_mlp.gate_proj", .to = "ffn_gate_shexp"},
    {.from = "mlp.shared_mlp.up_proj", .to = "ffn_up_shexp"},
    {.from = "mlp.shared_mlp.down_proj", .to = "ffn_down_shexp"},
    {0},
};
static const struct hf_name names_starcoder2[] = {
    {.from = "mlp.c_fc", .to = "ffn_up"},
    {.from = "mlp.c_proj", .to = "ffn_down"},
    {0},
};

#define STATE_NAMES                                                                        \
    {.from = "post_attention_layernorm", .to = "post_attention_norm"},                     \
        {.from = "linear_attn.in_proj_qkv", .to = "attn_qkv"},                             \
        {.from = "linear_attn.in_proj_z", .to = "attn_gate"},                              \
        {.from = "linear_attn.in_proj_b", .to = "ssm_beta"},                               \
        {.from = "linear_attn.in_proj_a", .to = "ssm_alpha"},                              \
        {.from = "linear_attn.conv1d.weight", .to = "ssm_conv1d.weight", .kind = HF_SLAB}, \
        {.from = "linear_attn.A_log", .to = "ssm_a", .is_whole = true, .kind = HF_DECAYS}, \
        {.from = "linear_attn.dt_bias", .to = "ssm_dt.bias"},                              \
        {.from = "linear_attn.norm", .to = "ssm_norm"},                                    \
        {.from = "linear_attn.out_proj", .to = "ssm_out"},                                 \
        {.from = "mlp.shared_expert.gate_proj", .to = "ffn_gate_shexp"},                   \
        {.from = "mlp.shared_expert.up_proj", .to = "ffn_up_shexp"},                       \
        {.from = "mlp.shared_expert.down_proj", .to = "ffn_down_shexp"},                   \
        {.from = "mlp.shared_expert_gate", .to = "ffn_gate_inp_shexp"},                    \
        {.from = "mlp.experts.gate_up_proj",                                               \
         .to = "ffn_gate_exps.weight",                                                     \
         .kind = HF_SLAB_GATE_UP},                                                         \
    {                                                                                      \
        .from = "mlp.experts.down_proj", .to = "ffn_down_exps.weight", .kind = HF_SLAB     \
    }
static const struct hf_name names_qwen35[] = {STATE_NAMES, {0}};
static const struct hf_name names_qwen3_next[] = {
    {.from = "linear_attn.in_proj_qkvz.weight", .to = "attn_qkv.weight", .kind = HF_STATE_HEADS},
    {.from = "linear_attn.in_proj_ba", .to = "ssm_ba"},
    STATE_NAMES,
    {0},
};
static const struct hf_name names_deepseek[] = {
    {.from = "self_attn.q_a_proj", .to = "attn_q_a"},
    {.from = "self_attn.q_a_layernorm", .to = "attn_q_a_norm"},
    {.from = "self_attn.q_b_proj", .to = "attn_q_b"},
    {.from = "self_attn.kv_a_proj_with_mqa", .to = "attn_kv_a_mqa"},
    {.from = "self_attn.kv_a_layernorm", .to = "attn_kv_a_norm"},
    {.from = "self_attn.kv_b_proj.weight", .to = "attn_k_b.weight", .kind = HF_LATENT},
    {.from = "mlp.gate.e_score_correction_bias", .to = "exp_probs_b.bias"},
    {.from = "mlp.shared_experts.gate_proj", .to = "ffn_gate_shexp"},
    {.from = "mlp.shared_experts.up_proj", .to = "ffn_up_shexp"},
    {.from = "mlp.shared_experts.down_proj", .to = "ffn_down_shexp"},
    {.from = "mlp.experts.gate_up_proj", .to = "ffn_gate_exps.weight", .kind = HF_SLAB_GATE_UP},
    {.from = "mlp.experts.down_proj", .to = "ffn_down_exps.weight", .kind = HF_SLAB},
    {0},
};
static const struct hf_name names_gemma4[] = {
    {.from = "post_attention_layernorm", .to = "post_attention_norm"},
    {.from = "pre_feedforward_layernorm", .to = "ffn_norm"},
    {.from = "post_feedforward_layernorm", .to = "post_ffw_norm"},
    {.from = "pre_feedforward_layernorm_2", .to = "pre_ffw_norm_2"},
    {.from = "post_feedforward_layernorm_1", .to = "post_ffw_norm_1"},
    {.from = "post_feedforward_layernorm_2", .to = "post_ffw_norm_2"},
    {.from = "layer_scalar", .to = "layer_output_scale.weight"},
    {.from = "per_layer_input_gate", .to = "inp_gate"},
    {.from = "per_layer_projection", .to = "proj"},
    {.from = "post_per_layer_input_norm", .to = "post_norm"},
    {.from = "router.proj", .to = "ffn_gate_inp"},
    {.from = "router.scale", .to = "ffn_gate_inp.scale"},
    {.from = "router.per_expert_scale", .to = "ffn_down_exps.scale"},
    {.from = "experts.gate_up_proj", .to = "ffn_gate_exps.weight", .kind = HF_SLAB_GATE_UP},
    {.from = "experts.down_proj", .to = "ffn_down_exps.weight", .kind = HF_SLAB},
    {0},
};

static const struct hf_name names_gemma3n[] = {
    {.from = "post_attention_layernorm", .to = "post_attention_norm"},
    {.from = "pre_feedforward_layernorm", .to = "ffn_norm"},
    {.from = "post_feedforward_layernorm", .to = "post_ffw_norm"},
    {.from = "per_layer_input_gate", .to = "inp_gate"},
    {.from = "per_layer_projection", .to = "proj"},
    {.from = "post_per_layer_input_norm", .to = "post_norm"},
    {.from = "laurel.linear_left", .to = "laurel_l"},
    {.from = "laurel.linear_right", .to = "laurel_r"},
    {.from = "laurel.post_laurel_norm", .to = "laurel_post_norm"},
    {.from = "altup.correct_output_scale", .to = "altup_correct_scale.weight"},
    {.from = "altup.correction_coefs", .to = "altup_correct_coef"},
    {.from = "altup.prediction_coefs", .to = "altup_predict_coef"},
    {.from = "altup.modality_router", .to = "altup_router"},
    {.from = "altup.router_norm", .to = "altup_router_norm"},
    {0},
};

static const struct hf_name names_llama4[] = {
    {.from = "feed_forward.gate_proj", .to = "ffn_gate"},
    {.from = "feed_forward.up_proj", .to = "ffn_up"},
    {.from = "feed_forward.down_proj", .to = "ffn_down"},
    {.from = "feed_forward.router", .to = "ffn_gate_inp"},
    {.from = "feed_forward.experts.gate_up_proj",
     .to = "ffn_gate_exps.weight",
     .kind = HF_COLUMNS_HALVES},
    {.from = "feed_forward.experts.down_proj", .to = "ffn_down_exps.weight", .kind = HF_COLUMNS},
    {.from = "feed_forward.shared_expert.gate_proj", .to = "ffn_gate_shexp"},
    {.from = "feed_forward.shared_expert.up_proj", .to = "ffn_up_shexp"},
    {.from = "feed_forward.shared_expert.down_proj", .to = "ffn_down_shexp"},
    {0},
};

static const struct hf_name names_lfm2[] = {
    {.from = "operator_norm", .to = "attn_norm"},
    {.from = "ffn_norm", .to = "ffn_norm"},
    {.from = "self_attn.q_layernorm", .to = "attn_q_norm"},
    {.from = "self_attn.k_layernorm", .to = "attn_k_norm"},
    {.from = "self_attn.out_proj", .to = "attn_output"},
    {.from = "conv.conv.weight", .to = "shortconv.conv.weight", .kind = HF_SLAB},
    {.from = "conv.in_proj.weight", .to = "shortconv.in_proj.weight"},
    {.from = "conv.out_proj.weight", .to = "shortconv.out_proj.weight"},
    {.from = "feed_forward.w1", .to = "ffn_gate"},
    {.from = "feed_forward.w3", .to = "ffn_up"},
    {.from = "feed_forward.w2", .to = "ffn_down"},
    {.from = "feed_forward.gate", .to = "ffn_gate_inp"},
    {.from = "feed_forward.expert_bias", .to = "exp_probs_b.bias"},
    {0},
};

enum { ROUTING_SOFTMAX = 1, ROUTING_SIGMOID = 2 }; /* of GGUF's expert_gating_func */

static const struct hf_family families[] = {
    {.model_type = "llama",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .defaults = {{"rms_norm_eps", 1e-6}, {"max_position_embeddings", 2048}}},
    {.model_type = "mistral",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .defaults = {{"num_key_value_heads", 8},
                  {"rms_norm_eps", 1e-6},
                  {"sliding_window", 4096},
                  {"max_position_embeddings", 131072}}},
    {.model_type = "mixtral",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .has_experts = true,
     .defaults = {{"num_key_value_heads", 8},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 1e6},
                  {"num_local_experts", 8},
                  {"num_experts_per_tok", 2},
                  {"max_position_embeddings", 131072}}},
    {.model_type = "ministral3", MINISTRAL3},
    {.model_type = "mistral3", .nested_type = "ministral3", .is_tied = true, MINISTRAL3},
    {.model_type = "mistral3",
     .nested_type = "mistral",
     .architecture = "llama",
     .activation = "silu",
     .has_pairs = true,
     .is_tied = true,
     .defaults = {{"num_key_value_heads", 8}, {"rms_norm_eps", 1e-6}, {"sliding_window", 4096}}},
    {.model_type = "qwen2",
     .architecture = "qwen2",
     .activation = "silu",
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"rms_norm_eps", 1e-6}, {"max_position_embeddings", 32768}}},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .activation = "silu",
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"rms_norm_eps", 1e-6}, {"head_dim", 128}, {"max_position_embeddings", 32768}}},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .activation = "silu",
     .has_experts = true,
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"num_key_value_heads", 4},
                  {"rms_norm_eps", 1e-6},
                  {"num_experts_per_tok", 8},
                  {"norm_topk_prob", 0},
                  {"max_position_embeddings", 32768}}},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     GEMMA,
     .defaults = {{"rms_norm_eps", 1e-6},
                  {"head_dim", 256},
                  {"num_key_value_heads", 4},
                  {"query_pre_attn_scalar", 256},
                  {"sliding_window", 4096},
                  {"max_position_embeddings", 8192}}},
    {.model_type = "gemma3_text",
     .only_if = "use_bidirectional_attention",
     .architecture = "gemma-embedding",
     GEMMA3},
    {.model_type = "gemma3_text", .architecture = "gemma3", GEMMA3},
    {.model_type = "gemma3", .nested_type = "gemma3_text", .architecture = "gemma3", GEMMA3},
    {.model_type = "phi3",
     .architecture = "phi3",
     .activation = "silu",
     .window = HF_WINDOW_ALL,
     .defaults = {{"rms_norm_eps", 1e-5}, {"max_position_embeddings", 4096}}},
    {.model_type = "phimoe",
     .architecture = "phimoe",
     .activation = "silu",
     .eps = "rms_norm_eps",
     .has_experts = true,
     .near = 0.01,
     .window = HF_WINDOW_ALL,
     .defaults = {{"rms_norm_eps", 1e-5},
                  {"num_key_value_heads", 8},
                  {"num_local_experts", 16},
                  {"num_experts_per_tok", 2},
                  {"rope_theta", 1e6},
                  {"max_position_embeddings", 131072}}},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .activation = "silu",
     .has_pairs = true,
     .is_tied = true,
     .unrotated_every = 4,
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"num_key_value_heads", 4}, {"rms_norm_eps", 1e-6}, {"rope_theta", 2e6}}},
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .activation = "silu",
     .names = names_around,
     .defaults = {{"rms_norm_eps", 1e-5}}},
    {.model_type = "olmo3",
     .architecture = "olmo2",
     .activation = "silu",
     .names = names_around,
     .window = HF_WINDOW_KEY,
     .defaults = {{"rms_norm_eps", 1e-5}, {"rope_theta", 5e5}, {"sliding_window", 4096}}},
    {.model_type = "minicpm",
     .architecture = "minicpm",
     .activation = "silu",
     .has_pairs = true,
     .is_tied = true,
     .scales_by_depth = true,
     .defaults = {{"rms_norm_eps", 1e-6},
                  {"max_position_embeddings", 2048},
                  {"scale_emb", 1},
                  {"scale_depth", 1},
                  {"dim_model_base", 1}}},
    {.model_type = "minicpm3",
     .architecture = "minicpm3",
     .activation = "silu",
     .names = names_deepseek,
     .is_tied = true,
     .has_latent = true,
     .scales_by_depth = true,
     .defaults = {{"rms_norm_eps", 1e-5},
                  {"max_position_embeddings", 32768},
                  {"q_lora_rank", 768},
                  {"kv_lora_rank", 256},
                  {"qk_nope_head_dim", 64},
                  {"qk_rope_head_dim", 32},
                  {"scale_emb", 12},
                  {"scale_depth", 1.4},
                  {"dim_model_base", 256}}},
    {.model_type = "granite",
     .architecture = "granite",
     .activation = "silu",
     .has_pairs = true,
     .defaults = {{"rms_norm_eps", 1e-6}}},
    {.model_type = "granitemoe",
     .architecture = "granitemoe",
     .activation = "silu",
     .names = names_granitemoe,
     .has_pairs = true,
     .has_experts = true,
     .defaults = {{"rms_norm_eps", 1e-6}}},
    {.model_type = "granitemoeshared",
     .architecture = "granitemoe",
     .activation = "silu",
     .names = names_granitemoe,
     .has_pairs = true,
     .has_experts = true,
     .defaults = {{"rms_norm_eps", 1e-6}}},
    {.model_type = "granitemoehybrid",
     .architecture = "granitehybrid",
     .activation = "silu",
     .names = names_granitehybrid,
     .names_dense = names_granitehybrid_dense,
     .mamba = HF_MAMBA,
     .has_pairs = true,
     .has_experts = true,
     .defaults = {{"rms_norm_eps", 1e-6},
                  {"max_position_embeddings", 2048},
                  {"num_local_experts", 8},
                  {"num_experts_per_tok", 2},
                  {"shared_intermediate_size", 1024},
                  {"mamba_n_heads", 128},
                  {"mamba_n_groups", 1},
                  {"mamba_d_state", 256},
                  {"mamba_d_conv", 4},
                  {"embedding_multiplier", 1},
                  {"logits_scaling", 1},
                  {"residual_multiplier", 1},
                  {"attention_multiplier", 1}}},
    {.model_type = "falcon_h1",
     .architecture = "falcon-h1",
     .activation = "silu",
     .names = names_falcon_h1,
     .mamba = HF_MAMBA_BESIDE,
     .has_factors = true,
     .defaults = {{"rms_norm_eps", 1e-5},
                  {"max_position_embeddings", 8192},
                  {"num_key_value_heads", 8},
                  {"mamba_d_ssm", 1024},
                  {"mamba_n_heads", 128},
                  {"mamba_n_groups", 1},
                  {"mamba_d_state", 256},
                  {"mamba_d_conv", 4}}},
    {.model_type = "mamba2",
     .architecture = "mamba2",
     .activation = "silu",
     .names = names_mamba2,
     .prefix = "backbone.",
     .rms_eps = "layer_norm_epsilon",
     .mamba = HF_MAMBA_ALONE,
     .defaults = {{"layer_norm_epsilon", 1e-5},
                  {"max_position_embeddings", 1 << 20},
                  {"num_attention_heads", 1},
                  {"num_heads", 128},
                  {"head_dim", 64},
                  {"state_size", 128},
                  {"n_groups", 8},
                  {"conv_kernel", 4}}},
    {.model_type = "nemotron_h",
     .architecture = "nemotron_h",
     .activation = "relu2",
     .names = names_nemotron,
     .prefix = "backbone.",
     .rms_eps = "layer_norm_epsilon",
     .mamba = HF_MAMBA_HALVES,
     .has_experts = true,
     .has_later_layers = true,
     .routing = ROUTING_SIGMOID,
     .defaults = {{"layer_norm_epsilon", 1e-5},
                  {"max_position_embeddings", 4096},
                  {"num_key_value_heads", 8},
                  {"head_dim", 128},
                  {"num_experts_per_tok", 2},
                  {"mamba_num_heads", 128},
                  {"mamba_head_dim", 64},
                  {"ssm_state_size", 128},
                  {"n_groups", 8},
                  {"conv_kernel", 4}}},
    {.model_type = "bert", .prefix = "bert.", BERT},
    {.model_type = "roberta", .prefix = "roberta.", .n_unused_positions = 2, BERT},
    {.model_type = "xlm-roberta", .prefix = "roberta.", .n_unused_positions = 2, BERT},
    {.model_type = "nomic_bert",
     .architecture = "nomic-bert",
     .activation = "silu",
     .names = names_nomic,
     .encoder_layers = "encoder.layers.",
     .prefix = "bert.",
     .rotates = true,
     .defaults = {{"layer_norm_eps", 1e-12}, {"rope_theta", 1000}}},
    {.model_type = "modernbert",
     .architecture = "modern-bert",
     .activation = "gelu",
     .names = names_modernbert,
     .encoder_layers = "layers.",
     .prefix = "model.",
     .rotates = true,
     .window = HF_WINDOW_KEY,
     .defaults = {{"layer_norm_eps", 1e-5},
                  {"max_position_embeddings", 8192},
                  {"local_attention", 128},
                  {"rope_theta", 160000},
                  {"local_rope_theta", 10000}}},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .activation = "silu",
     .names = names_qwen2_moe,
     .has_experts = true,
     .routing = ROUTING_SOFTMAX,
     NO_WINDOW_UNLESS_USED,
     .defaults = {{"rms_norm_eps", 1e-6}, {"num_experts_per_tok", 4}, {"norm_topk_prob", 0}}},
    {.model_type = "seed_oss",
     .architecture = "seed_oss",
     .activation = "silu",
     .names = names_seed_oss,
     .defaults = {{"rms_norm_eps", 1e-6}, {"num_key_value_heads", 8}, {"head_dim", 128}}},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .activation = "silu",
     .names = names_gpt_oss,
     .has_experts = true,
     .yarn_is_exact = true,
     .window = HF_WINDOW_KEY,
     .defaults = {{"rms_norm_eps", 1e-5},
                  {"num_key_value_heads", 8},
                  {"head_dim", 64},
                  {"rope_theta", 150000},
                  {"num_experts_per_tok", 4},
                  {"sliding_window", 128}}},
    {.model_type = "glm4",
     .architecture = "glm4",
     .activation = "silu",
     .names = names_glm4,
     .defaults = {{"rms_norm_eps", 1.5625e-7},
                  {"num_key_value_heads", 2},
                  {"head_dim", 128},
                  {"partial_rotary_factor", 0.5}}},
    {.model_type = "glm4_moe",
     .architecture = "glm4moe",
     .activation = "silu",
     .names = names_glm4_moe,
     .has_experts = true,
     .has_later_layers = true,
     .routing = ROUTING_SIGMOID,
     .defaults = {{"rms_norm_eps", 1e-5},
                  {"num_key_value_heads", 8},
                  {"num_experts_per_tok", 8},
                  {"partial_rotary_factor", 0.5}}},
    {.model_type = "ernie4_5",
     .architecture = "ernie4_5",
     .activation = "silu",
     .is_tied = true,
     .defaults = {{"rms_norm_eps", 1e-5},
                  {"num_key_value_heads", 2},
                  {"head_dim", 128},
                  {"rope_theta", 500000}}},
    {.model_type = "ernie4_5_moe",
     .architecture = "ernie4_5-moe",
     .activation = "silu",
     .names = names_ernie_moe,
     .is_tied = true,
     .has_experts = true,
     .defaults = {{"rms_norm_eps", 1e-5}, {"num_key_value_heads", 4}, {"rope_theta", 500000}}},
    {.model_type = "hunyuan_v1_dense",
     .architecture = "hunyuan-dense",
     .activation = "silu",
     .names = names_hunyuan,
     .defaults = {{"rms_norm_eps", 1e-5}}},
    {.model_type = "hunyuan_v1_moe",
     .architecture = "hunyuan-moe",
     .activation = "silu",
     .names = names_hunyuan,
     .has_experts = true,
     .defaults = {{"rms_norm_eps", 1e-5}}},
    {.model_type = "exaone4",
     .architecture = "exaone4",
     .activation = "silu",
     .names = names_around,
     .window = HF_WINDOW_KEY,
     .defaults = {{"rms_norm_eps", 1e-5}, {"sliding_window", 4096}}},
    {.model_type = "cohere",
     .architecture = "command-r",
     .activation = "silu",
     .eps = "layer_norm_eps",
     .is_tied = true,
     .defaults = {{"layer_norm_eps", 1e-5}, {"rope_theta", 500000}, {"logit_scale", 0.0625}}},
    {.model_type = "cohere2",
     .architecture = "cohere2",
     .activation = "silu",
     .eps = "layer_norm_eps",
     .is_tied = true,
     .window = HF_WINDOW_KEY,
     .defaults = {{"layer_norm_eps", 1e-5}, {"sliding_window", 4096}, {"logit_scale", 0.0625}}},
    {.model_type = "starcoder2",
     .architecture = "starcoder2",
     .activation = GEMMA_ACTIVATION,
     .names = names_starcoder2,
     .eps = "norm_epsilon",
     .is_tied = true,
     .window = HF_WINDOW_ALL,
     .defaults = {{"norm_epsilon", 1e-5}, {"num_key_value_heads", 2}}},
    {.model_type = "lfm2",
     .architecture = "lfm2",
     .activation = "silu",
     .names = names_lfm2,
     .rms_eps = "norm_eps",
     .is_tied = true,
     .defaults = {{"norm_eps", 1e-5}, {"num_key_value_heads", 8}, {"rope_theta", 1e6}}},
    {.model_type = "lfm2_moe",
     .architecture = "lfm2moe",
     .activation = "silu",
     .names = names_lfm2,
     .rms_eps = "norm_eps",
     .is_tied = true,
     .has_experts = true,
     .routing = ROUTING_SIGMOID,
     .defaults = {{"norm_eps", 1e-5}, {"num_key_value_heads", 8}, {"rope_theta", 1e6}}},
    {.model_type = "llama4_text", LLAMA4},
    {.model_type = "llama4", .nested_type = "llama4_text", LLAMA4},
    {.model_type = "qwen3_5_text", QWEN35},
    {.model_type = "qwen3_5", .nested_type = "qwen3_5_text", QWEN35},
    {.model_type = "qwen3_5_moe_text", QWEN35_MOE},
    {.model_type = "qwen3_5_moe", .nested_type = "qwen3_5_moe_text", QWEN35_MOE},
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .names = names_qwen3_next,
     .has_experts = true,
     QWEN_STATE,
     .defaults = {{"num_key_value_heads", 2}, {"num_experts_per_tok", 10}, STATE_DEFAULTS}},
    {.model_type = "gemma3n_text", GEMMA3N},
    {.model_type = "gemma3n", .nested_type = "gemma3n_text", GEMMA3N},
    {.model_type = "gemma4_text", GEMMA4},
    {.model_type = "gemma4", .nested_type = "gemma4_text", GEMMA4},
    {.model_type = "deepseek_v3",
     .routing = ROUTING_SIGMOID,
     DEEPSEEK,
     .defaults = {{"rms_norm_eps", 1e-6},
                  {"max_position_embeddings", 4096},
                  {"q_lora_rank", 1536},
                  {"kv_lora_rank", 512},
                  {"qk_nope_head_dim", 128},
                  {"qk_rope_head_dim", 64},
                  {"v_head_dim", 128},
                  {"n_group", 8},
                  {"topk_group", 4},
                  {"num_experts_per_tok", 8},
                  {"first_k_dense_replace", 3},
                  {"routed_scaling_factor", 2.5}}},
    {.model_type = "deepseek_v2",
     .routing = ROUTING_SOFTMAX,
     DEEPSEEK,
     .defaults = {{"rms_norm_eps", 1e-6},
                  {"max_position_embeddings", 2048},
                  {"q_lora_rank", 1536},
                  {"kv_lora_rank", 512},
                  {"qk_nope_head_dim", 128},
                  {"qk_rope_head_dim", 64},
                  {"v_head_dim", 128},
                  {"norm_topk_prob", 0}}},
    {.model_type = "stablelm",
     .architecture = "stablelm",
     .activation = "silu",
     .eps = "layer_norm_eps",
     .defaults = {{"layer_norm_eps", 1e-5}, {"partial_rotary_factor", 0.25}}},
};

enum { N_HF_FAMILIES = sizeof(families) / sizeof(families[0]) };

enum status hf_family_find(const struct hf_family **out, const json_t *config, struct error *err)
{
    const char *type = hf_json_text(config, "model_type");
    const char *nested = hf_json_text(hf_json_object(config, "text_config"), "model_type");

    for (size_t i = 0; i < N_HF_FAMILIES; i++) {
        const struct hf_family *f = &families[i];

        if (strcmp(f->model_type, type) == 0 &&
            (f->only_if == NULL || hf_json_is_true(config, f->only_if)) &&
            (f->nested_type == NULL || *nested == '\0' || strcmp(f->nested_type, nested) == 0)) {
            *out = f;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "key 'model_type' is '%.*s', an architecture that does not run here, in GGUF "
                     "neither",
                     SHOWN_MAX, type);
}

enum status hf_family_default(double *out, const struct hf_family *f, const char *name)
{
    for (size_t i = 0; i < HF_DEFAULTS_MAX && f->defaults[i].name != NULL; i++)
        if (strcmp(f->defaults[i].name, name) == 0) {
            *out = f->defaults[i].value;
            return STATUS_OK;
        }
    return STATUS_NOT_FOUND;
}
