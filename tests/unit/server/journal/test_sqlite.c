#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/stride.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/journal/faulty_vfs.h"
#include "tests/unit/server/journal/kept_store.h"

/* A file of the schema without keys gets them, and keeps what it has. */
START_TEST(test_schema_before)
{
    struct journal_query q = {.by = JOURNAL_BY_KEY, .principal = "anna", .text = "key"};
    struct journal_store *s = opened();

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    s->type->close(s);
    kept_sql(kept_back_to_5);
    kept_sql("DROP TABLE kept; DROP TABLE keyed; PRAGMA user_version = 3");
    s = opened();
    commit_keyed(s, 0, 1, 0, "k");
    ck_assert_str_eq(stored(s, 0), "1.1.0:o 3.1.1:a");
    ck_assert_str_eq(stored_by(s, &q), "9.1.1:k");
    s->type->close(s);
}
END_TEST

/* A second daemon does not get the directory, and finds it free afterwards. */
START_TEST(test_lock)
{
    struct journal_store *s = opened(), *other = NULL;
    struct error err = {0};

    ck_assert_int_eq(journal_sqlite.open(&other, kept_dir, &err), STATUS_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(err.text, "in use by another parleyd"));
    ck_assert_ptr_null(other);
    s->type->close(s);
    s = opened();
    s->type->close(s);
}
END_TEST

/* A file of something else, or of a later schema, is left alone. */
START_TEST(test_foreign)
{
    struct journal_store *s = NULL;
    struct error err = {0};
    char path[64];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/journal.db", kept_dir);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    (void)fputs("this is no database, whatever its name may be", f);
    (void)fclose(f);
    ck_assert_int_ne(journal_sqlite.open(&s, kept_dir, &err), STATUS_OK);
    ck_assert_ptr_null(s);
}
END_TEST

static sqlite3 *watched; /* the connection that was opened last */
static long n_steps;

static int on_step(void *arg)
{
    n_steps++;
    return 0;
}

static int watch(sqlite3 *db, char **ret_why, const struct sqlite3_api_routines *routines)
{
    watched = db;
    return SQLITE_OK;
}

/* SQLite's steps for a page of one row. */
static long steps_of_page(struct journal_store *s, const char *model)
{
    struct journal_query page = {.by = JOURNAL_PAGE,
                                 .principal = "anna",
                                 .text = model,
                                 .place = INT64_MAX,
                                 .max_rows = 2,
                                 .wants_total = true};

    n_steps = 0;
    (void)listed(s, &page);
    return n_steps;
}

/* What a page costs, with its total, does not depend on how much is stored, closed, or of requests
 * with keys. */
START_TEST(test_list_steps)
{
    struct journal_store *s;
    long few[2] = {0}, many[2];

    ck_assert_int_eq(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    s = opened();
    (void)sqlite3_cancel_auto_extension((void (*)(void))watch); /* it is there */
    sqlite3_progress_handler(watched, 1, on_step, NULL);
    for (int i = 0; i < 1000; i++) {
        struct journal_record open = record(JOURNAL_OPEN, 0, 0, "terms");
        struct journal_record keyed = record(JOURNAL_ACCEPT, 0, 1, "a");
        char key[16];

        open.conversation[1] = (uint8_t)(i >> 8);
        open.conversation[2] = (uint8_t)i;
        open.model = i % 2 == 0 ? "m" : "n";
        commit(s, open);
        if (i % 3 != 0 && i > 20) {
            memcpy(keyed.conversation, open.conversation, JOURNAL_ID_BYTES);
            (void)snprintf(key, sizeof(key), "%d", i);
            keyed.principal = "anna";
            keyed.key = key;
            keyed.key_until_unix_ms = i % 3 == 1 ? UINT64_C(1) << 40 : 0;
            commit(s, keyed);
        }
        if (i == 20) {
            few[0] = steps_of_page(s, NULL);
            few[1] = steps_of_page(s, "m");
        }
    }
    many[0] = steps_of_page(s, NULL);
    many[1] = steps_of_page(s, "m");
    for (int i = 0; i < 2; i++)
        ck_assert_msg(many[i] <= few[i] + 8, "%ld steps with few, %ld with many", few[i], many[i]);
    s->type->close(s);
}
END_TEST

/* A file of the first schema is taken over, with what it has. */
START_TEST(test_migration)
{
    struct journal_store *s = opened();
    struct journal_record open = record(JOURNAL_OPEN, 0, 0, "");

    open.body = "\2\0\0\0\4\0\0\0\0\0\0\0tiny and the rest";
    open.size_bytes = 12 + strlen("tiny and the rest");
    open.model = "tiny";
    commit(s, record(JOURNAL_OPEN, 1, 0, "short"));
    commit(s, open);
    s->type->close(s);
    kept_sql(kept_back_to_5);
    kept_sql("DROP TABLE kept; DROP TABLE params; DROP TABLE block; DROP TABLE keyed;"
             "DROP INDEX conversation_list; DROP INDEX conversation_of_model;"
             "ALTER TABLE conversation DROP COLUMN model; PRAGMA user_version = 1");
    s = opened();
    ck_assert_str_eq(stored(s, 1), "1.1.0:short");
    ck_assert_str_eq(listed(s, &(struct journal_query){.by = JOURNAL_PAGE,
                                                       .principal = "anna",
                                                       .text = "tiny",
                                                       .place = INT64_MAX,
                                                       .max_rows = 9}),
                     "0:0.1.0");
    commit(s, of_params(JOURNAL_CHECKPOINT, 1, "first"));
    ck_assert_str_eq(checkpoints(s), "17.0.0:first");
    s->type->close(s);
}
END_TEST

/* One run with a fault: turns are committed one by one, the store is closed, and read again without
 * faults. All that was acknowledged is there, the rest wholly or not at all, and, once the fault is
 * over, commits succeed. Returns whether the fault was reached. */
static bool run_with(enum vfs_fault fault, long n, long n_more)
{
    enum { TURNS = 12, LEN = 3000 };
    static char body[LEN + 1];
    char state[TURNS + 1] = {0}; /* 'y': acknowledged, 'n': failed */
    struct journal_store *s = NULL;
    struct error err = {0};
    bool is_reached, is_there[TURNS + 1] = {0};
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_found f;
    uint64_t ignored;

    memset(body, 'x', LEN);
    faulty_vfs_arm(fault, n, n_more);
    while (s == NULL && journal_sqlite.open(&s, kept_dir, &err) != STATUS_OK)
        ck_assert_int_gt(faulty_vfs_n_failed(), 0);
    for (uint32_t turn = 0; turn <= TURNS; turn++) {
        struct journal_record r = record(turn == 0 ? JOURNAL_OPEN : JOURNAL_OBSERVE, 0, turn, body);

        do {
            state[turn] = commits(s, &r, &err) == STATUS_OK ? 'y' : 'n';
        } while (turn == 0 && state[0] == 'n' && err.status == STATUS_UNAVAILABLE &&
                 strstr(err.text, "UNIQUE") == NULL);
        if (strstr(err.text, "UNIQUE") != NULL)
            state[0] = 'y'; /* the failed one was there after all */
    }
    is_reached = faulty_vfs_n_failed() > 0;
    faulty_vfs_arm(fault, -1, 0);
    if (is_reached) {
        struct journal_record last = record(JOURNAL_OBSERVE, 0, TURNS + 1, body);

        ck_assert_msg(commits(s, &last, &err) == STATUS_OK, "fault %ld: %s", n, err.text);
    }
    s->type->close(s);

    s = opened();
    memcpy(q.id, kept_ids[0], sizeof(q.id));
    journal_found_init(&f);
    ck_assert_int_eq(s->type->read(s, &q, KEPT_MAX_BYTES, &f, &err), STATUS_OK);
    ck_assert(f.is_found);
    for (struct link *l = list_first(&f.events); l != NULL; l = list_next(&f.events, l)) {
        const struct journal_event *e = container_of(l, struct journal_event, link);

        ck_assert_uint_eq(e->size_bytes, LEN);
        ck_assert_mem_eq(e->body, body, LEN);
        if (e->turn <= TURNS)
            is_there[e->turn] = true;
    }
    for (size_t turn = 0; turn <= TURNS; turn++)
        ck_assert_msg(state[turn] != 'y' || is_there[turn], "fault %ld: turn %zu is lost", n, turn);
    journal_found_deinit(&f);
    ck_assert_msg(s->type->check(s, &ignored, &ignored, &err) == STATUS_OK, "%s", err.text);
    s->type->close(s);
    kept_empty();
    return is_reached;
}

/* Each write, sync, truncation and open fails in turn, once and several times running: nothing that
 * was acknowledged is lost, nothing is torn, and the store works again. */
START_TEST(test_faults)
{
    static const struct {
        enum vfs_fault fault;
        long n_more;
        long least; /* points at which it was met */
    } rows[] = {{VFS_IO_ERROR, 0, 40},
                {VFS_IO_ERROR, 5, 40},
                {VFS_DISK_FULL, 0, 20},
                {VFS_DISK_FULL, 9, 20},
                {VFS_SHORT_WRITE, 0, 20}};
    long n = 0;

    while (run_with(rows[_i].fault, n, rows[_i].n_more))
        n += test_stride();
    ck_assert_int_ge(n, rows[_i].least);
}
END_TEST

/* Turns are committed one by one until the power goes, after n writes and syncs. Afterwards all
 * that was acknowledged is there, or, if the disk lies, *ret_lost of it are not. False: the power
 * did not go. */
static bool run_until_dark(long n, bool lies, unsigned seed, size_t *ret_lost)
{
    enum { TURNS = 30, LEN = 1500 };
    static char body[LEN + 1];
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_store *s = NULL;
    size_t n_acknowledged = 0, n_there = 0;
    uint64_t ignored;
    struct journal_found f;
    struct error err = {0};
    bool is_gone;

    memset(body, 'y', LEN);
    power_watch(n, lies);
    if (journal_sqlite.open(&s, kept_dir, &err) == STATUS_OK) {
        for (uint32_t turn = 0; turn <= TURNS && !power_is_gone(); turn++) {
            struct journal_record r =
                record(turn == 0 ? JOURNAL_OPEN : JOURNAL_OBSERVE, 0, turn, body);

            n_acknowledged += commits(s, &r, &err) == STATUS_OK;
        }
        is_gone = power_is_gone();
        s->type->close(s);
    } else {
        is_gone = power_is_gone();
    }
    power_return(seed);
    if (is_gone) {
        char path[64];

        (void)snprintf(path, sizeof(path), "%s/journal.db-shm", kept_dir);
        (void)unlink(path);
        s = opened();
        memcpy(q.id, kept_ids[0], sizeof(q.id));
        journal_found_init(&f);
        ck_assert_int_eq(s->type->read(s, &q, KEPT_MAX_BYTES, &f, &err), STATUS_OK);
        for (struct link *l = list_first(&f.events); l != NULL; l = list_next(&f.events, l))
            n_there++;
        journal_found_deinit(&f);
        if (!lies)
            ck_assert_msg(s->type->check(s, &ignored, &ignored, &err) == STATUS_OK, "%s", err.text);
        s->type->close(s);
        if (!lies)
            ck_assert_msg(n_there >= n_acknowledged, "cut %ld, seed %u: %zu of %zu are there", n,
                          seed, n_there, n_acknowledged);
        *ret_lost += n_there < n_acknowledged ? n_acknowledged - n_there : 0;
    }
    kept_empty();
    return is_gone;
}

/* The power goes at each write and sync; of what was not synchronised nothing is left, or some,
 * torn and in any order. Nothing that was acknowledged is lost. */
START_TEST(test_power)
{
    static const unsigned seeds[] = {0, 1, 2, 3};
    size_t lost = 0;
    long n = 0;

    while (run_until_dark(n, false, seeds[n % 4], &lost))
        n += test_stride();
    ck_assert_uint_eq(lost, 0);
    ck_assert_int_ge(n, 60);
}
END_TEST

/* A disk that does not synchronise the log loses what was acknowledged, as synchronous=NORMAL
 * would: what test_power looks for is found. */
START_TEST(test_lying_disk)
{
    size_t lost = 0;

    for (long n = 0; run_until_dark(n, true, 0, &lost); n += test_stride())
        ;
    ck_assert_uint_gt(lost, 100 / (size_t)test_stride());
}
END_TEST

static void remove_one(const char *name)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/%s", kept_dir, name);
    ck_assert_int_eq(unlink(path), 0);
}

/* Files that were deleted under the store: nothing is told to be durable in them. A log that was
 * deleted is written to the database, and the store goes on; else it refuses, in words. */
START_TEST(test_deleted)
{
    static const struct {
        const char *name;
        bool goes_on;
    } rows[] = {
        {"journal.db-wal", true}, {"journal.db-shm", true}, {"journal.db", false}, {"lock", false}};
    struct journal_record r = record(JOURNAL_OBSERVE, 0, 2, "b2");
    struct journal_store *s = opened();
    uint64_t ignored;
    struct error err = {0};

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    commit(s, record(JOURNAL_OBSERVE, 0, 1, "b1"));
    remove_one(rows[_i].name);
    if (rows[_i].goes_on) {
        commit(s, r);
        commit(s, record(JOURNAL_OBSERVE, 0, 3, "b3"));
    } else {
        for (r.turn = 2; r.turn < 5; r.turn++) {
            ck_assert_int_eq(commits(s, &r, &err), STATUS_UNAVAILABLE);
            ck_assert_int_eq(err.reason, REASON_JOURNAL_FAILING);
            ck_assert_ptr_nonnull(strstr(err.text, "was deleted while parleyd runs"));
            ck_assert_ptr_nonnull(strstr(err.text, rows[_i].name));
        }
        ck_assert_str_ne(stored(s, 0), ""); /* what is stored is read */
    }
    s->type->close(s);
    if (rows[_i].goes_on) {
        s = opened();
        ck_assert_str_eq(stored(s, 0), "1.1.0:o 5.1.1:b1 5.1.2:b2 5.1.3:b3");
        ck_assert_int_eq(s->type->check(s, &ignored, &ignored, &err), STATUS_OK);
        s->type->close(s);
    }
}
END_TEST

/* A database that another one replaced is not written to; once it is back, all goes on. */
START_TEST(test_replaced)
{
    struct journal_record r = record(JOURNAL_OBSERVE, 0, 1, "b1");
    struct journal_store *s = opened();
    char path[64], aside[64];
    struct error err = {0};

    (void)snprintf(path, sizeof(path), "%s/journal.db", kept_dir);
    (void)snprintf(aside, sizeof(aside), "%s/aside", kept_dir);
    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    ck_assert_int_eq(rename(path, aside), 0);
    ck_assert_int_eq(commits(s, &r, &err), STATUS_UNAVAILABLE);
    kept_sql("CREATE TABLE another (x)");
    r.turn = 2;
    ck_assert_int_eq(commits(s, &r, &err), STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "was replaced while parleyd runs"));
    ck_assert_int_eq(rename(aside, path), 0);
    r.turn = 3;
    ck_assert_msg(commits(s, &r, &err) == STATUS_OK, "%s", err.text);
    s->type->close(s);
}
END_TEST

/* A log without its database may have the only copy of turns: a start leaves it alone. */
START_TEST(test_log_alone)
{
    struct journal_store *s = NULL;
    char path[64];
    struct error err = {0};
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/journal.db-wal", kept_dir);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs("turns", f), 0);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(journal_sqlite.open(&s, kept_dir, &err), STATUS_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(err.text, "its journal.db is missing: put journal.db back"));
    ck_assert_int_eq(journal_sqlite.look(kept_dir, &err), STATUS_PRECONDITION);
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

static long size_of(const char *name)
{
    char path[64];
    struct stat file;

    (void)snprintf(path, sizeof(path), "%s/%s", kept_dir, name);
    ck_assert_int_eq(stat(path, &file), 0);
    return (long)file.st_size;
}

/* The log of a small database is folded in early. Who reads for long holds it back, until records
 * are refused; afterwards all goes on. */
START_TEST(test_log)
{
    enum { LEN = 1 << 18 };
    static char body[LEN + 1];
    struct journal_store *s = opened();
    struct journal_record r = record(JOURNAL_OBSERVE, 0, 0, body);
    struct error err = {0};
    char path[64];
    sqlite3 *reader;

    memset(body, 'x', LEN);
    r.size_bytes = LEN;
    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    for (r.turn = 1; r.turn <= 40; r.turn++)
        commit(s, r);
    ck_assert_int_lt(size_of("journal.db-wal"), 12 << 20);
    (void)snprintf(path, sizeof(path), "%s/journal.db", kept_dir);
    ck_assert_int_eq(sqlite3_open(path, &reader), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(reader, "BEGIN; SELECT * FROM meta", NULL, NULL, NULL),
                     SQLITE_OK);
    for (; r.turn < 400 && commits(s, &r, &err) == STATUS_OK; r.turn++)
        ck_assert_int_lt(size_of("journal.db-wal"), 80 << 20);
    ck_assert_int_eq(err.status, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "another process has read the journal for long"));
    ck_assert_int_eq(sqlite3_close(reader), SQLITE_OK);
    commit(s, r);
    s->type->close(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server/journal/sqlite");
    TCase *t = tcase_create("all");
    SRunner *runner;
    int failed;

    faulty_vfs_install();
    tcase_add_checked_fixture(t, kept_setup, kept_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_schema_before);
    tcase_add_test(t, test_lock);
    tcase_add_test(t, test_foreign);
    tcase_add_test(t, test_list_steps);
    tcase_add_test(t, test_migration);
    tcase_add_loop_test(t, test_deleted, 0, 4);
    tcase_add_test(t, test_replaced);
    tcase_add_test(t, test_log_alone);
    tcase_add_test(t, test_log);
    tcase_add_loop_test(t, test_faults, 0, 5);
    tcase_add_test(t, test_power);
    tcase_add_test(t, test_lying_disk);
    suite_add_tcase(suite, t);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
