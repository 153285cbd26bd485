#include "compute/model/read_state.h"

#include "compute/backend/states.h"
#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"
#include "compute/model/numbers.h"
#include "compute/model/shape.h"

enum {
    STATE_MAX_TAPS = 16,
    STATE_MAX_HEADS = 1024,
    STATE_MAX_WIDTH = 1 << 17,
    ATTENTION_INTERVAL = 4, /* where the file does not say it */
};

/* A bool for each layer, or each so many layers the last attends. */
static enum status read_recurrent_layers(struct transformer_shape *s, const struct gguf *g,
                                         struct error *err)
{
    size_t interval = ATTENTION_INTERVAL, len;
    char key[ARCH_KEY_MAX];
    enum status rc = numbers_read_optional_size(&interval, g, s->arch, "full_attention_interval",
                                                SHAPE_MAX_LAYERS, err);
    const bool is_listed = gguf_array_len(g, arch_key(key, s->arch, "attention.recurrent_layers"),
                                          &len, err) == STATUS_OK;

    for (size_t i = 0; i < s->n_layers && rc == STATUS_OK; i++) {
        bool recurs = (i + 1) % interval != 0;

        if (is_listed)
            rc = gguf_array_bool(g, key, i, &recurs, err);
        s->has_state[i / 64] |= (uint64_t)recurs << i % 64;
    }
    return rc;
}

static enum status check_state(const struct transformer_shape *s, const struct gguf *g,
                               size_t inner, struct error *err)
{
    const struct shape_state *t = &s->state;

    if (t->n_heads % t->n_key_heads != 0 || t->value_dim == 0 || inner != t->n_heads * t->value_dim)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %zu heads of state with %zu heads of keys, of %zu numbers, and %zu "
                         "numbers in all: heads must share keys evenly and have as many values",
                         gguf_path(g), t->n_heads, t->n_key_heads, t->key_dim, inner);
    if (t->key_dim > STATES_MAX_KEYS || t->n_channels > STATE_MAX_WIDTH)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: heads of state with keys of %zu numbers, %zu numbers together: at "
                         "most %d and %d are supported",
                         gguf_path(g), t->key_dim, t->n_channels, STATES_MAX_KEYS, STATE_MAX_WIDTH);
    return STATUS_OK;
}

enum status state_read_shape(struct transformer_shape *s, const struct gguf *g, struct error *err)
{
    const struct arch *a = s->arch;
    struct shape_state *t = &s->state;
    char key[ARCH_KEY_MAX];
    bool is_grouped;
    size_t inner = 0;
    enum status rc;

    if ((rc = numbers_read_size(&t->n_taps, g, a, "ssm.conv_kernel", STATE_MAX_TAPS, err)) !=
            STATUS_OK ||
        (rc = numbers_read_size(&t->key_dim, g, a, "ssm.state_size", STATE_MAX_WIDTH, err)) !=
            STATUS_OK ||
        (rc = numbers_read_size(&t->n_key_heads, g, a, "ssm.group_count", STATE_MAX_HEADS, err)) !=
            STATUS_OK ||
        (rc = numbers_read_size(&t->n_heads, g, a, "ssm.time_step_rank", STATE_MAX_HEADS, err)) !=
            STATUS_OK ||
        (rc = numbers_read_size(&inner, g, a, "ssm.inner_size", STATE_MAX_WIDTH, err)) != STATUS_OK)
        return rc;
    t->value_dim = a->recurrence == RECURRENCE_SUM ? inner / t->n_heads : t->key_dim;
    t->is_tiled = a->tiles_heads;
    if (gguf_get_bool(g, arch_key(key, a, "ssm.groups_values"), &is_grouped, err) == STATUS_OK)
        t->is_tiled = !is_grouped;
    t->n_channels = 2 * t->n_key_heads * t->key_dim + t->n_heads * t->value_dim;
    rc = check_state(s, g, inner, err);
    return rc == STATUS_OK && a->recurrence == RECURRENCE_DELTA ? read_recurrent_layers(s, g, err)
                                                                : rc;
}
