/* A table of items to learn from. An item is slices of steps; steps lie in chunks, which items
 * share and which are freed with their last item. A table is bounded in items and bytes: the
 * remover makes room. Inserts and samples that the limiter does not allow wait, each kind in its
 * order. With a seed the same calls give the same samples. Loop. */
#ifndef SERVER_REPLAY_TABLE_H
#define SERVER_REPLAY_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/tensor.h"
#include "base/future.h"
#include "base/list.h"
#include "base/status.h"
#include "server/access/shared_names.h"
#include "server/journal/keeper.h"
#include "server/replay/limiter.h"
#include "server/replay/selector.h"

enum {
    TABLE_MAX_COLUMNS = 64,
    TABLE_MAX_BATCH = 65536,
    TABLE_MAX_SLICES = 4096, /* of an item */
    TABLE_ITEM_COST = 128,   /* bytes that an item takes beside its steps, with the room to grow */
    TABLE_MAX_COLUMN_NAME = 128,
};
#define TABLE_MAX_ITEMS ((size_t)1 << 31)
#define TABLE_MAX_STEP_BYTES ((size_t)64 << 20)
#define TABLE_MAX_PRIORITY 1e30

/* What each step has. */
struct table_column {
    char name[TABLE_MAX_COLUMN_NAME + 1];
    enum tensor_type type;
    size_t n_dims;
    int64_t dims[TENSOR_MAX_DIMS]; /* of one step */
    size_t step_bytes;
};

struct table_config {
    size_t max_items, max_bytes;
    enum selector_kind sampler, remover; /* remover: not by priority */
    double alpha, epsilon;               /* of SELECTOR_PRIORITIZED */
    uint32_t max_times_sampled;          /* then an item is removed; 0: it stays */
    struct limiter_config limiter;
    uint64_t seed;
    const struct table_column *columns; /* [n_columns] */
    size_t n_columns;
};

/* Steps, a column behind the other: each [n_steps][step_bytes]. */
struct table_chunk {
    struct link link; /* of the table, in the order of ids */
    struct table *table;
    uint64_t id;
    size_t n_refs;
    uint32_t n_steps;
    unsigned char data[];
};

struct table_slice {
    struct table_chunk *chunk;
    uint32_t first, n_steps;
};

struct table_item {
    uint32_t generation; /* counts the items that had the slot */
    uint32_t times_sampled;
    double priority;
    uint32_t n_slices; /* 0: the slot is free, and next_free says which is next */
    uint32_t next_free;
    bool is_out; /* it cannot be chosen any more */
    union {
        struct table_slice one;
        struct table_slice *many; /* [n_slices] if more than one */
    };
};

/* A call that uses a table, and is told of its end. */
struct table_user {
    struct link link;
    /* Gives its chunks back, and leaves. */
    void (*closing)(struct table_user *u, const struct error *why);
};

/* What of a checkpoint is written. It is of no one moment: each chunk and item as it is when its
 * turn comes, without the items whose chunks were made after the beginning. */
struct table_walk {
    enum { TABLE_WALK_OFF, TABLE_WALK_CHUNKS, TABLE_WALK_ITEMS } state;
    uint64_t until_chunk;      /* those from here on are left out */
    struct table_chunk *chunk; /* that comes next; NULL: none */
    size_t offset;             /* in its data */
    uint32_t slot;             /* that comes next, the oldest first */
    uint64_t n_left_out;       /* items */
};

/* What goes on where it was, after a restart, beside the items. */
struct table_counters {
    uint64_t n_inserted, n_sampled, n_batches;
    double max_priority;
};

/* What begins a part of a checkpoint; stored. */
enum { TABLE_PART_CHUNKS = 1, TABLE_PART_ITEMS = 2 };

struct table_restore;

struct table {
    struct shared_name name;
    struct keeper *keeper; /* NULL: nobody keeps it */
    struct kept_thing kept;
    struct table_walk walk;
    struct table_counters kept_counters; /* at the end of the walk */
    struct table_restore *restore;       /* NULL: it is whole */
    struct list chunks;
    uint64_t next_chunk;
    struct table_config config;
    size_t step_bytes;        /* of all columns */
    uint64_t epoch;           /* another after each clear: priorities of items before are ignored */
    struct table_item *items; /* [n_slots] */
    size_t n_slots, n_used;   /* used: slots that ever had an item */
    uint32_t first_free;
    struct selector order; /* the items that can be chosen */
    size_t held_bytes;
    double max_priority; /* of all items since the last clear: that of a new one without */
    struct limiter limiter;
    uint64_t n_batches;              /* places the draws */
    struct list inserters, samplers; /* of struct table_wait, in order of arrival */
    struct list users;
    bool is_advancing;
};

/* Someone waits for the limiter. then is called, with OK, when it may go on, which it is to do at
 * once; or with why it cannot. */
struct table_wait {
    struct link link;
    struct future future;
    struct table *table; /* NULL: it does not wait */
    bool is_insert;
    uint64_t n_samples;
    uint64_t deadline_us; /* 0: none */
};

/* Drawn; the item is there until table_release. */
struct table_draw {
    uint32_t slot;
    uint64_t key;
    double priority, probability;
    uint32_t times_sampled, n_steps;
};

/* INVALID names the field. Columns are copied; the name is not set, and nobody waits. */
enum status table_open(struct table **out, const struct table_config *config, uint64_t epoch,
                       struct error *err) MUST_CHECK;
void table_close(struct table *t); /* NULL is fine; nobody waits, and no chunk is referenced */
void table_use(struct table *t, struct table_user *u);
void table_stop_using(struct table_user *u); /* also after closing */

/* --- chunks --- */

/* With one reference; its data are to be filled. Items are removed where the table is full. RANGE
 * where it can never hold so much, EXHAUSTED while chunks without items take all of it. */
enum status table_chunk_make(struct table_chunk **out, struct table *t, size_t n_steps,
                             struct error *err) MUST_CHECK;
void table_chunk_unref(struct table_chunk *c);
unsigned char *table_chunk_column(struct table_chunk *c, size_t column);

/* --- items --- */

/* Whether one may be inserted now; nobody waits for that already. */
bool table_allows_insert(const struct table *t);
/* Where the limiter allows it: an item of slices of this table's chunks, which it references.
 * priority NULL: the greatest there was. Who waits is let go on; the key is never 0. */
enum status table_insert(struct table *t, const struct table_slice *slices, size_t n_slices,
                         const double *priority, uint64_t *ret_key, struct error *err) MUST_CHECK;
/* INVALID for n that can never be sampled at once. */
enum status table_check_batch(const struct table *t, uint64_t n, struct error *err) MUST_CHECK;
bool table_allows_sample(const struct table *t, uint64_t n); /* likewise */
/* Where the limiter allows it: draws [n] items. */
void table_sample(struct table *t, struct table_draw *draws, size_t n);
/* Removes what was drawn often enough, and lets who waits go on. Behind each table_sample. */
void table_release(struct table *t, const struct table_draw *draws, size_t n);
const struct table_slice *table_slices(const struct table *t, uint32_t slot, size_t *ret_n);

/* Sets those items that there are, of this epoch; the others are ignored. INVALID for a priority
 * that is none: then none is set. */
enum status table_update(struct table *t, uint64_t epoch, const uint64_t *keys,
                         const double *priorities, size_t n, size_t *ret_applied,
                         struct error *err) MUST_CHECK;
/* Removes all items, and begins a new epoch. */
void table_clear(struct table *t, uint64_t epoch);

/* --- keeping --- */

/* Writes a checkpoint: begin, part, of about so many bytes, until it adds nothing. Then the kept
 * counters are its own. */
void table_walk_begin(struct table *t);
void table_walk_part(struct table *t, struct body_writer *w, size_t about_bytes);
void table_walk_end(struct table *t);

/* An empty table takes the parts of a checkpoint, and then goes on from its counters. DATA_LOSS;
 * EXHAUSTED. */
enum status table_restore_begin(struct table *t, const struct table_counters *c,
                                struct error *err) MUST_CHECK;
enum status table_restore_part(struct table *t, struct body_reader *r,
                               struct error *err) MUST_CHECK;
enum status table_restore_end(struct table *t, struct error *err) MUST_CHECK;

/* For this folder: an item, that was drawn so often, at a slot, in place of the one there. */
enum status table_put_item(struct table *t, uint32_t slot, const struct table_slice *slices,
                           size_t n_slices, double priority, uint32_t times_sampled,
                           struct error *err) MUST_CHECK;
/* For this folder: the slots without an item are free, and no bound is passed. */
void table_settle_slots(struct table *t);
void table_restore_free(struct table *t); /* what table_restore_begin made, if anything */

/* --- waiting --- */

/* f's continuation is called once, not inside. */
void table_wait(struct table *t, struct table_wait *w, future_then_fn then, void *arg);
void table_leave(struct table_wait *w); /* fine if it does not wait */
/* Ends the wait with why. */
void table_wait_end(struct table_wait *w, const struct error *why);

#endif
