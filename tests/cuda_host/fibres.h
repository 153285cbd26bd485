/* Blocks of threads on one processor: each thread of a block is a fibre with a stack of its own. A
 * kernel runs in the calling thread of the program, one kernel at a time. */
#ifndef TESTS_CUDA_HOST_FIBRES_H
#define TESTS_CUDA_HOST_FIBRES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

struct fibres_size {
    unsigned x, y, z;
};

struct fibres_launch {
    const char *kernel;
    struct fibres_size grid, block;
    size_t shared_bytes; /* of dynamic shared memory */
};

/* Puts a kernel on a stream: `run` with a copy of arg [size], now or later, once or often. The
 * stand-in of the runtime defines it; without one it runs at once. Returns a cudaError_t. */
int cuda_host_enqueue(struct CUstream_st *stream, void (*run)(const void *arg), const void *arg,
                      size_t size, const char *kernel);

/* Aborts when a word of an argument points into the host's memory. Without the stand-in of the
 * runtime it does nothing. */
void cuda_host_check_pointers(const char *kernel, const void *argument, size_t size);

/* Runs all blocks of a launch, each thread calling body(arg), in the order or orders that
 * fibres_set_orders says. False: it broke a rule; fibres_error() says which, and the rest of the
 * launch did not run. */
bool fibres_run(const struct fibres_launch *launch, void (*body)(const void *arg), const void *arg);

/* The first broken rule since fibres_clear_error, one line with the kernel's name; NULL: none. */
const char *fibres_error(void);
void fibres_clear_error(void);

/* The order in which fibres, warps' lanes and blocks run. Shuffled, a few blocks run at a time,
 * each until some of its threads wait, or before an atomic operation. */
enum fibres_order { FIBRES_FORWARD, FIBRES_BACKWARD, FIBRES_SHUFFLED };

/* From now on each launch runs n times, from the same memory: forward, backward, then shuffled, by
 * seeds from `seed` on; memory of fibres_alloc that differs afterwards by a bit is an error. 1:
 * forward only, as at the start. */
void fibres_set_orders(unsigned n, uint32_t seed);

/* Memory of the device: filled with a pattern, aligned to 256. NULL: none left. */
void *fibres_alloc(size_t size_bytes);
void fibres_free(void *at);
/* The bytes from `at` to the end of the allocation that it lies in; 0: none. */
size_t fibres_room(const void *at);

/* Memory of the device was written by a copy, from `from` or, if that is NULL, from the host. */
void fibres_copied(const void *to, const void *from, size_t size_bytes);

/* Launches until now. */
uint64_t fibres_n_launches(void);

/* Functions for kernels (cuda_host.h). Lanes are those of the caller's warp. */
struct fibres_here {
    struct fibres_size thread, block, block_size, grid_size;
};
extern struct fibres_here fibres_here;

unsigned fibres_lane(void);
void fibres_fence(void);
void fibres_atomic(const void *at, size_t size_bytes); /* before the operation */
void *fibres_shared(const void *key, size_t size_bytes, const char *name);
void *fibres_dynamic_shared(void);
void fibres_sync_block(int line);
int fibres_sync_block_or(int line, bool yes);
void fibres_sync_warp(int line, uint32_t mask);
uint32_t fibres_ballot(int line, uint32_t mask, bool yes);
uint64_t fibres_exchange(int line, uint32_t mask, uint64_t word, unsigned from);
void fibres_gather(int line, uint32_t mask, uint64_t word, uint64_t out[32]);

/* For whoever watches the kernels' accesses (shadow.c): it is called for these events. */
enum { FIBRES_RESIDENT = 3 }; /* blocks that run at a time */

struct fibres_watch {
    void *(*alloc)(size_t size_bytes);
    void (*free)(void *at, size_t size_bytes);
    void (*launch)(uint32_t n_blocks, const void *shared, size_t shared_bytes);
    void (*block)(unsigned resident, uint32_t index);
    void (*barrier)(unsigned resident);
    void (*sync)(unsigned resident, unsigned first, uint32_t mask);
    void (*fence)(void);
    void (*atomic)(const void *at, size_t size_bytes, const void *pc);
    void (*fresh)(const void *shared, size_t size_bytes);
    void (*copied)(const void *to, const void *from, size_t size_bytes);
};
extern const struct fibres_watch *fibres_watch; /* NULL: nobody watches */

unsigned fibres_thread(void);   /* of its block; UINT_MAX: no kernel runs */
unsigned fibres_resident(void); /* which of the blocks */
void fibres_fail(const char *what);

#ifdef __cplusplus
}
#endif

#endif
