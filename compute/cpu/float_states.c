/* The kernel of recurrent layers: as ref/states.c, for RECUR_COLUMNS columns at once. The columns
 * of all tokens' state lie in a local block. */
#include <string.h>

#include "compute/backend/host_states.h"
#include "compute/backend/recurrence.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/lanes.h"
#include "compute/cpu/recurrence.h"

enum { PARTS = RECUR_COLUMNS / LANES };

typedef float recur_rows[STATES_MAX_KEYS][RECUR_COLUMNS];

static void recur_load(const struct recur_block *b, recur_rows s)
{
    const struct recurrence *how = b->how;

    memset(s, 0, how->key_dim * sizeof(s[0]));
    for (size_t i = 0; b->from != NULL && i < how->key_dim; i++)
        memcpy(s[i], b->from + i * how->value_dim + b->column, b->n_columns * sizeof(float));
}

static void recur_save(const struct recur_block *b, recur_rows s, int32_t slot)
{
    const struct recurrence *how = b->how;
    float *to = host_states_matrices(b->states, b->layer, slot) +
                b->head * how->key_dim * how->value_dim + b->column;

    for (size_t i = 0; i < how->key_dim; i++)
        memcpy(to + i * how->value_dim, s[i], b->n_columns * sizeof(float));
}

static void recur_columns(const struct recur_block *b, recur_rows s, const float *key,
                          const float *query, const float *value, float strength, float decay,
                          float *out)
{
    const struct recurrence *how = b->how;
    const struct v16 d = v16_all(decay);
    struct v16 seen[PARTS], made[PARTS], change[PARTS];
    float padded[RECUR_COLUMNS] = {0};

    memcpy(padded, value, b->n_columns * sizeof(float));
    for (size_t p = 0; p < PARTS; p++)
        seen[p] = made[p] = v16_all(0.0f);
    for (size_t i = 0; how->corrects && i < how->key_dim; i++) {
        const struct v16 k = v16_all(key[i]);

        for (size_t p = 0; p < PARTS; p++)
            seen[p] = v16_add(seen[p], v16_mul(k, v16_mul(d, v16_load(s[i] + p * LANES))));
    }
    for (size_t p = 0; p < PARTS; p++) {
        change[p] = v16_load(padded + p * LANES);
        if (how->corrects)
            change[p] = v16_sub(change[p], seen[p]);
        change[p] = v16_mul(v16_all(strength), change[p]);
    }
    for (size_t i = 0; i < how->key_dim; i++) {
        const struct v16 k = v16_all(key[i]), q = v16_all(query[i]);

        for (size_t p = 0; p < PARTS; p++) {
            struct v16 next =
                v16_add(v16_mul(d, v16_load(s[i] + p * LANES)), v16_mul(k, change[p]));

            v16_store(s[i] + p * LANES, next);
            made[p] = v16_add(made[p], v16_mul(q, next));
        }
    }
    for (size_t p = 0; p < PARTS; p++) {
        if (how->skip != NULL)
            made[p] = v16_add(made[p], v16_mul(v16_all(b->skip), v16_load(padded + p * LANES)));
        v16_store(padded + p * LANES, made[p]);
    }
    memcpy(out, padded, b->n_columns * sizeof(float));
}

void FLOAT_NAME(recur)(const struct recur_block *b)
{
    const struct recurrence *how = b->how;
    const size_t key_skip = recurrence_key_head(how, b->head) * how->key_dim;
    const size_t value_skip = b->head * how->value_dim + b->column;
    const struct state_save *save = b->saves;
    const float *x = b->x, *gates = b->gates;
    float *out = b->out;
    _Alignas(64) recur_rows s;

    recur_load(b, s);
    for (size_t t = 0; t < b->n_tokens; t++) {
        recur_columns(b, s, x + how->key_at + key_skip, x + how->query_at + key_skip,
                      x + how->value_at + value_skip, gates[b->head], gates[how->n_heads + b->head],
                      out + value_skip);
        x += how->width;
        gates += 2 * how->n_heads;
        out += how->n_heads * how->value_dim;
        if (save < b->saves + b->n_saves && save->n_after == t + 1)
            recur_save(b, s, (save++)->slot);
    }
}
