/* Tables of names, and of the tensors that bear them. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/gguf/parts.h"

static uint64_t hash_name(const char *name, size_t len)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a */

    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)name[i]) * 0x100000001b3;
    return h ^ h >> 32;
}

enum status gguf_table_open(struct gguf_table *t, size_t n, struct error *err)
{
    size_t n_slots = 16;

    while (n_slots < n * 2)
        n_slots *= 2;
    t->slots = try_alloc(n_slots, sizeof(*t->slots));
    if (t->slots == NULL)
        return error_no_memory(err, n_slots * sizeof(*t->slots), "its table of names");
    t->mask = n_slots - 1;
    return STATUS_OK;
}

uint32_t *gguf_key_slot(const struct gguf *g, const char *name, size_t len)
{
    size_t i = hash_name(name, len) & g->key_table.mask;

    for (;; i = (i + 1) & g->key_table.mask) {
        uint32_t *slot = &g->key_table.slots[i];
        const struct gguf_key *k;

        if (*slot == 0)
            return slot;
        k = &g->keys[*slot - 1];
        if (k->name_len == len && memcmp(k->name, name, len) == 0)
            return slot;
    }
}

uint32_t *gguf_tensor_slot(const struct gguf *g, const char *name, size_t len)
{
    size_t i = hash_name(name, len) & g->tensor_table.mask;

    for (;; i = (i + 1) & g->tensor_table.mask) {
        uint32_t *slot = &g->tensor_table.slots[i];
        const struct named_tensor *t;

        if (*slot == 0)
            return slot;
        t = &g->tensors[*slot - 1];
        if (t->name_len == len && memcmp(t->name, name, len) == 0)
            return slot;
    }
}

enum status gguf_tensors_reserve(struct gguf *g, size_t n, struct error *err)
{
    assert(g->tensors == NULL && g->n_tensors == 0);
    if (n > GGUF_TENSORS_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "there are %zu tensors, there can be at most %d", n, GGUF_TENSORS_MAX);
    g->tensors = try_alloc(n, sizeof(*g->tensors));
    if (g->tensors == NULL)
        return error_no_memory(err, n * sizeof(*g->tensors), "its list of tensors");
    return gguf_table_open(&g->tensor_table, n, err);
}

void gguf_tensors_clear(struct gguf *g)
{
    free(g->tensors);
    free(g->tensor_table.slots);
    g->tensors = NULL;
    g->tensor_table = (struct gguf_table){0};
    g->n_tensors = 0;
}

enum status gguf_tensors_add(struct gguf *g, const struct named_tensor *t, struct error *err)
{
    struct named_tensor *own = &g->tensors[g->n_tensors];
    uint32_t *slot = gguf_tensor_slot(g, t->name, t->name_len);

    if (*slot != 0)
        return error_set(err, STATUS_DATA_LOSS, "tensor '%s' is in two files", t->name);
    *own = *t;
    own->tensor.name = own->name;
    *slot = (uint32_t)++g->n_tensors;
    return STATUS_OK;
}

enum status gguf_tensors_join(struct gguf *g, const struct gguf *from, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < from->n_tensors && rc == STATUS_OK; i++)
        rc = gguf_tensors_add(g, &from->tensors[i], err);
    return rc;
}
