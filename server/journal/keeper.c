/* Happy path: a change appends the object to a queue. When the first object is due, its parts are
 * written to the journal, each when the previous one is durable, so that conversations are written
 * in between; a last record says that the parts are complete. A change meanwhile queues the object
 * again. Requested checkpoints have a separate queue without pauses; of the two heads, the one that
 * is due first begins.
 *
 * Failure: a failed attempt is repeated later, under the same id, so that its parts replace the
 * first ones; or under another id if the last record may have been written, since its parts must
 * not change then. A crash in between leaves parts without a record, which the next start deletes.
 * An object that cannot be read is logged, and stays in the journal. */
#include "server/journal/keeper.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "server/access/sharing.h"

#define KEEPER_MAX_PART_BYTES ((size_t)8 << 20)
enum { KEEPER_REST = 9, KEEPER_RETRY_MS = 100 };

struct keeper_attempt {
    struct keeper *keeper;
    struct kept_thing *kept; /* NULL: given up */
    uint8_t id[JOURNAL_ID_BYTES];
    uint32_t n_parts;
    bool is_asked;    /* for, by kept_settle or kept_begin */
    bool is_begun;    /* begin is over */
    bool is_complete; /* the record behind the parts was appended */
    uint64_t begun_us;
    struct buf buf;
    struct list waits;
};

void keeper_init(struct keeper *kp, const struct keeper_type *type, void *self,
                 const struct env *env)
{
    *kp = (struct keeper){.type = type, .self = self, .env = env};
    list_init(&kp->asked);
    list_init(&kp->changed);
}

void kept_init(struct kept_thing *k)
{
    *k = (struct kept_thing){0};
    list_init(&k->waits);
}

static uint64_t keeper_due_us(const struct keeper *kp, const struct kept_thing *k)
{
    return k->is_asked || k->due_us > kp->rest_until_us ? k->due_us : kp->rest_until_us;
}

static struct kept_thing *kept_first(const struct list *things)
{
    struct link *l = list_first(things);

    return l == NULL ? NULL : container_of(l, struct kept_thing, link);
}

/* The one that is due first; NULL: none. */
static struct kept_thing *keeper_first(const struct keeper *kp)
{
    struct kept_thing *asked = kept_first(&kp->asked), *changed = kept_first(&kp->changed);

    if (asked == NULL || changed == NULL)
        return asked != NULL ? asked : changed;
    return keeper_due_us(kp, changed) < keeper_due_us(kp, asked) ? changed : asked;
}

static bool keeper_has_sums(const struct keeper *kp)
{
    return kp->type->kind != KEEPER_PARAMS;
}

/* " version=7" of a thing that has one, and is there; else "". */
static const char *keeper_version_text(char out[32], const struct keeper *kp,
                                       const struct kept_thing *k)
{
    out[0] = '\0';
    if (k != NULL && kp->type->version_of != NULL)
        (void)snprintf(out, 32, " version=%" PRIu64, kp->type->version_of(k));
    return out;
}

/* --- writing --- */

static void keeper_tell(struct list *waits, const struct error *err)
{
    struct link *l;

    while ((l = list_pop(waits)) != NULL) {
        struct kept_wait *w = container_of(l, struct kept_wait, link);

        w->done(w, err);
    }
}

static void keeper_arm(struct keeper *kp)
{
    const struct kept_thing *first = keeper_first(kp);

    if (first != NULL && kp->n_attempts == 0 && kp->restore == NULL && !kp->is_ending)
        alarm_by(kp->keeping.alarm, keeper_due_us(kp, first));
}

static void attempt_end(struct keeper_attempt *a, const struct error *err)
{
    struct keeper *kp = a->keeper;
    struct kept_thing *k = a->kept;
    const char *principal, *name;
    const uint64_t now_us = env_now_us(kp->env);
    struct list waits;
    char version[32];

    list_init(&waits);
    list_move(&a->waits, &waits);
    kp->n_attempts--;
    if (!a->is_asked)
        kp->rest_until_us = now_us + KEEPER_REST * (now_us - a->begun_us);
    if (k != NULL) {
        k->attempt = NULL;
        kp->type->name(k, &principal, &name);
        (void)keeper_version_text(version, kp, k);
        kp->type->ended(k);
        k->has_id = k->has_id && err->status != STATUS_OK && !a->is_complete;
        if (err->status != STATUS_OK) {
            log_warn("checkpoint", "%s=%s%s error=\"%s\"", kp->type->noun, name, version,
                     err->text);
            if (!kp->is_ending && !kp->type->is_untimed)
                kept_changed(kp, k);
        } else {
            log_debug("checkpoint", "%s=%s%s parts=%u ms=%llu", kp->type->noun, name, version,
                      a->n_parts, (unsigned long long)((now_us - a->begun_us) / 1000));
        }
    }
    buf_deinit(&a->buf);
    free(a);
    keeper_tell(&waits, err);
    keeper_arm(kp);
    if (kp->is_ending)
        kp->keeping.on_idle(kp->keeping.idle_self);
}

static void on_attempt_complete(void *arg, const struct error *err)
{
    attempt_end(arg, err);
}

static void on_attempt_part(void *arg, const struct error *err);

/* Room for the checksum, if there is one, then the version, which body_begin reads. */
static void attempt_head(struct keeper_attempt *a, struct body_writer *w, size_t limit_bytes)
{
    buf_clear(&a->buf);
    a->buf.limit_bytes = limit_bytes;
    *w = (struct body_writer){.out = &a->buf};
    if (keeper_has_sums(a->keeper))
        body_put_u32(w, 0);
    body_put_u32(w, a->keeper->type->version);
}

/* Fills r with what was written. */
static enum status attempt_written(struct keeper_attempt *a, const struct body_writer *w,
                                   struct journal_record *r, struct error *err)
{
    if (body_written(w, err) != STATUS_OK)
        return err->status;
    if (keeper_has_sums(a->keeper))
        journal_put_sum(a->buf.data, a->buf.len);
    r->body = a->buf.data;
    r->size_bytes = a->buf.len;
    return STATUS_OK;
}

/* r has no body behind the last part. */
static enum status attempt_part(struct keeper_attempt *a, struct journal_record *r,
                                struct error *err)
{
    const struct keeper_type *type = a->keeper->type;
    struct body_writer w;
    size_t head;

    if (type->bytes != NULL) {
        r->body = type->bytes(a->kept, &r->size_bytes);
        return STATUS_OK;
    }
    attempt_head(a, &w, KEEPER_MAX_PART_BYTES);
    head = a->buf.len;
    type->part(a->kept, &w, a->keeper->keeping.part_bytes);
    return a->buf.len == head && !w.has_failed ? STATUS_OK : attempt_written(a, &w, r, err);
}

static enum status attempt_body(struct keeper_attempt *a, struct journal_record *r,
                                struct error *err)
{
    const struct keeper_type *type = a->keeper->type;
    struct body_writer w;

    attempt_head(a, &w, type->max_body_bytes);
    type->name(a->kept, &r->principal, &r->name);
    body_put_bytes(&w, a->id, sizeof(a->id));
    body_put_text(&w, r->principal);
    if (keeper_has_sums(a->keeper))
        body_put_text(&w, r->name);
    type->body(a->kept, &w);
    r->kind = keeper_has_sums(a->keeper) ? JOURNAL_KEEP : JOURNAL_CHECKPOINT;
    r->generation = (uint32_t)type->kind;
    return attempt_written(a, &w, r, err);
}

/* The next part, or what completes the checkpoint. */
static enum status attempt_append(struct keeper_attempt *a, struct error *err)
{
    struct journal_record r = {
        .kind = JOURNAL_BLOCK, .generation = (uint32_t)a->keeper->type->kind, .turn = a->n_parts};
    enum status rc = attempt_part(a, &r, err);
    const bool is_part = r.body != NULL;

    if (rc == STATUS_OK && !is_part)
        rc = attempt_body(a, &r, err);
    memcpy(r.conversation, a->id, sizeof(r.conversation));
    if (rc == STATUS_OK)
        rc = journal_append(a->keeper->keeping.journal, &r,
                            is_part ? on_attempt_part : on_attempt_complete, a, err);
    a->n_parts += is_part;
    a->is_complete = rc == STATUS_OK && !is_part;
    return rc;
}

static void attempt_go_on(struct keeper_attempt *a)
{
    struct error err;

    if (attempt_append(a, &err) != STATUS_OK)
        attempt_end(a, &err);
}

static void on_attempt_part(void *arg, const struct error *err)
{
    struct keeper_attempt *a = arg;

    if (a->kept == NULL || err->status != STATUS_OK)
        attempt_end(a, err);
    else
        attempt_go_on(a);
}

static void keeper_draw_id(const struct keeper *kp, struct kept_thing *k)
{
    if (!k->has_id)
        kp->env->random(kp->env->self, k->next_id, sizeof(k->next_id));
    k->has_id = true;
}

static void keeper_begin(struct keeper *kp, struct kept_thing *k)
{
    struct keeper_attempt *a = xalloc(sizeof(*a));
    struct error err;

    if (link_is_on(&k->link))
        list_remove(&k->link);
    keeper_draw_id(kp, k);
    *a = (struct keeper_attempt){
        .keeper = kp, .kept = k, .is_asked = k->is_asked, .begun_us = env_now_us(kp->env)};
    k->is_asked = false;
    memcpy(a->id, k->next_id, sizeof(a->id));
    buf_init(&a->buf, KEEPER_MAX_PART_BYTES);
    list_init(&a->waits);
    list_move(&k->waits, &a->waits);
    k->attempt = a;
    kp->n_attempts++;
    if (kp->type->begin(k, &err) != STATUS_OK)
        attempt_end(a, &err);
    else if (!kp->type->is_slow)
        kept_go_on(kp, k, &(struct error){.status = STATUS_OK});
}

static void keeper_restore_end(struct keeper *kp, const struct error *err);

void kept_go_on(struct keeper *kp, struct kept_thing *k, const struct error *err)
{
    struct keeper_attempt *a = k->attempt;

    if (a == NULL) {
        keeper_restore_end(kp, err);
    } else if (err->status != STATUS_OK) {
        attempt_end(a, err);
    } else {
        a->is_begun = true;
        attempt_go_on(a);
    }
}

void kept_begin(struct keeper *kp, struct kept_thing *k, struct kept_wait *w)
{
    assert(kp->keeping.journal != NULL && k->attempt == NULL);
    k->is_asked = true;
    list_push(&k->waits, &w->link);
    keeper_begin(kp, k);
}

void keeper_tick(void *keeper)
{
    struct keeper *kp = keeper;
    struct kept_thing *first = keeper_first(kp);

    if (first == NULL || kp->n_attempts > 0 || kp->restore != NULL)
        return;
    if (keeper_due_us(kp, first) <= env_now_us(kp->env))
        keeper_begin(kp, first);
    else
        keeper_arm(kp);
}

void kept_changed(struct keeper *kp, struct kept_thing *k)
{
    if (kp->keeping.journal == NULL || link_is_on(&k->link))
        return;
    k->due_us = env_now_us(kp->env) + kp->keeping.interval_us;
    list_push(&kp->changed, &k->link);
    keeper_arm(kp);
}

enum status kept_settle(struct keeper *kp, struct kept_thing *k, struct kept_wait *w,
                        struct error *err)
{
    if (kp->keeping.journal == NULL)
        return error_set(err, STATUS_PRECONDITION, "the server has no --data, so no %s outlives it",
                         kp->type->noun);
    if (!k->is_asked) {
        if (link_is_on(&k->link))
            list_remove(&k->link);
        k->is_asked = true;
        k->due_us = env_now_us(kp->env);
        list_push(&kp->asked, &k->link);
    }
    list_push(&k->waits, &w->link);
    keeper_arm(kp);
    return STATUS_OK;
}

void kept_leave(struct kept_wait *w)
{
    if (link_is_on(&w->link))
        list_remove(&w->link);
}

enum status kept_forget(struct keeper *kp, struct kept_thing *k, struct error *err)
{
    struct journal_record r = {.kind = keeper_has_sums(kp) ? JOURNAL_FORGET : JOURNAL_NO_PARAMS,
                               .generation = (uint32_t)kp->type->kind};

    if (kp->keeping.journal == NULL)
        return STATUS_OK;
    keeper_draw_id(kp, k);
    memcpy(r.conversation, k->next_id, sizeof(r.conversation));
    kp->type->name(k, &r.principal, &r.name);
    return journal_append(kp->keeping.journal, &r, NULL, NULL, err);
}

/* An attempt that has written nothing ends at once; else the journal calls it. */
static void attempt_give_up(struct keeper_attempt *a, struct list *waits)
{
    struct keeper *kp = a->keeper;

    kp->type->ended(a->kept);
    a->kept->attempt = NULL;
    a->kept = NULL;
    list_move(&a->waits, waits);
    if (a->is_begun)
        return;
    kp->n_attempts--;
    buf_deinit(&a->buf);
    free(a);
    keeper_arm(kp);
}

static void keeper_restore_lose(struct keeper *kp, const struct kept_thing *k,
                                const struct error *why);

void kept_deinit(struct keeper *kp, struct kept_thing *k, const struct error *why)
{
    struct list waits;

    list_init(&waits);
    if (link_is_on(&k->link))
        list_remove(&k->link);
    if (k->attempt != NULL)
        attempt_give_up(k->attempt, &waits);
    keeper_tell(&waits, why);
    keeper_tell(&k->waits, why);
    keeper_restore_lose(kp, k, why);
}

/* --- who may use it --- */

static void kept_put_names(struct body_writer *w, const char *const *names, size_t n)
{
    body_put_u32(w, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        body_put_text(w, names[i]);
}

static const char *const *kept_take_names(size_t *ret_n, struct body_reader *r)
{
    const uint32_t n = body_take_up_to(r, ACCESS_MAX_SHARED);
    const char **names = body_take_array(r, n, sizeof(names[0]), 8);

    *ret_n = names == NULL ? 0 : n;
    for (uint32_t i = 0; i < *ret_n; i++)
        names[i] = body_take_text(r);
    return names;
}

void kept_put_sharing(struct body_writer *w, const struct access_sharing *sharing)
{
    kept_put_names(w, sharing->readers, sharing->n_readers);
    kept_put_names(w, sharing->writers, sharing->n_writers);
}

void kept_take_sharing(struct access_sharing *out, struct body_reader *r)
{
    out->readers = kept_take_names(&out->n_readers, r);
    out->writers = kept_take_names(&out->n_writers, r);
}

/* --- reading --- */

struct keeper_restore {
    struct keeper *keeper;
    struct journal_wait wait;
    struct list events;
    /* Of the thing that is being made. */
    struct journal_event *event; /* NULL: none is */
    struct arena arena;
    struct kept_thing *kept; /* NULL: it is not there yet, or not any more */
    uint8_t id[JOURNAL_ID_BYTES];
    uint32_t n_parts, next;
    bool is_making;            /* made is not over */
    char name[ERROR_TEXT_MAX]; /* for the log */
};

/* Whether the thing is made, or lost, is settled. */
static void keeper_restore_let_go(struct keeper_restore *r)
{
    arena_deinit(&r->arena);
    free(r->event);
    r->event = NULL;
    r->kept = NULL;
    r->is_making = false;
}

/* The thing closes, and does not call for it. */
static void keeper_restore_drop(struct keeper_restore *r)
{
    struct kept_thing *k = r->kept;

    r->kept = NULL;
    if (k != NULL)
        r->keeper->type->drop(k);
    keeper_restore_let_go(r);
}

static void keeper_restore_free(struct keeper_restore *r)
{
    struct link *l;

    journal_leave(&r->wait);
    while ((l = list_pop(&r->events)) != NULL)
        free(container_of(l, struct journal_event, link));
    keeper_restore_drop(r);
    r->keeper->restore = NULL;
    free(r);
}

/* The thing is made, or cannot be: it stays in the journal. */
static void keeper_restore_settle(struct keeper_restore *r, const struct error *err)
{
    const struct error why = *err; /* may lie in the thing */
    const char *noun = r->keeper->type->noun;
    char text[2 * ERROR_TEXT_MAX], version[32];

    (void)keeper_version_text(version, r->keeper, r->kept);
    if (why.status == STATUS_OK) {
        log_info("restored", "%s=%s%s", noun, r->name, version);
        keeper_restore_let_go(r);
        return;
    }
    log_error("restore", "%s=%s%s error=%s", noun, r->name, version,
              log_quote(text, sizeof(text), why.text));
    keeper_restore_drop(r);
}

static enum status keeper_restore_begin_body(struct body_reader *out,
                                             const struct keeper_restore *r,
                                             const struct journal_event *e, struct arena *arena,
                                             struct error *err)
{
    const struct keeper_type *type = r->keeper->type;
    const size_t sum_bytes = keeper_has_sums(r->keeper) ? JOURNAL_SUM_BYTES : 0;

    if (sum_bytes > 0 && !journal_sum_is_right(e->body, e->size_bytes))
        return error_because(err, STATUS_DATA_LOSS, REASON_CHECKSUM_DIFFERS, NULL,
                             "the stored %s is not what was written", type->noun);
    *out = body_begin(e->body + sum_bytes, e->size_bytes - sum_bytes, type->version, arena);
    return STATUS_OK;
}

static enum status keeper_restore_take(struct keeper_restore *r, const struct journal_found *found,
                                       struct error *err)
{
    const struct link *first = list_first(&found->events);
    const struct journal_event *e;
    struct body_reader part;
    struct arena arena;
    enum status rc = STATUS_OK;

    if (r->kept == NULL)
        return error_set(err, STATUS_CANCELLED, "it was closed while it was read");
    if (first == NULL)
        return error_set(err, STATUS_DATA_LOSS, "the journal lacks part %u of %u", r->next,
                         r->n_parts);
    e = container_of(first, const struct journal_event, link);
    arena_init(&arena, r->keeper->type->max_body_bytes);
    if (keeper_has_sums(r->keeper))
        rc = keeper_restore_begin_body(&part, r, e, &arena, err);
    else
        part = (struct body_reader){.at = e->body, .end = e->body + e->size_bytes};
    if (rc == STATUS_OK)
        rc = r->keeper->type->take(r->kept, &part, err);
    arena_deinit(&arena);
    return rc;
}

static void on_restore_part(void *arg, struct journal_found *found, const struct error *err);

/* Reads the next part, or has the thing begin. Whether nothing is awaited, so that the next thing's
 * turn has come. */
static bool keeper_restore_read(struct keeper_restore *r)
{
    struct journal_query q = {.by = JOURNAL_BLOCKS, .number = r->next};
    struct error err = {.status = STATUS_OK};

    if (r->next < r->n_parts) {
        memcpy(q.id, r->id, sizeof(q.id));
        journal_read(r->keeper->keeping.journal, &r->wait, &q, on_restore_part, r);
        return false;
    }
    r->is_making = r->keeper->type->made(r->kept, &err) == STATUS_OK && r->keeper->type->is_slow;
    if (!r->is_making)
        keeper_restore_settle(r, &err);
    return !r->is_making;
}

static enum status keeper_restore_make(struct keeper_restore *r, struct error *err)
{
    struct keeper *kp = r->keeper;
    const char *principal, *name = "";
    const struct principal *owner;
    struct body_reader body;
    const void *id;
    enum status rc;
    size_t len;

    if (keeper_restore_begin_body(&body, r, r->event, &r->arena, err) != STATUS_OK)
        return err->status;
    id = body_take_bytes(&body, &len);
    principal = body_take_text(&body);
    if (keeper_has_sums(kp))
        name = body_take_text(&body);
    if (body.is_bad || len != sizeof(r->id))
        return error_set(err, STATUS_DATA_LOSS, "what describes it is cut off");
    memcpy(r->id, id, sizeof(r->id));
    r->n_parts = r->event->turn;
    r->next = 0;
    (void)snprintf(r->name, sizeof(r->name), "%s", name); /* cut off where it is too long */
    owner = kp->keeping.find_owner(kp->keeping.find_self, principal);
    if (owner == NULL)
        return error_set(err, STATUS_NOT_FOUND, "there is no principal '%.64s'", principal);
    rc = kp->type->make(kp, &r->kept, owner, name, &body, err);
    if (r->kept != NULL) {
        kp->type->name(r->kept, &principal, &name);
        (void)snprintf(r->name, sizeof(r->name), "%s", name);
    }
    if (rc == STATUS_OK && kp->type->n_parts != NULL)
        r->n_parts = kp->type->n_parts(r->kept);
    return rc;
}

/* Takes e. As keeper_restore_read. */
static bool keeper_restore_begin(struct keeper_restore *r, struct journal_event *e)
{
    struct error err;

    r->name[0] = '\0';
    r->event = e;
    arena_init(&r->arena, 2 * r->keeper->type->max_body_bytes);
    if (keeper_restore_make(r, &err) == STATUS_OK)
        return keeper_restore_read(r);
    keeper_restore_settle(r, &err);
    return true;
}

static void keeper_tell_ready(const struct keeper *kp)
{
    if (kp->keeping.on_ready != NULL)
        kp->keeping.on_ready(kp->keeping.ready_self);
}

/* A loop, since of many things none may have anything to wait for. */
static void keeper_restore_next(struct keeper_restore *r)
{
    struct keeper *kp = r->keeper;
    struct link *l;

    while ((l = list_pop(&r->events)) != NULL)
        if (!keeper_restore_begin(r, container_of(l, struct journal_event, link)))
            return;
    keeper_restore_free(r);
    keeper_arm(kp);
    keeper_tell_ready(kp);
}

static void on_restore_part(void *arg, struct journal_found *found, const struct error *err)
{
    struct keeper_restore *r = arg;
    struct error why = *err;

    if (why.status == STATUS_OK)
        (void)!keeper_restore_take(r, found, &why); /* it is in why */
    r->next++;
    if (why.status != STATUS_OK)
        keeper_restore_settle(r, &why);
    else if (!keeper_restore_read(r))
        return;
    keeper_restore_next(r);
}

static void keeper_restore_end(struct keeper *kp, const struct error *err)
{
    keeper_restore_settle(kp->restore, err);
    keeper_restore_next(kp->restore);
}

static void keeper_restore_lose(struct keeper *kp, const struct kept_thing *k,
                                const struct error *why)
{
    struct keeper_restore *r = kp->restore;

    if (r == NULL || r->kept != k)
        return;
    r->kept = NULL;
    if (r->is_making) /* else a part is being read */
        keeper_restore_end(kp, why);
}

static void on_restore_list(void *arg, struct journal_found *found, const struct error *err)
{
    struct keeper_restore *r = arg;

    if (err->status != STATUS_OK) {
        /* r stays, and with it the answer UNAVAILABLE: what there is, is not known. */
        log_error("restore", "error=\"%s\"", err->text);
        keeper_tell_ready(r->keeper);
        return;
    }
    list_move(&found->events, &r->events);
    keeper_restore_next(r);
}

static void keeper_restore_open(struct keeper *kp)
{
    struct keeper_restore *r = xalloc(sizeof(*r));

    *r = (struct keeper_restore){.keeper = kp};
    list_init(&r->events);
    kp->restore = r;
}

void keeper_arrive(struct keeper *kp)
{
    const struct journal_query q = {.by = keeper_has_sums(kp) ? JOURNAL_KEPT : JOURNAL_CHECKPOINTS,
                                    .number = (uint32_t)kp->type->kind};

    if (!kp->is_ending)
        journal_read(kp->keeping.journal, &kp->restore->wait, &q, on_restore_list, kp->restore);
}

void keeper_leave(struct keeper *kp)
{
    if (kp->is_ending)
        return;
    if (kp->restore != NULL)
        keeper_restore_free(kp->restore);
    keeper_restore_open(kp);
}

void keeper_start(struct keeper *kp, const struct keeping *keeping)
{
    kp->keeping = *keeping;
    if (kp->keeping.part_bytes == 0)
        kp->keeping.part_bytes = KEEPER_PART_BYTES;
    keeper_restore_open(kp);
    if (!keeping->is_placed)
        keeper_arrive(kp);
}

enum status keeper_ready(const struct keeper *kp, struct error *err)
{
    if (kp->restore == NULL)
        return STATUS_OK;
    (void)error_set(err, STATUS_UNAVAILABLE, "each stored %s is being read", kp->type->noun);
    err->retry_after_ms = KEEPER_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

bool keeper_is_idle(struct keeper *kp)
{
    struct kept_thing *first;

    if (kp->keeping.journal == NULL)
        return true;
    kp->is_ending = true;
    if (kp->restore != NULL)
        keeper_restore_free(kp->restore);
    /* What cannot begin ends at once, and is not put in line again. */
    while (kp->n_attempts == 0 && (first = keeper_first(kp)) != NULL)
        keeper_begin(kp, first);
    return kp->n_attempts == 0;
}
