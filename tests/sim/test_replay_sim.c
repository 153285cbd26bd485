/* A table of Replay and its checkpoints under a clock turned by hand: actors insert and learners
 * sample, wait, are late and leave; batches' priorities come late, twice and out of order; the
 * journal is slow, fails, and what failed may be written; and the daemon is killed, with any part
 * of what it had appended written, stopped, and started again. Each seed is one schedule. Every
 * wait ends once; nobody waits who may go on; priorities reach the item that was drawn, or none;
 * what a checkpoint was answered for is there after a kill, and after a stop all is. --seed N
 * replays one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/replay/replays.h"
#include "tests/support/sim.h"

enum { N_EVENTS = 300, N_WAITS = 6, N_BATCHES = 8, MAX_BATCH = 4, MAX_X = 2 * N_EVENTS };

/* --- the journal --- */

/* An appended record, or a read: what is called when its turn comes. */
struct sim_record {
    struct link link;
    struct journal_record record; /* kind 0: a read */
    struct journal_query query;
    char *body, *name;
    journal_done_fn done;
    journal_found_fn read_done;
    struct journal_wait *wait;
    void *arg;
};

/* What is written: a block, or a thing that is kept. */
struct sim_row {
    struct link link;
    enum journal_kind kind;
    uint8_t id[JOURNAL_ID_BYTES];
    uint32_t number, n_blocks;
    char *body;
    size_t size_bytes;
};

struct sim_waiter {
    struct table_wait wait;
    bool waits;
    uint64_t until_us;
};

struct sim_batch {
    uint64_t epoch, keys[MAX_BATCH], x[MAX_BATCH];
    size_t n;
};

static struct world {
    struct alarm alarm;
    struct list queue, rows; /* of struct sim_record; of struct sim_row */
    struct replays all;
    struct table *t; /* NULL: there is none */
    struct sim_waiter waiters[N_WAITS];
    struct sim_batch batches[N_BATCHES];
    struct kept_wait checkpoint;
    bool waits_for_checkpoint;
    uint64_t asked_x; /* below it all was inserted when the checkpoint was asked for */
    uint64_t must_x;  /* below it all must be there after a kill, where nothing is removed */
    uint64_t next_x;
    bool is_unbounded, has_faults, is_idle;
    uint64_t n_kills, n_stops, n_checkpoints, n_late, n_sampled, n_stale, n_applied, n_read;
} s;

static const struct principal sim_owner = {.id = 1, .name = "ann"};

static char *copied(const void *bytes, size_t size_bytes)
{
    char *copy = xalloc(size_bytes + 1);

    if (size_bytes > 0)
        memcpy(copy, bytes, size_bytes);
    return copy;
}

/* These three stand in for server/journal/journal.c. */
enum status journal_append(struct journal *j, const struct journal_record *r, journal_done_fn done,
                           void *arg, struct error *err)
{
    struct sim_record *record;

    if (s.has_faults && pick(20) == 0)
        return error_set(err, STATUS_UNAVAILABLE, "the journal is behind");
    record = xalloc(sizeof(*record));
    *record = (struct sim_record){.record = *r, .done = done, .arg = arg};
    record->record.body = record->body = copied(r->body, r->size_bytes);
    list_push(&s.queue, &record->link);
    return STATUS_OK;
}

void journal_read(struct journal *j, struct journal_wait *w, const struct journal_query *q,
                  journal_found_fn done, void *arg)
{
    struct sim_record *record = xalloc(sizeof(*record));

    *record = (struct sim_record){.query = *q, .read_done = done, .wait = w, .arg = arg};
    w->item = (struct journal_item *)(void *)record;
    list_push(&s.queue, &record->link);
}

void journal_leave(struct journal_wait *w)
{
    struct sim_record *record = (struct sim_record *)(void *)w->item;

    w->item = NULL;
    if (record == NULL)
        return;
    record->read_done = NULL;
    record->wait = NULL;
}

static void row_remove(struct sim_row *row)
{
    list_remove(&row->link);
    free(row->body);
    free(row);
}

/* The kind's rows: with this id, or, where others is set, without it. number: of one block. */
static void rows_remove(enum journal_kind kind, const uint8_t *id, bool others, int64_t number)
{
    struct link *l, *next;

    for (l = list_first(&s.rows); l != NULL; l = next) {
        struct sim_row *row = container_of(l, struct sim_row, link);

        next = list_next(&s.rows, l);
        if (row->kind == kind && (memcmp(row->id, id, sizeof(row->id)) == 0) != others &&
            (number < 0 || row->number == (uint64_t)number))
            row_remove(row);
    }
}

static void row_write(const struct journal_record *r)
{
    struct sim_row *row;

    if (r->kind == JOURNAL_BLOCK) {
        rows_remove(JOURNAL_BLOCK, r->conversation, false, r->turn);
    } else { /* there is one table */
        rows_remove(JOURNAL_KEEP, r->conversation, true, -1);
        rows_remove(JOURNAL_KEEP, r->conversation, false, -1);
        rows_remove(JOURNAL_BLOCK, r->conversation, r->kind == JOURNAL_KEEP, -1);
    }
    if (r->kind == JOURNAL_FORGET) {
        rows_remove(JOURNAL_BLOCK, r->conversation, true, -1);
        return;
    }
    row = xalloc(sizeof(*row));
    *row = (struct sim_row){.kind = r->kind,
                            .number = r->turn,
                            .n_blocks = r->turn,
                            .body = copied(r->body, r->size_bytes),
                            .size_bytes = r->size_bytes};
    memcpy(row->id, r->conversation, sizeof(row->id));
    list_push(&s.rows, &row->link);
}

static void record_free(struct sim_record *record)
{
    free(record->body);
    free(record);
}

static void record_read(struct sim_record *record)
{
    const struct journal_query *q = &record->query;
    const struct error ok = {0};
    struct journal_found found;
    struct error err;

    if (record->read_done == NULL)
        return;
    record->wait->item = NULL;
    journal_found_init(&found);
    for (struct link *l = list_first(&s.rows); l != NULL; l = list_next(&s.rows, l)) {
        const struct sim_row *row = container_of(l, struct sim_row, link);
        struct journal_event *e;

        if (q->by == JOURNAL_KEPT ? row->kind != JOURNAL_KEEP
                                  : row->kind != JOURNAL_BLOCK || row->number != q->number ||
                                        memcmp(row->id, q->id, sizeof(q->id)) != 0)
            continue;
        MUST(journal_found_add(&e, &found, row->size_bytes, &err) == STATUS_OK);
        e->kind = row->kind;
        e->turn = row->n_blocks;
        memcpy(e->body, row->body, row->size_bytes);
    }
    record->read_done(record->arg, &found, &ok);
    journal_found_deinit(&found);
}

/* The next in line is written, or read; or it fails, and with it all behind it, as the journal's
 * own do: it may be written all the same. */
static void disk_go_on(void)
{
    const bool has_failed = s.has_faults && pick(15) == 0;
    struct error err = {0};
    struct list ended;
    struct link *l;

    if (list_is_empty(&s.queue))
        return;
    list_init(&ended);
    if (has_failed)
        (void)error_set(&err, STATUS_UNAVAILABLE, "the disk has failed");
    do {
        l = list_pop(&s.queue);
        list_push(&ended, l);
    } while (has_failed && container_of(l, struct sim_record, link)->record.kind != 0 &&
             !list_is_empty(&s.queue));
    for (bool is_written = !has_failed || pick(2) == 0; (l = list_pop(&ended)) != NULL;) {
        struct sim_record *record = container_of(l, struct sim_record, link);

        if (record->record.kind == 0) {
            record_read(record);
        } else {
            if (is_written)
                row_write(&record->record);
            if (record->done != NULL)
                record->done(record->arg, &err);
        }
        record_free(record);
    }
}

/* --- clients --- */

static uint64_t item_x(uint32_t slot)
{
    size_t n;
    const struct table_slice *slices = table_slices(s.t, slot, &n);
    uint64_t x;

    memcpy(&x, slices[0].chunk->data + slices[0].first * sizeof(x), sizeof(x));
    return x;
}

static void client_insert(void)
{
    const double priority = pick(10);
    struct table_chunk *c;
    struct error err;
    uint64_t key;

    MUST(table_chunk_make(&c, s.t, 1, &err) == STATUS_OK);
    memcpy(c->data, &s.next_x, sizeof(s.next_x));
    s.next_x++; /* before those that wait go on */
    MUST(table_insert(s.t, &(struct table_slice){c, 0, 1}, 1, &priority, &key, &err) == STATUS_OK);
    table_chunk_unref(c);
}

static void client_sample(size_t n)
{
    struct sim_batch *b = &s.batches[pick(N_BATCHES)];
    struct table_draw draws[MAX_BATCH];

    MUST(s.t->order.n >= s.t->config.limiter.min_size);
    table_sample(s.t, draws, n);
    *b = (struct sim_batch){.epoch = s.t->epoch, .n = n};
    for (size_t i = 0; i < n; i++) {
        b->keys[i] = draws[i].key;
        b->x[i] = item_x(draws[i].slot);
        MUST(b->x[i] < s.next_x && draws[i].probability > 0.0);
    }
    table_release(s.t, draws, n);
    s.n_sampled++;
}

/* Of any batch that there was, also twice. */
static void client_update(void)
{
    const struct sim_batch *b = &s.batches[pick(N_BATCHES)];
    double priorities[MAX_BATCH];
    size_t n_applied, n_there = 0;
    struct error err;

    for (size_t i = 0; i < b->n; i++) {
        const uint32_t slot = (uint32_t)b->keys[i];
        const struct table_item *item = slot < s.t->n_used ? &s.t->items[slot] : NULL;

        priorities[i] = pick(100);
        if (b->epoch != s.t->epoch || item == NULL || item->n_slices == 0 || item->is_out ||
            item->generation != b->keys[i] >> 32)
            continue;
        MUST(item_x(slot) == b->x[i]);
        n_there++;
    }
    MUST(table_update(s.t, b->epoch, b->keys, priorities, b->n, &n_applied, &err) == STATUS_OK);
    MUST(n_applied == n_there);
    s.n_applied += n_applied;
    s.n_stale += b->n > 0 && b->epoch != s.t->epoch;
}

static void client_go_on(struct sim_waiter *w)
{
    if (w->wait.is_insert)
        client_insert();
    else
        client_sample(w->wait.n_samples);
}

static void on_waited(struct future *f, const struct error *why, void *arg)
{
    struct sim_waiter *w = arg;

    MUST(w->waits); /* ends once */
    w->waits = false;
    if (why->status == STATUS_OK) {
        client_go_on(w);
        return;
    }
    MUST(why->status == STATUS_DEADLINE && sim.now_us >= w->until_us);
    s.n_late++;
}

static void client_begin(struct sim_waiter *w)
{
    const uint32_t timeout_ms = pick(3) == 0 ? 1 + pick(20) : 0;

    w->wait = (struct table_wait){.is_insert = pick(2) == 0, .n_samples = 1 + pick(MAX_BATCH)};
    if (w->wait.is_insert ? table_allows_insert(s.t)
                          : table_allows_sample(s.t, w->wait.n_samples)) {
        client_go_on(w);
        return;
    }
    w->waits = true;
    w->until_us = timeout_ms == 0 ? UINT64_MAX : sim.now_us + timeout_ms * UINT64_C(1000);
    replays_wait(&s.all, s.t, &w->wait, timeout_ms, on_waited, w);
}

/* A client is gone, with its call. */
static void client_leave(struct sim_waiter *w)
{
    if (!w->waits)
        return;
    w->waits = false;
    table_leave(&w->wait);
}

static void check_waits(void)
{
    size_t n_heads = 0;

    for (size_t i = 0; i < N_WAITS; i++) {
        const struct sim_waiter *w = &s.waiters[i];

        if (!w->waits)
            continue;
        MUST(w->until_us > sim.now_us);
        if (list_first(w->wait.is_insert ? &s.t->inserters : &s.t->samplers) != &w->wait.link)
            continue;
        n_heads++;
        MUST(w->wait.is_insert
                 ? !limiter_allows_insert(&s.t->limiter, s.t->order.n)
                 : !limiter_allows_sample(&s.t->limiter, s.t->order.n, w->wait.n_samples));
    }
    MUST(n_heads < 2); /* inserts and samples never wait for each other */
}

static void on_checkpoint(struct kept_wait *w, const struct error *err)
{
    MUST(s.waits_for_checkpoint);
    s.waits_for_checkpoint = false;
    if (err->status != STATUS_OK)
        return;
    s.n_checkpoints++;
    s.must_x = s.asked_x > s.must_x ? s.asked_x : s.must_x;
}

static void client_checkpoint(void)
{
    struct error err;

    if (s.waits_for_checkpoint)
        return;
    s.checkpoint = (struct kept_wait){.done = on_checkpoint};
    s.waits_for_checkpoint = true;
    s.asked_x = s.next_x;
    MUST(kept_settle(&s.all.keeper, &s.t->kept, &s.checkpoint, &err) == STATUS_OK);
}

/* --- the daemon --- */

static void tick(void)
{
    if (s.alarm.at_us != 0 && s.alarm.at_us <= sim.now_us)
        alarm_ring(&s.alarm);
}

static const struct principal *find_owner(void *self, const char *name)
{
    return strcmp(name, sim_owner.name) == 0 ? &sim_owner : NULL;
}

static void on_idle(void *self)
{
    s.is_idle = true;
}

static void table_make(void)
{
    static const struct table_column column = {.name = "x", .type = TENSOR_I64, .step_bytes = 8};
    const struct table_config config = {
        .max_items = s.is_unbounded ? MAX_X : 5 + pick(20),
        .max_bytes = 1 << 20,
        .sampler = pick(2) == 0 ? SELECTOR_UNIFORM : SELECTOR_PRIORITIZED,
        .remover = pick(2) == 0 ? SELECTOR_FIFO : SELECTOR_UNIFORM,
        .alpha = 0.6,
        .epsilon = 0.01,
        .limiter = {1 + pick(5), 1 + pick(3), -4, 8 + pick(8)},
        .seed = sim.seed,
        .columns = &column,
        .n_columns = 1,
    };
    struct error err;

    MUST(replays_make(&s.t, &s.all, &sim_owner, "t", &config, &(struct access_sharing){0}, &err) ==
         STATUS_OK);
}

/* What there is was inserted, each once, and the oldest first. */
static void check_items(void)
{
    uint64_t before = 0;
    size_t n = 0;

    for (uint32_t slot = s.t->order.oldest; slot != SELECTOR_NONE;
         slot = selector_next(&s.t->order, SELECTOR_FIFO, slot)) {
        const uint64_t x = item_x(slot);

        MUST(x < s.next_x && (n == 0 || x > before));
        before = x;
        n++;
    }
    MUST(n == s.t->order.n && n <= s.t->config.max_items);
    MUST(s.t->limiter.n_inserted >= n || !s.is_unbounded);
}

static size_t count_below(uint64_t x)
{
    size_t n = 0;

    for (uint32_t slot = s.t->order.oldest; slot != SELECTOR_NONE;
         slot = selector_next(&s.t->order, SELECTOR_FIFO, slot))
        n += item_x(slot) < x;
    return n;
}

static bool is_written(void)
{
    for (struct link *l = list_first(&s.rows); l != NULL; l = list_next(&s.rows, l))
        if (container_of(l, struct sim_row, link)->kind == JOURNAL_KEEP)
            return true;
    return false;
}

static void daemon_start(void)
{
    const struct replays_config config = {
        .env = &sim_env, .max_bytes = 2 << 20, .keeping = &replays_keeper, .alarm = &s.alarm};
    const struct keeping keeping = {.journal = (struct journal *)(void *)&s,
                                    .interval_us = 5000,
                                    .part_bytes = 1 + pick(200),
                                    .find_owner = find_owner,
                                    .alarm = &s.alarm,
                                    .on_idle = on_idle};
    struct error err;

    s.alarm = (struct alarm){.tick = replays_tick, .owner = &s.all};
    replays_init(&s.all, &config);
    keeper_start(&s.all.keeper, &keeping);
    for (size_t i = 0; replays_ready(&s.all, &err) != STATUS_OK; i++) {
        MUST(err.status == STATUS_UNAVAILABLE && i < 10000);
        MUST(replays_find(&s.t, &s.all, &sim_owner, ACCESS_READ, "t", &err) == STATUS_UNAVAILABLE);
        disk_go_on();
    }
    s.t = NULL;
    if (replays_find(&s.t, &s.all, &sim_owner, ACCESS_READ, "t", &err) != STATUS_OK) {
        MUST(!is_written() && (!s.is_unbounded || s.must_x == 0));
        s.next_x = s.is_unbounded ? 0 : s.next_x;
        table_make();
        return;
    }
    s.n_read++;
    check_items();
    if (!s.is_unbounded)
        return;
    /* Nothing was removed: what is there is the beginning of what was inserted, all of it counted,
     * and all that a checkpoint was answered for. */
    MUST(s.t->order.n >= s.must_x && s.t->limiter.n_inserted == s.t->order.n);
    MUST(count_below(s.t->order.n) == s.t->order.n);
    s.next_x = s.must_x = s.t->order.n;
}

static void daemon_lose_clients(void)
{
    for (size_t i = 0; i < N_WAITS; i++)
        client_leave(&s.waiters[i]);
    kept_leave(&s.checkpoint);
    s.waits_for_checkpoint = false;
}

/* Any part of what was appended is written; nobody is told. */
static void daemon_kill(void)
{
    struct error err;
    size_t n_written = pick(4);
    struct list lost;
    struct link *l;

    s.n_kills++;
    (void)error_set(&err, STATUS_UNAVAILABLE, "it is killed");
    for (size_t i = 0; i < N_WAITS; i++)
        client_leave(&s.waiters[i]);
    list_init(&lost);
    list_move(&s.queue, &lost);
    for (l = list_first(&lost); l != NULL && n_written > 0; l = list_next(&lost, l), n_written--)
        row_write(&container_of(l, struct sim_record, link)->record);
    replays_deinit(&s.all); /* frees what a kill frees with the process */
    s.waits_for_checkpoint = false;
    while ((l = list_pop(&lost)) != NULL) {
        struct sim_record *record = container_of(l, struct sim_record, link);

        if (record->done != NULL)
            record->done(record->arg, &err);
        record_free(record);
    }
}

/* A stop writes all that there is, unless the disk fails. */
static void daemon_stop(void)
{
    const bool had_faults = s.has_faults;
    uint64_t n_inserted, n_sampled, n_items;

    s.n_stops++;
    s.has_faults = false;
    daemon_lose_clients();
    n_inserted = s.t->limiter.n_inserted;
    n_sampled = s.t->limiter.n_sampled;
    n_items = s.t->order.n;
    for (size_t i = 0; !keeper_is_idle(&s.all.keeper); i++) {
        MUST(i < 10000);
        s.is_idle = false;
        while (!s.is_idle && !list_is_empty(&s.queue))
            disk_go_on();
        MUST(s.is_idle); /* it says so when it may be asked again */
    }
    while (!list_is_empty(&s.queue))
        disk_go_on();
    replays_deinit(&s.all);
    daemon_start();
    MUST(s.t->order.n == n_items && s.t->limiter.n_inserted == n_inserted &&
         s.t->limiter.n_sampled == n_sampled);
    s.has_faults = had_faults;
}

static void daemon_delete_table(void)
{
    const struct error why = {.status = STATUS_NOT_FOUND, .text = "it was deleted"};
    struct error err;

    if (replays_forget(&s.all, s.t, &err) != STATUS_OK) {
        MUST(s.has_faults);
        return;
    }
    daemon_lose_clients();
    replays_delete(&s.all, s.t, &why);
    table_make();
}

/* --- a schedule --- */

static void act(void)
{
    struct sim_waiter *w = &s.waiters[pick(N_WAITS)];
    const unsigned what = pick(100);

    if (what < 55) {
        if (!w->waits)
            client_begin(w);
        else if (pick(4) == 0)
            client_leave(w);
    } else if (what < 65) {
        client_update();
    } else if (what < 90) {
        disk_go_on();
    } else if (what < 94) {
        client_checkpoint();
    } else if (what < 96) {
        daemon_kill();
        daemon_start();
    } else if (what < 97) {
        daemon_stop();
    } else if (what < 98 && !s.is_unbounded) {
        replays_clear(&s.all, s.t);
    } else if (what < 99 && !s.is_unbounded) {
        daemon_delete_table();
    }
}

static void run(uint64_t seed)
{
    sim_start(seed);
    s.next_x = s.must_x = 0;
    s.t = NULL;
    s.is_unbounded = seed % 3 == 0;
    s.has_faults = seed % 2 == 0;
    memset(s.waiters, 0, sizeof(s.waiters));
    memset(s.batches, 0, sizeof(s.batches));
    list_init(&s.queue);
    list_init(&s.rows);
    daemon_start();
    for (unsigned n = 0; n < N_EVENTS; n++) {
        sim.now_us += pick(20) == 0 ? pick(30000) : pick(1000); /* now and then it is stopped */
        tick();
        act();
        check_waits();
    }
    daemon_stop();
    daemon_kill();
    while (!list_is_empty(&s.rows))
        row_remove(container_of(list_first(&s.rows), struct sim_row, link));
}

int main(int argc, char **argv)
{
    uint64_t first = 1, n = 500;

    log_set_level(LOG_ERROR); /* failures to write are part of it */

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            first = strtoull(argv[i + 1], NULL, 10), n = 1;
        else if (strcmp(argv[i], "--seeds") == 0)
            n = strtoull(argv[i + 1], NULL, 10);
    }
    for (uint64_t seed = first; seed < first + n; seed++)
        run(seed);
    printf("seeds=%" PRIu64 " kills=%" PRIu64 " stops=%" PRIu64 " read=%" PRIu64
           " checkpoints=%" PRIu64 " batches=%" PRIu64 " applied=%" PRIu64 " stale=%" PRIu64
           " late=%" PRIu64 "\n",
           n, s.n_kills, s.n_stops, s.n_read, s.n_checkpoints, s.n_sampled, s.n_applied, s.n_stale,
           s.n_late);
    MUST(n < 100 || (s.n_kills > n && s.n_stops > n && s.n_checkpoints > n &&
                     s.n_sampled > 10 * n && s.n_applied > n && s.n_stale > n && s.n_late > n / 2));
    return 0;
}
