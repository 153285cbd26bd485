/* A pass reads some rows from the journal, checks their time to live here (it is in the
 * conversation's options), appends a closing record for each expired conversation, and reads more
 * rows when these are durable. So a pass uses the journal's thread for a few milliseconds at a
 * time, and turns are written in between.
 *
 * A conversation that is read into memory meanwhile is not closed. If it was read before its
 * closing record was written, but arrives after the record was appended, it is reported as not
 * found: retention_is_closing. */
#include "server/conversation/retention.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/conversation/body.h"

#define RETENTION_PERIOD_US ((uint64_t)10 * 60 * 1000 * 1000)
#define RETENTION_SOON_US ((uint64_t)1000 * 1000)
#define RETENTION_TERMS_BYTES ((size_t)64 << 20)

enum {
    RETENTION_ROWS = 256,  /* looked at at a time */
    RETENTION_CLOSES = 20, /* of those */
};

struct closing_one {
    struct link link; /* in the conversations' closing */
    struct retention *retention;
    struct conversation_id id;
};

bool retention_is_closing(const struct conversations *all, const struct conversation_id *id)
{
    for (struct link *l = list_first(&all->closing); l != NULL; l = list_next(&all->closing, l))
        if (memcmp(&container_of(l, struct closing_one, link)->id, id, sizeof(*id)) == 0)
            return true;
    return false;
}

static void retention_ask(struct retention *r);

static void on_retention_closed(void *arg, const struct error *err)
{
    struct closing_one *one = arg;
    struct retention *r = one->retention;

    (void)err; /* if it is still there, the next pass finds it */
    list_remove(&one->link);
    free(one);
    if (--r->n_closing == 0 && r->is_waiting) {
        r->is_waiting = false;
        retention_ask(r);
    }
}

/* Asks for more when what is being closed is: before, the journal's size is not what it will be. */
static void retention_go_on(struct retention *r)
{
    if (r->n_closing > 0)
        r->is_waiting = true;
    else
        retention_ask(r);
}

static void retention_close(struct retention *r, const struct conversation_id *id)
{
    struct closing_one *one = xalloc(sizeof(*one));
    struct journal_record record = {.kind = JOURNAL_CLOSE};
    struct error ignored;

    one->id = *id;
    one->retention = r;
    memcpy(record.conversation, id->bytes, sizeof(record.conversation));
    list_push(&r->all->closing, &one->link);
    /* Without room for it the next pass finds it. */
    if (journal_append(r->all->keeping.journal, &record, on_retention_closed, one, &ignored) !=
        STATUS_OK) {
        list_remove(&one->link);
        free(one);
        return;
    }
    r->n_closing++;
}

/* Keeps the idlest of those that were seen, in order. */
static void retention_note(struct retention *r, const struct journal_row *row)
{
    size_t at = r->n_idlest;

    if (r->n_idlest == RETENTION_IDLEST) {
        if (row->last_unix_ms >= r->idlest[RETENTION_IDLEST - 1].last_unix_ms)
            return;
        at--;
    } else {
        r->n_idlest++;
    }
    while (at > 0 && r->idlest[at - 1].last_unix_ms > row->last_unix_ms) {
        r->idlest[at] = r->idlest[at - 1];
        at--;
    }
    r->idlest[at].last_unix_ms = row->last_unix_ms;
    memcpy(r->idlest[at].id.bytes, row->id, sizeof(row->id));
}

/* Whether its time has passed. What cannot be read is left, for those who ask for it. */
static bool retention_is_over(const struct retention *r, const struct journal_row *row)
{
    const uint64_t now_ms = conversations_unix_ms(r->all);
    const uint64_t idle_ms = now_ms > row->last_unix_ms ? now_ms - row->last_unix_ms : 0;
    struct body_terms terms = {0};
    struct arena arena;
    struct error err;
    bool is_over = r->config.age_ms != 0 && idle_ms >= r->config.age_ms;

    if (is_over)
        return true;
    arena_init(&arena, RETENTION_TERMS_BYTES);
    is_over = body_read_terms(&terms, row->body, row->size_bytes, &arena, &err) == STATUS_OK &&
              idle_ms >= terms.ttl_ms;
    arena_deinit(&arena);
    return is_over;
}

static void retention_end_pass(struct retention *r)
{
    r->is_passing = false;
    r->config.arm(r->config.arm_self, env_now_us(r->all->config.env) + RETENTION_PERIOD_US);
}

/* Half as many as would be too many if all were of one size, so that few go that need not. */
static size_t retention_to_close(const struct retention *r, uint64_t store_bytes)
{
    const double share = 1.0 - (double)r->config.bytes / (double)store_bytes;
    const size_t n = (size_t)((double)(r->n_idlest - r->next_idlest) * share / 2.0);

    return n == 0 ? 1 : n > RETENTION_CLOSES ? RETENTION_CLOSES : n;
}

/* The journal is too large, and all has been seen: the idlest go, some at a time. */
static void retention_shrink(struct retention *r, uint64_t store_bytes)
{
    size_t n = retention_to_close(r, store_bytes);

    for (; n > 0 && r->next_idlest < r->n_idlest; n--) {
        const struct idle_one *one = &r->idlest[r->next_idlest++];

        if (conversations_get(r->all, &one->id) == NULL)
            retention_close(r, &one->id);
    }
    retention_go_on(r);
}

/* Looks at the rows, until enough of them are being closed. */
static void retention_look(struct retention *r, const struct journal_found *found)
{
    size_t n_closed = 0;

    for (struct link *l = list_first(&found->rows); l != NULL && n_closed < RETENTION_CLOSES;
         l = list_next(&found->rows, l)) {
        const struct journal_row *row = container_of(l, const struct journal_row, link);
        struct conversation_id id;

        r->place = row->place;
        memcpy(id.bytes, row->id, sizeof(id.bytes));
        if (conversations_get(r->all, &id) != NULL)
            continue; /* it has a timer */
        if (retention_is_over(r, row)) {
            retention_close(r, &id);
            n_closed++;
        } else if (r->config.bytes != 0) {
            retention_note(r, row);
        }
    }
}

static void on_retention_rows(void *arg, struct journal_found *found, const struct error *err)
{
    struct retention *r = arg;

    if (err->status != STATUS_OK) {
        retention_end_pass(r);
        return;
    }
    if (!list_is_empty(&found->rows)) {
        retention_look(r, found);
        retention_go_on(r);
        return;
    }
    if (r->config.bytes == 0 || found->store_bytes <= r->config.bytes) {
        retention_end_pass(r);
    } else if (r->next_idlest < r->n_idlest) {
        retention_shrink(r, found->store_bytes);
    } else if (r->n_idlest == RETENTION_IDLEST) { /* there may be more of them */
        r->n_idlest = r->next_idlest = 0;
        r->place = 0;
        retention_ask(r);
    } else {
        retention_end_pass(r);
    }
}

static void retention_ask(struct retention *r)
{
    const struct journal_query q = {
        .by = JOURNAL_SWEEP, .place = r->place, .max_rows = RETENTION_ROWS};

    journal_read(r->all->keeping.journal, &r->wait, &q, on_retention_rows, r);
}

void retention_tick(struct retention *r)
{
    if (r->is_passing || r->all->keeping.journal == NULL || r->all->is_draining)
        return;
    r->is_passing = true;
    r->place = 0;
    r->n_idlest = r->next_idlest = 0;
    retention_ask(r);
}

void retention_configure(struct retention *r, uint64_t age_ms, uint64_t bytes)
{
    r->config.age_ms = r->all->config.retain_ms = age_ms;
    r->config.bytes = bytes;
    if (r->all->keeping.journal != NULL && !r->is_passing)
        r->config.arm(r->config.arm_self, env_now_us(r->all->config.env) + RETENTION_SOON_US);
}

void retention_init(struct retention *r, struct conversations *all,
                    const struct retention_config *config)
{
    *r = (struct retention){.all = all, .config = *config};
    retention_configure(r, config->age_ms, config->bytes);
}

void retention_stop(struct retention *r)
{
    journal_leave(&r->wait);
    r->is_waiting = false;
    r->is_passing = true; /* and none begins */
}
