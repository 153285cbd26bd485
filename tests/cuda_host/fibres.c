/* A launch runs block by block, or shuffled, a few blocks at a time. In a block, warp by warp, each
 * lane runs until it waits for others; a wait ends when the last lane arrives. When no fibre can
 * run and some have not ended, their waits can never end: this is the error to be found. Fibres of
 * a broken block are abandoned, which leaks nothing, because kernels own nothing. */
#include "tests/cuda_host/fibres.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES ((size_t)256 << 10)
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define STACK_BYTES ((size_t)64 << 10)
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

enum {
    MAX_THREADS = 1024, /* of a block */
    LANES = 32,
    GUARD_BYTES = 4096,
    SHARED_BYTES = 48 << 10, /* what every device has by default */
    ZONE_BYTES = 128,        /* around each allocation */
    ZONE = 0xfb,
    FILLED_BYTES = 4 << 20,
    PAGE_BYTES = 4096,
    MAX_ARRAYS = 32,
    MAX_ORDERS = 32,
    SHARED_ROOM = SHARED_BYTES + (MAX_ARRAYS + 2) * 2 * ZONE_BYTES,
};

enum state { UNMADE, READY, AT_BLOCK, AT_WARP, ENDED };
enum wait { SYNC, BALLOT, EXCHANGE, GATHER };

struct fibre {
    void *sp;
    enum state state;
    enum wait wait;
    int line;
    uint32_t mask;
    unsigned from; /* of EXCHANGE */
    uint64_t word, result;
    uint64_t *all; /* of GATHER [LANES] */
    struct fibres_size at;
#if defined(__SANITIZE_ADDRESS__)
    void *fake_stack;
#endif
#if defined(__SANITIZE_THREAD__)
    void *tsan;
#endif
};

struct array {
    const void *key;
    const char *name;
    size_t offset, size_bytes;
};

struct allocation {
    struct allocation *next;
    unsigned char *at;
    size_t size_bytes;
};

/* A page of the device's memory that was written while orders are compared. */
struct page {
    struct page *next;
    unsigned char *at, before[PAGE_BYTES], after[PAGE_BYTES]; /* after the first order */
    size_t n;                                                 /* bytes of its allocation */
};

/* A block that runs. */
struct resident {
    struct fibre fibres[MAX_THREADS];
    struct fibres_size at;
    bool is_busy;
    unsigned n_ended, n_at_block;
    bool any_yes;
    unsigned char *shared; /* [SHARED_ROOM] */
    struct array arrays[MAX_ARRAYS];
    unsigned n_arrays;
    size_t shared_used, shared_zones;
};

const struct fibres_watch *fibres_watch;

/* Guarded by lock: one launch runs at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct resident residents[FIBRES_RESIDENT], *here = residents;
static unsigned char *stacks;
static unsigned n_threads;
static struct fibre *running;
static void *scheduler_sp;
#if defined(__SANITIZE_ADDRESS__)
static void *scheduler_fake;
static const void *scheduler_bottom;
static size_t scheduler_size;
#endif
#if defined(__SANITIZE_THREAD__)
static void *scheduler_tsan;
#endif
static const struct fibres_launch *launched;
static void (*launched_body)(const void *);
static const void *launched_arg;
static enum fibres_order order;
static uint32_t chance;
static _Alignas(256) unsigned char shared_rooms[FIBRES_RESIDENT][SHARED_ROOM];
static unsigned char shared_pattern;
static char failure[320];
static unsigned n_orders = 1;
static uint32_t orders_seed;
static struct allocation *allocations;
static struct page *pages;
static uint64_t n_launches;

struct fibres_here fibres_here;

static void fail(const char *what, int line)
{
    if (failure[0] != '\0')
        return;
    if (line > 0)
        (void)snprintf(failure, sizeof(failure), "kernel %s, line %d: %s", launched->kernel, line,
                       what);
    else
        (void)snprintf(failure, sizeof(failure), "kernel %s: %s", launched->kernel, what);
}

/* Switching. */

/* Saves what a callee has to keep, stores the stack pointer in *from and continues at to. */
void fibres_switch(void **from, void *to);

#if defined(__x86_64__)
__asm__(".text\n"
        ".type fibres_switch, @function\n"
        "fibres_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fibres_switch, . - fibres_switch\n");
#else
#error "fibres are written for x86-64"
#endif

enum { KEPT_WORDS = 6 };

/* The stack of thread i of the current block. */
static unsigned char *stack_of(size_t i)
{
    i += (size_t)(here - residents) * MAX_THREADS;
    return stacks + i * (GUARD_BYTES + STACK_BYTES) + GUARD_BYTES;
}

/* Switches to the scheduler; returns when it switches back. */
static void give_way(void)
{
    struct fibre *f = running;

#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&f->fake_stack, scheduler_bottom, scheduler_size);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(scheduler_tsan, 0);
#endif
    fibres_switch(&f->sp, scheduler_sp);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->fake_stack, &scheduler_bottom, &scheduler_size);
#endif
}

static void enter(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &scheduler_bottom, &scheduler_size);
#endif
    for (;;) { /* a fibre is a thread of one block after the other */
        launched_body(launched_arg);
        running->state = ENDED;
        here->n_ended++;
        give_way();
    }
}

static void run_fibre(struct fibre *f)
{
    running = f;
    fibres_here.thread = f->at;
    fibres_here.block = here->at;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler_fake, stack_of((size_t)(f - here->fibres)),
                                   STACK_BYTES);
#endif
#if defined(__SANITIZE_THREAD__)
    scheduler_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
    fibres_switch(&scheduler_sp, f->sp);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(scheduler_fake, NULL, NULL);
#endif
    running = NULL;
}

static void open_stacks(void)
{
    const size_t n = FIBRES_RESIDENT * MAX_THREADS;
    size_t size_bytes = n * (GUARD_BYTES + STACK_BYTES);

    if (stacks != NULL)
        return;
    stacks = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(stacks != MAP_FAILED);
    for (size_t i = 0; i < n; i++)
        (void)mprotect(stacks + i * (GUARD_BYTES + STACK_BYTES), GUARD_BYTES, PROT_NONE);
    for (size_t i = 0; i < FIBRES_RESIDENT; i++)
        residents[i].shared = shared_rooms[i];
}

/* Makes a fibre that starts from the beginning. */
static void make_fibre(size_t i)
{
    struct fibre *f = &here->fibres[i];
    void (*first)(void) = enter;
    void **sp = (void **)(void *)(stack_of(i) + STACK_BYTES - 64);

    ASAN_UNPOISON_MEMORY_REGION(stack_of(i), STACK_BYTES); /* where a broken block left frames */
    memcpy(sp, &first, sizeof(first));
    memset(sp - KEPT_WORDS, 0, KEPT_WORDS * sizeof(*sp));
    f->sp = sp - KEPT_WORDS;
#if defined(__SANITIZE_THREAD__)
    if (f->tsan == NULL)
        f->tsan = __tsan_create_fiber(0);
#endif
}

/* A fibre that has ended continues as a thread of the next block; one that a broken block abandoned
 * starts from the beginning. */
static void ready_fibre(size_t i)
{
    const struct fibres_size size = launched->block;
    struct fibre *f = &here->fibres[i];

    if (f->state != ENDED)
        make_fibre(i);
    f->state = READY;
    f->at = (struct fibres_size){(unsigned)i % size.x, (unsigned)i / size.x % size.y,
                                 (unsigned)i / size.x / size.y};
}

/* Waiting. */

unsigned fibres_lane(void)
{
    return (unsigned)(running - here->fibres) % LANES;
}

static struct fibre *warp_of(const struct fibre *f)
{
    return &here->fibres[(f - here->fibres) / LANES * LANES];
}

static void check_zones(int line);

static void release_block(int line)
{
    for (unsigned i = 0; i < n_threads; i++) {
        if (here->fibres[i].line != line) {
            fail("threads of the block wait at barriers of other lines", line);
            return;
        }
        here->fibres[i].result = here->any_yes;
    }
    for (unsigned i = 0; i < n_threads; i++)
        here->fibres[i].state = READY;
    here->n_at_block = 0;
    here->any_yes = false;
    if (fibres_watch != NULL)
        fibres_watch->barrier(fibres_resident());
    check_zones(line);
}

int fibres_sync_block_or(int line, bool yes)
{
    struct fibre *f = running;

    f->state = AT_BLOCK;
    f->line = line;
    here->any_yes |= yes;
    if (++here->n_at_block == n_threads)
        release_block(line);
    give_way();
    return (int)f->result;
}

void fibres_sync_block(int line)
{
    (void)fibres_sync_block_or(line, false);
}

static bool is_there(const struct fibre *warp, unsigned lane)
{
    return (size_t)(warp - here->fibres) + lane < n_threads;
}

/* Sets a lane's result, once all lanes of mask have arrived. */
static void answer(struct fibre *warp, unsigned lane, uint32_t mask)
{
    struct fibre *f = &warp[lane];
    uint64_t votes = 0;

    switch (f->wait) {
    case SYNC:
        break;
    case BALLOT:
        for (unsigned i = 0; i < LANES; i++)
            if (mask >> i & 1 && warp[i].word != 0)
                votes |= (uint64_t)1 << i;
        f->result = votes;
        break;
    case EXCHANGE:
        if (f->from >= LANES || !(mask >> f->from & 1))
            fail("a lane reads from one that does not take part", f->line);
        else
            f->result = warp[f->from].word;
        break;
    case GATHER:
        for (unsigned i = 0; i < LANES; i++)
            f->all[i] = mask >> i & 1 ? warp[i].word : 0;
        break;
    }
}

/* Releases the lanes of f's mask if all wait for the same operation. */
static void maybe_release_warp(const struct fibre *f)
{
    struct fibre *warp = warp_of(f);

    for (unsigned i = 0; i < LANES; i++)
        if (f->mask >> i & 1 && (!is_there(warp, i) || warp[i].state != AT_WARP ||
                                 warp[i].mask != f->mask || warp[i].line != f->line))
            return;
    for (unsigned i = 0; i < LANES; i++)
        if (f->mask >> i & 1)
            answer(warp, i, f->mask);
    for (unsigned i = 0; i < LANES; i++)
        if (f->mask >> i & 1)
            warp[i].state = READY;
    if (f->wait == SYNC && fibres_watch != NULL)
        fibres_watch->sync(fibres_resident(), (unsigned)(warp - here->fibres), f->mask);
}

static uint64_t wait_for_warp(int line, uint32_t mask, enum wait wait, uint64_t word, unsigned from,
                              uint64_t *all)
{
    struct fibre *f = running;

    f->line = line;
    f->mask = mask;
    f->wait = wait;
    f->word = word;
    f->from = from;
    f->all = all;
    f->state = AT_WARP;
    if (!(mask >> fibres_lane() & 1))
        fail("a lane is not in the mask that it gives", line);
    else
        maybe_release_warp(f);
    give_way();
    return f->result;
}

void fibres_sync_warp(int line, uint32_t mask)
{
    (void)wait_for_warp(line, mask, SYNC, 0, 0, NULL);
}

uint32_t fibres_ballot(int line, uint32_t mask, bool yes)
{
    return (uint32_t)wait_for_warp(line, mask, BALLOT, yes, 0, NULL);
}

uint64_t fibres_exchange(int line, uint32_t mask, uint64_t word, unsigned from)
{
    return wait_for_warp(line, mask, EXCHANGE, word, from, NULL);
}

void fibres_gather(int line, uint32_t mask, uint64_t word, uint64_t out[32])
{
    (void)wait_for_warp(line, mask, GATHER, word, 0, out);
}

/* Fences, and atomic operations: these run when all other threads may have had a turn. */

void fibres_fence(void)
{
    if (fibres_watch != NULL && running != NULL)
        fibres_watch->fence();
}

void fibres_atomic(const void *at, size_t size_bytes)
{
    if (running == NULL)
        return;
    if (order == FIBRES_SHUFFLED)
        give_way();
    if (fibres_watch != NULL)
        fibres_watch->atomic(at, size_bytes, __builtin_return_address(0));
}

unsigned fibres_thread(void)
{
    return running != NULL ? (unsigned)(running - here->fibres) : UINT_MAX;
}

unsigned fibres_resident(void)
{
    return (unsigned)(here - residents);
}

void fibres_fail(const char *what)
{
    fail(what, 0);
}

/* Shared memory: one array after the other, zones between them. */

static void *take_shared(const void *key, const char *name, size_t size_bytes)
{
    size_t offset = here->shared_used + here->shared_zones + ZONE_BYTES;
    size_t room = (size_bytes + 15) / 16 * 16;

    if (here->n_arrays == MAX_ARRAYS || here->shared_used + room > SHARED_BYTES) {
        fail("more shared memory than a block has", 0);
        offset = ZONE_BYTES; /* the launch ends once this fibre yields */
        return here->shared + offset;
    }
    ASAN_UNPOISON_MEMORY_REGION(here->shared + offset - ZONE_BYTES, room + 2 * ZONE_BYTES);
    memset(here->shared + offset - ZONE_BYTES, ZONE, room + 2 * ZONE_BYTES);
    memset(here->shared + offset, shared_pattern, size_bytes);
    if (fibres_watch != NULL)
        fibres_watch->fresh(here->shared + offset, size_bytes);
    ASAN_POISON_MEMORY_REGION(here->shared + offset - ZONE_BYTES, ZONE_BYTES);
    ASAN_POISON_MEMORY_REGION(here->shared + offset + size_bytes, room - size_bytes + ZONE_BYTES);
    here->arrays[here->n_arrays++] = (struct array){key, name, offset, size_bytes};
    here->shared_used += room;
    here->shared_zones += 2 * ZONE_BYTES;
    return here->shared + offset;
}

void *fibres_shared(const void *key, size_t size_bytes, const char *name)
{
    for (unsigned i = 0; i < here->n_arrays; i++)
        if (here->arrays[i].key == key)
            return here->shared + here->arrays[i].offset;
    return take_shared(key, name, size_bytes);
}

void *fibres_dynamic_shared(void)
{
    return fibres_shared(&launched, launched->shared_bytes, "dynamic");
}

/* Under AddressSanitizer the zones cannot be read, and need not be: it has reported a write there
 * already. */
static void check_zones(int line)
{
#if !defined(__SANITIZE_ADDRESS__)
    char what[120];

    for (unsigned i = 0; i < here->n_arrays; i++) {
        size_t begin = here->arrays[i].offset - ZONE_BYTES,
               end = here->arrays[i].offset + here->arrays[i].size_bytes;

        for (size_t at = begin; at < end + ZONE_BYTES; at++) {
            if (at == here->arrays[i].offset)
                at = end;
            if (here->shared[at] == ZONE)
                continue;
            (void)snprintf(what, sizeof(what), "a write outside the shared array '%s'",
                           here->arrays[i].name);
            fail(what, line);
            return;
        }
    }
#else
#endif
}

/* Blocks. */

static uint32_t next_chance(void)
{
    chance = chance * 1664525u + 1013904223u;
    return chance >> 8;
}

/* Fills to[0 … n - 1] with the numbers below n, in the current order. */
static void lay_order(unsigned *to, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        to[i] = order == FIBRES_BACKWARD ? n - 1 - i : i;
    for (unsigned i = n; order == FIBRES_SHUFFLED && i > 1; i--) {
        unsigned j = next_chance() % i, x = to[i - 1];

        to[i - 1] = to[j];
        to[j] = x;
    }
}

/* Runs the lanes of a warp until all wait for other warps, or forever; with `once`, each lane once.
 */
static bool run_warp(unsigned first, bool once)
{
    unsigned lanes[LANES], n = n_threads - first < LANES ? n_threads - first : LANES;
    bool ran = false, more = true;

    lay_order(lanes, n);
    while (more && failure[0] == '\0') {
        more = false;
        for (unsigned i = 0; i < n && failure[0] == '\0'; i++)
            if (here->fibres[first + lanes[i]].state == READY) {
                run_fibre(&here->fibres[first + lanes[i]]);
                ran = more = true;
            }
        more &= !once;
    }
    return ran;
}

static void tell_stuck(void)
{
    const struct fibre *waits = here->fibres;
    char what[160];

    while (waits->state == ENDED)
        waits++;
    (void)snprintf(what, sizeof(what),
                   "thread %u waits for threads that do not come (%u of the block's %u are at a "
                   "barrier, %u have ended)",
                   (unsigned)(waits - here->fibres), here->n_at_block, n_threads, here->n_ended);
    fail(what, waits->line);
}

static void begin_block(unsigned index)
{
    const struct fibres_size grid = launched->grid;

    here->at =
        (struct fibres_size){index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y};
    here->is_busy = true;
    here->n_ended = here->n_at_block = here->n_arrays = 0;
    here->any_yes = false;
    here->shared_used = here->shared_zones = 0;
    ASAN_POISON_MEMORY_REGION(here->shared, SHARED_ROOM);
    for (size_t i = 0; i < n_threads; i++)
        ready_fibre(i);
    if (fibres_watch != NULL)
        fibres_watch->block(fibres_resident(), index);
}

/* Runs the block's warps once, each until its lanes wait; with `one`, a warp that can run, and its
 * lanes until they wait or come to an atomic operation. */
static void turn_block(bool one)
{
    unsigned warps[MAX_THREADS / LANES], n_warps = (n_threads + LANES - 1) / LANES;
    bool ran = false;

    lay_order(warps, n_warps);
    for (unsigned i = 0; i < n_warps && !(one && ran); i++)
        ran |= run_warp(warps[i] * LANES, one);
    if (!ran)
        tell_stuck();
    if (failure[0] != '\0' || here->n_ended < n_threads)
        return;
    check_zones(0);
    here->is_busy = false;
}

/* Runs the blocks; shuffled, as many at a time as fit, by turns. */
static void run_blocks(void)
{
    const struct fibres_size grid = launched->grid;
    unsigned n = grid.x * grid.y * grid.z, *blocks = malloc(n * sizeof(*blocks));
    unsigned n_begun = 0, n_busy = 0, most = order == FIBRES_SHUFFLED ? FIBRES_RESIDENT : 1;

    assert(blocks != NULL);
    lay_order(blocks, n);
    for (unsigned i = 0; i < FIBRES_RESIDENT; i++)
        residents[i].is_busy = false;
    if (fibres_watch != NULL)
        fibres_watch->launch(n, shared_rooms, sizeof(shared_rooms));
    while ((n_begun < n || n_busy > 0) && failure[0] == '\0') {
        here = &residents[most > 1 ? next_chance() % most : 0];
        if (!here->is_busy && n_begun == n)
            continue; /* another one's turn */
        if (!here->is_busy) {
            begin_block(blocks[n_begun++]);
            n_busy++;
        }
        turn_block(most > 1);
        n_busy -= !here->is_busy;
    }
    free(blocks);
}

/* Memory. */

static struct allocation *allocation_of(const void *at)
{
    const unsigned char *p = at;

    for (struct allocation *a = allocations; a != NULL; a = a->next)
        if (p >= a->at && p < a->at + a->size_bytes)
            return a;
    return NULL;
}

/* Whole pages, so that they can be protected. */
static size_t room_for(size_t size_bytes)
{
    return (size_bytes + ZONE_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

void *fibres_alloc(size_t size_bytes)
{
    struct allocation *a = malloc(sizeof(*a));
    size_t room = room_for(size_bytes);

    if (a == NULL || room < size_bytes) {
        free(a);
        return NULL;
    }
    *a = (struct allocation){.at = fibres_watch != NULL ? fibres_watch->alloc(room)
                                                        : aligned_alloc(PAGE_BYTES, room),
                             .size_bytes = size_bytes};
    if (a->at == NULL) {
        free(a);
        return NULL;
    }
    /* of a very large allocation (a library's workspace) only the beginning: filling all of it at
     * each opening would take most of a test's time */
    memset(a->at, 0xa5, size_bytes < FILLED_BYTES ? size_bytes : FILLED_BYTES);
    memset(a->at + size_bytes, ZONE, room - size_bytes);
    ASAN_POISON_MEMORY_REGION(a->at + size_bytes, room - size_bytes);
    (void)pthread_mutex_lock(&lock);
    a->next = allocations;
    allocations = a;
    (void)pthread_mutex_unlock(&lock);
    return a->at;
}

void fibres_free(void *at)
{
    struct allocation *a = NULL;

    (void)pthread_mutex_lock(&lock);
    for (struct allocation **p = &allocations; at != NULL && *p != NULL; p = &(*p)->next)
        if ((*p)->at == at) {
            a = *p;
            *p = a->next;
            break;
        }
    (void)pthread_mutex_unlock(&lock);
    assert(at == NULL || a != NULL);
    if (a != NULL && fibres_watch != NULL)
        fibres_watch->free(a->at, a->size_bytes + ZONE_BYTES);
    else if (a != NULL)
        free(a->at);
    free(a);
}

void fibres_copied(const void *to, const void *from, size_t size_bytes)
{
    if (fibres_watch != NULL)
        fibres_watch->copied(to, from, size_bytes);
}

size_t fibres_room(const void *at)
{
    const struct allocation *a;
    size_t room;

    (void)pthread_mutex_lock(&lock);
    a = allocation_of(at);
    room = a == NULL ? 0 : (size_t)(a->at + a->size_bytes - (const unsigned char *)at);
    (void)pthread_mutex_unlock(&lock);
    return room;
}

static void check_allocations(void)
{
#if !defined(__SANITIZE_ADDRESS__)
    for (const struct allocation *a = allocations; a != NULL; a = a->next)
        for (size_t i = 0; i < ZONE_BYTES; i++)
            if (a->at[a->size_bytes + i] != ZONE) {
                fail("a write behind an allocation of the device", 0);
                return;
            }
#endif
}

/* Orders. */

static void run_in(enum fibres_order which, uint32_t seed)
{
    order = which;
    chance = seed;
    shared_pattern = (unsigned char)(0xa5 + which * 0x31 + seed);
    run_blocks();
    if (failure[0] == '\0')
        check_allocations();
}

/* A store to a page that no order has written yet, and that is therefore protected: the page is
 * copied. A signal's handler may not call malloc. */
static void on_store(int number, siginfo_t *info, void *context)
{
    unsigned char *at = info->si_addr;
    const struct allocation *a = running != NULL ? allocations : NULL;
    struct page *p;
    size_t first;

    (void)number, (void)context;
    while (a != NULL && !(at >= a->at && at < a->at + room_for(a->size_bytes)))
        a = a->next;
    if (a == NULL) { /* a fault of another kind: it comes again */
        (void)signal(SIGSEGV, SIG_DFL);
        return;
    }
    p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(p != MAP_FAILED);
    first = (size_t)(at - a->at) / PAGE_BYTES * PAGE_BYTES;
    p->at = a->at + first;
    p->n = a->size_bytes > first ? a->size_bytes - first : 0; /* not of the zone behind it */
    p->n = p->n < PAGE_BYTES ? p->n : PAGE_BYTES;
    memcpy(p->before, p->at, p->n);
    memcpy(p->after, p->at, p->n);
    p->next = pages;
    pages = p;
    (void)mprotect(p->at, PAGE_BYTES, PROT_READ | PROT_WRITE);
}

static void protect(int how)
{
    for (const struct allocation *a = allocations; a != NULL; a = a->next)
        (void)mprotect(a->at, room_for(a->size_bytes), how);
}

/* Runs all orders, each from the same memory. Only pages that one of them writes are compared. */
static void run_in_orders(void)
{
    const struct sigaction action = {.sa_sigaction = on_store, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction before;
    struct page *next;

    (void)sigaction(SIGSEGV, &action, &before);
    protect(PROT_READ);
    run_in(FIBRES_FORWARD, 0);
    for (struct page *p = pages; p != NULL; p = p->next)
        memcpy(p->after, p->at, p->n);
    for (unsigned i = 1; i < n_orders && failure[0] == '\0'; i++) {
        for (struct page *p = pages; p != NULL; p = p->next)
            memcpy(p->at, p->before, p->n);
        run_in(i == 1 ? FIBRES_BACKWARD : FIBRES_SHUFFLED, orders_seed + i);
        for (struct page *p = pages; p != NULL; p = p->next)
            if (memcmp(p->at, p->after, p->n) != 0)
                fail(i == 1 ? "threads in backward order write other bits"
                            : "threads in shuffled order write other bits",
                     0);
    }
    protect(PROT_READ | PROT_WRITE);
    (void)sigaction(SIGSEGV, &before, NULL);
    for (; pages != NULL; pages = next) {
        next = pages->next;
        (void)munmap(pages, sizeof(*pages));
    }
}

bool fibres_run(const struct fibres_launch *launch, void (*body)(const void *arg), const void *arg)
{
    bool well;

    (void)pthread_mutex_lock(&lock);
    open_stacks();
    launched = launch;
    launched_body = body;
    launched_arg = arg;
    n_threads = launch->block.x * launch->block.y * launch->block.z;
    fibres_here.block_size = launch->block;
    fibres_here.grid_size = launch->grid;
    n_launches++;
    if (n_threads == 0 || n_threads > MAX_THREADS || launch->grid.x == 0 || launch->grid.y == 0 ||
        launch->grid.z == 0 || launch->grid.y > 65535 || launch->grid.z > 65535)
        fail("a grid or block of no size that a device has", 0);
    else if (n_orders > 1)
        run_in_orders();
    else
        run_in(FIBRES_FORWARD, 0);
    well = failure[0] == '\0';
    (void)pthread_mutex_unlock(&lock);
    return well;
}

const char *fibres_error(void)
{
    return failure[0] == '\0' ? NULL : failure;
}

void fibres_clear_error(void)
{
    failure[0] = '\0';
}

void fibres_set_orders(unsigned n, uint32_t seed)
{
    assert(n >= 1 && n <= MAX_ORDERS);
    n_orders = n;
    orders_seed = seed;
}

uint64_t fibres_n_launches(void)
{
    return n_launches;
}

/* Only where no stand-in of the runtime is linked. */
__attribute__((weak)) void cuda_host_check_pointers(const char *kernel, const void *argument,
                                                    size_t size)
{
    (void)kernel, (void)argument, (void)size;
}

__attribute__((weak)) int cuda_host_enqueue(struct CUstream_st *stream,
                                            void (*run)(const void *arg), const void *arg,
                                            size_t size, const char *kernel)
{
    (void)stream, (void)size, (void)kernel;
    run(arg);
    return 0;
}
