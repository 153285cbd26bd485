/* Reads what a file says about its experts: how many there are, how wide they are, in which layers,
 * and how a token's are chosen. */
#include "compute/model/read_experts.h"

#include <stdio.h>

#include "compute/gguf/gguf.h"
#include "compute/model/numbers.h"
#include "compute/model/shape.h"

enum { MAX_EXPERTS = 4096, MAX_FFN_WIDTH = 1 << 20 };

/* The keys of what chooses a token's experts. */
static enum status experts_read_routing(struct transformer_shape *s, const struct gguf *g,
                                        struct error *err)
{
    enum { GATING_SOFTMAX = 1, GATING_SIGMOID };
    const struct arch *a = s->arch;
    const struct tensor *embed;
    uint64_t gating = 0;
    char key[ARCH_KEY_MAX];
    enum status rc;

    s->routing = a->routing;
    if (a->sigmoid_vocab > 0 && gguf_tensor(g, "token_embd.weight", &embed, err) == STATUS_OK &&
        embed->n_rows == a->sigmoid_vocab)
        s->routing = ROUTING_SIGMOID;
    s->norms_shares =
        a->norms_shares || a->routing == ROUTING_TOP_SOFTMAX || a->routing == ROUTING_SOFTMAX_BIAS;
    if ((a->keys & KEYS_ROUTING) == 0)
        return STATUS_OK;
    rc = gguf_get_u64(g, arch_key(key, a, "expert_gating_func"), &gating, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    if (gating > GATING_SIGMOID)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: key '%s' is %llu; only 1 (softmax) and 2 (sigmoid) are supported",
                         gguf_path(g), key, (unsigned long long)gating);
    if (gating != 0)
        s->routing = gating == GATING_SIGMOID ? ROUTING_SIGMOID : ROUTING_SOFTMAX;
    rc = gguf_get_bool(g, arch_key(key, a, "expert_weights_norm"), &s->norms_shares, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    if ((rc = numbers_read_optional_count(&s->n_expert_groups, g, a, "expert_group_count",
                                          SHAPE_MAX_GROUPS, err)) != STATUS_OK ||
        (rc = numbers_read_optional_count(&s->n_groups_used, g, a, "expert_group_used_count",
                                          SHAPE_MAX_GROUPS, err)) != STATUS_OK)
        return rc;
    if (s->n_expert_groups <= 1)
        s->n_expert_groups = s->n_groups_used = 0;
    if (s->n_expert_groups > 0 &&
        (s->n_groups_used == 0 || s->n_groups_used > s->n_expert_groups ||
         s->n_experts % s->n_expert_groups != 0 ||
         s->n_experts / s->n_expert_groups * s->n_groups_used < s->n_experts_used))
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %zu experts cannot be in %zu groups, of which the best %zu have %zu "
                         "experts for each token",
                         gguf_path(g), s->n_experts, s->n_expert_groups, s->n_groups_used,
                         s->n_experts_used);
    return STATUS_OK;
}

/* The first layer that has experts. */
static size_t first_sparse(const struct transformer_shape *s)
{
    size_t layer = 0;

    while (layer + 1 < s->n_layers && !transformer_has_experts(s, layer))
        layer++;
    return layer;
}

static void find_fused(struct transformer_shape *s, const struct gguf *g)
{
    const struct tensor *ignored;
    struct error err;
    char name[ARCH_KEY_MAX];

    (void)snprintf(name, sizeof(name), "blk.%zu.ffn_gate_up_exps.weight", first_sparse(s));
    s->fuses_experts = gguf_tensor(g, name, &ignored, &err) == STATUS_OK;
}

/* The width of the expert that all tokens use, by its tensor: some files state it wrongly. */
static enum status experts_read_shared_width(struct transformer_shape *s, const struct gguf *g,
                                             struct error *err)
{
    const struct tensor *t;
    char name[ARCH_KEY_MAX];

    if ((s->arch->keys & KEYS_SHARED_EXPERT) == 0)
        return STATUS_OK;
    (void)snprintf(name, sizeof(name), "blk.%zu.ffn_up_shexp.weight", first_sparse(s));
    if (gguf_tensor(g, name, &t, err) == STATUS_OK)
        s->shared_width = t->n_rows;
    if (s->shared_width > MAX_FFN_WIDTH)
        return error_set(err, STATUS_DATA_LOSS, "%s: tensor '%s' has %zu rows, it may have %d",
                         gguf_path(g), name, s->shared_width, MAX_FFN_WIDTH);
    return STATUS_OK;
}

/* Which layers have experts, where tensors say it. */
static void find_sparse(struct transformer_shape *s, const struct gguf *g)
{
    const struct tensor *ignored;
    struct error err;
    char name[ARCH_KEY_MAX];

    for (size_t i = 0; s->arch->has_halves && i < s->n_layers; i++) {
        (void)snprintf(name, sizeof(name), "blk.%zu.ffn_gate_inp.weight", i);
        if (gguf_tensor(g, name, &ignored, &err) != STATUS_OK)
            s->is_dense[i / 64] |= (uint64_t)1 << i % 64;
    }
}

enum status experts_read_shape(struct transformer_shape *s, const struct gguf *g, struct error *err)
{
    const struct arch *a = s->arch;
    char key[ARCH_KEY_MAX];
    double scale = 1.0;
    uint64_t n = 0;
    enum status rc;

    s->expert_scale = 1.0f;
    s->expert_step = 1;
    find_sparse(s, g);
    if ((a->keys & KEYS_EXPERTS) == 0)
        return STATUS_OK;
    rc = gguf_get_u64(g, arch_key(key, a, "expert_count"), &n, err);
    if (n == 0 || rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    s->expert_width = s->ffn_width;
    if ((rc = numbers_read_size(&s->n_experts, g, a, "expert_count", MAX_EXPERTS, err)) !=
            STATUS_OK ||
        (rc = numbers_read_size(&s->n_experts_used, g, a, "expert_used_count", s->n_experts,
                                err)) != STATUS_OK ||
        (rc = numbers_read_optional_size(&s->expert_width, g, a, "expert_feed_forward_length",
                                         MAX_FFN_WIDTH, err)) != STATUS_OK)
        return rc;
    if ((a->keys & KEYS_DENSE_LEAD) != 0 &&
        (rc = numbers_read_optional_count(&s->n_dense_lead, g, a, "leading_dense_block_count",
                                          s->n_layers, err)) != STATUS_OK)
        return rc;
    if ((a->keys & KEYS_EXPERT_STEP) != 0 &&
        (rc = numbers_read_optional_size(&s->expert_step, g, a, "interleave_moe_layer_step",
                                         s->n_layers, err)) != STATUS_OK)
        return rc;
    if ((rc = experts_read_routing(s, g, err)) != STATUS_OK ||
        (rc = experts_read_shared_width(s, g, err)) != STATUS_OK)
        return rc;
    find_fused(s, g);
    rc = numbers_read_optional(&scale, g, a, "expert_weights_scale", 0.0, 1e9, err);
    s->expert_scale = scale > 0.0 ? (float)scale : 1.0f;
    return rc;
}
