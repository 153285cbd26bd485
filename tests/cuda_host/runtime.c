/* Streams are queues, and a call that waits runs them. A wait runs only its own items and those
 * that they depend on by events: other streams run as late as allowed. */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "tests/cuda_host/control.h"
#include "tests/cuda_host/fibres.h"

enum kind { CALL, COPY, SET, RECORD, WAIT };

/* An item on a stream. */
struct item {
    struct item *next;
    enum kind kind;
    void (*run)(const void *arg); /* CALL */
    void *to;                     /* COPY, SET */
    const void *from;             /* COPY: NULL: what is in arg */
    size_t size_bytes;            /* of the memory moved or set */
    int value;                    /* SET */
    struct CUevent_st *event;     /* RECORD, WAIT */
    uint64_t serial;
    struct CUstream_st *stream; /* WAIT: where the event was recorded */
    size_t arg_bytes;
    _Alignas(16) unsigned char arg[];
};

struct queue {
    struct item *first, **last;
};

enum handle_kind {
    PINNED,
    REGISTERED /* the caller's memory, pinned */,
    STREAM,
    EVENT,
    GRAPH,
    EXEC
};

/* A handle that was created and is not destroyed. */
struct handle {
    struct handle *next;
    enum handle_kind kind;
    void *at;
    size_t size_bytes; /* PINNED, REGISTERED */
};

struct CUstream_st {
    const struct cuda_host_calls *calls;
    struct queue queue;
    struct CUgraph_st *capture; /* NULL: it is not being captured */
    bool is_invalid;            /* the capture */
};

struct CUevent_st {
    struct CUstream_st *stream; /* where it was recorded last */
    uint64_t recorded, done;
};

struct CUgraph_st {
    struct queue queue;
};

struct CUgraphExec_st {
    struct queue queue;
};

struct memory {
    struct memory *next;
    void *at;
    size_t size_bytes;
};

/* All under lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;
static size_t n_handles;
static struct memory *memories;
static size_t bytes_taken, bytes_in_all = (size_t)16 << 30;
static uint64_t n_calls, n_graphs, n_copies;
static long fail_after = -1;
static cudaError_t fail_with, broken, reset_with;
static bool is_set_up;
static uint32_t streams_chance; /* 0: streams run as late as allowed */
static int driver_version = 13000, n_devices = 1, capability = 90;

static _Thread_local cudaError_t last_error;
static _Thread_local unsigned n_captures; /* of this thread */

/* Set-up and failures. */

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text != NULL && text[0] != '\0' ? strtol(text, NULL, 10) : otherwise;
}

static void set_up(void)
{
    const char *text = getenv("CUDA_HOST_FAIL");

    is_set_up = true;
    driver_version = (int)number_of("CUDA_HOST_DRIVER", driver_version);
    n_devices = (int)number_of("CUDA_HOST_DEVICES", n_devices);
    capability = (int)number_of("CUDA_HOST_CAPABILITY", capability);
    bytes_in_all = (size_t)number_of("CUDA_HOST_MEMORY", (long)bytes_in_all);
    fibres_set_orders((unsigned)number_of("CUDA_HOST_ORDERS", 1), 1);
    streams_chance = (uint32_t)number_of("CUDA_HOST_STREAMS", 0);
    reset_with = (cudaError_t)number_of("CUDA_HOST_RESET", cudaSuccess);
    if (text != NULL && strchr(text, ':') != NULL) {
        fail_after = strtol(text, NULL, 10);
        fail_with = (cudaError_t)strtol(strchr(text, ':') + 1, NULL, 10);
    }
}

static void enter(void)
{
    (void)pthread_mutex_lock(&lock);
    if (!is_set_up)
        set_up();
}

static cudaError_t leave(cudaError_t rc)
{
    if (rc != cudaSuccess)
        last_error = rc;
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static cudaError_t break_device(cudaError_t rc)
{
    if (broken == cudaSuccess)
        broken = rc;
    return rc;
}

static void run_some(void);

/* Begins a call that can fail; it has the lock. */
static cudaError_t begin(void)
{
    enter();
    n_calls++;
    run_some();
    if (broken != cudaSuccess)
        return broken;
    if (fail_after < 0)
        return cudaSuccess;
    if (fail_after-- > 0)
        return cudaSuccess;
    return fail_with == cudaErrorMemoryAllocation ? fail_with : break_device(fail_with);
}

/* The same for a call that frees, which never lacks memory. */
static cudaError_t begin_closing(void)
{
    enter();
    n_calls++;
    if (broken != cudaSuccess || fail_after < 0 || fail_with == cudaErrorMemoryAllocation)
        return broken;
    return fail_after-- > 0 ? cudaSuccess : break_device(fail_with);
}

void cuda_host_fail(long calls, cudaError_t rc)
{
    enter();
    fail_after = calls;
    fail_with = rc;
    (void)leave(cudaSuccess);
}

static uint64_t read_counter(const uint64_t *counter)
{
    uint64_t n;

    enter();
    n = *counter;
    (void)leave(cudaSuccess);
    return n;
}

uint64_t cuda_host_n_calls(void)
{
    return read_counter(&n_calls);
}

uint64_t cuda_host_n_graphs(void)
{
    return read_counter(&n_graphs);
}

uint64_t cuda_host_n_launches(void)
{
    return fibres_n_launches();
}

uint64_t cuda_host_n_copies(void)
{
    return read_counter(&n_copies);
}

size_t cuda_host_bytes_taken(void)
{
    size_t n;

    enter();
    n = bytes_taken;
    (void)leave(cudaSuccess);
    return n;
}

size_t cuda_host_n_handles(void)
{
    size_t n;

    enter();
    n = n_handles;
    (void)leave(cudaSuccess);
    return n;
}

void cuda_host_set_memory(size_t size_bytes)
{
    enter();
    bytes_in_all = size_bytes;
    (void)leave(cudaSuccess);
}

void cuda_host_set_reset(cudaError_t rc)
{
    enter();
    reset_with = rc;
    (void)leave(cudaSuccess);
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t rc = last_error;

    enter();
    if (broken != cudaSuccess)
        rc = broken;
    last_error = cudaSuccess;
    (void)leave(cudaSuccess);
    return rc;
}

const char *cudaGetErrorName(cudaError_t rc)
{
    switch (rc) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    default:
        return "an error of CUDA";
    }
}

const char *cudaGetErrorString(cudaError_t rc)
{
    const char *broken_rule = rc == cudaErrorLaunchFailure ? fibres_error() : NULL;

    return broken_rule != NULL ? broken_rule : "as the stand-in was told";
}

/* Handles. */

static void hold(enum handle_kind kind, void *at, size_t size_bytes)
{
    struct handle *h = xalloc(sizeof(*h));

    *h = (struct handle){handles, kind, at, size_bytes};
    handles = h;
    n_handles++;
}

static struct handle **find(enum handle_kind kind, const void *at)
{
    for (struct handle **p = &handles; *p != NULL; p = &(*p)->next)
        if ((*p)->kind == kind && (*p)->at == at)
            return p;
    return NULL;
}

static bool is_held(enum handle_kind kind, const void *at)
{
    return find(kind, at) != NULL;
}

/* False: it is not held. */
static bool let_go(enum handle_kind kind, const void *at)
{
    struct handle **p = find(kind, at), *h;

    if (p == NULL)
        return false;
    h = *p;
    *p = h->next;
    free(h);
    n_handles--;
    return true;
}

/* Queues. */

static struct item *item_make(enum kind kind, const void *arg, size_t arg_bytes)
{
    struct item *i = xalloc(sizeof(*i) + arg_bytes);

    i->kind = kind;
    i->arg_bytes = arg_bytes;
    if (arg_bytes > 0)
        memcpy(i->arg, arg, arg_bytes);
    return i;
}

static void push(struct queue *q, struct item *i)
{
    if (q->first == NULL)
        q->last = &q->first;
    *q->last = i;
    q->last = &i->next;
}

static void push_copies(struct queue *to, const struct queue *from)
{
    for (const struct item *i = from->first; i != NULL; i = i->next) {
        struct item *copy = xalloc(sizeof(*copy) + i->arg_bytes);

        memcpy(copy, i, sizeof(*copy) + i->arg_bytes);
        copy->next = NULL;
        push(to, copy);
    }
}

static void empty(struct queue *q)
{
    while (q->first != NULL) {
        struct item *i = q->first;

        q->first = i->next;
        free(i);
    }
}

/* Puts an item on a stream, or into the graph that captures it, where only items allowed in graphs
 * may go. */
static cudaError_t put(struct CUstream_st *s, struct item *i)
{
    bool is_of_graphs = i->kind == CALL || i->kind == SET ||
                        (i->kind == COPY && fibres_room(i->to) > 0 && fibres_room(i->from) > 0);

    if (s->capture == NULL) {
        push(&s->queue, i);
        return cudaSuccess;
    }
    if (is_of_graphs) {
        push(&s->capture->queue, i);
        return cudaSuccess;
    }
    s->is_invalid = true;
    free(i);
    return cudaErrorStreamCaptureUnsupported;
}

static void run_item(struct CUstream_st *s);

static void run_until(struct CUstream_st *s, const struct CUevent_st *e, uint64_t serial)
{
    while (s->queue.first != NULL && (e == NULL || e->done < serial))
        run_item(s);
}

/* Runs the first item of the queue. */
static void run_item(struct CUstream_st *s)
{
    struct item *i = s->queue.first;

    s->queue.first = i->next;
    if (broken == cudaSuccess)
        switch (i->kind) {
        case CALL:
            i->run(i->arg);
            if (fibres_error() != NULL)
                (void)break_device(cudaErrorLaunchFailure);
            break;
        case COPY:
            memmove(i->to, i->from != NULL ? i->from : i->arg, i->size_bytes);
            fibres_copied(i->to, i->from, i->size_bytes);
            break;
        case SET:
            memset(i->to, i->value, i->size_bytes);
            fibres_copied(i->to, NULL, i->size_bytes);
            break;
        case RECORD:
        case WAIT:
            break;
        }
    if (i->kind == RECORD && i->event->done < i->serial)
        i->event->done = i->serial;
    if (i->kind == WAIT && is_held(STREAM, i->stream))
        run_until(i->stream, i->event, i->serial);
    free(i);
}

/* Heap, stack and libraries are above; below, where two adjacent small numbers would point to,
 * sanitizers have their shadow memory. */
static const uint64_t lowest_of_host = UINT64_C(1) << 46;

/* Whether word is a pointer into the program's own memory, its loaded images excepted: no kernel
 * may be given one. */
static bool is_host_pointer(uint64_t word)
{
    const void *at = (const void *)(uintptr_t)word;
    Dl_info image;

    if (word < lowest_of_host || word >> 47 != 0 || fibres_room(at) > 0 || dladdr(at, &image) != 0)
        return false;
    return msync((void *)(uintptr_t)(word & ~(uint64_t)4095), 1, MS_ASYNC) == 0;
}

void cuda_host_check_pointers(const char *kernel, const void *argument, size_t size)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, (const char *)argument + at, sizeof(word));
        if (is_host_pointer(word)) {
            (void)fprintf(
                stderr, "cuda_host: %s is given a pointer to the host's memory: word %zu, %#llx\n",
                kernel, at / sizeof(word), (unsigned long long)word);
            abort();
        }
    }
}

int cuda_host_enqueue(struct CUstream_st *stream, void (*run)(const void *arg), const void *arg,
                      size_t size, const char *kernel)
{
    cudaError_t rc = begin();
    struct item *i;

    if (rc == cudaSuccess && !is_held(STREAM, stream))
        rc = break_device(cudaErrorInvalidResourceHandle);
    if (rc == cudaSuccess) {
        i = item_make(CALL, arg, size);
        i->run = run;
        rc = put(stream, i);
    }
    return leave(rc);
}

/* The device. */

cudaError_t cudaDriverGetVersion(int *version)
{
    enter();
    *version = driver_version;
    return leave(cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int *n)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess && driver_version == 0)
        rc = cudaErrorInsufficientDriver;
    if (rc == cudaSuccess && n_devices == 0)
        rc = cudaErrorNoDevice;
    if (rc == cudaSuccess)
        *n = n_devices;
    return leave(rc);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess)
        *value = attribute == cudaDevAttrMultiProcessorCount      ? 4
                 : attribute == cudaDevAttrComputeCapabilityMajor ? capability / 10
                                                                  : capability % 10;
    return leave(rc);
}

static void free_memory(struct memory **p)
{
    struct memory *m = *p;

    *p = m->next;
    bytes_taken -= m->size_bytes;
    fibres_free(m->at);
    free(m);
}

static bool is_pinned(const void *at)
{
    for (const struct handle *h = handles; h != NULL; h = h->next)
        if ((h->kind == PINNED || h->kind == REGISTERED) && (uintptr_t)at >= (uintptr_t)h->at &&
            (uintptr_t)at - (uintptr_t)h->at < h->size_bytes)
            return true;
    return false;
}

/* What a device may still do when a call of it has failed: copies from and to pinned memory, until
 * the reset. Memory that was freed before is told by AddressSanitizer. */
static void run_last_copies(void)
{
    for (const struct handle *h = handles; h != NULL; h = h->next)
        if (h->kind == STREAM)
            for (const struct item *i = ((struct CUstream_st *)h->at)->queue.first; i != NULL;
                 i = i->next)
                if (i->kind == COPY && i->from != NULL && (is_pinned(i->to) || is_pinned(i->from)))
                    memmove(i->to, i->from, i->size_bytes);
}

cudaError_t cudaDeviceReset(void)
{
    enter();
    run_last_copies();
    if (reset_with != cudaSuccess) {
        (void)break_device(reset_with);
        return leave(reset_with);
    }
    while (memories != NULL)
        free_memory(&memories);
    while (handles != NULL) {
        struct handle *h = handles;

        if (h->kind == STREAM)
            empty(&((struct CUstream_st *)h->at)->queue);
        else if (h->kind == GRAPH || h->kind == EXEC)
            empty((struct queue *)h->at);
        if (h->kind != REGISTERED)
            free(h->at);
        handles = h->next;
        free(h);
        n_handles--;
    }
    broken = last_error = cudaSuccess;
    fibres_clear_error();
    return leave(cudaSuccess);
}

/* Memory. */

/* Waits for all streams. */
static void run_all(void)
{
    for (struct handle *h = handles; h != NULL; h = h->next)
        if (h->kind == STREAM)
            run_until(h->at, NULL, 0);
}

/* With a seed for streams, runs a few items, each of any stream: as early or late as it comes. */
static void run_some(void)
{
    while (streams_chance != 0) {
        struct handle *h = handles;

        streams_chance = streams_chance * 1664525u + 1013904223u;
        if (streams_chance >> 31 != 0)
            return;
        for (size_t i = n_handles > 0 ? (streams_chance >> 8) % n_handles : 0; i > 0; i--)
            h = h->next;
        if (h != NULL && h->kind == STREAM && ((struct CUstream_st *)h->at)->queue.first != NULL)
            run_item(h->at);
    }
}

cudaError_t cudaMalloc(void **at, size_t size_bytes)
{
    cudaError_t rc = begin();
    struct memory *m;

    if (rc == cudaSuccess && n_captures > 0)
        rc = cudaErrorStreamCaptureUnsupported;
    if (rc == cudaSuccess && (size_bytes > bytes_in_all || bytes_taken > bytes_in_all - size_bytes))
        rc = cudaErrorMemoryAllocation;
    if (rc == cudaSuccess) {
        m = xalloc(sizeof(*m));
        *m = (struct memory){memories, fibres_alloc(size_bytes), size_bytes};
        if (m->at == NULL) {
            free(m);
            return leave(cudaErrorMemoryAllocation);
        }
        memories = m;
        bytes_taken += size_bytes;
        *at = m->at;
    }
    return leave(rc);
}

cudaError_t cudaFree(void *at)
{
    cudaError_t rc = begin_closing();

    if (at == NULL || rc != cudaSuccess)
        return leave(rc);
    if (n_captures > 0)
        return leave(cudaErrorStreamCaptureUnsupported);
    run_all();
    for (struct memory **p = &memories; *p != NULL; p = &(*p)->next)
        if ((*p)->at == at) {
            free_memory(p);
            return leave(broken);
        }
    return leave(break_device(cudaErrorInvalidValue));
}

cudaError_t cudaHostAlloc(void **at, size_t size_bytes, unsigned flags)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess) {
        *at = xalloc(size_bytes);
        hold(PINNED, *at, size_bytes);
    }
    return leave(rc);
}

cudaError_t cudaFreeHost(void *at)
{
    cudaError_t rc = begin_closing();

    if (at == NULL || rc != cudaSuccess)
        return leave(rc);
    run_all();
    if (!let_go(PINNED, at))
        return leave(break_device(cudaErrorInvalidValue));
    free(at);
    return leave(broken);
}

cudaError_t cudaHostRegister(void *at, size_t size_bytes, unsigned flags)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess)
        hold(REGISTERED, at, size_bytes);
    return leave(rc);
}

cudaError_t cudaHostUnregister(void *at)
{
    cudaError_t rc = begin_closing();

    if (rc != cudaSuccess)
        return leave(rc);
    run_all();
    if (!let_go(REGISTERED, at))
        return leave(break_device(cudaErrorInvalidValue));
    return leave(broken);
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_all)
{
    cudaError_t rc = begin();

    *n_free = bytes_in_all > bytes_taken ? bytes_in_all - bytes_taken : 0;
    *n_all = bytes_in_all;
    return leave(rc);
}

/* Whether both sides are entirely in the memory that kind says. */
static bool are_well_placed(const void *to, const void *from, size_t size_bytes,
                            enum cudaMemcpyKind kind)
{
    bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;

    return (to_device ? fibres_room(to) >= size_bytes : fibres_room(to) == 0) &&
           (from_device ? fibres_room(from) >= size_bytes : fibres_room(from) == 0);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size_bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t rc = begin();
    struct item *i;

    if (rc == cudaSuccess && !is_held(STREAM, stream))
        rc = break_device(cudaErrorInvalidResourceHandle);
    if (rc == cudaSuccess && !are_well_placed(to, from, size_bytes, kind))
        rc = break_device(cudaErrorInvalidValue);
    if (rc != cudaSuccess)
        return leave(rc);
    n_copies += kind != cudaMemcpyDeviceToDevice;
    /* Memory that is not pinned is read, or written, as late as any: NVIDIA promises no more. */
    i = item_make(COPY, NULL, 0);
    i->to = to;
    i->from = from;
    i->size_bytes = size_bytes;
    return leave(put(stream, i));
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t size_bytes, cudaStream_t stream)
{
    cudaError_t rc = begin();
    struct item *i;

    if (rc == cudaSuccess && (!is_held(STREAM, stream) || fibres_room(at) < size_bytes))
        rc = break_device(cudaErrorInvalidValue);
    if (rc == cudaSuccess) {
        i = item_make(SET, NULL, 0);
        i->to = at;
        i->value = value;
        i->size_bytes = size_bytes;
        rc = put(stream, i);
    }
    return leave(rc);
}

/* Streams and events. */

static const struct cuda_host_calls calls = {cuda_host_enqueue, fibres_room};

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess) {
        *out = xalloc(sizeof(**out));
        (*out)->calls = &calls;
        hold(STREAM, *out, 0);
    }
    return leave(rc);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t rc = begin_closing();

    if (rc != cudaSuccess)
        return leave(rc);
    if (!is_held(STREAM, stream))
        return leave(break_device(cudaErrorInvalidResourceHandle));
    run_until(stream, NULL, 0);
    (void)let_go(STREAM, stream);
    free(stream);
    return leave(broken);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess && !is_held(STREAM, stream))
        rc = break_device(cudaErrorInvalidResourceHandle);
    if (rc == cudaSuccess && stream->capture != NULL) {
        stream->is_invalid = true;
        rc = cudaErrorStreamCaptureUnsupported;
    }
    if (rc == cudaSuccess) {
        run_until(stream, NULL, 0);
        rc = broken;
    }
    return leave(rc);
}

static cudaError_t check_both(cudaEvent_t event, cudaStream_t stream)
{
    return is_held(EVENT, event) && is_held(STREAM, stream)
               ? cudaSuccess
               : break_device(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t rc = begin();
    struct item *i;

    if (rc == cudaSuccess)
        rc = check_both(event, stream);
    if (rc != cudaSuccess || event->recorded == 0)
        return leave(rc);
    i = item_make(WAIT, NULL, 0);
    i->event = event;
    i->serial = event->recorded;
    i->stream = event->stream;
    return leave(put(stream, i));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess) {
        *out = xalloc(sizeof(**out));
        hold(EVENT, *out, 0);
    }
    return leave(rc);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t rc = begin_closing();

    if (rc != cudaSuccess)
        return leave(rc);
    if (!is_held(EVENT, event))
        return leave(break_device(cudaErrorInvalidResourceHandle));
    run_all(); /* no stream may refer to it afterwards */
    (void)let_go(EVENT, event);
    free(event);
    return leave(broken);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t rc = begin();
    struct item *i;

    if (rc == cudaSuccess)
        rc = check_both(event, stream);
    if (rc != cudaSuccess)
        return leave(rc);
    event->stream = stream;
    event->recorded++;
    i = item_make(RECORD, NULL, 0);
    i->event = event;
    i->serial = event->recorded;
    return leave(put(stream, i));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess && !is_held(EVENT, event))
        rc = break_device(cudaErrorInvalidResourceHandle);
    if (rc == cudaSuccess && event->recorded > 0) {
        run_until(event->stream, event, event->recorded);
        rc = broken;
    }
    return leave(rc);
}

/* Graphs. */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess && (!is_held(STREAM, stream) || stream->capture != NULL))
        rc = break_device(cudaErrorInvalidValue);
    if (rc == cudaSuccess) {
        stream->capture = xalloc(sizeof(*stream->capture));
        stream->is_invalid = false;
        n_captures++;
        hold(GRAPH, stream->capture, 0);
    }
    return leave(rc);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess && (!is_held(STREAM, stream) || stream->capture == NULL))
        rc = break_device(cudaErrorInvalidValue);
    *out = NULL;
    if (!is_held(STREAM, stream) || stream->capture == NULL)
        return leave(rc);
    n_captures--;
    if (rc == cudaSuccess && stream->is_invalid)
        rc = cudaErrorStreamCaptureInvalidated;
    if (rc == cudaSuccess) {
        *out = stream->capture;
    } else { /* the capture ends even so */
        (void)let_go(GRAPH, stream->capture);
        empty(&stream->capture->queue);
        free(stream->capture);
    }
    stream->capture = NULL;
    return leave(rc);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess && !is_held(GRAPH, graph))
        rc = break_device(cudaErrorInvalidResourceHandle);
    if (rc == cudaSuccess) {
        *out = xalloc(sizeof(**out));
        push_copies(&(*out)->queue, &graph->queue);
        hold(EXEC, *out, 0);
    }
    return leave(rc);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t rc = begin();

    if (rc == cudaSuccess && (!is_held(EXEC, exec) || !is_held(STREAM, stream)))
        rc = break_device(cudaErrorInvalidResourceHandle);
    if (rc == cudaSuccess) {
        push_copies(&stream->queue, &exec->queue);
        n_graphs++;
    }
    return leave(rc);
}

static cudaError_t destroy(enum handle_kind kind, void *at)
{
    cudaError_t rc = begin_closing();

    if (rc != cudaSuccess)
        return leave(rc);
    if (!let_go(kind, at))
        return leave(break_device(cudaErrorInvalidResourceHandle));
    empty((struct queue *)at); /* its first member */
    free(at);
    return leave(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return destroy(EXEC, exec);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return destroy(GRAPH, graph);
}
