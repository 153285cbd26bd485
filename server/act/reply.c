#include "server/act/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { TENSOR_ALIGN = 16 };

static size_t reply_aligned(size_t n)
{
    return (n + TENSOR_ALIGN - 1) & ~(size_t)(TENSOR_ALIGN - 1);
}

enum status step_reply_make(struct step_reply **out, const struct reply *from, struct error *err)
{
    size_t head = sizeof(struct step_reply) + from->n_tensors * sizeof(struct tensor_view);
    size_t size = reply_aligned(head);
    struct step_reply *r;
    char *at;

    for (size_t i = 0; i < from->n_tensors; i++)
        size += reply_aligned(from->tensors[i].size_bytes) +
                reply_aligned(strlen(from->tensors[i].name) + 1);
    r = try_alloc(1, size);
    if (r == NULL)
        return error_no_memory(err, size, "the reply of a step");
    r->n_refs = 1;
    r->params_version = from->params_version;
    r->batch_rows = from->batch_rows;
    r->n_tensors = from->n_tensors;
    at = (char *)r + reply_aligned(head);
    for (size_t i = 0; i < from->n_tensors; i++) {
        const struct tensor_view *t = &from->tensors[i];
        size_t name_size = strlen(t->name) + 1;

        r->tensors[i] = *t;
        r->tensors[i].data = at;
        if (t->size_bytes > 0) /* an empty one may have no data */
            memcpy(at, t->data, t->size_bytes);
        at += reply_aligned(t->size_bytes);
        r->tensors[i].name = memcpy(at, t->name, name_size);
        at += reply_aligned(name_size);
    }
    *out = r;
    return STATUS_OK;
}

struct step_reply *step_reply_ref(struct step_reply *r)
{
    r->n_refs++;
    return r;
}

void step_reply_unref(struct step_reply *r)
{
    if (r != NULL && --r->n_refs == 0)
        free(r);
}
