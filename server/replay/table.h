/* A table of items to learn from. An item consists of slices of steps. Steps lie in chunks, which
 * several items may share; a chunk is freed with its last item. A table is bounded in items and in
 * bytes: the remover chooses the items that make room for a new one. Inserts and samples that the
 * limiter does not allow wait, each kind in the order of its arrival. The same seed and the same
 * calls give the same samples. All functions are called on the loop. */
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
    TABLE_MAX_SLICES = 4096, /* slices of one item */
    TABLE_ITEM_COST = 128,   /* bytes that an item takes beside its steps, including the array's
                                room to grow */
    TABLE_MAX_COLUMN_NAME = 128,
};
#define TABLE_MAX_ITEMS ((size_t)1 << 31)
#define TABLE_MAX_STEP_BYTES ((size_t)64 << 20)
#define TABLE_MAX_PRIORITY 1e30

/* A column: one tensor that each step has. */
struct table_column {
    char name[TABLE_MAX_COLUMN_NAME + 1];
    enum tensor_type type;
    size_t n_dims;
    int64_t dims[TENSOR_MAX_DIMS]; /* the shape of one step's tensor */
    size_t step_bytes;             /* the size of one step's tensor */
};

struct table_config {
    size_t max_items, max_bytes;
    enum selector_kind sampler, remover; /* the remover is not SELECTOR_PRIORITIZED */
    double alpha, epsilon;               /* the weights' parameters, see struct selector */
    uint32_t max_times_sampled;          /* an item that was sampled so often is removed; 0: items
                                            stay however often they are sampled */
    struct limiter_config limiter;
    uint64_t seed;                      /* of the draws */
    const struct table_column *columns; /* [n_columns] */
    size_t n_columns;
};

/* A chunk: the memory of n_steps steps. Its data are the columns, one behind the other, each
 * [n_steps][step_bytes]. */
struct table_chunk {
    struct link link; /* in the table's chunks, in the order of ids */
    struct table *table;
    uint64_t id;
    size_t n_refs; /* the slices of items that lie in it, and the streams that hold it */
    uint32_t n_steps;
    unsigned char data[];
};

/* A slice: consecutive steps of a chunk. */
struct table_slice {
    struct table_chunk *chunk;
    uint32_t first, n_steps;
};

/* An item, in its slot of the table's array. table_insert takes the first free slot for a new item
 * and adds the slot to the table's order: from then on the item can be sampled and removed. When
 * the remover chooses the item, it leaves the order and is freed at once. When the item was sampled
 * for the last time, it leaves the order too and is_out is set, but it keeps its slices until
 * table_release, because the caller of table_sample still copies its steps. Freeing an item gives
 * up its references to chunks and puts its slot in front of the free slots. The next item of the
 * slot has another generation, so a key (generation, slot) of the freed item names nothing. */
struct table_item {
    uint32_t generation; /* counts the items that the slot has had, from 1 */
    uint32_t times_sampled;
    double priority;
    uint32_t n_slices;  /* 0: the slot is free */
    uint32_t next_free; /* the next free slot behind this one, while this one is free */
    bool is_out;        /* the item is not in the order any more, and waits for table_release */
    union {
        struct table_slice one;
        struct table_slice *many; /* [n_slices] if more than one */
    };
};

/* A call that uses a table. It holds chunks, and it must know when the table ends. */
struct table_user {
    struct link link;
    /* The table ends because of why: the user must give its chunks back and use the table no
     * more. */
    void (*closing)(struct table_user *u, const struct error *why);
};

/* The progress of a checkpoint that is being written. A checkpoint does not show the table at one
 * moment: each chunk and each item is written as it is when its turn comes. Items that have a chunk
 * made after the beginning are left out. */
struct table_walk {
    enum { TABLE_WALK_OFF, TABLE_WALK_CHUNKS, TABLE_WALK_ITEMS } state;
    uint64_t until_chunk;      /* chunks with this id or a greater one are left out */
    struct table_chunk *chunk; /* the chunk that is written next; NULL: no chunk is left */
    size_t offset;             /* bytes of that chunk's data that are written */
    uint32_t slot;             /* the slot of the item that is written next, the oldest first */
    uint64_t n_left_out;       /* items that were left out */
};

/* The counters that go on after a restart where they were before it. */
struct table_counters {
    uint64_t n_inserted, n_sampled, n_batches;
    double max_priority;
};

/* The kind of a part of a checkpoint, which stands at the part's beginning. These values are
 * stored. */
enum { TABLE_PART_CHUNKS = 1, TABLE_PART_ITEMS = 2 };

struct table_restore;

struct table {
    struct shared_name name;
    struct keeper *keeper; /* writes checkpoints of the table; NULL: the table is not kept */
    struct kept_thing kept;
    struct table_walk walk;
    struct table_counters kept_counters; /* the counters when the last walk ended */
    struct table_restore *restore;       /* the checkpoint that is being read; NULL: none */
    struct list chunks;                  /* of struct table_chunk, in the order of ids */
    uint64_t next_chunk;                 /* the id of the next chunk that is made */
    struct table_config config;
    size_t step_bytes;        /* the size of one step in all columns */
    uint64_t epoch;           /* changes with each clear: priorities of another epoch are ignored */
    struct table_item *items; /* [n_slots] */
    size_t n_slots, n_used;   /* n_used: the slots that have ever had an item */
    uint32_t first_free;      /* the first free slot; SELECTOR_NONE: all used slots have items */
    struct selector order;    /* the items that can be sampled and removed */
    size_t held_bytes;        /* the cost of all items and chunks */
    double max_priority;      /* the greatest absolute priority of an item since the last clear: an
                                 item that comes without a priority gets this one */
    struct limiter limiter;
    uint64_t n_batches;              /* batches drawn so far, the counter of the random numbers */
    struct list inserters, samplers; /* of struct table_wait, in the order of arrival */
    struct list users;               /* of struct table_user */
    bool is_advancing;               /* waits are being let go on: no second loop begins inside */
};

/* A call that waits for the limiter. Its future is settled with OK when the call may go on, which
 * it must do at once, inside the continuation; or with the reason why it cannot go on. */
struct table_wait {
    struct link link;
    struct future future;
    struct table *table; /* the table whose limiter is waited for; NULL: nothing is waited for */
    bool is_insert;      /* else the call wants to sample n_samples items */
    uint64_t n_samples;
    uint64_t deadline_us; /* when replays_tick ends the wait; 0: never */
};

/* An item that was drawn. It stays in its slot until table_release. */
struct table_draw {
    uint32_t slot;
    uint64_t key;
    double priority, probability;
    uint32_t times_sampled, n_steps;
};

/* Makes an empty table without a name. The columns are copied. INVALID names the field of the
 * config that is at fault. */
enum status table_open(struct table **out, const struct table_config *config, uint64_t epoch,
                       struct error *err) MUST_CHECK;
/* Frees a table. No call may wait for it or hold a chunk of it, and it reads no checkpoint any
 * more: see table_restore_free. NULL is fine. */
void table_close(struct table *t);
/* Registers a user, whose closing is called if the table ends before table_stop_using. */
void table_use(struct table *t, struct table_user *u);
/* Ends the use. Does nothing if closing was called. */
void table_stop_using(struct table_user *u);

/* --- chunks --- */

/* Makes a chunk with one reference, which the caller owns. The caller fills its data. Removes items
 * if the table is full. RANGE if the table can never hold so many steps, EXHAUSTED if the chunks
 * that streams hold leave too little room. */
enum status table_chunk_make(struct table_chunk **out, struct table *t, size_t n_steps,
                             struct error *err) MUST_CHECK;
void table_chunk_unref(struct table_chunk *c);
/* Returns the chunk's data of a column: [n_steps][step_bytes]. */
unsigned char *table_chunk_column(struct table_chunk *c, size_t column);

/* --- items --- */

/* Returns whether an item may be inserted now: the limiter allows it, and no earlier insert waits
 * for it. */
bool table_allows_insert(const struct table *t);
/* Inserts an item of slices of this table's chunks; the item takes references of its own. The
 * caller has asked table_allows_insert, or was let go on by a wait. If priority is NULL, the item
 * gets the table's max_priority. *ret_key is the item's key, which is never 0. Lets waiting calls
 * go on. RANGE, EXHAUSTED if the table has no room. */
enum status table_insert(struct table *t, const struct table_slice *slices, size_t n_slices,
                         const double *priority, uint64_t *ret_key, struct error *err) MUST_CHECK;
/* INVALID if n items can never be sampled at once. */
enum status table_check_batch(const struct table *t, uint64_t n, struct error *err) MUST_CHECK;
/* Returns whether n items may be sampled now: the limiter allows it, the table has enough items,
 * and no earlier sample waits. */
bool table_allows_sample(const struct table *t, uint64_t n);
/* Draws n items into draws. The caller has asked table_allows_sample, or was let go on by a wait;
 * the caller calls table_release with the same draws once it has copied the items. */
void table_sample(struct table *t, struct table_draw *draws, size_t n);
/* Frees the drawn items that were sampled for the last time, and lets waiting calls go on. */
void table_release(struct table *t, const struct table_draw *draws, size_t n);
/* Returns the slices of the item in a slot: [*ret_n], valid as long as the item. */
const struct table_slice *table_slices(const struct table *t, uint32_t slot, size_t *ret_n);

/* Sets the priorities of the items that keys name. Ignores keys of removed items, and all keys if
 * epoch is not the table's. *ret_applied is the number of priorities that were set. INVALID if a
 * priority is not a number up to TABLE_MAX_PRIORITY; then no priority is set. */
enum status table_update(struct table *t, uint64_t epoch, const uint64_t *keys,
                         const double *priorities, size_t n, size_t *ret_applied,
                         struct error *err) MUST_CHECK;
/* Removes all items, begins a new epoch, and lets waiting calls go on. */
void table_clear(struct table *t, uint64_t epoch);

/* --- keeping --- */

/* Write a checkpoint: table_walk_begin, then table_walk_part, each with about so many bytes, until
 * a part adds nothing to w. kept_counters are then those of the checkpoint. */
void table_walk_begin(struct table *t);
void table_walk_part(struct table *t, struct body_writer *w, size_t about_bytes);
void table_walk_end(struct table *t);

/* Read a checkpoint into an empty table: table_restore_begin, then table_restore_part with each
 * part, then table_restore_end, after which the table goes on from the counters c. DATA_LOSS if the
 * checkpoint is damaged; EXHAUSTED. */
enum status table_restore_begin(struct table *t, const struct table_counters *c,
                                struct error *err) MUST_CHECK;
enum status table_restore_part(struct table *t, struct body_reader *r,
                               struct error *err) MUST_CHECK;
enum status table_restore_end(struct table *t, struct error *err) MUST_CHECK;
/* Frees what table_restore_begin made, if table_restore_end did not succeed; else does nothing. */
void table_restore_free(struct table *t);

/* For this folder. Puts an item that was sampled times_sampled times into a slot, in place of the
 * item that is there. */
enum status table_put_item(struct table *t, uint32_t slot, const struct table_slice *slices,
                           size_t n_slices, double priority, uint32_t times_sampled,
                           struct error *err) MUST_CHECK;
/* For this folder. Makes all slots without an item free slots, and removes items until the table is
 * within its bounds. */
void table_settle_slots(struct table *t);

/* --- waiting --- */

/* Has w wait, behind the waits of its kind. w->is_insert and w->n_samples are set. then is called
 * once, unless table_leave comes first; it may be called inside if w is a sample. */
void table_wait(struct table *t, struct table_wait *w, future_then_fn then, void *arg);
/* Ends the wait without calling then. Does nothing if w does not wait. */
void table_leave(struct table_wait *w);
/* Ends the wait: then is called with why. */
void table_wait_end(struct table_wait *w, const struct error *why);

#endif
