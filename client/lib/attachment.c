/* The happy path: attachment_make, attachment_start, orders by kind->take, and the end, where what
 * is left is dropped. A server that is lost is attached to again by attachment_run. */
#include "client/lib/attachment.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "proto/codec.h"

enum { ATTACHMENT_FIRST_DELAY_MS = 50, ATTACHMENT_LAST_DELAY_MS = 1000 };

struct attachment_thing {
    struct hash_node node; /* in things */
    uint64_t number;
    void *user;
};

/* --- things --- */

static struct attachment_thing *attachment_node(const struct attachment *a, uint64_t number)
{
    uint64_t hash = hash_bytes(&a->things, 0, &number, sizeof(number));

    for (struct hash_node *n = hash_first(&a->things, hash); n != NULL; n = hash_next(n)) {
        struct attachment_thing *t = container_of(n, struct attachment_thing, node);

        if (t->number == number)
            return t;
    }
    return NULL;
}

void *attachment_look_up(const struct attachment *a, uint64_t number)
{
    struct attachment_thing *t = attachment_node(a, number);

    return t == NULL ? NULL : t->user;
}

static enum status attachment_missing(const struct attachment *a, uint64_t number,
                                      struct error *err)
{
    return error_set(err, STATUS_INTERNAL, "the server refers to %s %" PRIu64 ", which is not open",
                     a->kind->noun, number);
}

enum status attachment_find(void **out, const struct attachment *a, uint64_t number,
                            struct error *err)
{
    void *thing = attachment_look_up(a, number);

    if (thing == NULL)
        return attachment_missing(a, number, err);
    *out = thing;
    return STATUS_OK;
}

enum status attachment_add(struct attachment *a, uint64_t number, void *thing, struct error *err)
{
    struct attachment_thing *t = NULL;
    enum status rc = STATUS_OK;

    if (thing == NULL)
        return error_set(err, STATUS_EXHAUSTED, "the worker could not open %s %" PRIu64,
                         a->kind->noun, number);
    if (attachment_node(a, number) != NULL)
        rc = error_set(err, STATUS_INTERNAL, "the server opens %s %" PRIu64 " twice", a->kind->noun,
                       number);
    else if ((t = try_alloc(1, sizeof(*t))) == NULL)
        rc = error_no_memory(err, sizeof(*t), a->kind->noun);
    if (rc != STATUS_OK) {
        a->kind->drop(a, thing);
        return rc;
    }
    t->number = number;
    t->user = thing;
    hash_add(&a->things, &t->node, hash_bytes(&a->things, 0, &number, sizeof(number)));
    return STATUS_OK;
}

static void attachment_drop(struct attachment *a, struct attachment_thing *t)
{
    hash_remove(&a->things, &t->node);
    hash_shrink(&a->things);
    a->kind->drop(a, t->user);
    free(t);
}

enum status attachment_remove(struct attachment *a, uint64_t number, struct error *err)
{
    struct attachment_thing *t = attachment_node(a, number);

    if (t == NULL)
        return attachment_missing(a, number, err);
    attachment_drop(a, t);
    return STATUS_OK;
}

/* --- the stream --- */

static enum status on_attachment_order(struct parley_call *call, const void *data, size_t len,
                                       struct error *err)
{
    struct attachment *a = (struct attachment *)call;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = codec_decode(&m, &parley__v1__agents_attach_response__descriptor, data, len,
                      CODEC_ANY_FIELDS, &arena, err);
    if (rc == STATUS_OK)
        rc = a->kind->take(a, (const Parley__V1__AgentsAttachResponse *)m, &arena, err);
    else
        (void)error_prefix(err, "the server's order cannot be parsed");
    arena_deinit(&arena);
    return rc;
}

static void on_attachment_end(struct parley_call *call, const struct parley_error *err)
{
    struct attachment *a = (struct attachment *)call;
    struct hash_node *n;

    while ((n = hash_each(&a->things, NULL)) != NULL)
        attachment_drop(a, container_of(n, struct attachment_thing, node));
    hash_deinit(&a->things);
    a->kind->end(a, err);
    if (a->waiter != NULL)
        waiter_tell(a->waiter, err);
}

struct attachment *attachment_make(size_t size_bytes, const struct attachment_kind *kind,
                                   struct waiter *waiter)
{
    static const struct call_kind stream = {true, on_attachment_order, on_attachment_end, NULL};
    struct attachment *a = (struct attachment *)parley_call_make(size_bytes, &stream);

    if (a == NULL)
        return NULL;
    a->kind = kind;
    a->waiter = waiter;
    hash_init(&a->things, NULL);
    return a;
}

void attachment_start(struct attachment *a, struct parley_channel *channel,
                      Parley__V1__AgentOffer *offer)
{
    const struct call_start how = {
        .method = "/parley.v1.Agents/Attach", .is_bidi = true, .waits_for_server = true};
    Parley__V1__AgentsAttachRequest request = PARLEY__V1__AGENTS_ATTACH_REQUEST__INIT;

    request.what_case = PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_OFFER;
    request.offer = offer;
    parley_call_start(channel, &a->base, &how);
    if (!parley_call_send(&a->base, &request.base))
        parley_call_cancel(&a->base); /* the call's end reports it */
}

/* Whether it is of no use to attach again. */
static bool is_final(const struct parley_error *err)
{
    static const char unloaded[] = "was unloaded";
    size_t len = strlen(err->text), n = sizeof(unloaded) - 1;

    return err->status != PARLEY_UNAVAILABLE ||
           (len >= n && strcmp(err->text + len - n, unloaded) == 0);
}

enum parley_status attachment_run(struct parley_channel *channel, attachment_begin_fn begin,
                                  const void *offer, const void *events,
                                  struct parley_error *ret_err)
{
    int delay_ms = ATTACHMENT_FIRST_DELAY_MS;
    struct parley_error outcome = {0};
    struct waiter waiter;
    struct error err = {0};
    struct attachment *a;

    assert(channel_may_wait(channel));
    for (;;) {
        waiter_init(&waiter);
        a = begin(channel, offer, events, &waiter);
        if (a == NULL) {
            (void)error_no_memory(&err, sizeof(struct attachment), "a worker");
            outcome_of_failure(&outcome, &err);
            waiter_tell(&waiter, &outcome);
        }
        (void)waiter_wait(&waiter, channel, &outcome);
        if (a != NULL && a->was_accepted)
            delay_ms = ATTACHMENT_FIRST_DELAY_MS;
        parley_call_unref((struct parley_call *)a);
        if (is_final(&outcome))
            break;
        (void)poll(NULL, 0, delay_ms); /* a signal may end the wait early, which is harmless */
        delay_ms =
            delay_ms < ATTACHMENT_LAST_DELAY_MS / 2 ? 2 * delay_ms : ATTACHMENT_LAST_DELAY_MS;
    }
    if (ret_err != NULL)
        *ret_err = outcome;
    return outcome.status;
}

/* --- messages --- */

char *attachment_text(const char *text)
{
    return (char *)(uintptr_t)(text == NULL ? "" : text);
}

void attachment_fill_tensor(Parley__V1__Tensor *out, const struct parley_tensor *from)
{
    parley__v1__tensor__init(out);
    out->name = attachment_text(from->name);
    out->dtype = (Parley__V1__DType)((int)from->dtype + 1);
    out->shape = (int64_t *)(uintptr_t)from->shape; /* only read, as the data */
    out->n_shape = from->n_dims;
    out->data.data = (uint8_t *)(uintptr_t)from->data;
    out->data.len = from->size_bytes;
}
