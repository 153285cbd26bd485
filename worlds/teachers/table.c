#include "worlds/teachers/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"

struct filling {
    struct example_table *table;
    const struct teacher_config *config;
    struct text id;
    size_t n_read; /* episodes of the file, those of other ranks included */
};

static enum status add_start(struct example_table *t, struct error *err)
{
    if (t->n_episodes + 1 >= t->cap_starts) {
        size_t cap = t->cap_starts == 0 ? 64 : 2 * t->cap_starts;
        size_t *starts = try_realloc(t->starts, cap, sizeof(*starts));

        if (starts == NULL)
            return error_no_memory(err, cap * sizeof(*starts), "episodes");
        t->starts = starts;
        t->cap_starts = cap;
        t->starts[0] = 0;
    }
    t->starts[++t->n_episodes] = t->n_examples;
    return STATUS_OK;
}

static enum status add_example(struct example_table *t, const struct filling *f,
                               const struct act *turn, bool is_last, struct error *err)
{
    if (t->n_examples == UINT32_MAX)
        return error_set(err, STATUS_EXHAUSTED, "more than 2^32 examples");
    if (t->n_examples == t->cap_examples) {
        size_t cap = t->cap_examples == 0 ? 64 : 2 * t->cap_examples;
        struct example *examples = try_realloc(t->examples, cap, sizeof(*examples));

        if (examples == NULL)
            return error_no_memory(err, cap * sizeof(*examples), "examples");
        t->examples = examples;
        t->cap_examples = cap;
    }
    if (example_make(&t->examples[t->n_examples], turn, f->id, f->config, is_last, &t->memory,
                     err) != STATUS_OK)
        return err->status;
    t->n_examples++;
    return STATUS_OK;
}

static enum status example_table_take(void *to, struct act *turns, size_t n, struct error *err)
{
    struct filling *f = to;
    struct example_table *t = f->table;
    size_t episode = f->n_read++;
    bool squashes = f->config->squash || f->config->batch_sort;

    if (episode % f->config->n_ranks != f->config->rank)
        return STATUS_OK;
    if (squashes && squash(turns, n, f->config, episode, &t->memory, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        bool is_last = squashes || i + 1 == n;

        if (add_example(t, f, &turns[i], is_last, err) != STATUS_OK ||
            (is_last && add_start(t, err) != STATUS_OK))
            return err->status;
    }
    return STATUS_OK;
}

enum status table_open(struct example_table *out, const struct data_format *format,
                       const char *path, struct text id, const struct teacher_config *config,
                       struct error *err)
{
    struct example_table t = {0};
    struct filling f = {.table = &t, .config = config, .id = id};
    struct source s = {.format = format,
                       .arena = &t.memory,
                       .take = example_table_take,
                       .to = &f,
                       .skip_bad = config->skip_bad,
                       .fold = config->datatype.fold,
                       .attached = config->attached};
    enum status rc;

    arena_init(&t.memory, SIZE_MAX);
    rc = source_read(&s, path, config->max_line_bytes, err);
    if (rc == STATUS_OK && f.n_read == 0)
        rc = error_set(err, STATUS_INVALID, "%s: no examples%s", path,
                       s.n_skipped > 0 ? ", bad lines left out" : "");
    t.n_skipped = s.n_skipped;
    t.oddities = s.oddities;
    if (rc == STATUS_OK)
        *out = t;
    else
        table_close(&t);
    return rc;
}

void table_close(struct example_table *t)
{
    free(t->examples);
    free(t->starts);
    arena_deinit(&t->memory);
    *t = (struct example_table){0};
}

/* --- batches --------------------------------------------------------------------------------- */

struct ranked_episode {
    struct example_length length;
    float draw; /* among those of one length */
    uint32_t example;
};

static int by_length(const void *a, const void *b)
{
    const struct ranked_episode *x = a, *y = b;

    if (x->length.text_words != y->length.text_words)
        return x->length.text_words < y->length.text_words ? -1 : 1;
    if (x->length.label_words != y->length.label_words)
        return x->length.label_words < y->length.label_words ? -1 : 1;
    if (x->draw != y->draw)
        return x->draw < y->draw ? -1 : 1;
    return x->example < y->example ? -1 : 1;
}

enum status batches_open(struct batches *out, const struct example_table *t, size_t batch_size,
                         uint64_t seed, struct error *err)
{
    struct batches b = {.batch_size = batch_size, .n_examples = t->n_examples};
    struct ranked_episode *ranked = try_alloc(t->n_examples + 1, sizeof(*ranked));

    b.n = (t->n_examples + batch_size - 1) / batch_size;
    b.examples = try_alloc(t->n_examples + 1, sizeof(*b.examples));
    b.order = try_alloc(b.n + 1, sizeof(*b.order));
    if (ranked == NULL || b.examples == NULL || b.order == NULL) {
        free(ranked);
        batches_close(&b);
        return error_no_memory(err, t->n_examples * sizeof(*ranked), "sorting by length");
    }
    for (size_t i = 0; i < t->n_examples; i++)
        ranked[i] =
            (struct ranked_episode){example_length(&t->examples[i]),
                                    counter_rng_uniform(seed, (uint32_t)i, 0, 2), (uint32_t)i};
    qsort(ranked, t->n_examples, sizeof(*ranked), by_length);
    for (size_t i = 0; i < t->n_examples; i++)
        b.examples[i] = ranked[i].example;
    free(ranked);
    batches_shuffle(&b, seed, 0);
    *out = b;
    return STATUS_OK;
}

void batches_close(struct batches *b)
{
    free(b->examples);
    free(b->order);
    *b = (struct batches){0};
}

void batches_shuffle(struct batches *b, uint64_t seed, uint32_t epoch)
{
    for (size_t i = 0; i < b->n; i++)
        b->order[i] = (uint32_t)i;
    for (size_t i = b->n; i > 1; i--) { /* Fisher-Yates shuffle */
        uint32_t counter[4] = {(uint32_t)i, epoch, 0, 3}, drawn[4];
        const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        size_t k;
        uint32_t moved;

        philox4x32(counter, key, drawn);
        k = (size_t)((uint64_t)drawn[0] * i >> 32);
        moved = b->order[i - 1];
        b->order[i - 1] = b->order[k];
        b->order[k] = moved;
    }
}
