/* Operators recorded to run later, together. The list runs when it is full or on a sync: its inputs
 * (ids, positions, page tables) go to the device in one copy, then its kernels are launched.
 *
 * Sizes in a list are rounded up (list_bucket) and true ones are read by the kernels from the
 * inputs, so steps that differ a little give the same list. A list that is seen a second time
 * becomes a CUDA graph, and is one launch from then on. Its bytes are the key; they hold all
 * arguments of its kernels, so a graph that is found is valid.
 *
 * Inputs are kept twice, in pinned memory and on the device, so that those of a list can be written
 * and copied, on a stream of their own, while the list before runs. */
#ifndef COMPUTE_CUDA_LIST_H
#define COMPUTE_CUDA_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "compute/cuda/device.h"

struct graph;

enum {
    LIST_SLOTS = 2,   /* of inputs */
    LIST_GRAPHS = 64, /* that are kept */
    LIST_ALIGN = 16,  /* of staged inputs */
};

/* Launches one recorded operator. */
typedef void (*list_launch_fn)(const void *args, cudaStream_t stream);

/* Called after launches; false: one of them failed, and the failure is kept. */
typedef bool (*list_check_fn)(void *arg);

struct list_slot {
    uint8_t *host, *device; /* [cap_bytes] */
    size_t cap_bytes;
    cudaEvent_t copied, done; /* its inputs are copied · the list that read them has run */
    bool is_busy;             /* done has been recorded since the last sync */
};

/* Memory that this step's operators have staged already. */
struct list_staged {
    const void *from;
    size_t size_bytes, at;
};

struct command_list {
    struct cuda_device *device;
    list_check_fn check; /* NULL: none */
    void *check_arg;

    uint8_t *ops; /* [ops_bytes] of ops_cap: records of struct op */
    size_t ops_bytes, ops_cap, n_ops;
    uint64_t epoch; /* of lists: inputs staged in an earlier one are gone */

    struct list_slot slots[LIST_SLOTS];
    size_t slot;                  /* the one being written */
    size_t used_bytes;            /* of it */
    struct list_staged staged[8]; /* the last few */
    size_t n_staged;

    cudaStream_t compute, copies;
    struct graph *graphs;       /* the latest used first */
    size_t n_graphs, n_made;    /* n_made: those of them that are graphs */
    uint64_t n_runs, n_replays; /* lists that ran, those of them as graphs */
};

/* n rounded up: to a power of two, or one and a half times one. */
size_t list_bucket(size_t n);

enum status list_open(struct command_list *l, struct cuda_device *d, struct error *err) MUST_CHECK;
void list_close(struct command_list *l);

/* Makes sure that inputs of size_bytes, plus LIST_ALIGN for each piece, can be staged, and their
 * operators recorded, before the list runs. The list may run here. False: failed, which is kept. */
bool list_reserve(struct command_list *l, size_t size_bytes) MUST_CHECK;

/* Copies size_bytes of host memory to the list's inputs, in room for cap_bytes; returns their
 * address on the device. After list_reserve. If from is NULL, the caller fills *ret_host at
 * once. */
void *list_stage(struct command_list *l, const void *from, size_t size_bytes, size_t cap_bytes,
                 void **ret_host);

/* The same for memory that does not change until the next sync, and that other operators may stage,
 * too. */
void *list_stage_kept(struct command_list *l, const void *from, size_t size_bytes,
                      size_t cap_bytes);

/* Records launch(args). Args [size_bytes] are copied; all their bytes are part of the list's key,
 * so padding of the struct must be zero. */
void list_add(struct command_list *l, list_launch_fn launch, const void *args, size_t size_bytes);

/* Hands the recorded operators to the device, and does not wait for them. */
void list_run(struct command_list *l);

/* Waits for all that was handed to the device. */
void list_wait(struct command_list *l);

#endif
