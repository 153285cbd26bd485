/* Watches every load and store of kernels. They are compiled with -fsanitize=thread, whose calls
 * come here instead of to ThreadSanitizer, and with -fsanitize=alignment.
 *
 * Each byte of the device's and of shared memory has a cell: who wrote it last and who read it. Two
 * accesses, one of them a write, race unless the first happens before the second: in the same
 * thread, across a barrier of the block, across a __syncwarp of the warp (a shuffle orders no
 * memory), across launches, or from block to block as the memory model has it: a fence, then an
 * atomic operation that one of the other block sees, then a fence there. What a fence releases is
 * what its thread did before, and what its block did before the last barrier.
 *
 * So a race is found in whatever order the fibres run. A byte that is read before anything wrote it
 * is an error as well. */
#include <assert.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda_host/fibres.h"

#define ARENA_BYTES ((size_t)64 << 30) /* of addresses: none is used twice */
#define MAX_SHARED ((size_t)64 << 10)

enum { WARP = 32, MAX_THREADS = 1024, ZONE = 256, PAGE = 4096 };

#define BY_ATOMIC 0x80000000u /* in a cell's write: it was an atomic operation */

/* Numbers of stamps; 0: nobody. Two readers are enough: a race with a third is one with them. */
struct cell {
    uint32_t write, reads[2];
};

enum { FILLED = 1 }; /* the stamp of whoever wrote before the first launch */

/* A thread between two events that order its accesses. */
struct stamp {
    uint32_t block, barrier, sync;
    uint16_t thread;
};

/* What is known of a block: all before its barrier, and of one thread all up to a stamp. */
struct known {
    uint32_t barrier, stamp;
    uint16_t thread;
};

/* [n_blocks]; NULL: nothing is known. */
typedef struct known *clock_of;

struct watched_thread {
    uint32_t stamp;          /* 0: it needs a new one */
    clock_of released;       /* by its last fence */
    clock_of seen, acquired; /* by atomic operations; and made its own by a fence */
    uint32_t sync;           /* how often its warp synchronised */
};

struct watched_block {
    struct watched_thread threads[MAX_THREADS];
    uint32_t index, barrier;
    clock_of acquired;
};

/* The target of atomic operations. */
struct target {
    struct target *next;
    const void *at;
    clock_of released;
    uint32_t block;
    unsigned thread; /* the last one's */
};

/* One launch runs at a time, and nothing else touches these meanwhile. */
static unsigned char *arena;
static struct cell *cells, shared_cells[FIBRES_RESIDENT * MAX_SHARED];
static size_t arena_used;
static const unsigned char *shared;
static size_t shared_bytes;
static struct stamp *stamps;
static uint32_t n_stamps = FILLED + 1, first_stamp, cap_stamps; /* first_stamp: of the launch */
static uint32_t n_blocks;
static struct watched_block residents[FIBRES_RESIDENT];
static struct target *targets;

/* Memory. */

static void arena_open(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    if (arena != NULL)
        return;
    arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    cells = mmap(NULL, ARENA_BYTES * sizeof(*cells), PROT_READ | PROT_WRITE, flags, -1, 0);
    assert(arena != MAP_FAILED && cells != MAP_FAILED);
}

static void *shadow_alloc(size_t size_bytes)
{
    unsigned char *at;

    arena_open();
    if (size_bytes > ARENA_BYTES - arena_used - PAGE)
        return NULL;
    at = arena + arena_used;
    arena_used += (size_bytes + PAGE - 1) / PAGE * PAGE;
    return at;
}

static struct cell *cells_of(const void *at, size_t size_bytes)
{
    const unsigned char *p = at;

    if (arena != NULL && p >= arena && p < arena + arena_used)
        return cells + (p - arena);
    if (shared != NULL && p >= shared && p + size_bytes <= shared + shared_bytes)
        return shared_cells + (p - shared);
    return NULL;
}

/* Gives the memory back to the system, and its cells. */
static void shadow_free(void *at, size_t size_bytes)
{
    const size_t room = (size_bytes + PAGE - 1) / PAGE * PAGE;

    (void)madvise(cells_of(at, 1), room * sizeof(*cells), MADV_DONTNEED);
    (void)madvise(at, room, MADV_DONTNEED);
}

static void shadow_fresh(const void *at, size_t size_bytes)
{
    memset(cells_of(at, size_bytes), 0, size_bytes * sizeof(*cells));
}

static void shadow_copied(const void *to, const void *from, size_t size_bytes)
{
    struct cell *c = cells_of(to, size_bytes);
    const struct cell *of = from != NULL ? cells_of(from, size_bytes) : NULL;

    for (size_t i = 0; c != NULL && i < size_bytes; i++)
        c[i] = (struct cell){.write = of == NULL || of[i].write != 0 ? FILLED : 0};
}

/* Clocks. */

static clock_of clock_new(void)
{
    clock_of c = calloc(n_blocks, sizeof(*c));

    assert(c != NULL);
    return c;
}

static void clock_join(clock_of *to, const struct known *from)
{
    if (from == NULL)
        return;
    if (*to == NULL)
        *to = clock_new();
    for (uint32_t i = 0; i < n_blocks; i++) {
        struct known *k = &(*to)[i];

        k->barrier = from[i].barrier > k->barrier ? from[i].barrier : k->barrier;
        if (from[i].stamp > k->stamp) {
            k->stamp = from[i].stamp;
            k->thread = from[i].thread;
        }
    }
}

static void thread_forget(struct watched_thread *t)
{
    free(t->released);
    free(t->seen);
    free(t->acquired);
    *t = (struct watched_thread){0};
}

/* Events. */

static void shadow_launch(uint32_t blocks, const void *at, size_t size_bytes)
{
    assert(size_bytes <= sizeof(shared_cells) / sizeof(*shared_cells));
    arena_open();
    while (targets != NULL) {
        struct target *t = targets;

        targets = t->next;
        free(t->released);
        free(t);
    }
    shared = at;
    shared_bytes = size_bytes;
    for (size_t i = 0; i < FIBRES_RESIDENT; i++) {
        for (size_t k = 0; k < MAX_THREADS; k++)
            thread_forget(&residents[i].threads[k]);
        free(residents[i].acquired);
        residents[i].acquired = NULL;
    }
    n_blocks = blocks;
    first_stamp = n_stamps;
    assert(n_stamps < BY_ATOMIC / 2);
}

static void shadow_block(unsigned resident, uint32_t index)
{
    struct watched_block *b = &residents[resident];

    for (size_t k = 0; k < MAX_THREADS; k++)
        thread_forget(&b->threads[k]);
    free(b->acquired);
    b->acquired = NULL;
    b->index = index;
    b->barrier = 1;
}

static void shadow_barrier(unsigned resident)
{
    struct watched_block *b = &residents[resident];

    b->barrier++;
    for (size_t k = 0; k < MAX_THREADS; k++) {
        b->threads[k].stamp = 0;
        clock_join(&b->acquired, b->threads[k].acquired);
    }
}

static void shadow_sync(unsigned resident, unsigned first, uint32_t mask)
{
    struct watched_thread *t = &residents[resident].threads[first];
    clock_of all = NULL;

    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1) {
            t[i].sync++;
            t[i].stamp = 0;
            clock_join(&all, t[i].acquired);
        }
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1)
            clock_join(&t[i].acquired, all);
    free(all);
}

static uint32_t stamp_of(struct watched_block *b, unsigned thread)
{
    struct watched_thread *t = &b->threads[thread];

    if (t->stamp != 0)
        return t->stamp;
    if (n_stamps - first_stamp >= cap_stamps) {
        cap_stamps = 2 * cap_stamps + 1024;
        stamps = realloc(stamps, cap_stamps * sizeof(*stamps));
        assert(stamps != NULL);
    }
    stamps[n_stamps - first_stamp] =
        (struct stamp){b->index, b->barrier, t->sync, (uint16_t)thread};
    return t->stamp = n_stamps++;
}

static bool is_known(const struct known *clock, const struct stamp *s, uint32_t number)
{
    const struct known *k = clock != NULL ? &clock[s->block] : NULL;

    return k != NULL && (s->barrier < k->barrier || (s->thread == k->thread && number <= k->stamp));
}

/* Whether what was done under a stamp happens before what the thread does now. */
static bool is_before(uint32_t number, const struct watched_block *b, unsigned thread)
{
    const struct watched_thread *t = &b->threads[thread];
    const struct stamp *s;

    number &= ~BY_ATOMIC;
    if (number < first_stamp || number == t->stamp)
        return true;
    s = &stamps[number - first_stamp];
    if (s->block == b->index)
        return s->thread == thread || s->barrier < b->barrier ||
               (s->thread / WARP == thread / WARP && s->sync < t->sync);
    return is_known(b->acquired, s, number) || is_known(t->acquired, s, number);
}

static void complain(const char *what, const void *at, size_t size_bytes, uint32_t other,
                     const void *pc)
{
    const char *where = shared != NULL && (const unsigned char *)at >= shared &&
                                (const unsigned char *)at < shared + shared_bytes
                            ? "shared memory"
                            : "the device's memory";
    char text[240], by[80] = "";
    Dl_info image;

    if (other >= first_stamp && other != 0) {
        const struct stamp *s = &stamps[(other & ~BY_ATOMIC) - first_stamp];

        (void)snprintf(by, sizeof(by), ", of thread %u of block %u", s->thread, s->block);
    }
    if (dladdr(pc, &image) == 0)
        image.dli_fbase = NULL;
    (void)snprintf(text, sizeof(text), "%s: %zu bytes of %s, by thread %u of block %u%s (at %#zx)",
                   what, size_bytes, where, fibres_thread(), residents[fibres_resident()].index, by,
                   (size_t)((const char *)pc - (const char *)image.dli_fbase));
    fibres_fail(text);
}

static struct target *target_of(const void *at)
{
    for (struct target *t = targets; t != NULL; t = t->next)
        if (t->at == at)
            return t;
    return NULL;
}

/* An atomic operation is before all that the next thread with one at that place does there. */
static bool is_own_turn(const void *at, const struct watched_block *b, unsigned thread)
{
    const struct target *t = target_of(at);

    return t != NULL && t->block == b->index && t->thread == thread;
}

static void watch(const void *at, size_t size_bytes, bool writes, bool is_atomic, const void *pc)
{
    unsigned thread = fibres_thread();
    struct cell *c = thread < MAX_THREADS ? cells_of(at, size_bytes) : NULL;
    struct watched_block *b;
    uint32_t mine, well = 0;

    if (c == NULL)
        return; /* the host's, or the thread's own stack */
    b = &residents[fibres_resident()];
    mine = stamp_of(b, thread);
    for (size_t i = 0; i < size_bytes; i++, c++) {
        if (c->write == 0 && !writes)
            complain("nothing wrote what is read", at, size_bytes, 0, pc);
        else if (c->write != well && !is_before(c->write, b, thread) &&
                 !(c->write & BY_ATOMIC && (is_atomic || is_own_turn(at, b, thread))))
            complain(writes ? "a race of two writes" : "a race: a read after a write", at,
                     size_bytes, c->write, pc);
        well = c->write;
        if (writes || is_atomic) {
            for (unsigned k = 0; k < 2; k++)
                if (c->reads[k] != 0 && !is_before(c->reads[k], b, thread))
                    complain("a race: a write after a read", at, size_bytes, c->reads[k], pc);
            *c = (struct cell){.write = is_atomic ? mine | BY_ATOMIC : mine};
        } else if (c->reads[0] != mine && c->reads[1] != mine) {
            c->reads[1] = c->reads[0];
            c->reads[0] = mine;
        }
    }
}

static void shadow_fence(void)
{
    struct watched_block *b = &residents[fibres_resident()];
    struct watched_thread *t = &b->threads[fibres_thread()];
    struct known *own;

    clock_join(&t->acquired, t->seen);
    free(t->seen);
    t->seen = NULL;
    free(t->released);
    t->released = clock_new();
    clock_join(&t->released, t->acquired);
    clock_join(&t->released, b->acquired);
    own = &t->released[b->index];
    *own = (struct known){b->barrier, n_stamps - 1, (uint16_t)fibres_thread()};
    t->stamp = 0;
}

static void shadow_atomic(const void *at, size_t size_bytes, const void *pc)
{
    struct watched_block *b = &residents[fibres_resident()];
    struct watched_thread *t = &b->threads[fibres_thread()];
    struct target *target = target_of(at);

    watch(at, size_bytes, false, true, pc);
    if (target == NULL) {
        target = calloc(1, sizeof(*target));
        assert(target != NULL);
        target->at = at;
        target->next = targets;
        targets = target;
    }
    clock_join(&t->seen, target->released);
    clock_join(&target->released, t->released);
    target->block = b->index;
    target->thread = fibres_thread();
}

static const struct fibres_watch shadow = {
    .alloc = shadow_alloc,
    .free = shadow_free,
    .launch = shadow_launch,
    .block = shadow_block,
    .barrier = shadow_barrier,
    .sync = shadow_sync,
    .fence = shadow_fence,
    .atomic = shadow_atomic,
    .fresh = shadow_fresh,
    .copied = shadow_copied,
};

__attribute__((constructor)) static void shadow_install(void)
{
    fibres_watch = &shadow;
}

/* The compiler's calls. */

#define CALLS(size)                                                 \
    void __tsan_read##size(const void *at);                         \
    void __tsan_write##size(const void *at);                        \
    void __tsan_volatile_read##size(const void *at);                \
    void __tsan_volatile_write##size(const void *at);               \
    void __tsan_unaligned_read##size(const void *at);               \
    void __tsan_unaligned_write##size(const void *at);              \
    void __tsan_read##size(const void *at)                          \
    {                                                               \
        watch(at, size, false, false, __builtin_return_address(0)); \
    }                                                               \
    void __tsan_write##size(const void *at)                         \
    {                                                               \
        watch(at, size, true, false, __builtin_return_address(0));  \
    }                                                               \
    void __tsan_volatile_read##size(const void *at)                 \
    {                                                               \
        watch(at, size, false, false, __builtin_return_address(0)); \
    }                                                               \
    void __tsan_volatile_write##size(const void *at)                \
    {                                                               \
        watch(at, size, true, false, __builtin_return_address(0));  \
    }                                                               \
    void __tsan_unaligned_read##size(const void *at)                \
    {                                                               \
        watch(at, size, false, false, __builtin_return_address(0)); \
    }                                                               \
    void __tsan_unaligned_write##size(const void *at)               \
    {                                                               \
        watch(at, size, true, false, __builtin_return_address(0));  \
    }

CALLS(1)
CALLS(2)
CALLS(4)
CALLS(8)
CALLS(16)

void __tsan_read_range(const void *at, size_t size_bytes);
void __tsan_write_range(const void *at, size_t size_bytes);
void __tsan_func_entry(const void *pc);
void __tsan_func_exit(void);
void __tsan_init(void);
void __ubsan_handle_type_mismatch_v1(const void *data, uintptr_t at);

void __tsan_read_range(const void *at, size_t size_bytes)
{
    watch(at, size_bytes, false, false, __builtin_return_address(0));
}

void __tsan_write_range(const void *at, size_t size_bytes)
{
    watch(at, size_bytes, true, false, __builtin_return_address(0));
}

void __tsan_func_entry(const void *pc)
{
}

void __tsan_func_exit(void)
{
}

void __tsan_init(void)
{
}

void __ubsan_handle_type_mismatch_v1(const void *data, uintptr_t at)
{
    complain("a misaligned access", (const void *)at, 0, 0, __builtin_return_address(0));
}
