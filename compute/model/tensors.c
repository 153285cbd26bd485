/* Finds a part of a layer in a file by the names that files of its architecture use, alone or as
 * rows of a fused tensor, and checks the shape. A tensor that no part takes is refused by its name.
 */
#include "compute/model/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"
#include "compute/model/shape.h"

enum { TENSOR_NAME_MAX = 64 };

enum extent {
    ONE,
    WIDTH,
    QUERIES,
    KEYS,
    ATTENDED,
    HEADS,
    QUERY_RANK,
    LATENT_RANK,
    LATENT,
    PLAIN,
    HEADS_LATENT,
    HEADS_VALUE,
    HIDDEN,
    QUERY_NORM,
    KEY_NORM,
    EXPERTS,
    EXPERT_HIDDEN,
    EXPERTS_WIDTH,
    EXPERTS_HIDDEN,
    SHARED_HIDDEN,
    EXPERTS_BOTH,
    EMBEDDING,
    THREE_WIDTHS,
    TAPS,
    STATE_CHANNELS,
    STATE_ALL,
    STATE_VALUES,
    STATE_NORMS,
    STATE_NORMED,
    STATE_HEADS,
    STATE_HEADS_TWICE,
    STATE_TAPS,
    STREAMS,
    STREAMS_SQUARE,
    LAUREL,
};
/* When a layer has a part: always; where the file has it; by its norms; by what its network is. A
 * bias of a norm that the layer does not have is none. */
enum presence {
    ALWAYS,
    OPTIONAL,
    QUERIES_AT_ONCE,
    QUERIES_IN_STEPS,
    PER_HEAD,
    PER_HEAD_BIAS,
    LATENT_ATTENTION,
    BEFORE,
    BEFORE_NETWORK,
    LAYER_NORM_BIAS,
    NETWORK_NORM_BIAS,
    AFTER,
    HEAD_NORMED,
    SINKS,
    DENSE_GATED,
    DENSE,
    DENSE_BIAS,
    SPARSE,
    SPARSE_BIAS,
    SELECTED,
    SHARED,
    SHARED_OPTIONAL,
    BESIDE,
    FUSED_EXPERTS,
    SPLIT_EXPERTS,
    OWN_KEYS,
    OWN_VALUES,
    EMBEDDED,
    SCALED,
    CONVOLVED,
    ATTENDING,
    ATTENDING_BIAS,
    RECURRENT,
    RECURRENT_DELTA,
    RECURRENT_SPLIT,
    RECURRENT_FUSED,
    RECURRENT_SUM,
    RECURRENT_SUM_BIAS,
    RECURRENT_NORM,
    STREAMED,
};

static const struct part_rule {
    const char *name;
    enum extent rows, cols;
    enum presence presence;
} rules[N_PARTS] = {
    [PART_ATTN_NORM] = {"attn_norm.weight", ONE, WIDTH, BEFORE},
    [PART_ATTN_NORM_BIAS] = {"attn_norm.bias", ONE, WIDTH, LAYER_NORM_BIAS},
    [PART_Q] = {"attn_q.weight", QUERIES, WIDTH, QUERIES_AT_ONCE},
    [PART_K] = {"attn_k.weight", KEYS, WIDTH, OWN_KEYS},
    [PART_V] = {"attn_v.weight", KEYS, WIDTH, OWN_VALUES},
    [PART_Q_BIAS] = {"attn_q.bias", ONE, QUERIES, PER_HEAD_BIAS},
    [PART_K_BIAS] = {"attn_k.bias", ONE, KEYS, PER_HEAD_BIAS},
    [PART_V_BIAS] = {"attn_v.bias", ONE, KEYS, PER_HEAD_BIAS},
    [PART_Q_NORM] = {"attn_q_norm.weight", ONE, QUERY_NORM, HEAD_NORMED},
    [PART_K_NORM] = {"attn_k_norm.weight", ONE, KEY_NORM, HEAD_NORMED},
    [PART_QUERY_DOWN] = {"attn_q_a.weight", QUERY_RANK, WIDTH, QUERIES_IN_STEPS},
    [PART_QUERY_DOWN_NORM] = {"attn_q_a_norm.weight", ONE, QUERY_RANK, QUERIES_IN_STEPS},
    [PART_QUERY_UP] = {"attn_q_b.weight", QUERIES, QUERY_RANK, QUERIES_IN_STEPS},
    [PART_LATENT] = {"attn_kv_a_mqa.weight", LATENT, WIDTH, LATENT_ATTENTION},
    [PART_LATENT_NORM] = {"attn_kv_a_norm.weight", ONE, LATENT_RANK, LATENT_ATTENTION},
    [PART_LATENT_KEYS] = {"attn_k_b.weight", HEADS_LATENT, PLAIN, LATENT_ATTENTION},
    [PART_LATENT_VALUES] = {"attn_v_b.weight", HEADS_VALUE, LATENT_RANK, LATENT_ATTENTION},
    [PART_ATTN_OUT] = {"attn_output.weight", WIDTH, ATTENDED, ATTENDING},
    [PART_ATTN_OUT_BIAS] = {"attn_output.bias", ONE, WIDTH, ATTENDING_BIAS},
    [PART_SINKS] = {"attn_sinks.weight", ONE, HEADS, SINKS},
    [PART_ATTN_POST_NORM] = {"post_attention_norm.weight", ONE, WIDTH, AFTER},
    [PART_FFN_NORM] = {"ffn_norm.weight", ONE, WIDTH, BEFORE_NETWORK},
    [PART_FFN_NORM_BIAS] = {"ffn_norm.bias", ONE, WIDTH, NETWORK_NORM_BIAS},
    [PART_GATE] = {"ffn_gate.weight", HIDDEN, WIDTH, DENSE_GATED},
    [PART_UP] = {"ffn_up.weight", HIDDEN, WIDTH, DENSE},
    [PART_DOWN] = {"ffn_down.weight", WIDTH, HIDDEN, DENSE},
    [PART_UP_BIAS] = {"ffn_up.bias", ONE, HIDDEN, DENSE_BIAS},
    [PART_DOWN_BIAS] = {"ffn_down.bias", ONE, WIDTH, DENSE_BIAS},
    [PART_FFN_POST_NORM] = {"post_ffw_norm.weight", ONE, WIDTH, AFTER},
    [PART_ROUTER] = {"ffn_gate_inp.weight", EXPERTS, WIDTH, SPARSE},
    [PART_ROUTER_BIAS] = {"ffn_gate_inp.bias", ONE, EXPERTS, SPARSE_BIAS},
    [PART_SELECT_BIAS] = {"exp_probs_b.bias", ONE, EXPERTS, SELECTED},
    [PART_NETWORK_POST_NORM] = {"post_ffw_norm_1.weight", ONE, WIDTH, BESIDE},
    [PART_EXPERTS_NORM] = {"pre_ffw_norm_2.weight", ONE, WIDTH, BESIDE},
    [PART_EXPERTS_POST_NORM] = {"post_ffw_norm_2.weight", ONE, WIDTH, BESIDE},
    [PART_ROUTER_NORM] = {"ffn_gate_inp.scale", ONE, WIDTH, BESIDE},
    [PART_EXPERT_SCALES] = {"ffn_down_exps.scale", ONE, EXPERTS, BESIDE},
    [PART_GATE_UP_EXPERTS] = {"ffn_gate_up_exps.weight", EXPERTS_BOTH, WIDTH, FUSED_EXPERTS},
    [PART_CONV_IN] = {"shortconv.in_proj.weight", THREE_WIDTHS, WIDTH, CONVOLVED},
    [PART_CONV_TAPS] = {"shortconv.conv.weight", WIDTH, TAPS, CONVOLVED},
    [PART_CONV_OUT] = {"shortconv.out_proj.weight", WIDTH, WIDTH, CONVOLVED},
    [PART_STATE_IN] = {"attn_qkv.weight", STATE_CHANNELS, WIDTH, RECURRENT_DELTA},
    [PART_STATE_GATE] = {"attn_gate.weight", STATE_VALUES, WIDTH, RECURRENT_DELTA},
    [PART_STATE_ALL] = {"ssm_in.weight", STATE_ALL, WIDTH, RECURRENT_SUM},
    [PART_STATE_STRENGTH] = {"ssm_beta.weight", STATE_HEADS, WIDTH, RECURRENT_SPLIT},
    [PART_STATE_DECAY] = {"ssm_alpha.weight", STATE_HEADS, WIDTH, RECURRENT_SPLIT},
    [PART_STATE_BOTH] = {"ssm_ba.weight", STATE_HEADS_TWICE, WIDTH, RECURRENT_FUSED},
    [PART_STATE_TAPS] = {"ssm_conv1d.weight", STATE_CHANNELS, STATE_TAPS, RECURRENT},
    [PART_STATE_TAPS_BIAS] = {"ssm_conv1d.bias", ONE, STATE_CHANNELS, RECURRENT_SUM_BIAS},
    [PART_STATE_SKIP] = {"ssm_d", ONE, STATE_HEADS, RECURRENT_SUM},
    [PART_STATE_BIAS] = {"ssm_dt.bias", ONE, STATE_HEADS, RECURRENT},
    [PART_STATE_SLOPE] = {"ssm_a", ONE, STATE_HEADS, RECURRENT},
    [PART_STATE_NORM] = {"ssm_norm.weight", STATE_NORMS, STATE_NORMED, RECURRENT_NORM},
    [PART_STATE_OUT] = {"ssm_out.weight", WIDTH, STATE_VALUES, RECURRENT},
    [PART_EMBEDDING_GATE] = {"inp_gate.weight", EMBEDDING, WIDTH, EMBEDDED},
    [PART_EMBEDDING_OUT] = {"proj.weight", WIDTH, EMBEDDING, EMBEDDED},
    [PART_EMBEDDING_NORM] = {"post_norm.weight", ONE, WIDTH, EMBEDDED},
    [PART_LAYER_SCALE] = {"layer_output_scale.weight", ONE, ONE, SCALED},
    [PART_STREAM_ROUTER] = {"altup_router.weight", STREAMS, WIDTH, STREAMED},
    [PART_STREAM_ROUTER_NORM] = {"altup_router_norm.weight", ONE, WIDTH, STREAMED},
    [PART_STREAM_PREDICT] = {"altup_predict_coef.weight", STREAMS_SQUARE, STREAMS, STREAMED},
    [PART_STREAM_CORRECT] = {"altup_correct_coef.weight", STREAMS, STREAMS, STREAMED},
    [PART_STREAM_SCALE] = {"altup_correct_scale.weight", ONE, WIDTH, STREAMED},
    [PART_LAUREL_LEFT] = {"laurel_l.weight", LAUREL, WIDTH, STREAMED},
    [PART_LAUREL_RIGHT] = {"laurel_r.weight", WIDTH, LAUREL, STREAMED},
    [PART_LAUREL_NORM] = {"laurel_post_norm.weight", ONE, WIDTH, STREAMED},
    [PART_GATE_EXPERTS] = {"ffn_gate_exps.weight", EXPERTS_HIDDEN, WIDTH, SPLIT_EXPERTS},
    [PART_UP_EXPERTS] = {"ffn_up_exps.weight", EXPERTS_HIDDEN, WIDTH, SPLIT_EXPERTS},
    [PART_DOWN_EXPERTS] = {"ffn_down_exps.weight", EXPERTS_WIDTH, EXPERT_HIDDEN, SPARSE},
    [PART_GATE_EXPERTS_BIAS] = {"ffn_gate_exps.bias", EXPERTS, EXPERT_HIDDEN, SPARSE_BIAS},
    [PART_UP_EXPERTS_BIAS] = {"ffn_up_exps.bias", EXPERTS, EXPERT_HIDDEN, SPARSE_BIAS},
    [PART_DOWN_EXPERTS_BIAS] = {"ffn_down_exps.bias", EXPERTS, WIDTH, SPARSE_BIAS},
    [PART_SHARED_GATE] = {"ffn_gate_shexp.weight", SHARED_HIDDEN, WIDTH, SHARED},
    [PART_SHARED_UP] = {"ffn_up_shexp.weight", SHARED_HIDDEN, WIDTH, SHARED},
    [PART_SHARED_DOWN] = {"ffn_down_shexp.weight", WIDTH, SHARED_HIDDEN, SHARED},
    [PART_SHARED_ROUTER] = {"ffn_gate_inp_shexp.weight", ONE, WIDTH, SHARED_OPTIONAL},
};

static const char *part_name(const struct transformer_shape *s, enum transformer_part part)
{
    if (part == PART_FFN_NORM && s->arch->names_ffn_norm_post)
        return rules[PART_ATTN_POST_NORM].name;
    if (part == PART_FFN_NORM && s->arch->recurs_beside)
        return "ffn_norm";
    return rules[part].name;
}

static size_t extent_of(const struct transformer_shape *s, size_t layer, enum extent e)
{
    const bool whole = s->arch->head_norms == HEAD_NORMS_ALL;
    const struct shape_layer *l = &s->layers[layer];

    switch (e) {
    case ONE:
        return 1;
    case WIDTH:
        return s->width;
    case QUERIES:
        return s->n_heads * (s->latent_rank > 0 ? s->plain_dim + s->n_rotated : l->head_dim) *
               (s->arch->gates_attention ? 2 : 1);
    case KEYS:
        return l->n_kv_heads * (size_t)l->head_dim;
    case ATTENDED:
        return s->n_heads * (s->latent_rank > 0 ? s->value_dim : l->head_dim);
    case QUERY_RANK:
        return s->query_rank;
    case LATENT_RANK:
        return s->latent_rank;
    case LATENT:
        return s->head_dim;
    case PLAIN:
        return s->plain_dim;
    case HEADS_LATENT:
        return s->n_heads * s->latent_rank;
    case HEADS_VALUE:
        return s->n_heads * s->value_dim;
    case HEADS:
        return s->n_heads;
    case QUERY_NORM:
        return whole ? s->n_heads * l->head_dim : l->head_dim;
    case KEY_NORM:
        return whole ? l->n_kv_heads * (size_t)l->head_dim : l->head_dim;
    case EXPERTS:
        return s->n_experts;
    case EXPERT_HIDDEN:
        return s->expert_width;
    case EXPERTS_WIDTH:
        return s->n_experts * s->width;
    case EXPERTS_HIDDEN:
        return s->n_experts * s->expert_width;
    case SHARED_HIDDEN:
        return s->shared_width;
    case EXPERTS_BOTH:
        return 2 * s->n_experts * s->expert_width;
    case EMBEDDING:
        return s->embedding_width;
    case THREE_WIDTHS:
        return 3 * s->width;
    case TAPS:
        return s->n_taps;
    case STATE_CHANNELS:
        return s->state.n_channels;
    case STATE_VALUES:
        return s->state.n_heads * s->state.value_dim;
    case STATE_ALL:
        return s->state.n_channels + s->state.n_heads * (s->state.value_dim + 1);
    case STATE_NORMS:
        return s->arch->recurrence == RECURRENCE_SUM ? s->state.n_key_heads : 1;
    case STATE_NORMED:
        return s->arch->recurrence == RECURRENCE_SUM
                   ? s->state.n_heads * s->state.value_dim / s->state.n_key_heads
                   : s->state.value_dim;
    case STATE_HEADS:
        return s->state.n_heads;
    case STATE_HEADS_TWICE:
        return 2 * s->state.n_heads;
    case STATE_TAPS:
        return s->state.n_taps;
    case STREAMS:
        return s->n_streams;
    case STREAMS_SQUARE:
        return s->n_streams * s->n_streams;
    case LAUREL:
        return s->laurel_rank;
    case HIDDEN:
        break;
    }
    return l->ffn_width;
}

static bool layer_has(const struct transformer_shape *s, size_t layer, enum transformer_part part)
{
    const struct arch *a = s->arch;
    const bool is_sparse = transformer_has_experts(s, layer);
    const bool is_dense =
        (!is_sparse || a->experts_beside_network) && transformer_has_network(s, layer);
    const bool sums = a->recurrence == RECURRENCE_SUM;
    const bool attends = transformer_attends(s, layer), recurs = transformer_recurs(s, layer);
    const bool has_keys = attends && s->latent_rank == 0 && layer < s->n_kv_layers;

    switch (rules[part].presence) {
    case QUERIES_AT_ONCE:
        return attends && s->query_rank == 0;
    case QUERIES_IN_STEPS:
        return s->query_rank > 0;
    case PER_HEAD:
    case PER_HEAD_BIAS:
        return attends && s->latent_rank == 0;
    case CONVOLVED:
        return transformer_convolves(s, layer);
    case RECURRENT:
    case RECURRENT_NORM:
        return recurs;
    case RECURRENT_DELTA:
        return recurs && !sums;
    case RECURRENT_SPLIT:
        return recurs && !sums && a->tiles_heads;
    case RECURRENT_FUSED:
        return recurs && !sums && !a->tiles_heads;
    case RECURRENT_SUM:
    case RECURRENT_SUM_BIAS:
        return recurs && sums;
    case ATTENDING:
    case ATTENDING_BIAS:
        return attends;
    case LATENT_ATTENTION:
        return s->latent_rank > 0;
    case BEFORE:
        return a->norms != NORMS_AFTER;
    case BEFORE_NETWORK:
        return a->norms != NORMS_AFTER && !s->is_parallel && !a->has_halves;
    case LAYER_NORM_BIAS:
        return a->norm_kind == NORM_KIND_LAYER;
    case NETWORK_NORM_BIAS:
        return a->norm_kind == NORM_KIND_LAYER && !s->is_parallel;
    case AFTER:
        return a->norms != NORMS_BEFORE;
    case HEAD_NORMED:
        return attends && a->head_norms != HEAD_NORMS_NONE && (part != PART_K_NORM || has_keys);
    case OWN_KEYS:
    case OWN_VALUES:
        return has_keys;
    case BESIDE:
        return is_sparse && a->experts_beside_network;
    case FUSED_EXPERTS:
        return is_sparse && s->fuses_experts;
    case SPLIT_EXPERTS:
        return is_sparse && !s->fuses_experts &&
               !(part == PART_GATE_EXPERTS && a->network == NETWORK_PLAIN);
    case EMBEDDED:
        return s->embedding_width > 0;
    case STREAMED:
        return s->n_streams > 0;
    case SCALED:
        return a->has_layer_scales;
    case SINKS:
        return a->has_sinks;
    case DENSE_GATED:
        return is_dense && a->network != NETWORK_PLAIN;
    case DENSE:
        return is_dense;
    case DENSE_BIAS:
        return is_dense && a->network == NETWORK_PLAIN;
    case SPARSE:
        return is_sparse;
    case SPARSE_BIAS:
        return is_sparse && a->network == NETWORK_CLAMPED;
    case SELECTED:
        return is_sparse && s->routing != ROUTING_TOP_SOFTMAX && s->routing != ROUTING_ONE_BY_ONE &&
               s->routing != ROUTING_TOP_SIGMOID;
    case SHARED:
    case SHARED_OPTIONAL:
        return is_sparse && s->shared_width > 0 &&
               !(part == PART_SHARED_GATE && a->network == NETWORK_PLAIN);
    default:
        return true;
    }
}

/* Whether a part that a layer may have can be left out of the file. */
static bool may_be_absent(const struct transformer_shape *s, enum transformer_part part)
{
    switch (rules[part].presence) {
    case OPTIONAL:
    case ATTENDING_BIAS:
    case PER_HEAD_BIAS:
    case LAYER_NORM_BIAS:
    case NETWORK_NORM_BIAS:
    case DENSE_BIAS:
    case SHARED_OPTIONAL:
    case SCALED:
    case RECURRENT_SUM_BIAS:
        return true;
    case OWN_VALUES:
        return s->arch->values_may_be_keys;
    case RECURRENT_NORM:
        return s->arch->recurs_beside;
    case SELECTED:
        return s->routing != ROUTING_SOFTMAX_BIAS;
    case HEAD_NORMED:
        return s->arch->head_norms_optional;
    default:
        return false;
    }
}

static enum status wrong_shape(const struct gguf *g, const struct tensor *t, size_t n_rows,
                               size_t n_cols, struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS,
                     "%s: tensor '%s' is %zu x %zu, but by the metadata it must be %zu x %zu",
                     gguf_path(g), t->name, t->n_rows, t->n_cols, n_rows, n_cols);
}

enum status transformer_tensor_of_shape(const struct tensor **out, const struct gguf *g,
                                        const char *name, size_t n_rows, size_t n_cols,
                                        struct error *err)
{
    const struct tensor *t;
    enum status rc = gguf_tensor(g, name, &t, err);

    if (rc != STATUS_OK)
        return rc;
    if (t->n_rows != n_rows || t->n_cols != n_cols)
        return wrong_shape(g, t, n_rows, n_cols, err);
    *out = t;
    return STATUS_OK;
}

/* Leaves size_bytes of a tensor, from at_bytes on. */
static void tensor_cut(struct tensor *t, size_t at_bytes, size_t size_bytes)
{
    if (t->data != NULL)
        t->data = (const unsigned char *)t->data + at_bytes;
    t->file_at += at_bytes;
    t->size_bytes = size_bytes;
}

struct tensor tensor_rows(const struct tensor *t, size_t first, size_t n)
{
    size_t row_bytes = dtype_row_bytes(t->type, t->n_cols);
    struct tensor part = *t;

    part.n_rows = n;
    if (t->form == TENSOR_PLAIN) {
        tensor_cut(&part, first * row_bytes, n * row_bytes);
    } else {
        part.first_row += first;
        part.size_bytes = n * row_bytes;
    }
    return part;
}

struct tensor tensor_columns(const struct tensor *t, size_t first, size_t n)
{
    struct tensor part = *t;

    part.n_cols = n;
    tensor_cut(&part, dtype_row_bytes(t->type, first), dtype_row_bytes(t->type, n));
    return part;
}

static const char *layer_name(char name[TENSOR_NAME_MAX], size_t layer, const char *part)
{
    (void)snprintf(name, TENSOR_NAME_MAX, "blk.%zu.%s", layer, part);
    return name;
}

/* A part of attn_qkv, whose rows are those of queries, keys and values. */
static enum status qkv_rows(struct tensor *out, const struct gguf *g,
                            const struct transformer_shape *s, size_t layer,
                            enum transformer_part part, struct error *err)
{
    size_t q = extent_of(s, layer, QUERIES), k = extent_of(s, layer, KEYS);
    size_t first = part == PART_Q ? 0 : part == PART_K ? q : q + k;
    const struct tensor *all = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc = transformer_tensor_of_shape(
        &all, g, layer_name(name, layer, "attn_qkv.weight"), q + 2 * k, s->width, err);

    if (rc == STATUS_OK)
        *out = tensor_rows(all, first, part == PART_Q ? q : k);
    return rc;
}

static enum status qkv_bias(struct tensor *out, const struct gguf *g,
                            const struct transformer_shape *s, size_t layer,
                            enum transformer_part part, struct error *err)
{
    size_t q = extent_of(s, layer, QUERIES), k = extent_of(s, layer, KEYS);
    size_t first = part == PART_Q_BIAS ? 0 : part == PART_K_BIAS ? q : q + k;
    const struct tensor *all = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc = transformer_tensor_of_shape(&all, g, layer_name(name, layer, "attn_qkv.bias"),
                                                 1, q + 2 * k, err);

    if (rc != STATUS_OK)
        return rc;
    if (dtype_block_values(all->type) != 1)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: tensor '%s' is %s, it must have floating-point numbers", gguf_path(g),
                         all->name, dtype_name(all->type));
    *out = tensor_columns(all, first, part == PART_Q_BIAS ? q : k);
    return rc;
}

/* Half of ffn_up, whose rows are those of the gate, then of up. */
static enum status gate_or_up(struct tensor *out, const struct gguf *g,
                              const struct transformer_shape *s, size_t layer,
                              enum transformer_part part, struct error *err)
{
    const struct tensor *both = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc =
        transformer_tensor_of_shape(&both, g, layer_name(name, layer, rules[PART_UP].name),
                                    2 * s->layers[layer].ffn_width, s->width, err);

    if (rc == STATUS_OK)
        *out = tensor_rows(both, part == PART_UP ? s->layers[layer].ffn_width : 0,
                           s->layers[layer].ffn_width);
    return rc;
}

static enum status layer_tensor_own(struct tensor *out, const struct gguf *g,
                                    const struct transformer_shape *s, size_t layer,
                                    enum transformer_part part, struct error *err)
{
    const struct part_rule *rule = &rules[part];
    const size_t n_rows = extent_of(s, layer, rule->rows), n_cols = extent_of(s, layer, rule->cols);
    const struct tensor *t = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc = gguf_tensor(g, layer_name(name, layer, part_name(s, part)), &t, err);

    if (rc != STATUS_OK)
        return rc;
    *out = *t;
    /* files of some architectures have these as a column */
    if ((part == PART_STATE_SLOPE || part == PART_STATE_SKIP) && t->n_cols == 1) {
        out->n_cols = t->n_rows;
        out->n_rows = 1;
    }
    return out->n_rows == n_rows && out->n_cols == n_cols ? STATUS_OK
                                                          : wrong_shape(g, t, n_rows, n_cols, err);
}

/* What makes a head's keys or its values, of a tensor that has of each head both, for rows that
 * make its latent numbers. Keys' numbers are columns there. */
static enum status latent_rows(struct tensor *out, const struct gguf *g,
                               const struct transformer_shape *s, size_t layer,
                               enum transformer_part part, struct error *err)
{
    const struct tensor *both = NULL;
    const size_t head = s->plain_dim + s->value_dim;
    char name[TENSOR_NAME_MAX];
    enum status rc =
        transformer_tensor_of_shape(&both, g, layer_name(name, layer, "attn_kv_b.weight"),
                                    s->n_heads * head, s->latent_rank, err);

    if (rc != STATUS_OK)
        return rc;
    if (both->form != TENSOR_PLAIN)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s: tensor '%s' must lie in the file as it is",
                         gguf_path(g), both->name);
    *out = *both;
    out->data = NULL;
    out->file_type = both->type;
    if (part == PART_LATENT_VALUES) {
        out->form = TENSOR_SOME;
        out->n_part_rows = s->value_dim;
        out->taken = (struct tensor_taken){head, s->plain_dim, s->value_dim};
    } else {
        out->form = TENSOR_TURNED;
        out->type = DTYPE_F32;
        out->n_part_rows = s->latent_rank;
        out->n_cols = s->plain_dim;
        out->taken = (struct tensor_taken){head, 0, s->plain_dim};
    }
    out->n_rows = s->n_heads * out->n_part_rows;
    out->size_bytes = out->n_rows * dtype_row_bytes(out->type, out->n_cols);
    return STATUS_OK;
}

/* The part in a fused tensor: NOT_FOUND where there is none. */
static enum status layer_tensor_fused(struct tensor *out, const struct gguf *g,
                                      const struct transformer_shape *s, size_t layer,
                                      enum transformer_part part, struct error *err)
{
    if (part == PART_Q || part == PART_K || part == PART_V)
        return qkv_rows(out, g, s, layer, part, err);
    if (part == PART_Q_BIAS || part == PART_K_BIAS || part == PART_V_BIAS)
        return qkv_bias(out, g, s, layer, part, err);
    if (part == PART_LATENT_KEYS || part == PART_LATENT_VALUES)
        return latent_rows(out, g, s, layer, part, err);
    return STATUS_NOT_FOUND;
}

enum status transformer_layer_tensor(struct tensor *out, const struct gguf *g,
                                     const struct transformer_shape *s, size_t layer,
                                     enum transformer_part part, struct error *err)
{
    struct error of_fused;
    enum status rc;

    *out = (struct tensor){0};
    if (!layer_has(s, layer, part))
        return STATUS_OK;
    if (s->arch->gate_is_in_up && (part == PART_GATE || part == PART_UP))
        return gate_or_up(out, g, s, layer, part, err);
    rc = layer_tensor_own(out, g, s, layer, part, err);
    if (rc != STATUS_NOT_FOUND)
        return rc;
    rc = layer_tensor_fused(out, g, s, layer, part, &of_fused);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        *err = of_fused;
    return rc == STATUS_NOT_FOUND && may_be_absent(s, part) ? STATUS_OK : rc;
}

enum status transformer_read_row(float **out, const struct gguf *g,
                                 const struct transformer_shape *s, size_t layer,
                                 enum transformer_part part, struct error *err)
{
    struct tensor t;
    void *row;
    enum status rc = transformer_layer_tensor(&t, g, s, layer, part, err);

    *out = NULL;
    if (rc != STATUS_OK || t.name == NULL)
        return rc;
    *out = try_alloc(t.n_rows * t.n_cols, sizeof(**out));
    row = try_alloc(t.size_bytes, 1);
    rc = *out == NULL || row == NULL ? error_no_memory(err, t.size_bytes, t.name)
                                     : tensor_read(&t, 0, t.n_rows, row, err);
    if (rc == STATUS_OK)
        dtype_decode(t.type, row, t.n_rows * t.n_cols, *out);
    free(row);
    return rc;
}

enum status transformer_embed_tensor(const struct tensor **out, const struct gguf *g,
                                     const struct transformer_shape *s, struct error *err)
{
    return transformer_tensor_of_shape(out, g, "token_embd.weight", s->n_vocab, s->width, err);
}

enum status transformer_norm_tensor(const struct tensor **out, const struct gguf *g,
                                    const struct transformer_shape *s, struct error *err)
{
    const char *name =
        s->arch->names_norm_embedding ? "token_embd_norm.weight" : "output_norm.weight";

    return transformer_tensor_of_shape(out, g, name, 1, s->width, err);
}

enum status transformer_head_tensor(const struct tensor **out, const struct gguf *g,
                                    const struct transformer_shape *s, struct error *err)
{
    enum status rc =
        transformer_tensor_of_shape(out, g, "output.weight", s->n_vocab, s->width, err);

    return rc == STATUS_NOT_FOUND ? transformer_embed_tensor(out, g, s, err) : rc;
}

static const char *const layer_embedding_names[N_LAYER_EMBEDDINGS] = {
    [LAYER_EMBEDDING_TABLE] = "per_layer_token_embd.weight",
    [LAYER_EMBEDDING_PROJECTION] = "per_layer_model_proj.weight",
    [LAYER_EMBEDDING_NORM] = "per_layer_proj_norm.weight",
};

enum status transformer_layer_embedding_tensor(const struct tensor **out, const struct gguf *g,
                                               const struct transformer_shape *s,
                                               enum layer_embedding_part part, struct error *err)
{
    const char *name = layer_embedding_names[part];
    size_t all = s->n_layers * s->embedding_width;

    if (part == LAYER_EMBEDDING_NORM)
        return transformer_tensor_of_shape(out, g, name, 1, s->embedding_width, err);
    if (part == LAYER_EMBEDDING_TABLE && gguf_tensor(g, name, out, err) == STATUS_OK &&
        (*out)->n_rows < s->n_vocab) /* the others are not of texts */
        return transformer_tensor_of_shape(out, g, name, (*out)->n_rows, all, err);
    if (part == LAYER_EMBEDDING_TABLE)
        return transformer_tensor_of_shape(out, g, name, s->n_vocab, all, err);
    return transformer_tensor_of_shape(out, g, name, all, s->width, err);
}

static const char *const stream_names[] = {"altup_proj", "altup_unembd_proj"};

enum status transformer_stream_tensor(struct tensor *out, const struct gguf *g,
                                      const struct transformer_shape *s, size_t stream,
                                      bool is_back, struct error *err)
{
    const size_t width = s->width;
    const struct tensor *t = NULL;
    char name[TENSOR_NAME_MAX];
    enum status rc;

    (void)snprintf(name, sizeof(name), "%s.weight", stream_names[is_back]);
    rc = transformer_tensor_of_shape(&t, g, name, (s->n_streams - 1) * width, width, err);
    if (rc == STATUS_OK)
        *out = tensor_rows(t, (stream - 1) * width, width);
    if (rc != STATUS_NOT_FOUND)
        return rc;
    (void)snprintf(name, sizeof(name), "%s.%zu.weight", stream_names[is_back], stream - 1);
    rc = transformer_tensor_of_shape(&t, g, name, width, width, err);
    if (rc == STATUS_OK)
        *out = *t;
    return rc;
}

/* Whether it is a name of those. */
static bool is_stream_tensor(const struct transformer_shape *s, const char *name)
{
    for (size_t i = 0; i < 2; i++) {
        const size_t len = strlen(stream_names[i]);
        const char *rest = name + len;
        uint64_t stream;

        if (strncmp(name, stream_names[i], len) != 0 || *rest != '.')
            continue;
        if (strcmp(rest, ".weight") == 0)
            return s->n_streams > 0;
        rest += 1;
        rest += number_take(&stream, rest, SIZE_MAX, SHAPE_MAX_STREAMS);
        if (strcmp(rest, ".weight") == 0 && rest > name + len + 1)
            return stream + 1 < s->n_streams;
    }
    return false;
}

/* *out is NULL where there is none. */
static enum status optional_row(const struct tensor **out, const struct gguf *g, const char *name,
                                size_t n_cols, struct error *err)
{
    enum status rc = transformer_tensor_of_shape(out, g, name, 1, n_cols, err);

    if (rc != STATUS_NOT_FOUND)
        return rc;
    *out = NULL;
    return STATUS_OK;
}

enum status transformer_norm_bias_tensor(const struct tensor **out, const struct gguf *g,
                                         const struct transformer_shape *s, struct error *err)
{
    *out = NULL;
    return s->arch->norm_kind == NORM_KIND_LAYER
               ? optional_row(out, g, "output_norm.bias", s->width, err)
               : STATUS_OK;
}

enum status transformer_head_bias_tensor(const struct tensor **out, const struct gguf *g,
                                         const struct transformer_shape *s, struct error *err)
{
    return optional_row(out, g, "output.bias", s->n_vocab, err);
}

/* Whether the layer has a use for a tensor of that name, which stands after "blk.N.". */
static bool is_part(const struct transformer_shape *s, size_t layer, const char *name)
{
    const bool attends = transformer_attends(s, layer);

    if (strcmp(name, "attn_qkv.weight") == 0 || strcmp(name, "attn_qkv.bias") == 0)
        return s->latent_rank == 0 && (attends || (name[sizeof("attn_qkv.") - 1] == 'w' &&
                                                   layer_has(s, layer, PART_STATE_IN)));
    if (s->n_streams > 0 && attends && layer >= s->n_kv_layers &&
        (strcmp(name, rules[PART_K].name) == 0 || strcmp(name, rules[PART_V].name) == 0 ||
         strcmp(name, rules[PART_K_NORM].name) == 0))
        return true; /* files have them, for layers that read another's */
    if (strcmp(name, "attn_kv_b.weight") == 0)
        return s->latent_rank > 0;
    for (int part = 0; part < N_PARTS; part++)
        if (strcmp(name, part_name(s, (enum transformer_part)part)) == 0 &&
            layer_has(s, layer, (enum transformer_part)part))
            return !(s->arch->gate_is_in_up && part == PART_GATE);
    return false;
}

static bool is_known_tensor(const struct transformer_shape *s, const char *name)
{
    static const char *const of_model[] = {"token_embd.weight",
                                           "output_norm.weight",
                                           "output.weight",
                                           "output.bias",
                                           "cls.output.weight", /* the agent's, to rank by */
                                           "cls.output.bias",
                                           "rope_freqs.weight",
                                           "rope_factors_long.weight",
                                           "rope_factors_short.weight"};
    uint64_t layer;
    size_t len;

    for (size_t i = 0; i < N_LAYER_EMBEDDINGS; i++)
        if (strcmp(layer_embedding_names[i], name) == 0)
            return s->embedding_width > 0;
    if (strcmp(name, "token_embd_norm.weight") == 0)
        return s->arch->names_norm_embedding;
    if (strcmp(name, "output_norm.weight") == 0)
        return !s->arch->names_norm_embedding;
    if (strcmp(name, "output_norm.bias") == 0)
        return s->arch->norm_kind == NORM_KIND_LAYER;
    for (size_t i = 0; i < sizeof(of_model) / sizeof(of_model[0]); i++)
        if (strcmp(name, of_model[i]) == 0)
            return true;
    if (is_stream_tensor(s, name))
        return true;
    if (strncmp(name, "blk.", 4) != 0)
        return false;
    name += 4;
    len = number_take(&layer, name, SIZE_MAX, UINT64_MAX);
    if (len == 0 || layer >= s->n_blocks || name[len] != '.' || (name[0] == '0' && len > 1))
        return false;
    return layer >= s->n_layers || is_part(s, (size_t)layer, name + len + 1);
}

enum status transformer_refuse_unknown_tensors(const struct transformer_shape *s,
                                               const struct gguf *g, struct error *err)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;

        if (!is_known_tensor(s, name))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "%s: tensor '%.60s' is not supported for the %s architecture",
                             gguf_path(g), name, s->arch->name);
    }
    return STATUS_OK;
}
