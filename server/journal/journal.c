/* Happy path: records wait in a list. The worker gets the whole list (up to a bound) as one job:
 * one transaction, then some of the reads. Meanwhile the next records gather. So the more records
 * wait, the more share a transaction, and there is no timer. Reads wait in a list of their own, and
 * a long one is read in slices: between two transactions about JOURNAL_SLICE_BYTES are read, or
 * JOURNAL_MAX_READS begun, however many wait.
 *
 * Failure: the outcome of a failed transaction is unknown. All its records, and all that were
 * appended after it, fail, since later records may depend on earlier ones. Records that are
 * appended afterwards are tried again. Reads are answered by what there is. As long as writing
 * fails, a timer tries to write: a balancer sends no turns to a daemon that says it is degraded, so
 * no turn would try. */
#include "server/journal/journal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "base/worker.h"
#include "server/telemetry/metric.h"

enum { JOURNAL_MAX_ITEMS = 512 /* of one job */, JOURNAL_MAX_READS = 16 };
enum { JOURNAL_TIMERS = 3, JOURNAL_BEAT_MS = 200 /* at most from one beat to the next */ };
enum { JOURNAL_PAUSE_MS = 25, JOURNAL_MAX_PAUSE_MS = 400 }; /* between two reads of one item */
enum { JOURNAL_LAG_US = 5000000 /* an interval of the lag */ };
enum { JOURNAL_RETRY_MS = 1000, JOURNAL_PROBE_MS = 5000, JOURNAL_TEXT = 240 };

enum journal_item_kind { ITEM_RECORD, ITEM_SETTLE, ITEM_READ, ITEM_GIVE, ITEM_LIST, ITEM_LEND };

/* With copies of its texts and bytes behind it. */
struct journal_item {
    struct link link;
    enum journal_item_kind kind;
    struct journal_record record;
    struct journal_query query;
    struct journal_found found; /* the journal's thread fills it */
    struct error err;           /* of a read; or why the store left out this record alone */
    struct journal_wait *wait;  /* NULL: nobody waits, or no more */
    journal_done_fn done;
    journal_found_fn read_done;
    struct journal_members *members; /* of a list: the journal's thread fills it */
    journal_members_fn listed;
    struct journal_rate *rates; /* [n_rates] of a lend: the journal's thread answers them */
    size_t n_rates;
    journal_lent_fn lent;
    void *arg;
    size_t size_bytes;
    uint64_t since_us; /* of a record: when it was appended */
    bool is_read;      /* wholly: the journal's thread says so */
    bool is_unended;   /* of what is given up */
    /* Of a read whose thing another process has: when it gives up, and when it asks again. 0: it
     * has not met this. */
    uint64_t until_ms, again_ms;
    uint32_t pause_ms;
};

struct journal {
    struct worker *worker;
    struct journal_store *store; /* the worker's while is_running */
    size_t max_waiting_bytes, max_found_bytes;
    struct list waiting, reads; /* reads: those whose turn has come, in order */
    struct list patient;        /* reads whose thing another process has */
    struct list running;        /* the job's, as are those below */
    struct list reading;
    bool is_probe; /* writes nothing, to see whether it can */
    bool is_beat;  /* renews the lease first */
    const struct journal_record *records[JOURNAL_MAX_ITEMS + JOURNAL_MAX_HELD];
    size_t n_records;
    struct error err; /* of the transaction */
    struct job job;
    bool is_running, is_stopping;
    bool is_held;
    size_t n_held;             /* since journal_hold */
    struct journal_item *held; /* the last of those; NULL: none */
    struct journal_figures figures;
    char trouble[JOURNAL_TEXT]; /* why the last transaction failed; "": it did not */
    uv_timer_t probe, beat, again;
    size_t n_closed; /* of the timers */
    uint64_t probe_ms;
    bool wants_probe, wants_beat;
    void (*changed)(void *arg);
    void *changed_arg;
    struct journal_sharing sharing;
    uint64_t lease_until_us; /* of env_real: when others may take over what this process has */
    uint64_t n_beats;        /* that succeeded */
    uint64_t n_lapses;       /* times without a lease that ended */
    uint64_t lag_us[2];      /* the longest wait of a record in this interval, and the one before */
    uint64_t lag_since_us;   /* when this interval began */
    size_t n_others;         /* of the last beat, as are others */
    struct journal_peer others[JOURNAL_MAX_MEMBERS];
    char address[JOURNAL_ADDRESS_CHARS];
    bool is_address_taken; /* another process that lives has it */
    bool is_sweeping;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

static void journal_run(struct job *job)
{
    struct journal *j = container_of(job, struct journal, job);
    const struct journal_store_type *type = j->store->type;
    size_t n_bytes = 0;
    struct link *at;

    j->err = (struct error){0};
    if (j->is_beat)
        (void)type->beat(j->store, &j->err); /* it is in j->err */
    if (j->err.status == STATUS_OK && (j->n_records > 0 || j->is_probe))
        (void)type->commit(j->store, j->records, j->n_records, &j->err); /* it is in j->err */
    for (at = list_first(&j->running); at != NULL && j->err.status == STATUS_OK;
         at = list_next(&j->running, at)) {
        struct journal_item *item = container_of(at, struct journal_item, link);
        struct error ignored; /* it is asked for again */

        if (item->kind == ITEM_GIVE)
            (void)type->give(j->store, item->record.conversation, item->is_unended, &ignored);
        if (item->kind == ITEM_LIST)
            (void)type->list(j->store, item->members, &item->err); /* it is in item->err */
        if (item->kind == ITEM_LEND)
            (void)type->lend(j->store, item->rates, item->n_rates, &item->err); /* the same */
    }
    for (at = list_first(&j->reading); at != NULL && n_bytes < JOURNAL_SLICE_BYTES;
         at = list_next(&j->reading, at)) {
        struct journal_item *item = container_of(at, struct journal_item, link);
        const size_t before = item->found.size_bytes;

        item->err = (struct error){0};
        (void)type->read(j->store, &item->query, j->max_found_bytes, &item->found,
                         &item->err); /* it is in item->err */
        item->is_read = item->found.reading == NULL;
        n_bytes += item->is_read && item->found.size_bytes > before
                       ? item->found.size_bytes - before
                   : item->is_read ? 0
                                   : JOURNAL_SLICE_BYTES;
    }
}

static void journal_done(struct job *job);
static void on_journal_again(uv_timer_t *timer);

/* A read is behind what was appended before it: its turn comes with the transaction of that. */
static void journal_take(struct journal *j)
{
    bool with_next = false;
    struct link *at;

    j->n_records = 0;
    for (size_t n = 0; (with_next || n < JOURNAL_MAX_ITEMS) && (at = list_pop(&j->waiting)) != NULL;
         n++) {
        const struct journal_item *item = container_of(at, struct journal_item, link);

        with_next = item->record.with_next;
        list_push(item->kind == ITEM_READ ? &j->reads : &j->running, at);
        if (item->kind == ITEM_RECORD)
            j->records[j->n_records++] = &item->record;
    }
    for (size_t n = 0; n < JOURNAL_MAX_READS && (at = list_pop(&j->reads)) != NULL; n++)
        list_push(&j->reading, at);
}

/* The records that wait count, too: while the database is away the lag grows. */
static uint64_t journal_lag_us(const struct journal *j)
{
    const struct list *const lists[] = {&j->running, &j->waiting};
    const bool is_lately = env_now_us(&env_real) - j->lag_since_us < 2 * JOURNAL_LAG_US;
    uint64_t lag_us = !is_lately ? 0 : j->lag_us[0] > j->lag_us[1] ? j->lag_us[0] : j->lag_us[1];

    for (size_t i = 0; i < 2; i++)
        for (struct link *at = list_first(lists[i]); at != NULL; at = list_next(lists[i], at)) {
            const struct journal_item *item = container_of(at, struct journal_item, link);
            const uint64_t age_us = env_now_us(&env_real) - item->since_us;

            if (item->kind != ITEM_RECORD)
                continue;
            return age_us > lag_us ? age_us : lag_us; /* the first one is the oldest */
        }
    return lag_us;
}

static void journal_note_lag(struct journal *j, const struct journal_item *item)
{
    const uint64_t now_us = env_now_us(&env_real), age_us = now_us - item->since_us;

    if (now_us - j->lag_since_us >= JOURNAL_LAG_US) {
        j->lag_us[1] = now_us - j->lag_since_us < 2 * JOURNAL_LAG_US ? j->lag_us[0] : 0;
        j->lag_us[0] = 0;
        j->lag_since_us = now_us;
    }
    if (age_us > j->lag_us[0])
        j->lag_us[0] = age_us;
}

static void journal_begin(struct journal *j)
{
    if (j->is_running || j->is_held ||
        (list_is_empty(&j->waiting) && list_is_empty(&j->reads) && !j->wants_probe &&
         !j->wants_beat))
        return;
    j->is_probe = j->wants_probe;
    j->is_beat = j->wants_beat;
    j->wants_probe = j->wants_beat = false;
    memcpy(j->store->address, j->address, sizeof(j->address));
    j->store->is_sweeping = j->is_sweeping;
    j->store->lag_ms = (journal_lag_us(j) + 999) / 1000;
    journal_take(j);
    j->is_running = true;
    j->job = (struct job){.run = journal_run, .done = journal_done};
    worker_submit(j->worker, &j->job);
}

/* Tells the item's owner, and frees it. */
static void journal_item_end(struct journal *j, struct journal_item *item, const struct error *err)
{
    const struct error *why =
        err->status == STATUS_OK || item->kind == ITEM_READ ? &item->err : err;

    if (item->kind == ITEM_RECORD && why->status != STATUS_OK)
        j->figures.n_refused++;
    else if (item->kind == ITEM_RECORD)
        journal_note_lag(j, item);
    if (item->wait != NULL)
        item->wait->item = NULL;
    j->figures.waiting_bytes -= item->size_bytes;
    if (why->status == STATUS_DATA_LOSS)
        log_error("damaged", "error=\"%s\"", why->text);
    if (item->read_done != NULL)
        item->read_done(item->arg, &item->found, why);
    else if (item->done != NULL)
        item->done(item->arg, why);
    else if (item->listed != NULL)
        item->listed(item->arg, item->members, why);
    else if (item->lent != NULL)
        item->lent(item->arg, item->rates, item->n_rates, why);
    free(item->members);
    journal_found_deinit(&item->found);
    free(item);
}

static void on_journal_probe(uv_timer_t *timer)
{
    struct journal *j = container_of(timer, struct journal, probe);

    if (j->is_stopping)
        return;
    j->wants_probe = true;
    journal_begin(j);
}

static void on_journal_beat(uv_timer_t *timer)
{
    struct journal *j = container_of(timer, struct journal, beat);

    if (j->is_stopping)
        return;
    j->wants_beat = true;
    journal_begin(j);
}

/* After a transaction. Told and logged when it changes, not each time. */
static void journal_judge(struct journal *j, const struct error *err)
{
    const bool was_failing = j->trouble[0] != '\0', is_failing = err->status != STATUS_OK;

    (void)snprintf(j->trouble, sizeof(j->trouble), "%s", is_failing ? err->text : "");
    if (is_failing == was_failing)
        return;
    if (is_failing) {
        log_error("journal",
                  "state=failing what=\"turns are refused, what is stored is read\" "
                  "error=\"%s\"",
                  err->text);
        (void)uv_timer_start(&j->probe, on_journal_probe, j->probe_ms,
                             j->probe_ms); /* fails only without a callback */
    } else {
        log_warn("journal", "state=ok what=\"turns are stored again\"");
        (void)uv_timer_stop(&j->probe);
    }
    if (j->changed != NULL)
        j->changed(j->changed_arg);
}

bool journal_is_elsewhere(const struct journal_wait *w)
{
    return w->item != NULL && w->item->until_ms != 0;
}

/* The first of the reads that wait for another process asks again. */
static void journal_arm_again(struct journal *j)
{
    const uint64_t now_ms = uv_now(j->again.loop);
    uint64_t first_ms = UINT64_MAX;

    for (struct link *at = list_first(&j->patient); at != NULL; at = list_next(&j->patient, at)) {
        const struct journal_item *item = container_of(at, struct journal_item, link);

        if (item->again_ms < first_ms)
            first_ms = item->again_ms;
    }
    if (first_ms != UINT64_MAX)
        (void)uv_timer_start(&j->again, on_journal_again, first_ms > now_ms ? first_ms - now_ms : 0,
                             0); /* fails only without a callback */
}

static void on_journal_again(uv_timer_t *timer)
{
    struct journal *j = container_of(timer, struct journal, again);
    const uint64_t now_ms = uv_now(timer->loop);
    struct link *at, *next;

    for (at = list_first(&j->patient); at != NULL; at = next) {
        next = list_next(&j->patient, at);
        if (container_of(at, struct journal_item, link)->again_ms > now_ms && !j->is_stopping)
            continue;
        list_remove(at);
        list_push(&j->reads, at);
    }
    journal_arm_again(j);
    journal_begin(j);
}

/* Whether the read is to be asked again, later. */
static bool journal_is_patient(struct journal *j, struct journal_item *item)
{
    const uint64_t now_ms = uv_now(j->again.loop);
    const bool is_lasting = item->query.by == JOURNAL_CHECKPOINTS || item->query.by == JOURNAL_KEPT;

    if (!item->found.is_elsewhere || j->is_stopping || item->read_done == NULL ||
        item->found.owner.id[0] != '\0')
        return false;
    if (item->until_ms == 0) {
        item->until_ms = is_lasting ? UINT64_MAX : now_ms + JOURNAL_PATIENCE_MS;
        item->pause_ms = JOURNAL_PAUSE_MS / 2;
    }
    if (item->pause_ms < JOURNAL_MAX_PAUSE_MS)
        item->pause_ms *= 2;
    item->again_ms = now_ms + item->pause_ms;
    item->found.is_elsewhere = false;
    return now_ms < item->until_ms;
}

/* Those that were read are ended; the others, in their order, go before those that wait. */
static void journal_sort_reads(struct journal *j, struct list *ended)
{
    struct link *at;
    struct list rest;

    list_init(&rest);
    while ((at = list_pop(&j->reading)) != NULL) {
        struct journal_item *item = container_of(at, struct journal_item, link);

        list_push(!item->is_read ? &rest : journal_is_patient(j, item) ? &j->patient : ended, at);
    }
    journal_arm_again(j);
    list_move(&j->reads, &rest);
    list_move(&rest, &j->reads);
}

/* The lease is over here a tenth earlier than in the store: clocks differ in speed. Whether there
 * was, or may have been, a time without one: a renewal that began before the lease's end may have
 * reached the store behind it, so what counts is when its answer came. */
static bool journal_note_lease(struct journal *j)
{
    const uint64_t until_us = j->store->renewed_us + (uint64_t)j->store->lease_ms * 900;
    const bool has_lapsed = j->lease_until_us != 0 && until_us != j->lease_until_us &&
                            env_now_us(&env_real) >= j->lease_until_us;

    j->lease_until_us = until_us;
    return has_lapsed;
}

/* Whether an item was appended behind a record of its conversation that was left out, and so may
 * not end well. Who only waits does not say for which conversation. */
static bool journal_follows(const struct journal_item *item, const struct journal_item *refused)
{
    return item->kind == ITEM_SETTLE ||
           (item->kind == ITEM_RECORD && !item->record.with_next &&
            memcmp(item->record.conversation, refused->record.conversation, JOURNAL_ID_BYTES) == 0);
}

/* A record that was left out takes those along that follow from it. Returns how many of the
 * transaction were left out. */
static size_t journal_refuse(struct journal *j, struct list *ended)
{
    struct list behind;
    struct link *at, *l, *next;
    size_t n = 0;

    list_init(&behind);
    for (at = list_first(ended); at != NULL; at = list_next(ended, at)) {
        const struct journal_item *item = container_of(at, struct journal_item, link);

        if (item->kind != ITEM_RECORD || item->err.status == STATUS_OK)
            continue;
        n++;
        for (l = list_next(ended, at); l != NULL; l = list_next(ended, l)) {
            struct journal_item *later = container_of(l, struct journal_item, link);

            if (later->kind == ITEM_SETTLE)
                later->err = item->err;
        }
        for (l = list_first(&j->waiting); l != NULL; l = next) {
            struct journal_item *later = container_of(l, struct journal_item, link);

            next = list_next(&j->waiting, l);
            if (!journal_follows(later, item))
                continue;
            later->err = item->err;
            list_remove(l);
            list_push(&behind, l);
        }
    }
    while ((at = list_pop(&behind)) != NULL)
        list_push(ended, at);
    return n;
}

/* After a beat. Logged when it changes. */
static void journal_note_address(struct journal *j)
{
    const bool was_taken = j->is_address_taken;

    j->is_address_taken = j->store->address_of[0] != '\0';
    if (j->is_address_taken && !was_taken)
        log_error(
            "cluster",
            "passed_on=no address=\"%s\" of=\"%s\" what=\"another parleyd that lives has this "
            "address for other daemons: give each a --cluster-address of its own\"",
            j->address, j->store->address_of);
    else if (was_taken && !j->is_address_taken && j->address[0] != '\0')
        log_warn("cluster",
                 "passed_on=yes address=\"%s\" what=\"no other parleyd has this "
                 "address any more\"",
                 j->address);
}

static void journal_done(struct job *job)
{
    struct journal *j = container_of(job, struct journal, job);
    const struct error err = j->err;
    const bool has_written = j->n_records > 0 || j->is_probe || j->is_beat;
    uint8_t wanted[JOURNAL_MAX_WANTED][JOURNAL_ID_BYTES]; /* as the store is the thread's below */
    struct journal_orphan orphans[JOURNAL_MAX_SWEPT];
    size_t n_wanted = 0, n_orphans = 0, n_refused;
    bool has_lapsed = false;
    struct list ended;
    struct link *at, *next;

    list_init(&ended);
    list_move(&j->running, &ended);
    journal_sort_reads(j, &ended);
    j->is_running = false;
    if (j->is_beat && j->sharing.wanted != NULL && err.status == STATUS_OK && !j->is_stopping) {
        n_wanted = j->store->n_wanted;
        memcpy(wanted, j->store->wanted, n_wanted * sizeof(wanted[0]));
        n_orphans = j->store->n_orphans;
        memcpy(orphans, j->store->orphans, n_orphans * sizeof(orphans[0]));
        j->n_beats++;
        j->n_others = j->store->n_others;
        memcpy(j->others, j->store->others, sizeof(j->others));
        journal_note_address(j);
    }
    if (j->store->type->beat != NULL)
        has_lapsed = journal_note_lease(j);
    j->figures.n_transactions += j->n_records > 0;
    n_refused = err.status == STATUS_OK ? journal_refuse(j, &ended) : 0;
    if (n_refused > 0)
        log_warn("journal", "refused=%zu what=\"another parleyd has what was to be stored\"",
                 n_refused);
    if (err.status == STATUS_OK)
        j->figures.n_records += j->n_records - n_refused;
    else
        j->figures.n_failed++;
    /* What is told may append more, which is not behind the failure. */
    for (at = list_first(&j->waiting); err.status != STATUS_OK && at != NULL; at = next) {
        next = list_next(&j->waiting, at);
        list_remove(at);
        list_push(container_of(at, struct journal_item, link)->kind == ITEM_READ ? &j->reads
                                                                                 : &ended,
                  at);
    }
    /* Before anybody is told: the disk works while the loop does. */
    journal_begin(j);
    j->n_lapses += has_lapsed;
    if (has_lapsed && j->sharing.lapsed != NULL)
        j->sharing.lapsed(j->sharing.arg);
    if (has_written)
        journal_judge(j, &err);
    while ((at = list_pop(&ended)) != NULL)
        journal_item_end(j, container_of(at, struct journal_item, link), &err);
    for (size_t i = 0; i < n_wanted; i++)
        j->sharing.wanted(j->sharing.arg, wanted[i]);
    for (size_t i = 0; i < n_orphans && j->is_sweeping; i++)
        j->sharing.orphan(j->sharing.arg, &orphans[i]);
    journal_begin(j);
    if (j->is_stopping && !j->is_running)
        journal_stop(j, j->stopped, j->stopped_arg);
}

/* --- what is appended --- */

static size_t text_size(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

/* Copies bytes to *at, and moves that on. NULL stays NULL. */
static const void *journal_copy(char **at, const void *bytes, size_t size_bytes)
{
    char *to = *at;

    if (bytes == NULL)
        return NULL;
    if (size_bytes > 0)
        memcpy(to, bytes, size_bytes);
    *at += size_bytes;
    return to;
}

/* Its owner has one in flight and holds the same bytes itself. A refusal would have the checkpoint
 * begun anew, for as long as much waits. */
static bool is_of_checkpoint(const struct journal_record *r)
{
    return r->kind == JOURNAL_BLOCK || r->kind == JOURNAL_CHECKPOINT || r->kind == JOURNAL_KEEP;
}

enum status journal_append(struct journal *j, const struct journal_record *r, journal_done_fn done,
                           void *arg, struct error *err)
{
    size_t size_bytes = sizeof(struct journal_item) + r->size_bytes + text_size(r->principal) +
                        text_size(r->request_id) + text_size(r->name) + text_size(r->model) +
                        (r->parent == NULL ? 0 : JOURNAL_ID_BYTES) + text_size(r->key) +
                        r->key_size_bytes;
    struct journal_item *item = NULL;
    char *at;

    assert(!j->is_stopping);
    if (is_of_checkpoint(r) || size_bytes + j->figures.waiting_bytes <= j->max_waiting_bytes)
        item = try_alloc(1, size_bytes);
    if (item == NULL) {
        j->figures.n_refused++;
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                            "the journal is behind: %zu bytes wait to be written",
                            j->figures.waiting_bytes);
        err->retry_after_ms = JOURNAL_RETRY_MS;
        return STATUS_UNAVAILABLE;
    }
    at = (char *)(item + 1);
    item->kind = ITEM_RECORD;
    item->since_us = env_now_us(&env_real);
    item->done = done;
    item->arg = arg;
    item->size_bytes = size_bytes;
    journal_found_init(&item->found);
    item->record = *r;
    item->record.refusal = &item->err;
    item->record.with_next = false;
    item->record.body = journal_copy(&at, r->body, r->size_bytes);
    item->record.principal = journal_copy(&at, r->principal, text_size(r->principal));
    item->record.request_id = journal_copy(&at, r->request_id, text_size(r->request_id));
    item->record.name = journal_copy(&at, r->name, text_size(r->name));
    item->record.model = journal_copy(&at, r->model, text_size(r->model));
    item->record.parent = journal_copy(&at, r->parent, JOURNAL_ID_BYTES);
    item->record.key = journal_copy(&at, r->key, text_size(r->key));
    item->record.key_body = journal_copy(&at, r->key_body, r->key_size_bytes);
    j->figures.waiting_bytes += size_bytes;
    list_push(&j->waiting, &item->link);
    if (j->is_held) {
        assert(j->n_held < JOURNAL_MAX_HELD);
        if (j->held != NULL)
            j->held->record.with_next = true;
        j->held = item;
        j->n_held++;
    }
    journal_begin(j);
    return STATUS_OK;
}

void journal_hold(struct journal *j)
{
    assert(!j->is_held);
    j->is_held = true;
}

void journal_release(struct journal *j)
{
    j->is_held = false;
    j->held = NULL;
    j->n_held = 0;
    journal_begin(j);
}

void journal_drop(struct journal *j)
{
    for (; j->n_held > 0; j->n_held--) {
        struct link *last = list_last(&j->waiting);
        struct journal_item *item = container_of(last, struct journal_item, link);

        list_remove(last);
        j->figures.waiting_bytes -= item->size_bytes;
        journal_found_deinit(&item->found);
        free(item);
    }
    journal_release(j);
}

/* A small item, which no bound refuses: its owner has a request in flight, of which there are not
 * without bound. */
static struct journal_item *journal_wait(struct journal *j, struct journal_wait *w,
                                         enum journal_item_kind kind, size_t n_texts, void *arg)
{
    struct journal_item *item = xalloc(sizeof(*item) + n_texts);

    assert(!j->is_stopping && w->item == NULL);
    item->kind = kind;
    item->wait = w;
    item->arg = arg;
    item->size_bytes = sizeof(*item) + n_texts;
    journal_found_init(&item->found);
    j->figures.waiting_bytes += item->size_bytes;
    list_push(&j->waiting, &item->link);
    w->item = item;
    return item;
}

void journal_settle(struct journal *j, struct journal_wait *w, journal_done_fn done, void *arg)
{
    journal_wait(j, w, ITEM_SETTLE, 0, arg)->done = done;
    journal_begin(j);
}

void journal_read(struct journal *j, struct journal_wait *w, const struct journal_query *q,
                  journal_found_fn done, void *arg)
{
    struct journal_item *item =
        journal_wait(j, w, ITEM_READ, text_size(q->principal) + text_size(q->text), arg);
    char *at = (char *)(item + 1);

    item->read_done = done;
    item->query = *q;
    item->query.principal = journal_copy(&at, q->principal, text_size(q->principal));
    item->query.text = journal_copy(&at, q->text, text_size(q->text));
    journal_begin(j);
}

void journal_share(struct journal *j, const struct journal_sharing *sharing)
{
    j->sharing = *sharing;
}

bool journal_has_lease(const struct journal *j)
{
    return j->store->type->beat == NULL || env_now_us(&env_real) < j->lease_until_us;
}

void journal_set_address(struct journal *j, const char *address)
{
    const bool is_fit = strlen(address) < sizeof(j->address);

    (void)snprintf(j->address, sizeof(j->address), "%s", is_fit ? address : "");
    j->wants_beat = j->store->type->beat != NULL;
    journal_begin(j);
}

void journal_set_sweeping(struct journal *j, bool is_sweeping)
{
    j->is_sweeping = is_sweeping;
}

const char *journal_self(const struct journal *j)
{
    return j->store->self; /* no use of the store changes it */
}

size_t journal_n_others(const struct journal *j)
{
    return j->n_others;
}

uint64_t journal_n_beats(const struct journal *j)
{
    return j->n_beats;
}

uint64_t journal_n_lapses(const struct journal *j)
{
    return j->n_lapses;
}

bool journal_has_other(const struct journal *j, const char *id)
{
    for (size_t i = 0; i < j->n_others && i < JOURNAL_MAX_MEMBERS; i++)
        if (strcmp(j->others[i].id, id) == 0)
            return true;
    return j->n_others > JOURNAL_MAX_MEMBERS; /* it may be one of the rest */
}

const struct journal_peer *journal_other(const struct journal *j, size_t i)
{
    return i < j->n_others && i < JOURNAL_MAX_MEMBERS ? &j->others[i] : NULL;
}

bool journal_is_shared(const struct journal *j)
{
    return j != NULL && j->store->type->beat != NULL;
}

void journal_give(struct journal *j, const uint8_t *id, bool is_unended)
{
    struct journal_wait wait = {NULL};
    struct journal_item *item = journal_wait(j, &wait, ITEM_GIVE, 0, NULL);

    item->wait = NULL; /* nobody is told */
    item->is_unended = is_unended;
    memcpy(item->record.conversation, id, JOURNAL_ID_BYTES);
    journal_begin(j);
}

void journal_list_members(struct journal *j, struct journal_wait *w, journal_members_fn done,
                          void *arg)
{
    struct journal_item *item = journal_wait(j, w, ITEM_LIST, 0, arg);

    assert(j->store->type->list != NULL);
    item->members = xalloc(sizeof(*item->members));
    item->listed = done;
    journal_begin(j);
}

void journal_lend(struct journal *j, struct journal_wait *w, const struct journal_rate *rows,
                  size_t n, journal_lent_fn done, void *arg)
{
    struct journal_item *item = journal_wait(j, w, ITEM_LEND, n * sizeof(rows[0]), arg);

    assert(j->store->type->lend != NULL);
    item->rates = (struct journal_rate *)(item + 1);
    item->n_rates = n;
    item->lent = done;
    memcpy(item->rates, rows, n * sizeof(rows[0]));
    journal_begin(j);
}

void journal_leave(struct journal_wait *w)
{
    if (w->item == NULL)
        return;
    w->item->wait = NULL;
    w->item->done = NULL;
    w->item->read_done = NULL;
    w->item->listed = NULL;
    w->item->lent = NULL;
    w->item = NULL;
}

void journal_read_figures(const struct journal *j, struct journal_figures *out)
{
    *out = j->figures;
}

void journal_metrics(const struct journal *j, struct buf *out)
{
    static const struct metric_row rows[] = {
        METRIC("gauge", "parley_journal_waiting_bytes",
               "Records that are not durable yet; from 64 MiB on turns are refused.",
               journal_figures, waiting_bytes),
        METRIC("counter", "parley_journal_records_total", "Records that are durable.",
               journal_figures, n_records),
        METRIC("counter", "parley_journal_transactions_total",
               "Transactions, the failed ones too: records that came together share one.",
               journal_figures, n_transactions),
        METRIC("counter", "parley_journal_failed_total", "Transactions that failed.",
               journal_figures, n_failed),
        METRIC("counter", "parley_journal_refused_total",
               "Records that were not stored: turns and changes that were refused.",
               journal_figures, n_refused),
    };

    if (j == NULL)
        return;
    METRIC_ROWS(out, rows, &j->figures);
    metric_one(out, "parley_journal_failing", "gauge",
               "1 while nothing can be stored: turns are refused, what is stored is read.",
               journal_trouble(j) == NULL ? 0 : 1);
    metric_one(out, "parley_journal_lag_seconds", "gauge",
               "The longest wait of a record to be durable, in the last 5 to 10 seconds.",
               (double)journal_lag_us(j) / 1e6);
}

const char *journal_trouble(const struct journal *j)
{
    return j == NULL || j->trouble[0] == '\0' ? NULL : j->trouble;
}

const uint8_t *journal_secret(const struct journal *j)
{
    return j->store->secret;
}

/* --- life --- */

static size_t journal_or_default(size_t value, size_t otherwise)
{
    return value == 0 ? otherwise : value;
}

enum status journal_open(struct journal **out, uv_loop_t *loop, const struct journal_config *config,
                         struct error *err)
{
    const struct journal_store_type *type = config->type == NULL ? &journal_sqlite : config->type;
    struct journal *j = xalloc(sizeof(*j));
    uv_timer_t *timers[JOURNAL_TIMERS];
    enum status rc;

    list_init(&j->waiting);
    list_init(&j->running);
    list_init(&j->reads);
    list_init(&j->patient);
    list_init(&j->reading);
    j->changed = config->changed;
    j->changed_arg = config->changed_arg;
    j->probe_ms = config->probe_ms == 0 ? JOURNAL_PROBE_MS : config->probe_ms;
    j->max_waiting_bytes = journal_or_default(config->max_waiting_bytes, (size_t)64 << 20);
    j->max_found_bytes = journal_or_default(config->max_found_bytes, (size_t)1 << 30);
    rc = type->open(&j->store, config->dir, err);
    if (rc == STATUS_OK)
        rc = worker_start(&j->worker, loop, "journal", err);
    if (rc != STATUS_OK) {
        if (j->store != NULL)
            type->close(j->store);
        free(j);
        return rc;
    }
    timers[0] = &j->probe;
    timers[1] = &j->beat;
    timers[2] = &j->again;
    for (size_t i = 0; i < JOURNAL_TIMERS; i++) {
        (void)uv_timer_init(loop, timers[i]); /* cannot fail */
        uv_unref((uv_handle_t *)timers[i]);
        timers[i]->data = j;
    }
    if (config->lease_ms != 0)
        j->store->lease_ms = config->lease_ms;
    (void)journal_note_lease(j);
    if (type->beat != NULL)
        (void)uv_timer_start(&j->beat, on_journal_beat, 0,
                             j->store->lease_ms / 3 < JOURNAL_BEAT_MS
                                 ? j->store->lease_ms / 3
                                 : JOURNAL_BEAT_MS); /* fails only without a callback */
    if (j->store->is_read_only) {                    /* says why, at once */
        j->wants_probe = true;
        journal_begin(j);
    }
    *out = j;
    return STATUS_OK;
}

static void on_journal_closed(uv_handle_t *handle)
{
    struct journal *j = handle->data;
    void (*stopped)(void *arg) = j->stopped;
    void *stopped_arg = j->stopped_arg;

    if (++j->n_closed < JOURNAL_TIMERS)
        return;
    j->store->type->close(j->store);
    free(j);
    stopped(stopped_arg);
}

static void on_journal_stopped(void *arg)
{
    struct journal *j = arg;

    uv_close((uv_handle_t *)&j->probe, on_journal_closed);
    uv_close((uv_handle_t *)&j->beat, on_journal_closed);
    uv_close((uv_handle_t *)&j->again, on_journal_closed);
}

void journal_stop(struct journal *j, void (*stopped)(void *arg), void *arg)
{
    if (j == NULL)
        return;
    j->is_stopping = true;
    j->stopped = stopped;
    j->stopped_arg = arg;
    if (!list_is_empty(&j->patient))
        on_journal_again(&j->again); /* the last time */
    if (!j->is_running)
        worker_stop(j->worker, on_journal_stopped, j);
}
