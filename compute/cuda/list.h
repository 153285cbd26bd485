/* Operators recorded to run later, together. The list runs when it is full or somebody syncs: its
 * inputs (ids, positions, page tables) go to the device in one copy, then its kernels are launched.
 *
 * Sizes in a list are rounded up (list_bucket) and true ones are read by the kernels from the
 * inputs, so steps that differ a little give the same list. A list that comes a second time becomes
 * a CUDA graph, and is one launch from then on: its bytes are the key, and since they hold all that
 * its kernels are given, a graph is right for as long as it is found.
 *
 * Inputs lie twice, in pinned memory and on the device: those of a list may be written and copied,
 * on a stream of their own, while the list before runs. */
#ifndef COMPUTE_CUDA_LIST_H
#define COMPUTE_CUDA_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "base/status.h"

struct cuda;
struct graph;

enum {
    LIST_SLOTS = 2,   /* of inputs */
    LIST_GRAPHS = 64, /* that are kept */
    LIST_ALIGN = 16,  /* of staged inputs */
};

/* Launches one recorded operator. */
typedef void (*list_launch_fn)(const void *args, cudaStream_t stream);

struct list_slot {
    uint8_t *host, *device; /* [cap_bytes] */
    size_t cap_bytes;
    cudaEvent_t copied, done; /* its inputs are there · the list that read them is through */
    bool is_busy;             /* done has been recorded since the last sync */
};

/* Memory that this step's operators have staged already. */
struct list_staged {
    const void *from;
    size_t size_bytes, at;
};

struct list {
    uint8_t *ops; /* [ops_bytes] of ops_cap: records of struct op */
    size_t ops_bytes, ops_cap, n_ops;
    uint64_t epoch; /* of lists: what was staged in another one is not there any more */

    struct list_slot slots[LIST_SLOTS];
    size_t slot;                  /* the one being written */
    size_t used_bytes;            /* of it */
    struct list_staged staged[8]; /* the last few */
    size_t n_staged;

    cudaStream_t compute, copies;
    struct graph *graphs;       /* the latest used first */
    size_t n_graphs, n_made;    /* n_made: of them, those that are graphs by now */
    uint64_t n_runs, n_replays; /* lists that ran, those of them as graphs */
};

/* n rounded up: to a power of two, or half way to the next. */
size_t list_bucket(size_t n);

enum status list_open(struct cuda *c, struct error *err) MUST_CHECK;
void list_close(struct cuda *c);

/* Makes sure that inputs of size_bytes, LIST_ALIGN more for each piece, can be staged, and what
 * uses them be recorded, before the list runs. It may run here. False: failed, which is kept. */
bool list_reserve(struct cuda *c, size_t size_bytes) MUST_CHECK;

/* Copies size_bytes of host memory to the list's inputs, in room for cap_bytes; returns where the
 * device will find them. After list_reserve. from is NULL: the caller fills *ret_host at once. */
void *list_stage(struct cuda *c, const void *from, size_t size_bytes, size_t cap_bytes,
                 void **ret_host);

/* The same of memory that stays as it is until the next sync, and that others may stage too. */
void *list_stage_kept(struct cuda *c, const void *from, size_t size_bytes, size_t cap_bytes);

/* Records launch(args). Args [size_bytes] are copied; all of them is the list's key, so holes of
 * the struct must be zero. */
void list_add(struct cuda *c, list_launch_fn launch, const void *args, size_t size_bytes);

/* Hands the device what is recorded, and does not wait for it. */
void list_run(struct cuda *c);

/* Waits for all that was handed over. */
void list_wait(struct cuda *c);

#endif
