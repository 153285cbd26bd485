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
#include "base/log.h"
#include "base/worker.h"
#include "server/telemetry/metric.h"

enum { JOURNAL_MAX_ITEMS = 512 /* of one job */, JOURNAL_MAX_READS = 16 };
enum { JOURNAL_RETRY_MS = 1000, JOURNAL_PROBE_MS = 5000, JOURNAL_TEXT = 240 };

enum journal_item_kind { ITEM_RECORD, ITEM_SETTLE, ITEM_READ };

/* With copies of its texts and bytes behind it. */
struct journal_item {
    struct link link;
    enum journal_item_kind kind;
    struct journal_record record;
    struct journal_query query;
    struct journal_found found; /* the journal's thread fills it */
    struct error err;           /* of a read */
    struct journal_wait *wait;  /* NULL: nobody waits, or no more */
    journal_done_fn done;
    journal_found_fn read_done;
    void *arg;
    size_t size_bytes;
    bool with_next; /* in one transaction with what comes behind it */
    bool is_read;   /* wholly: the journal's thread says so */
};

struct journal {
    struct worker *worker;
    struct journal_store *store; /* the worker's while is_running */
    size_t max_waiting_bytes, max_found_bytes;
    struct list waiting, reads; /* reads: those whose turn has come, in order */
    struct list running;        /* the job's, as are those below */
    struct list reading;
    bool is_probe; /* writes nothing, to see whether it can */
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
    uv_timer_t probe;
    uint64_t probe_ms;
    bool wants_probe;
    void (*changed)(void *arg);
    void *changed_arg;
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
    if (j->n_records > 0 || j->is_probe)
        (void)type->commit(j->store, j->records, j->n_records, &j->err); /* it is in j->err */
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

/* A read is behind what was appended before it: its turn comes with the transaction of that. */
static void journal_take(struct journal *j)
{
    bool with_next = false;
    struct link *at;

    j->n_records = 0;
    for (size_t n = 0; (with_next || n < JOURNAL_MAX_ITEMS) && (at = list_pop(&j->waiting)) != NULL;
         n++) {
        const struct journal_item *item = container_of(at, struct journal_item, link);

        with_next = item->with_next;
        list_push(item->kind == ITEM_READ ? &j->reads : &j->running, at);
        if (item->kind == ITEM_RECORD)
            j->records[j->n_records++] = &item->record;
    }
    for (size_t n = 0; n < JOURNAL_MAX_READS && (at = list_pop(&j->reads)) != NULL; n++)
        list_push(&j->reading, at);
}

static void journal_begin(struct journal *j)
{
    if (j->is_running || j->is_held ||
        (list_is_empty(&j->waiting) && list_is_empty(&j->reads) && !j->wants_probe))
        return;
    j->is_probe = j->wants_probe;
    j->wants_probe = false;
    journal_take(j);
    j->is_running = true;
    j->job = (struct job){.run = journal_run, .done = journal_done};
    worker_submit(j->worker, &j->job);
}

/* Tells the item's owner, and frees it. */
static void journal_item_end(struct journal *j, struct journal_item *item, const struct error *err)
{
    const struct error *why = item->kind == ITEM_READ ? &item->err : err;

    if (item->kind == ITEM_RECORD && err->status != STATUS_OK)
        j->figures.n_refused++;
    if (item->wait != NULL)
        item->wait->item = NULL;
    j->figures.waiting_bytes -= item->size_bytes;
    if (why->status == STATUS_DATA_LOSS)
        log_error("damaged", "error=\"%s\"", why->text);
    if (item->read_done != NULL)
        item->read_done(item->arg, &item->found, why);
    else if (item->done != NULL)
        item->done(item->arg, why);
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

/* Those that were read are ended; the others, in their order, go before those that wait. */
static void journal_sort_reads(struct journal *j, struct list *ended)
{
    struct link *at;
    struct list rest;

    list_init(&rest);
    while ((at = list_pop(&j->reading)) != NULL)
        list_push(container_of(at, struct journal_item, link)->is_read ? ended : &rest, at);
    list_move(&j->reads, &rest);
    list_move(&rest, &j->reads);
}

static void journal_done(struct job *job)
{
    struct journal *j = container_of(job, struct journal, job);
    const struct error err = j->err;
    const bool has_written = j->n_records > 0 || j->is_probe;
    struct list ended;
    struct link *at, *next;

    list_init(&ended);
    list_move(&j->running, &ended);
    journal_sort_reads(j, &ended);
    j->is_running = false;
    j->figures.n_transactions += j->n_records > 0;
    if (err.status == STATUS_OK)
        j->figures.n_records += j->n_records;
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
    if (has_written)
        journal_judge(j, &err);
    while ((at = list_pop(&ended)) != NULL)
        journal_item_end(j, container_of(at, struct journal_item, link), &err);
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
    item->done = done;
    item->arg = arg;
    item->size_bytes = size_bytes;
    journal_found_init(&item->found);
    item->record = *r;
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
            j->held->with_next = true;
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

void journal_leave(struct journal_wait *w)
{
    if (w->item == NULL)
        return;
    w->item->wait = NULL;
    w->item->done = NULL;
    w->item->read_done = NULL;
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
    enum status rc;

    list_init(&j->waiting);
    list_init(&j->running);
    list_init(&j->reads);
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
    (void)uv_timer_init(loop, &j->probe); /* cannot fail */
    uv_unref((uv_handle_t *)&j->probe);
    if (j->store->is_read_only) { /* says why, at once */
        j->wants_probe = true;
        journal_begin(j);
    }
    *out = j;
    return STATUS_OK;
}

static void on_journal_closed(uv_handle_t *handle)
{
    struct journal *j = container_of((uv_timer_t *)handle, struct journal, probe);
    void (*stopped)(void *arg) = j->stopped;
    void *stopped_arg = j->stopped_arg;

    j->store->type->close(j->store);
    free(j);
    stopped(stopped_arg);
}

static void on_journal_stopped(void *arg)
{
    struct journal *j = arg;

    uv_close((uv_handle_t *)&j->probe, on_journal_closed);
}

void journal_stop(struct journal *j, void (*stopped)(void *arg), void *arg)
{
    if (j == NULL)
        return;
    j->is_stopping = true;
    j->stopped = stopped;
    j->stopped_arg = arg;
    if (!j->is_running)
        worker_stop(j->worker, on_journal_stopped, j);
}
