/* The journal over a store that several processes share. */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "server/journal/journal.h"
#include "tests/unit/base/suite.h"

/* A store that refuses, has others ask, and lets the lease end when told to. */
struct shared_store {
    struct journal_store base;
    uint8_t refused; /* records of the conversation with this first byte are left out; 0: none */
    uv_sem_t *gate;  /* the first commit waits for it; NULL: it does not */
    _Atomic size_t n_commits, n_elsewhere; /* so many reads find their thing elsewhere */
    _Atomic size_t n_reads, n_given, n_records;
    _Atomic bool is_silent; /* no renewal succeeds */
    uv_sem_t *late;         /* each renewal waits for it after it began; NULL: it does not */
};

static struct shared_store shared;
static const struct journal_store_type shared_type;

static enum status shared_open(struct journal_store **out, const char *dir, struct error *err)
{
    shared.base.type = &shared_type;
    shared.base.lease_ms = 60000;
    shared.base.renewed_us = env_now_us(&env_real);
    *out = &shared.base;
    return STATUS_OK;
}

static void shared_close(struct journal_store *s)
{
    ck_assert_ptr_eq(s, &shared.base);
}

static enum status shared_commit(struct journal_store *s,
                                 const struct journal_record *const *records, size_t n,
                                 struct error *err)
{
    if (shared.n_commits++ == 0 && shared.gate != NULL)
        uv_sem_wait(shared.gate);
    for (size_t i = 0; i < n; i++) {
        if (shared.refused != 0 && records[i]->conversation[0] == shared.refused)
            (void)error_set(records[i]->refusal, STATUS_UNAVAILABLE, "it is elsewhere");
        else
            shared.n_records++;
    }
    return STATUS_OK;
}

static enum status shared_read(struct journal_store *s, const struct journal_query *q,
                               size_t max_bytes, struct journal_found *out, struct error *err)
{
    if (shared.n_reads++ < shared.n_elsewhere) {
        out->is_elsewhere = true;
        return error_set(err, STATUS_UNAVAILABLE, "it is elsewhere");
    }
    out->is_found = true;
    return STATUS_OK;
}

static enum status shared_beat(struct journal_store *s, struct error *err)
{
    uint64_t began_us;

    if (shared.is_silent)
        return error_set(err, STATUS_UNAVAILABLE, "it is silent");
    began_us = env_now_us(&env_real);
    if (shared.late != NULL)
        uv_sem_wait(shared.late);
    s->renewed_us = began_us;
    return STATUS_OK;
}

static enum status shared_give(struct journal_store *s, const uint8_t *id, bool is_unended,
                               struct error *err)
{
    ck_assert_int_eq(id[0], 7);
    ck_assert_uint_eq(shared.n_records, 1); /* behind what was appended before */
    shared.n_given++;
    s->n_wanted = 0;
    return STATUS_OK;
}

static const struct journal_store_type shared_type = {.name = "shared",
                                                      .open = shared_open,
                                                      .close = shared_close,
                                                      .commit = shared_commit,
                                                      .read = shared_read,
                                                      .beat = shared_beat,
                                                      .give = shared_give};

static uv_loop_t loop;
static struct journal *j;
static size_t n_ok, n_refused, n_found, n_missed, n_asked, n_lapsed;

static void begin(struct shared_store store)
{
    const struct journal_config config = {.dir = "", .type = &shared_type};
    struct error err = {0};

    shared = store;
    n_ok = n_refused = n_found = n_missed = n_asked = n_lapsed = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(journal_open(&j, &loop, &config, &err), STATUS_OK);
}

static void on_stopped(void *arg)
{
}

static void end(void)
{
    journal_stop(j, on_stopped, NULL);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void on_done(void *arg, const struct error *err)
{
    if (err->status == STATUS_OK)
        n_ok++;
    else
        n_refused++;
}

static void on_found(void *arg, struct journal_found *found, const struct error *err)
{
    if (err->status == STATUS_OK && found->is_found)
        n_found++;
    else
        n_missed++;
}

static void append(uint8_t conversation)
{
    const struct journal_record r = {.kind = JOURNAL_OBSERVE, .conversation = {conversation}};
    struct error err = {0};

    ck_assert_int_eq(journal_append(j, &r, on_done, NULL, &err), STATUS_OK);
}

/* A record that is left out takes those of its conversation along that wait behind it, and who
 * waits for the journal is told; records of other conversations are stored. */
START_TEST(test_refused)
{
    struct journal_wait before = {NULL}, behind = {NULL};
    struct journal_figures figures;
    uv_sem_t gate;

    ck_assert_int_eq(uv_sem_init(&gate, 0), 0);
    begin((struct shared_store){.refused = 1, .gate = &gate});
    append(9); /* is committed alone, and the others gather */
    journal_settle(j, &before, on_done, NULL);
    append(1);
    append(2);
    journal_settle(j, &behind, on_done, NULL);
    uv_sem_post(&gate);
    end();
    ck_assert_uint_eq(n_ok, 3); /* 9, 2 and who waited before the refused one */
    ck_assert_uint_eq(n_refused, 2);
    uv_sem_destroy(&gate);
    begin((struct shared_store){.refused = 1});
    append(1);
    append(1); /* waits, and is not committed */
    append(2);
    while (n_ok + n_refused < 3)
        (void)uv_run(&loop, UV_RUN_ONCE);
    journal_read_figures(j, &figures);
    ck_assert_uint_eq(n_refused, 2);
    ck_assert_uint_eq(figures.n_refused, 2);
    ck_assert_uint_eq(figures.n_records, 1);
    ck_assert_ptr_null(journal_trouble(j)); /* the store itself is well */
    end();
}
END_TEST

/* What another process has is asked for again until it is there; the end of the journal ends the
 * wait. */
START_TEST(test_patience)
{
    const struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_wait wait = {NULL};

    begin((struct shared_store){.n_elsewhere = 3});
    journal_read(j, &wait, &q, on_found, NULL);
    while (n_found + n_missed == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(n_found, 1);
    ck_assert_uint_eq(shared.n_reads, 4);
    end();
    begin((struct shared_store){.n_elsewhere = SIZE_MAX});
    journal_read(j, &wait, &q, on_found, NULL);
    while (shared.n_reads < 2)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(n_missed, 0);
    end();
    ck_assert_uint_eq(n_missed, 1);
}
END_TEST

static void on_wanted(void *arg, const uint8_t *id)
{
    ck_assert_int_eq(id[0], 7);
    if (n_asked++ == 0)
        return; /* it has a turn in flight */
    append(7);
    journal_give(j, id, false);
}

static void on_lapsed(void *arg)
{
    n_lapsed++;
}

/* Others ask until the conversation is given up, behind what was appended. */
START_TEST(test_wanted)
{
    begin((struct shared_store){.base.n_wanted = 1, .base.wanted = {{7}}});
    journal_share(j, &(struct journal_sharing){.wanted = on_wanted, .lapsed = on_lapsed});
    while (shared.n_given == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_ge(n_asked, 2);
    ck_assert_uint_eq(n_lapsed, 0);
    end();
    ck_assert_uint_eq(shared.n_given, 1);
}
END_TEST

/* Without renewals the lease is over, and after the next one it is told that it was. */
START_TEST(test_lapse)
{
    begin((struct shared_store){.is_silent = true});
    journal_share(j, &(struct journal_sharing){.wanted = on_wanted, .lapsed = on_lapsed});
    ck_assert(journal_has_lease(j));
    end();
    begin((struct shared_store){.is_silent = true});
    shared.base.lease_ms = 1;
    journal_share(j, &(struct journal_sharing){.wanted = on_wanted, .lapsed = on_lapsed});
    while (journal_has_lease(j))
        (void)uv_run(&loop, UV_RUN_ONCE); /* the beat notes the shorter lease */
    ck_assert_uint_eq(n_lapsed, 0);
    shared.is_silent = false;
    while (n_lapsed == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    end();
}
END_TEST

/* A renewal that begins within the lease and is answered behind its end may have reached the store
 * behind it: another process may have taken over meanwhile. */
START_TEST(test_late_renewal)
{
    uv_sem_t late;

    ck_assert_int_eq(uv_sem_init(&late, 0), 0);
    begin((struct shared_store){.late = &late});
    shared.base.lease_ms = 300;
    journal_share(j, &(struct journal_sharing){.wanted = on_wanted, .lapsed = on_lapsed});
    uv_sem_post(&late); /* the first beat notes the shorter lease */
    while (journal_n_beats(j) == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    n_lapsed = 0;
    while (journal_has_lease(j))
        (void)uv_run(&loop, UV_RUN_ONCE); /* the second one is begun meanwhile */
    uv_sem_post(&late);
    while (journal_n_beats(j) == 1)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(n_lapsed, 1);
    for (int i = 0; i < 8; i++)
        uv_sem_post(&late);
    end();
    uv_sem_destroy(&late);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server/journal/sharing");
    TCase *t = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_test(t, test_refused);
    tcase_add_test(t, test_patience);
    tcase_add_test(t, test_wanted);
    tcase_add_test(t, test_lapse);
    tcase_add_test(t, test_late_renewal);
    suite_add_tcase(suite, t);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
