/* At the start the checkpoints are read from the journal. Each creates its set again, fills its
 * blocks part by part, and lets it begin with that version. A checkpoint that is damaged, or whose
 * owner no longer exists, is logged and left in the journal; the others continue. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/params/checkpoint.h"
#include "server/params/checkpoint_body.h"

#define RESTORE_MAX_BYTES ((size_t)512 << 20)

struct params_restore {
    struct params_sets *sets;
    struct journal_wait wait;
    struct list events; /* checkpoints that come next */
    /* The one that is being read. */
    struct journal_event *event;
    struct arena arena;
    struct checkpoint_body body;
    struct params_set *set; /* NULL: it has closed */
    struct params_subscriber subscriber;
    float *values; /* a block of the set's memory */
    struct params_memory *memory;
    unsigned which;
    size_t offset;
};

static void restore_next(struct params_restore *r);

/* Gives up what it has of the set that is being read. */
static void restore_drop(struct params_restore *r)
{
    params_unsubscribe(&r->subscriber);
    if (r->memory != NULL) {
        params_memory_give(r->memory, r->values);
        params_memory_unref(r->memory);
    }
    arena_deinit(&r->arena);
    free(r->event);
    r->values = NULL;
    r->memory = NULL;
    r->event = NULL;
    r->set = NULL;
}

static void restore_free(struct params_restore *r)
{
    struct link *at;

    restore_drop(r);
    while ((at = list_pop(&r->events)) != NULL)
        free(container_of(at, struct journal_event, link));
    r->sets->restore = NULL;
    free(r);
}

/* The set cannot be had; it stays in the journal. */
static void restore_fail(struct params_restore *r, const struct error *err)
{
    const struct error why = *err;
    struct params_set *set = r->set;
    char text[2 * ERROR_TEXT_MAX];

    log_error("restore", "params=%s version=%llu error=%s", set == NULL ? "" : set->spec.name,
              (unsigned long long)r->body.version, log_quote(text, sizeof(text), why.text));
    restore_drop(r);
    if (set != NULL)
        params_close(set, &why);
    restore_next(r);
}

static void on_restore_closing(struct params_subscriber *subscriber, const struct error *why)
{
    struct params_restore *r = container_of(subscriber, struct params_restore, subscriber);

    (void)why;
    r->set = NULL;
}

static void restore_made(void *arg, const struct error *err)
{
    struct params_restore *r = arg;
    struct error why = *err;
    struct params_set *set = r->set;

    if (set == NULL) { /* it closed meanwhile */
        restore_fail(r, &why);
        return;
    }
    if (why.status == STATUS_OK && memcmp(params_current(set->model->agent)->sha256, r->body.sha256,
                                          sizeof(r->body.sha256)) != 0)
        (void)error_because(&why, STATUS_DATA_LOSS, REASON_CHECKSUM_DIFFERS, NULL,
                            "the stored values are not those that were written");
    for (uint32_t i = r->body.n_clients; i > 0 && why.status == STATUS_OK; i--) {
        const struct checkpoint_client *c = &r->body.clients[i - 1];

        (void)!params_remember(set, c->id, c->last_step, c->last_version, &why); /* in why */
    }
    if (why.status != STATUS_OK) {
        restore_fail(r, &why);
        return;
    }
    log_info("restored", "params=%s version=%llu", set->spec.name,
             (unsigned long long)r->body.version);
    restore_drop(r);
    restore_next(r);
}

/* --- the numbers --- */

static float *restore_array(const struct params_restore *r)
{
    float *const arrays[] = {r->values, r->set->first_moments.m, r->set->first_moments.v};

    return arrays[r->which];
}

static void restore_read(struct params_restore *r);

static void on_restore_part(void *arg, struct journal_found *found, const struct error *err)
{
    struct params_restore *r = arg;
    const size_t size_bytes = (size_t)r->body.n * sizeof(float);
    const struct link *first = list_first(&found->events);
    struct error why = *err;
    size_t wanted = size_bytes - r->offset;

    if (wanted > CHECKPOINT_PART_BYTES)
        wanted = CHECKPOINT_PART_BYTES;
    if (r->set == NULL)
        (void)error_set(&why, STATUS_CANCELLED, "the set was closed");
    if (why.status == STATUS_OK &&
        (first == NULL ||
         container_of(first, const struct journal_event, link)->size_bytes != wanted))
        (void)error_set(&why, STATUS_DATA_LOSS, "the journal lacks a part of the checkpoint");
    if (why.status != STATUS_OK) {
        restore_fail(r, &why);
        return;
    }
    memcpy((char *)restore_array(r) + r->offset,
           container_of(first, const struct journal_event, link)->body, wanted);
    r->offset += wanted;
    if (r->offset == size_bytes) {
        r->which++;
        r->offset = 0;
    }
    restore_read(r);
}

/* Reads the next part, or has the set begin. */
static void restore_read(struct params_restore *r)
{
    struct journal_query q = {.by = JOURNAL_BLOCKS};
    float *values = r->values;

    if (r->which > r->body.n_moments) {
        r->values = NULL; /* given away */
        params_fill(r->set, values, restore_made, r);
        return;
    }
    memcpy(q.id, r->body.id, sizeof(q.id));
    q.number = checkpoint_block((size_t)r->body.n * sizeof(float), r->which, r->offset);
    journal_read(r->sets->keeping.journal, &r->wait, &q, on_restore_part, r);
}

/* --- sets --- */

static enum status restore_take_memory(struct params_restore *r, struct error *err)
{
    struct params_moments *m = &r->set->first_moments;
    enum status rc = params_memory_take(&r->values, r->memory, err);

    if (rc == STATUS_OK && r->body.n_moments > 0)
        rc = params_memory_take(&m->m, r->memory, err);
    if (rc == STATUS_OK && r->body.n_moments > 1)
        rc = params_memory_take(&m->v, r->memory, err);
    return rc;
}

/* Makes the set as it was described. */
static enum status restore_make(struct params_restore *r, const struct principal *owner,
                                struct error *err)
{
    const struct params_keeping *k = &r->sets->keeping;
    struct access_sharing sharing;
    struct params_spec spec;
    enum status rc =
        k->read_config(&spec, &sharing, r->body.config, r->body.config_size, &r->arena, err);

    r->sets->is_restoring_one = true;
    if (rc == STATUS_OK)
        rc = params_make(&r->set, r->sets, owner, &spec, &sharing, err);
    r->sets->is_restoring_one = false;
    if (rc != STATUS_OK) {
        r->set = NULL;
        return rc;
    }
    params_subscribe(r->set, &r->subscriber);
    r->memory = params_memory_ref(r->set->memory);
    rc = params_describe(r->set, r->body.config, r->body.config_size, err);
    if (rc == STATUS_OK &&
        (r->set->spec.n != r->body.n || params_spec_moments(&r->set->spec) != r->body.n_moments))
        rc = error_set(err, STATUS_DATA_LOSS, "the checkpoint has not as many numbers as its set");
    if (rc == STATUS_OK)
        rc = restore_take_memory(r, err);
    if (rc != STATUS_OK)
        return rc;
    r->set->first_moments.version = r->set->kept_version = r->set->told_version = r->body.version;
    r->set->goes_on = r->set->is_kept = true;
    checkpoint_draw_id(r->set);
    r->set->counters = r->body.counters;
    return STATUS_OK;
}

static enum status restore_open(struct params_restore *r, struct error *err)
{
    const struct params_keeping *k = &r->sets->keeping;
    const struct principal *owner;
    enum status rc =
        checkpoint_body_read(&r->body, r->event->body, r->event->size_bytes, &r->arena, err);

    if (rc != STATUS_OK)
        return rc;
    owner = k->find_owner(k->self, r->body.principal);
    if (owner == NULL)
        return error_set(err, STATUS_NOT_FOUND, "there is no principal '%.64s'", r->body.principal);
    return restore_make(r, owner, err);
}

static void restore_next(struct params_restore *r)
{
    struct link *at = list_pop(&r->events);
    struct error err;

    if (at == NULL || r->sets->is_stopping) {
        if (at != NULL)
            free(container_of(at, struct journal_event, link));
        restore_free(r);
        return;
    }
    r->event = container_of(at, struct journal_event, link);
    r->body = (struct checkpoint_body){0};
    r->which = 0;
    r->offset = 0;
    arena_init(&r->arena, RESTORE_MAX_BYTES);
    r->subscriber = (struct params_subscriber){.closing = on_restore_closing};
    if (restore_open(r, &err) != STATUS_OK)
        restore_fail(r, &err);
    else
        restore_read(r);
}

static void on_restore_list(void *arg, struct journal_found *found, const struct error *err)
{
    struct params_restore *r = arg;

    if (err->status != STATUS_OK) {
        /* r stays, and with it the answer UNAVAILABLE: what there is, is not known. */
        log_error("restore", "error=\"%s\"", err->text);
        return;
    }
    list_move(&found->events, &r->events);
    restore_next(r);
}

void params_restore_begin(struct params_sets *s)
{
    const struct journal_query q = {.by = JOURNAL_CHECKPOINTS};
    struct params_restore *r = xalloc(sizeof(*r));

    r->sets = s;
    s->restore = r;
    list_init(&r->events);
    arena_init(&r->arena, RESTORE_MAX_BYTES);
    journal_read(s->keeping.journal, &r->wait, &q, on_restore_list, r);
}

void params_restore_stop(struct params_sets *s)
{
    struct params_restore *r = s->restore;

    if (r == NULL)
        return;
    journal_leave(&r->wait);
    if (r->set != NULL)
        r->set->made = NULL;
    restore_free(r);
}
