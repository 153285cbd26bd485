/* A table holds all examples of a source in memory. Batches of similar length are an order over a
 * table's examples. */
#ifndef WORLDS_TEACHERS_TABLE_H
#define WORLDS_TEACHERS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "worlds/teachers/example.h"
#include "worlds/teachers/format.h"

struct example_table {
    struct arena memory;      /* of the examples' acts */
    struct example *examples; /* [n_examples], episode by episode */
    size_t *starts;           /* [n_episodes + 1] where each episode begins in examples */
    size_t n_examples, n_episodes, cap_examples, cap_starts; /* of this rank */
    size_t n_skipped;                                        /* bad lines */
    struct text_line_oddities oddities;                      /* likely mistakes in the data */
};

/* Reads all of a source (source_read, with its errors). Keeps the episodes of the config's rank,
 * squashed if the config says so. INVALID if the source has not a single episode; EXHAUSTED without
 * memory or beyond 2^32 examples. Borrows id until table_close. */
enum status table_open(struct example_table *out, const struct data_format *format,
                       const char *path, struct text id, const struct teacher_config *config,
                       struct error *err) MUST_CHECK;
void table_close(struct example_table *t);

/* A table's examples, sorted by length and cut into n batches of batch_size. The last of these,
 * which has the longest examples, may have fewer. */
struct batches {
    uint32_t *examples; /* [n_examples] indices in the table, the shortest example first */
    uint32_t *order;    /* [n] numbers of the batches, in the order in which they are dealt */
    size_t n, batch_size, n_examples;
};

/* Sorts t's examples (example_length); seed decides among those of one length. The batches are
 * shuffled as for epoch 0. EXHAUSTED. t is not kept. */
enum status batches_open(struct batches *out, const struct example_table *t, size_t batch_size,
                         uint64_t seed, struct error *err) MUST_CHECK;
void batches_close(struct batches *b);
/* Shuffles the order of the batches, which follows from seed and epoch alone. */
void batches_shuffle(struct batches *b, uint64_t seed, uint32_t epoch);

#endif
