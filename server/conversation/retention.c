/* With a bound of age a pass first reads all rows, to know which of them are too old: see ages.h.
 * Then it reads some rows from the journal, checks them and their time to live (it is in the
 * conversation's options), appends a closing record for each expired conversation, and reads more
 * rows when these are durable. So a pass uses the journal's thread for about a millisecond at a
 * time, then rests for longer than that, and turns are read and written in between.
 *
 * A time to live counts since this process has run: a longer idle time would be the clock's word.
 *
 * A conversation that is read into memory meanwhile is not closed. If it was read before its
 * closing record was written, but arrives after the record was appended, it is reported as not
 * found: retention_is_closing. */
#include "server/conversation/retention.h"

#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/log.h"
#include "server/conversation/body.h"

#define RETENTION_PERIOD_US ((uint64_t)10 * 60 * 1000 * 1000)
#define RETENTION_SOON_US ((uint64_t)1000 * 1000)
#define RETENTION_TERMS_BYTES ((size_t)64 << 20)

enum {
    RETENTION_ROWS = 64,   /* looked at at a time */
    RETENTION_CLOSES = 20, /* of those */
    RETENTION_REST = 3,    /* as many times what reading took */
    RETENTION_LEAST_US = 200,
    RETENTION_MOST_US = 50 * 1000, /* of a rest */
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

    list_remove(&one->link);
    free(one);
    if (--r->n_closing == 0 && r->is_waiting) {
        r->is_waiting = false;
        retention_ask(r);
    }
}

/* Asks for more, after a rest if reading takes time. */
static void retention_ask_on(struct retention *r)
{
    const uint64_t now_us = env_now_us(r->all->config.env);
    uint64_t rest_us = RETENTION_REST * (now_us - r->asked_us);

    if (rest_us < RETENTION_REST * RETENTION_LEAST_US || r->is_pressed) {
        retention_ask(r);
        return;
    }
    if (rest_us > RETENTION_MOST_US)
        rest_us = RETENTION_MOST_US;
    r->is_resting = true;
    alarm_set(r->config.alarm, now_us + rest_us);
}

/* Asks for more when what is being closed is: before, the journal's size is not what it will be. */
static void retention_go_on(struct retention *r)
{
    if (r->n_closing > 0)
        r->is_waiting = true;
    else
        retention_ask_on(r);
}

/* Why, as it is logged. */
static const char *const retention_words[N_RETENTION_WHYS] = {
    [RETENTION_AGE] = "age", [RETENTION_TTL] = "ttl", [RETENTION_SIZE] = "size"};

static void retention_count(struct retention *r, const struct conversation_id *id,
                            enum retention_why why)
{
    char text[CONVERSATION_ID_CHARS];

    r->n_deleted[why]++;
    conversation_id_format(id, text);
    log_debug("deleted", "conversation=%s by=%s", text, retention_words[why]);
}

static void retention_close(struct retention *r, const struct conversation_id *id,
                            enum retention_why why)
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
    retention_count(r, id, why);
}

/* Keeps the idlest of those that were seen, in order. */
static void retention_note(struct retention *r, const struct journal_row *row)
{
    size_t at = r->n_idlest;

    if (r->n_idlest == RETENTION_IDLEST) {
        if (row->last_seq >= r->idlest[RETENTION_IDLEST - 1].last_seq)
            return;
        at--;
    } else {
        r->n_idlest++;
    }
    while (at > 0 && r->idlest[at - 1].last_seq > row->last_seq) {
        r->idlest[at] = r->idlest[at - 1];
        at--;
    }
    r->idlest[at].last_seq = row->last_seq;
    memcpy(r->idlest[at].id.bytes, row->id, sizeof(row->id));
}

static uint64_t retention_up_ms(const struct retention *r)
{
    return (env_now_us(r->all->config.env) - r->all->start_us) / 1000;
}

/* Whether an earlier process had its last record written: the clock of now says nothing of it. */
static bool retention_is_earlier(const struct retention *r, const struct journal_row *row)
{
    return row->last_unix_ms < r->all->config.unix_ms;
}

/* For how long it has been idle for certain. */
static uint64_t retention_idle_ms(const struct retention *r, const struct journal_row *row)
{
    const uint64_t now_ms = conversations_unix_ms(r->all);

    if (retention_is_earlier(r, row))
        return retention_up_ms(r);
    return now_ms > row->last_unix_ms ? now_ms - row->last_unix_ms : 0;
}

/* All rows have been seen once. */
static void retention_know_newest(struct retention *r)
{
    if (r->all->stored_ms == 0)
        r->all->stored_ms = r->newest_ms != 0 ? r->newest_ms : r->all->config.unix_ms;
}

static bool retention_is_old(const struct retention *r, const struct journal_row *row)
{
    if (r->config.age_ms == 0)
        return false;
    return retention_is_earlier(r, row) ? row->last_seq <= r->old_seq
                                        : retention_idle_ms(r, row) >= r->config.age_ms;
}

/* Whether its own time to live has passed. What cannot be read is left, for those who ask for it.
 */
static bool retention_is_over(const struct retention *r, const struct journal_row *row)
{
    struct body_terms terms = {0};
    struct arena arena;
    struct error err;
    bool is_over;

    arena_init(&arena, RETENTION_TERMS_BYTES);
    is_over = body_read_terms(&terms, row->body, row->size_bytes, &arena, &err) == STATUS_OK &&
              terms.ttl_ms != 0 && retention_idle_ms(r, row) >= terms.ttl_ms;
    arena_deinit(&arena);
    return is_over;
}

static void retention_report(struct retention *r)
{
    size_t n = 0;

    r->n_deleted[RETENTION_TTL] += r->all->n_expired;
    r->all->n_expired = 0;
    for (size_t i = 0; i < N_RETENTION_WHYS; i++)
        n += r->n_deleted[i];
    if (log_is_on(n > 0 ? LOG_INFO : LOG_DEBUG))
        log_write(n > 0 ? LOG_INFO : LOG_DEBUG, "retention", "deleted=%zu age=%zu ttl=%zu size=%zu",
                  n, r->n_deleted[RETENTION_AGE], r->n_deleted[RETENTION_TTL],
                  r->n_deleted[RETENTION_SIZE]);
    memset(r->n_deleted, 0, sizeof(r->n_deleted));
}

static void retention_end_pass(struct retention *r)
{
    ages_deinit(&r->ages);
    retention_report(r);
    r->is_passing = false;
    alarm_set(r->config.alarm, env_now_us(r->all->config.env) + RETENTION_PERIOD_US);
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
            retention_close(r, &one->id, RETENTION_SIZE);
    }
    retention_go_on(r);
}

/* Of one in memory, whose time to live has a timer. */
static bool retention_close_old(struct retention *r, struct conversation *c,
                                const struct journal_row *row)
{
    const struct conversation_id id = c->id;

    if (c->host.n_live > 0 || c->host.n_turns != row->turns ||
        c->host.generation != row->generation || !retention_is_old(r, row))
        return false;
    conversation_close(c, WATCH_EXPIRED, "it had no turn for longer than --retain-age");
    retention_count(r, &id, RETENTION_AGE);
    return true;
}

/* Looks at the rows, until enough of them are being closed. */
static void retention_look(struct retention *r, const struct journal_found *found)
{
    size_t n_closed = 0;

    for (struct link *l = list_first(&found->rows); l != NULL && n_closed < RETENTION_CLOSES;
         l = list_next(&found->rows, l)) {
        const struct journal_row *row = container_of(l, const struct journal_row, link);
        struct conversation *c;
        struct conversation_id id;

        r->place = row->place;
        if (retention_is_earlier(r, row) && row->last_unix_ms > r->newest_ms)
            r->newest_ms = row->last_unix_ms;
        memcpy(id.bytes, row->id, sizeof(id.bytes));
        c = conversations_get(r->all, &id);
        if (conversations_is_pinned(r->all, &id)) {
            continue;
        } else if (c != NULL) {
            n_closed += retention_close_old(r, c, row);
        } else if (retention_is_old(r, row) || retention_is_over(r, row)) {
            retention_close(r, &id, retention_is_old(r, row) ? RETENTION_AGE : RETENTION_TTL);
            n_closed++;
        } else if (r->config.bytes != 0) {
            retention_note(r, row);
        }
    }
}

/* Whether there may be more rows. Without memory for their ages nothing is too old. */
static bool retention_collect(struct retention *r, const struct journal_found *found)
{
    struct error err;

    for (struct link *l = list_first(&found->rows); l != NULL; l = list_next(&found->rows, l)) {
        const struct journal_row *row = container_of(l, const struct journal_row, link);

        r->place = row->place;
        if (retention_is_earlier(r, row) &&
            ages_add(&r->ages, row->last_seq, row->last_unix_ms, &err) != STATUS_OK) {
            log_warn("retention", "error=\"%s\"", err.text);
            ages_deinit(&r->ages);
            return false;
        }
    }
    return !list_is_empty(&found->rows);
}

static void retention_begin_looking(struct retention *r)
{
    r->is_collecting = false;
    r->old_seq = ages_find(&r->ages, r->config.age_ms, retention_up_ms(r));
    ages_deinit(&r->ages);
    r->place = 0;
    retention_ask(r);
}

static void on_retention_rows(void *arg, struct journal_found *found, const struct error *err)
{
    struct retention *r = arg;

    if (err->status != STATUS_OK) {
        retention_end_pass(r);
        return;
    }
    r->is_pressed = r->config.bytes != 0 && found->store_bytes > r->config.bytes;
    if (r->is_collecting) {
        if (retention_collect(r, found))
            retention_ask_on(r);
        else
            retention_begin_looking(r);
        return;
    }
    if (!list_is_empty(&found->rows)) {
        retention_look(r, found);
        retention_go_on(r);
        return;
    }
    retention_know_newest(r);
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

    r->asked_us = env_now_us(r->all->config.env);
    journal_read(r->all->keeping.journal, &r->wait, &q, on_retention_rows, r);
}

void retention_tick(void *retention)
{
    struct retention *r = retention;

    if (r->is_resting) {
        r->is_resting = false;
        retention_ask(r);
        return;
    }
    if (r->is_passing || r->all->keeping.journal == NULL || r->all->is_draining)
        return;
    r->is_passing = true;
    r->is_pressed = false;
    r->is_collecting = r->config.age_ms != 0;
    r->old_seq = r->place = 0;
    r->n_idlest = r->next_idlest = 0;
    retention_ask(r);
}

void retention_configure(struct retention *r, uint64_t age_ms, uint64_t bytes)
{
    r->config.age_ms = age_ms;
    r->config.bytes = bytes;
    if (r->all->keeping.journal != NULL && !r->is_passing)
        alarm_set(r->config.alarm, env_now_us(r->all->config.env) + RETENTION_SOON_US);
}

void retention_init(struct retention *r, struct conversations *all,
                    const struct retention_config *config)
{
    *r = (struct retention){.all = all, .config = *config};
    ages_init(&r->ages);
    retention_configure(r, config->age_ms, config->bytes);
}

void retention_stop(struct retention *r)
{
    journal_leave(&r->wait);
    ages_deinit(&r->ages);
    r->is_waiting = r->is_resting = false;
    r->is_passing = true; /* and none begins */
}
