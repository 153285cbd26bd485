#include <stdlib.h>

#include "agents/policy/parts.h"
#include "base/alloc.h"

enum status tape_open(struct tape *t, struct policy *p, size_t n_rows, size_t n_slots,
                      struct error *err)
{
    struct backend *b = p->backend;
    size_t size_bytes = n_rows * p->net.spec.n_hidden * sizeof(float);
    bool is_whole;

    *t = (struct tape){.policy = p, .n_slots = n_slots};
    t->h = try_alloc(n_slots, sizeof(*t->h));
    t->c = try_alloc(n_slots, sizeof(*t->c));
    t->same = try_alloc(n_rows, sizeof(*t->same));
    is_whole = t->h != NULL && t->c != NULL && t->same != NULL;
    for (size_t i = 0; is_whole && i < n_slots; i++) {
        t->h[i] = b->type->buffer_open(b, size_bytes);
        t->c[i] = b->type->buffer_open(b, size_bytes);
        is_whole = t->h[i] != NULL && t->c[i] != NULL;
    }
    for (size_t i = 0; is_whole && i < n_rows; i++)
        t->same[i] = (uint32_t)i;
    return is_whole ? STATUS_OK
                    : error_no_memory(err, 2 * (uint64_t)n_slots * size_bytes,
                                      "the states of an lstm through time");
}

void tape_close(struct tape *t)
{
    for (size_t i = 0; i < t->n_slots; i++) {
        if (t->h != NULL && t->h[i] != NULL)
            t->policy->backend->type->buffer_close(t->policy->backend, t->h[i]);
        if (t->c != NULL && t->c[i] != NULL)
            t->policy->backend->type->buffer_close(t->policy->backend, t->c[i]);
    }
    free(t->h);
    free(t->c);
    free(t->same);
    *t = (struct tape){0};
}

static void tape_copy(const struct tape *t, const struct buffer *from, size_t n, struct buffer *to)
{
    struct backend *b = t->policy->backend;

    b->type->gather(b, from, t->same, n, t->policy->net.spec.n_hidden, to);
}

void tape_upload(struct tape *t, size_t slot, const float *h, const float *c, size_t n)
{
    struct backend *b = t->policy->backend;
    size_t size_bytes = n * t->policy->net.spec.n_hidden * sizeof(*h);

    b->type->upload(b, t->h[slot], h, size_bytes);
    b->type->upload(b, t->c[slot], c, size_bytes);
}

void tape_keep(struct tape *t, size_t slot, const struct buffer *h, const struct buffer *c,
               size_t n)
{
    tape_copy(t, h, n, t->h[slot]);
    tape_copy(t, c, n, t->c[slot]);
}

void tape_load(const struct tape *t, size_t slot, struct buffer *h, struct buffer *c, size_t n)
{
    tape_copy(t, t->h[slot], n, h);
    tape_copy(t, t->c[slot], n, c);
}

void tape_cut(struct policy *p, const bool *keep, size_t n, struct buffer *h, struct buffer *c)
{
    struct backend *b = p->backend;
    size_t width = p->net.spec.n_hidden;

    b->type->net->keep_rows(b, keep, n, width, h);
    b->type->net->keep_rows(b, keep, n, width, c);
}
