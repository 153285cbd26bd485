/* Records the launches of operators and their inputs, then runs them as one copy and one launch. A
 * list of equal bytes was seen before, and runs as the graph that was captured then. */
#include "compute/cuda/list.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/pinned.h"

enum {
    FIRST_INPUTS = 1 << 20,
    FULL_OPS = 1 << 20, /* bytes of records after which a list runs */
};

/* A record, and its args behind it. */
struct list_op {
    list_launch_fn launch;
    size_t args_bytes; /* rounded up to that of a pointer */
};

/* A list that has run before. */
struct graph {
    struct graph *next;
    cudaGraphExec_t exec; /* NULL: seen once, and launched one by one */
    uint64_t hash;
    size_t ops_bytes;
    uint8_t ops[];
};

size_t list_bucket(size_t n)
{
    size_t power = 1;

    while (power < n)
        power *= 2;
    return power >= 4 && n <= power - power / 4 ? power - power / 4 : power;
}

static bool cuda_list_open_slot(struct command_list *l, struct list_slot *s, size_t cap_bytes)
{
    void *host, *device;

    if (s->copied == NULL &&
        !device_works(l->device, cudaEventCreateWithFlags(&s->copied, cudaEventDisableTiming),
                      "make an event"))
        return false;
    if (s->done == NULL &&
        !device_works(l->device, cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming),
                      "make an event"))
        return false;
    if (!device_works(l->device, pinned_open(&host, cap_bytes), "pin memory"))
        return false;
    s->host = host;
    if (!device_works(l->device, cudaMalloc(&device, cap_bytes), "take memory of a step's inputs"))
        return false;
    s->device = device;
    s->cap_bytes = cap_bytes;
    return true;
}

static void close_inputs(struct list_slot *s, bool is_alive)
{
    pinned_close(s->host, is_alive);
    if (is_alive)
        (void)cudaFree(s->device);
    s->host = s->device = NULL;
    s->cap_bytes = 0;
}

static void cuda_list_close_slot(struct list_slot *s, bool is_alive)
{
    close_inputs(s, is_alive);
    if (s->copied != NULL && is_alive)
        (void)cudaEventDestroy(s->copied);
    if (s->done != NULL && is_alive)
        (void)cudaEventDestroy(s->done);
}

enum status list_open(struct command_list *l, struct cuda_device *d, struct error *err)
{
    l->device = d;
    if (!device_works(l->device, cudaStreamCreateWithFlags(&l->compute, cudaStreamNonBlocking),
                      "make a stream") ||
        !device_works(l->device, cudaStreamCreateWithFlags(&l->copies, cudaStreamNonBlocking),
                      "make a stream"))
        goto failed;
    for (size_t i = 0; i < LIST_SLOTS; i++)
        if (!cuda_list_open_slot(l, &l->slots[i], FIRST_INPUTS))
            goto failed;
    return STATUS_OK;
failed:
    *err = l->device->failed;
    return err->status;
}

static void close_graph(struct command_list *l, struct graph **at, bool is_alive)
{
    struct graph *g = *at;

    *at = g->next;
    l->n_made -= g->exec != NULL;
    if (g->exec != NULL && is_alive)
        (void)cudaGraphExecDestroy(g->exec);
    free(g);
    l->n_graphs--;
}

void list_close(struct command_list *l)
{
    bool is_alive;

    if (l->device == NULL) /* it was never opened */
        return;
    is_alive = device_enter(l->device); /* if not, its memory was lost with the context */

    if (is_alive) {
        if (l->compute != NULL)
            (void)cudaStreamSynchronize(l->compute);
        if (l->copies != NULL)
            (void)cudaStreamSynchronize(l->copies);
    }
    while (l->graphs != NULL)
        close_graph(l, &l->graphs, is_alive);
    for (size_t i = 0; i < LIST_SLOTS; i++)
        cuda_list_close_slot(&l->slots[i], is_alive);
    if (is_alive) {
        if (l->compute != NULL)
            (void)cudaStreamDestroy(l->compute);
        if (l->copies != NULL)
            (void)cudaStreamDestroy(l->copies);
        (void)cudaGetLastError();
        device_leave();
    }
    free(l->ops);
    *l = (struct command_list){0};
}

/* Inputs. */

static size_t cuda_list_aligned(size_t size_bytes)
{
    return (size_bytes + LIST_ALIGN - 1) / LIST_ALIGN * LIST_ALIGN;
}

/* Enlarges the inputs of every slot; nothing may be running or recorded. */
static bool grow_inputs(struct command_list *l, size_t size_bytes)
{
    size_t cap_bytes = FIRST_INPUTS;

    while (cap_bytes < size_bytes)
        cap_bytes *= 2;
    while (l->graphs != NULL) /* graphs read the old inputs */
        close_graph(l, &l->graphs, true);
    for (size_t i = 0; i < LIST_SLOTS; i++) {
        close_inputs(&l->slots[i], true);
        if (!cuda_list_open_slot(l, &l->slots[i], cap_bytes))
            return false;
    }
    return true;
}

bool list_reserve(struct command_list *l, size_t size_bytes)
{
    struct list_slot *s = &l->slots[l->slot];
    bool grown;

    if (l->device->failed.status != STATUS_OK || l->device->is_dead)
        return false;
    if (s->host != NULL && size_bytes <= s->cap_bytes - l->used_bytes && l->ops_bytes < FULL_OPS)
        return true;
    list_run(l);
    s = &l->slots[l->slot];
    if (s->host != NULL && size_bytes <= s->cap_bytes)
        return l->device->failed.status == STATUS_OK;
    list_wait(l);
    if (l->device->failed.status != STATUS_OK || !device_enter(l->device))
        return false;
    grown = grow_inputs(l, size_bytes);
    device_leave();
    return grown;
}

void *list_stage(struct command_list *l, const void *from, size_t size_bytes, size_t cap_bytes,
                 void **ret_host)
{
    struct list_slot *s = &l->slots[l->slot];
    size_t at = l->used_bytes;

    assert(size_bytes <= cap_bytes && cuda_list_aligned(cap_bytes) <= s->cap_bytes - at);
    l->used_bytes += cuda_list_aligned(cap_bytes);
    if (from != NULL)
        memcpy(s->host + at, from, size_bytes);
    if (ret_host != NULL)
        *ret_host = s->host + at;
    return s->device + at;
}

void *list_stage_kept(struct command_list *l, const void *from, size_t size_bytes, size_t cap_bytes)
{
    enum { N_KEPT = sizeof(l->staged) / sizeof(l->staged[0]) };
    uint8_t *device;

    for (size_t i = 0; i < l->n_staged && i < N_KEPT; i++)
        if (l->staged[i].from == from && l->staged[i].size_bytes == size_bytes)
            return l->slots[l->slot].device + l->staged[i].at;
    device = list_stage(l, from, size_bytes, cap_bytes, NULL);
    l->staged[l->n_staged++ % N_KEPT] =
        (struct list_staged){from, size_bytes, (size_t)(device - l->slots[l->slot].device)};
    return device;
}

/* Recording. */

void list_add(struct command_list *l, list_launch_fn launch, const void *args, size_t size_bytes)
{
    size_t args_bytes = (size_bytes + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
    struct list_op op = {launch, args_bytes};

    if (l->device->failed.status != STATUS_OK || l->device->is_dead)
        return;
    if (l->ops_cap - l->ops_bytes < sizeof(op) + args_bytes) {
        l->ops_cap = 2 * l->ops_cap + sizeof(op) + args_bytes;
        l->ops = xrealloc(l->ops, l->ops_cap);
    }
    memcpy(l->ops + l->ops_bytes, &op, sizeof(op));
    l->ops_bytes += sizeof(op);
    memset(l->ops + l->ops_bytes, 0, args_bytes);
    memcpy(l->ops + l->ops_bytes, args, size_bytes);
    l->ops_bytes += args_bytes;
    l->n_ops++;
}

/* Running. */

static bool launch_all(struct command_list *l)
{
    bool launched;
    struct list_op op;

    for (size_t at = 0; at < l->ops_bytes; at += sizeof(op) + op.args_bytes) {
        memcpy(&op, l->ops + at, sizeof(op));
        op.launch(l->ops + at + sizeof(op), l->compute);
    }
    launched = device_works(l->device, cudaGetLastError(), "launch kernels");
    return (l->check == NULL || l->check(l->check_arg)) && launched;
}

static uint64_t cuda_list_hash(const uint8_t *bytes, size_t n)
{
    uint64_t h = 14695981039346656037u, word;

    for (size_t i = 0; i < n; i += sizeof(word)) { /* records are whole words */
        memcpy(&word, bytes + i, sizeof(word));
        h = (h ^ word) * 1099511628211u;
        h ^= h >> 29;
    }
    return h;
}

/* Finds the list's graph, and makes it the first; NULL: the list is new, and is remembered now. */
static struct graph *find_graph(struct command_list *l)
{
    uint64_t h = cuda_list_hash(l->ops, l->ops_bytes);
    struct graph **at = &l->graphs, **last_single = NULL, **last = NULL, *g;

    for (; *at != NULL; last = at, at = &(*at)->next) {
        g = *at;
        if (g->hash == h && g->ops_bytes == l->ops_bytes &&
            memcmp(g->ops, l->ops, l->ops_bytes) == 0) {
            *at = g->next;
            g->next = l->graphs;
            return l->graphs = g;
        }
        if (g->exec == NULL)
            last_single = at;
    }
    if (l->n_graphs == LIST_GRAPHS) /* lists seen once do not evict those seen often */
        close_graph(l, last_single != NULL ? last_single : last, true);
    g = xalloc(sizeof(*g) + l->ops_bytes);
    g->hash = h;
    g->ops_bytes = l->ops_bytes;
    memcpy(g->ops, l->ops, l->ops_bytes);
    g->next = l->graphs;
    l->graphs = g;
    l->n_graphs++;
    return NULL;
}

/* True also where there was no memory for a graph: the list runs without. */
static bool capture(struct command_list *l, struct graph *g)
{
    cudaGraph_t graph = NULL;
    cudaError_t rc;
    bool launched;

    if (!device_works(l->device,
                      cudaStreamBeginCapture(l->compute, cudaStreamCaptureModeThreadLocal),
                      "begin a graph"))
        return false;
    launched = launch_all(l);
    rc = cudaStreamEndCapture(l->compute, &graph);
    if (launched && rc == cudaSuccess)
        rc = cudaGraphInstantiate(&g->exec, graph, 0);
    if (rc != cudaSuccess)
        g->exec = NULL;
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    if (!launched)
        return false;
    if (rc == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* clears the error, which was handled */
        return true;
    }
    l->n_made += rc == cudaSuccess;
    return device_works(l->device, rc, "make a graph");
}

static void launch(struct command_list *l)
{
    struct graph *g = find_graph(l);

    l->n_runs++;
    if (g != NULL && g->exec == NULL && !capture(l, g))
        return;
    if (g == NULL || g->exec == NULL) {
        (void)launch_all(l);
        return;
    }
    l->n_replays++;
    device_works(l->device, cudaGraphLaunch(g->exec, l->compute), "launch a graph");
}

/* Copies the inputs, in parallel with a running list if there is one. */
static bool copy_inputs(struct command_list *l, struct list_slot *s)
{
    bool is_beside = l->slots[(l->slot + 1) % LIST_SLOTS].is_busy;

    if (l->used_bytes == 0)
        return true;
    if (!device_works(l->device,
                      cudaMemcpyAsync(s->device, s->host, l->used_bytes, cudaMemcpyHostToDevice,
                                      is_beside ? l->copies : l->compute),
                      "copy a step's inputs"))
        return false;
    return !is_beside ||
           (device_works(l->device, cudaEventRecord(s->copied, l->copies), "record an event") &&
            device_works(l->device, cudaStreamWaitEvent(l->compute, s->copied, 0),
                         "wait for an event"));
}

static void next_slot(struct command_list *l)
{
    struct list_slot *s = &l->slots[l->slot];

    if (!device_works(l->device, cudaEventRecord(s->done, l->compute), "record an event"))
        return;
    s->is_busy = true;
    l->slot = (l->slot + 1) % LIST_SLOTS;
    s = &l->slots[l->slot];
    if (s->is_busy)
        device_works(l->device, cudaEventSynchronize(s->done), "run the list before");
    s->is_busy = false;
}

void list_run(struct command_list *l)
{
    struct list_slot *s = &l->slots[l->slot];

    if (l->n_ops > 0 && l->device->failed.status == STATUS_OK && device_enter(l->device)) {
        if (copy_inputs(l, s))
            launch(l);
        if (l->device->failed.status == STATUS_OK)
            next_slot(l);
        device_leave();
    }
    l->ops_bytes = l->n_ops = l->used_bytes = l->n_staged = 0;
    l->epoch++;
}

void list_wait(struct command_list *l)
{
    if (device_enter(l->device)) {
        cudaError_t rc = cudaStreamSynchronize(l->copies), done = cudaStreamSynchronize(l->compute);

        device_works(l->device, rc == cudaSuccess ? done : rc, "run a step");
        device_leave();
    }
    for (size_t i = 0; i < LIST_SLOTS; i++)
        l->slots[i].is_busy = false;
    l->slot = 0;
}
