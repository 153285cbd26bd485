/* Numbers of config.json that products are multiplied by. GGUF has them in the weights. */
#include "compute/gguf/hf_parts.h"

static const char state_name[] = "ssm_multipliers", network_name[] = "mlp_multipliers";

/* A list of n numbers; one that is absent or null is of ones. */
static enum status read_factors_list(double *out, size_t n, const json_t *config, const char *name,
                                     struct error *err)
{
    const json_t *list = json_object_get(config, name);

    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);

        out[i] = json_is_number(one) ? json_number_value(one) : 1;
        if (list != NULL && !json_is_null(list) &&
            (json_array_size(list) != n || !json_is_number(one)))
            return error_set(err, STATUS_DATA_LOSS, "key '%s' must be a list of %zu numbers", name,
                             n);
    }
    return STATUS_OK;
}

enum status hf_factors_read(struct hf_model *m, const json_t *config, struct error *err)
{
    static const char *const names[] = {
        "embedding_multiplier",     "lm_head_multiplier", "attention_in_multiplier",
        "attention_out_multiplier", "key_multiplier",     "ssm_in_multiplier",
        "ssm_out_multiplier",
    };
    enum { EMBEDDING, HEAD, ATTENTION_IN, ATTENTION_OUT, KEY, STATE_IN, STATE_OUT, N };
    double one[N], network[2], *f = m->factors;
    enum status rc;

    if (!m->family->has_factors)
        return STATUS_OK;
    for (size_t i = 0; i < N; i++) {
        one[i] = 1;
        rc = hf_json_f64(config, names[i], &one[i], err);
        if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
            return rc;
    }
    if ((rc = read_factors_list(m->state_factors, HF_STATE_PIECES, config, state_name, err)) !=
            STATUS_OK ||
        (rc = read_factors_list(network, 2, config, network_name, err)) != STATUS_OK)
        return rc;
    for (size_t i = 0; i < HF_STATE_PIECES; i++)
        m->state_factors[i] *= one[STATE_IN];
    f[HF_FACTOR_EMBEDDING] = one[EMBEDDING];
    f[HF_FACTOR_HEAD] = one[HEAD];
    f[HF_FACTOR_ATTENTION_IN] = one[ATTENTION_IN];
    f[HF_FACTOR_KEY] = one[ATTENTION_IN] * one[KEY];
    f[HF_FACTOR_ATTENTION_OUT] = one[ATTENTION_OUT];
    f[HF_FACTOR_STATE_OUT] = one[STATE_OUT];
    f[HF_FACTOR_GATE] = network[0];
    f[HF_FACTOR_DOWN] = network[1];
    return STATUS_OK;
}

enum status hf_factors_form(struct tensor *w, const struct hf_model *m, enum hf_factor factor,
                            struct error *err)
{
    /* gates, values, keys, queries, steps */
    const size_t inner = m->n_state_heads * m->state_width, keys = m->n_key_heads * m->state_dim;
    const size_t widths[HF_STATE_PIECES] = {inner, inner, keys, keys, m->n_state_heads};
    size_t until = 0;

    if (!m->family->has_factors || factor == HF_NO_FACTOR)
        return STATUS_OK;
    if (w->form != TENSOR_PLAIN)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "is a bias, or in FP8, which is not supported for what a model of type "
                         "'%s' multiplies",
                         m->family->model_type);
    w->form = TENSOR_MULTIPLIED;
    w->file_type = w->type;
    w->type = DTYPE_F32;
    w->size_bytes = w->n_rows * w->n_cols * sizeof(float);
    for (size_t i = 0; i < HF_STATE_PIECES; i++) {
        const bool is_state = factor == HF_FACTOR_STATE_IN;

        until += widths[i];
        w->factors[i] =
            (struct tensor_factor){is_state ? until : w->n_rows,
                                   (float)(is_state ? m->state_factors[i] : m->factors[factor])};
    }
    return STATUS_OK;
}
