/* Tables of names. */
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
    t->slots = try_alloc(n_slots, sizeof *t->slots);
    if (t->slots == NULL)
        return error_no_memory(err, n_slots * sizeof *t->slots, "its table of names");
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
