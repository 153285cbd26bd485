#include "compute/backend/host_states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { ALIGN = 16 };

static size_t layer_floats(const struct states_layer *l)
{
    return (l->n_tail + l->n_matrices + ALIGN - 1) / ALIGN * ALIGN;
}

size_t states_floats(const struct states_shape *shape)
{
    size_t n = 0;

    for (size_t i = 0; i < shape->n_layers; i++)
        n += layer_floats(&shape->layers[i]);
    return n;
}

enum status host_states_open(struct backend *b, const struct states_shape *shape,
                             struct states **out, struct error *err)
{
    struct states *s = try_alloc(1, sizeof(*s));
    size_t at = 0;

    if (s == NULL)
        return error_no_memory(err, sizeof(*s), "recurrent state");
    s->n_slots = shape->n_slots;
    s->slot_floats = states_floats(shape);
    s->at = try_alloc(shape->n_layers, sizeof(*s->at));
    s->n_tail = try_alloc(shape->n_layers, sizeof(*s->n_tail));
    if (s->at != NULL && s->n_tail != NULL)
        s->data = try_alloc(s->n_slots, s->slot_floats * sizeof(*s->data));
    if (s->data == NULL) {
        size_t size_bytes = s->n_slots * s->slot_floats * sizeof(*s->data);

        host_states_close(b, s);
        return error_no_memory(err, size_bytes, "recurrent state");
    }
    for (size_t i = 0; i < shape->n_layers; i++) {
        s->at[i] = at;
        s->n_tail[i] = shape->layers[i].n_tail;
        at += layer_floats(&shape->layers[i]);
    }
    *out = s;
    return STATUS_OK;
}

void host_states_close(struct backend *b, struct states *s)
{
    if (s == NULL)
        return;
    free(s->at);
    free(s->n_tail);
    free(s->data);
    free(s);
}

void host_states_read(struct backend *b, const struct states *s, int32_t slot, float *out)
{
    assert(slot >= 0 && (size_t)slot < s->n_slots);
    memcpy(out, s->data + (size_t)slot * s->slot_floats, s->slot_floats * sizeof(*out));
}

void host_states_write(struct backend *b, struct states *s, int32_t slot, const float *from)
{
    assert(slot >= 0 && (size_t)slot < s->n_slots);
    memcpy(s->data + (size_t)slot * s->slot_floats, from, s->slot_floats * sizeof(*from));
}

float *host_states_tail(const struct states *s, size_t layer, int32_t slot)
{
    assert(slot >= STATES_NONE && (slot < 0 || (size_t)slot < s->n_slots));
    return slot < 0 ? NULL : s->data + (size_t)slot * s->slot_floats + s->at[layer];
}

float *host_states_matrices(const struct states *s, size_t layer, int32_t slot)
{
    float *tail = host_states_tail(s, layer, slot);

    return tail == NULL ? NULL : tail + s->n_tail[layer];
}

const float *host_states_row(const float *tail, size_t n_tail_rows, const float *x, size_t width,
                             size_t t, size_t back)
{
    if (back <= t)
        return x + (t - back) * width;
    back -= t; /* rows before the first */
    return tail == NULL || back > n_tail_rows ? NULL : tail + (n_tail_rows - back) * width;
}

/* In rising order: where the slot is the one that is read, a row that is still to be read has not
 * been written yet, since it comes from further behind. */
void host_states_save_tails(struct states *s, size_t layer, const struct state_row *row,
                            size_t n_tail_rows, size_t width, const float *x)
{
    const float *tail = host_states_tail(s, layer, row->from);

    for (const struct state_save *save = row->saves; save < row->saves + row->n_saves; save++) {
        float *to = host_states_tail(s, layer, save->slot);

        assert(save->n_after > 0 && save->n_after <= row->n_tokens);
        for (size_t j = 0; j < n_tail_rows; j++, to += width) {
            const float *from =
                host_states_row(tail, n_tail_rows, x, width, save->n_after, n_tail_rows - j);

            if (from != NULL)
                memcpy(to, from, width * sizeof(*to));
            else
                memset(to, 0, width * sizeof(*to));
        }
    }
}
