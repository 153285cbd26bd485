#include "server/journal/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"

/* A store in memory that counts, and fails when told to. */
struct fake_store {
    struct journal_store base;
    size_t n_commits, n_records, n_closed;
    size_t n_most;           /* records of one commit */
    int fail_commit;         /* this one fails, from 1; 0: none */
    uv_sem_t *gate;          /* the first commit waits for it; NULL: it does not */
    uv_sem_t *begun, *go_on; /* the first read posts the one and waits for the other; NULL: no */
    size_t n_reads, n_reads_before; /* before: the last commit */
};

static struct fake_store fake;

static enum status fake_open(struct journal_store **out, const char *dir, struct error *err)
{
    ck_assert_str_eq(dir, "/nowhere");
    *out = &fake.base;
    return STATUS_OK;
}

static void fake_close(struct journal_store *s)
{
    ck_assert_ptr_eq(s, &fake.base);
    fake.n_closed++;
}

static enum status fake_commit(struct journal_store *s, const struct journal_record *const *records,
                               size_t n, struct error *err)
{
    fake.n_commits++;
    fake.n_reads_before = fake.n_reads;
    fake.n_most = n > fake.n_most ? n : fake.n_most;
    if (fake.gate != NULL && fake.n_commits == 1)
        uv_sem_wait(fake.gate);
    if (fake.fail_commit == (int)fake.n_commits)
        return error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL, "it fails");
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(records[i]->turn, fake.n_records++); /* in order */
    return STATUS_OK;
}

static enum status fake_read(struct journal_store *s, const struct journal_query *q,
                             size_t max_bytes, struct journal_found *out, struct error *err)
{
    struct journal_event *e;

    ck_assert_str_eq(q->principal, "anna");
    if (fake.n_reads++ == 0 && fake.begun != NULL) {
        uv_sem_post(fake.begun);
        uv_sem_wait(fake.go_on);
    }
    out->is_found = true;
    if (journal_found_add(&e, out, 0, err) != STATUS_OK)
        return err->status;
    e->turn = (uint32_t)fake.n_records;
    return STATUS_OK;
}

static const struct journal_store_type fake_type = {.name = "fake",
                                                    .open = fake_open,
                                                    .close = fake_close,
                                                    .commit = fake_commit,
                                                    .read = fake_read};

static uv_loop_t loop;
static struct journal *j;
static bool is_stopped;
static int n_ok, n_failed, n_found;

static void on_stopped(void *arg)
{
    is_stopped = true;
}

static void on_done(void *arg, const struct error *err)
{
    ck_assert_ptr_eq(arg, &n_ok);
    if (err->status == STATUS_OK)
        n_ok++;
    else
        n_failed++;
}

static void on_found(void *arg, struct journal_found *found, const struct error *err)
{
    const struct journal_event *e =
        container_of(list_first(&found->events), const struct journal_event, link);

    ck_assert_int_eq(err->status, STATUS_OK);
    ck_assert(found->is_found);
    ck_assert_uint_eq(e->turn, *(const uint32_t *)arg);
    n_found++;
}

static void start(size_t max_waiting_bytes)
{
    const struct journal_config config = {
        .dir = "/nowhere", .type = &fake_type, .max_waiting_bytes = max_waiting_bytes};
    struct error err;

    fake = (struct fake_store){.base.type = &fake_type};
    is_stopped = false;
    n_ok = n_failed = n_found = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(journal_open(&j, &loop, &config, &err), STATUS_OK);
}

static void stop(void)
{
    journal_stop(j, on_stopped, NULL);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert(is_stopped);
    ck_assert_uint_eq(fake.n_closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static enum status append_of(enum journal_kind kind, uint32_t turn, struct error *err)
{
    char body[100] = "gone when it is written";
    const struct journal_record r = {
        .kind = kind, .turn = turn, .body = body, .size_bytes = sizeof(body)};

    return journal_append(j, &r, on_done, &n_ok, err);
}

static enum status append(uint32_t turn, struct error *err)
{
    return append_of(JOURNAL_OBSERVE, turn, err);
}

static void append_all(uint32_t from, uint32_t to)
{
    struct error err;

    while (from < to)
        ck_assert_int_eq(append(from++, &err), STATUS_OK);
}

static void run_until(const int *count, int n)
{
    while (*count < n)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

/* What comes while the first transaction is written shares the next one; all are told. */
START_TEST(records_share_a_transaction)
{
    struct journal_figures figures;
    uv_sem_t gate;

    ck_assert_int_eq(uv_sem_init(&gate, 0), 0);
    start(0);
    fake.gate = &gate;
    append_all(0, 101);
    ck_assert_int_eq(n_ok, 0);
    uv_sem_post(&gate);
    run_until(&n_ok, 101);
    ck_assert_uint_eq(fake.n_commits, 2);
    ck_assert_uint_eq(fake.n_records, 101);
    journal_read_figures(j, &figures);
    ck_assert_uint_eq(figures.n_records, 101);
    ck_assert_uint_eq(figures.n_transactions, 2);
    ck_assert_uint_eq(figures.waiting_bytes, 0);
    stop();
    uv_sem_destroy(&gate);
}
END_TEST

/* What is held is one transaction, also where the ones before it fill theirs. */
START_TEST(what_is_held_stays_together)
{
    uv_sem_t gate;

    start(0);
    ck_assert_int_eq(uv_sem_init(&gate, 0), 0);
    fake.gate = &gate;
    append_all(0, 511); /* the first is a transaction of its own */
    journal_hold(j);
    append_all(511, 511 + JOURNAL_MAX_HELD);
    journal_release(j);
    append_all(511 + JOURNAL_MAX_HELD, 512 + JOURNAL_MAX_HELD);
    uv_sem_post(&gate);
    run_until(&n_ok, 512 + JOURNAL_MAX_HELD);
    ck_assert_uint_eq(fake.n_commits, 3);
    ck_assert_uint_eq(fake.n_most, 510 + JOURNAL_MAX_HELD);
    journal_hold(j);
    append_all(512 + JOURNAL_MAX_HELD, 514 + JOURNAL_MAX_HELD); /* the journal is idle */
    journal_release(j);
    run_until(&n_ok, 514 + JOURNAL_MAX_HELD);
    ck_assert_uint_eq(fake.n_commits, 4);
    stop();
    uv_sem_destroy(&gate);
}
END_TEST

/* What is dropped is not written, and what was appended before it is. */
START_TEST(what_is_dropped_is_not_written)
{
    struct journal_figures figures;

    start(0);
    append_all(0, 1);
    journal_hold(j);
    append_all(7, 9);
    journal_drop(j);
    journal_hold(j);
    journal_drop(j);
    append_all(1, 3);
    run_until(&n_ok, 3);
    ck_assert_uint_eq(fake.n_records, 3);
    journal_read_figures(j, &figures);
    ck_assert_uint_eq(figures.waiting_bytes, 0);
    stop();
    ck_assert_int_eq(n_ok, 3);
}
END_TEST

/* With a failed transaction all fails that was appended behind it; what comes later does not. */
START_TEST(a_failure_takes_what_follows)
{
    struct journal_wait w = {NULL};
    uv_sem_t gate;

    ck_assert_int_eq(uv_sem_init(&gate, 0), 0);
    start(0);
    fake.gate = &gate;
    fake.fail_commit = 1;
    append_all(0, 10);
    journal_settle(j, &w, on_done, &n_ok);
    uv_sem_post(&gate);
    run_until(&n_failed, 11);
    ck_assert_ptr_null(w.item);
    ck_assert_int_eq(n_ok, 0);
    ck_assert_uint_eq(fake.n_commits, 1);
    append_all(0, 3);
    run_until(&n_ok, 3);
    stop();
    uv_sem_destroy(&gate);
}
END_TEST

/* A read sees what was appended before it; one that is left is not told. A stop writes all first.
 */
START_TEST(reads_are_behind_what_was_appended)
{
    const struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_wait w = {NULL}, left = {NULL};
    uint32_t expected = 5;

    start(0);
    append_all(0, 5);
    journal_read(j, &w, &q, on_found, &expected);
    journal_read(j, &left, &q, on_found, &expected);
    journal_leave(&left);
    journal_leave(&left);
    run_until(&n_found, 1);
    append_all(5, 9);
    stop();
    ck_assert_int_eq(n_found, 1);
    ck_assert_int_eq(n_ok, 9);
}
END_TEST

/* What waits is bounded: more is UNAVAILABLE, until some is written. What belongs to a checkpoint
 * waits its turn. */
START_TEST(what_waits_is_bounded)
{
    static const enum journal_kind kinds[] = {JOURNAL_BLOCK, JOURNAL_CHECKPOINT, JOURNAL_KEEP};
    struct error err;
    uint32_t n = 0;
    uv_sem_t gate;

    ck_assert_int_eq(uv_sem_init(&gate, 0), 0);
    start(4096);
    fake.gate = &gate;
    while (append(n, &err) == STATUS_OK)
        n++;
    ck_assert_int_eq(err.status, STATUS_UNAVAILABLE);
    ck_assert_int_eq(err.reason, REASON_JOURNAL_FAILING);
    ck_assert_uint_ne(err.retry_after_ms, 0);
    ck_assert_uint_ge(n, 2);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(append_of(kinds[i], n++, &err), STATUS_OK);
    ck_assert_int_eq(append_of(JOURNAL_FORGET, n, &err), STATUS_UNAVAILABLE);
    uv_sem_post(&gate);
    run_until(&n_ok, (int)n);
    append_all(n, n + 1);
    run_until(&n_ok, (int)n + 1);
    stop();
    uv_sem_destroy(&gate);
}
END_TEST

/* However many reads wait, a record that comes meanwhile is written after a few of them. */
START_TEST(reads_let_records_pass)
{
    enum { READS = 100, FIRST = 16 };
    static struct journal_wait waits[READS];
    static uint32_t turns[READS];
    const struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    uv_sem_t begun, go_on;
    struct error err;

    start(0);
    ck_assert_int_eq(uv_sem_init(&begun, 0), 0);
    ck_assert_int_eq(uv_sem_init(&go_on, 0), 0);
    fake.begun = &begun;
    fake.go_on = &go_on;
    for (int i = 0; i < READS; i++)
        /* What it sees: the first one has a job of its own, which begins at once. */
        turns[i] = i == 0 ? 0 : 1;
    for (int i = 0; i < READS; i++)
        journal_read(j, &waits[i], &q, on_found, &turns[i]);
    uv_sem_wait(&begun);
    ck_assert_int_eq(append(0, &err), STATUS_OK);
    uv_sem_post(&go_on);
    run_until(&n_ok, 1);
    ck_assert_uint_le(fake.n_reads_before, FIRST);
    stop();
    ck_assert_int_eq(n_found, READS);
    uv_sem_destroy(&begun);
    uv_sem_destroy(&go_on);
}
END_TEST

SUITE_MAIN("server/journal/journal", reads_let_records_pass, records_share_a_transaction,
           a_failure_takes_what_follows, reads_are_behind_what_was_appended, what_waits_is_bounded,
           what_is_held_stays_together, what_is_dropped_is_not_written)
