/* All examples of a file in memory, and batches of similar length over them. */
#ifndef WORLDS_TEACHERS_TABLE_H
#define WORLDS_TEACHERS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "worlds/teachers/example.h"
#include "worlds/teachers/format.h"

struct example_table {
    struct arena memory;
    struct example *examples; /* [n_examples] */
    size_t *starts;           /* [n_episodes + 1] into examples */
    size_t n_examples, n_episodes, cap_examples, cap_starts;
    size_t n_skipped;
    struct text_line_oddities oddities;
};

/* id is borrowed. Errors begin with the path. */
enum status table_open(struct example_table *out, const struct data_format *format,
                       const char *path, struct text id, const struct teacher_config *config,
                       struct error *err) MUST_CHECK;
void table_close(struct example_table *t);

/* Numbers of examples, sorted by length and cut into rows of batch_size (the last may be short). */
struct batches {
    uint32_t *examples; /* [n_examples] sorted */
    uint32_t *order;    /* [n]: which batch comes when */
    size_t n, batch_size, n_examples;
};

enum status batches_open(struct batches *out, const struct example_table *t, size_t batch_size,
                         uint64_t seed, struct error *err) MUST_CHECK;
void batches_close(struct batches *b);
/* Shuffles the batches; the same for the same seed and epoch. */
void batches_shuffle(struct batches *b, uint64_t seed, uint32_t epoch);

#endif
