/* The chain of records: what it is over, what it finds, and how a journal of the version before
 * gets one. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/journal/chain.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/journal/faulty_vfs.h"
#include "tests/unit/server/journal/kept_store.h"

enum { N_KINDS_OF_OPEN = 1, FIXTURE_CONVERSATIONS = 12 };

/* The values of SHA-256 over the bytes that chain.h says, computed elsewhere. */
START_TEST(test_values)
{
    struct journal_record r = record(JOURNAL_OPEN, 0, 2, "body");
    uint8_t content[SHA256_BYTES], at[SHA256_BYTES] = {0};
    struct error err = {0};
    char hex[2 * SHA256_BYTES + 1];
    struct journal_chain c;

    r.unix_ms = UINT64_C(0x0102030405060708);
    ck_assert_int_eq(chain_open(&c, &err), STATUS_OK);
    chain_content(&c, &r, content);
    chain_add(&c, at, content);
    chain_add(&c, at, content);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", at[i]);
    ck_assert_str_eq(hex, "39cf00e65e71c4f672b2db59ed9578ac0c043bd7a5ba30f6ab2e0ec49a222f31");
    chain_close(&c);
}
END_TEST

/* Conversation 0 with all kinds of records, 1 its fork, 2 another one. */
static void fill(void)
{
    struct journal_store *s = opened();
    struct journal_record r = record(JOURNAL_OPEN, 1, 1, "fork");
    struct journal_record rewind = record(JOURNAL_REWIND, 0, 1, "");
    struct journal_record update = record(JOURNAL_UPDATE, 0, 0, "u1");

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    commit(s, record(JOURNAL_ACCEPT, 0, 1, "a1"));
    commit(s, record(JOURNAL_FINISH, 0, 1, "f1"));
    commit(s, record(JOURNAL_ACCEPT, 0, 2, "a2"));
    commit(s, record(JOURNAL_WITHDRAW, 0, 2, ""));
    commit(s, record(JOURNAL_OBSERVE, 0, 2, "b2"));
    update.generation = 0;
    commit(s, update);
    update.body = "u2";
    commit(s, update);
    r.parent = kept_ids[0];
    commit(s, r);
    commit(s, record(JOURNAL_OBSERVE, 1, 2, "c2"));
    rewind.generation = 2;
    commit(s, rewind);
    commit(s, record(JOURNAL_OPEN, 2, 0, "p"));
    commit(s, record(JOURNAL_OBSERVE, 2, 1, "d1"));
    s->type->close(s);
}

static enum status reads(struct journal_store *s, int of, struct error *err)
{
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_found f;
    enum status rc;

    memcpy(q.id, kept_ids[of], JOURNAL_ID_BYTES);
    journal_found_init(&f);
    rc = s->type->read(s, &q, KEPT_MAX_BYTES, &f, err);
    journal_found_deinit(&f);
    return rc;
}

static void is_found(const char *sql, bool fork_too)
{
    uint64_t ignored;
    struct error err = {0};
    struct journal_store *s;

    fill();
    kept_sql(sql);
    s = opened();
    ck_assert_msg(s->type->check(s, &ignored, &ignored, &err) == STATUS_DATA_LOSS, "%s", sql);
    ck_assert_msg(strstr(err.text, "conversation 0") != NULL, "%s: %s", sql, err.text);
    ck_assert_msg(reads(s, 0, &err) == STATUS_DATA_LOSS, "%s", sql);
    ck_assert_msg(strstr(err.text, "conversation 01") != NULL, "%s: %s", sql, err.text);
    ck_assert_msg(reads(s, 1, &err) == (fork_too ? STATUS_DATA_LOSS : STATUS_OK), "%s", sql);
    ck_assert_msg(reads(s, 2, &err) == STATUS_OK, "%s: %s", sql, err.text);
    s->type->close(s);
    kept_empty();
}

/* Each part of each record altered, records left out, exchanged, moved, taken away: it is found by
 * the check and by who reads the conversation or a fork that has it; others are read. */
START_TEST(test_alterations)
{
    static const char *const sql[] = {
        "UPDATE event SET seq = -1 WHERE seq = 3; UPDATE event SET seq = 3 WHERE seq = 6;"
        "UPDATE event SET seq = 6 WHERE seq = -1",
        "UPDATE event SET gone = seq, body = x'' WHERE seq = 3",
        "UPDATE event SET gone = seq WHERE seq = 3",
        "UPDATE event SET gone = 0, body = 'a2' WHERE seq = 4",
        "UPDATE event SET gone = 2 WHERE seq = 5",
        "UPDATE event SET gone = 0 WHERE seq = 5",
        "UPDATE event SET body = 'u1' WHERE seq = 7",
        "DELETE FROM event WHERE seq = 8; UPDATE event SET gone = 0, body = 'u1' WHERE seq = 7",
        "UPDATE event SET hash = (SELECT hash FROM event WHERE seq = 3), body = 'f1' WHERE seq = 6",
        "INSERT INTO event SELECT 99, conversation, 9, turn, kind, unix_ms, body, gone, hash, chain"
        " FROM event WHERE seq = 6; UPDATE event SET seq = -1 WHERE seq = 7;"
        "UPDATE event SET seq = 7 WHERE seq = 99; UPDATE event SET seq = 99 WHERE seq = -1",
        "UPDATE conversation SET principal = 'anna', seq = seq WHERE seq = 1;"
        "UPDATE event SET body = 'p' WHERE seq = 1",
        "DELETE FROM event WHERE seq < 9 AND conversation = (SELECT conversation FROM event"
        " WHERE seq = 1)",
    };
    static const char *const columns[] = {"generation = generation + 1",
                                          "turn = turn + 7",
                                          "unix_ms = unix_ms + 1",
                                          "kind = 99",
                                          "hash = zeroblob(32)",
                                          "chain = zeroblob(32)",
                                          "hash = x''",
                                          "body = body || x'00'"};
    char text[256];

    for (size_t i = 0; i < sizeof(sql) / sizeof(sql[0]); i++)
        is_found(sql[i], true);
    for (int seq = 1; seq <= 8; seq++) {
        for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
            if ((seq == 4 || seq == 7) && i < 4) /* has no part in it any more but for its hash */
                continue;
            (void)snprintf(text, sizeof(text), "UPDATE event SET %s WHERE seq = %d", columns[i],
                           seq);
            is_found(text, true);
        }
        if (seq > 1) {
            (void)snprintf(text, sizeof(text), "DELETE FROM event WHERE seq = %d", seq);
            is_found(text, true);
        }
    }
    is_found("UPDATE event SET turn = 0 WHERE seq = 11", false); /* behind the fork */
}
END_TEST

/* A record of a kind of a newer version stays, also in a backup, and is given to who reads. */
START_TEST(test_unknown_kind)
{
    struct journal_record r = record((enum journal_kind)77, 0, 1, "new");
    struct journal_store *s;
    uint8_t chain[SHA256_BYTES] = {0}, content[SHA256_BYTES];
    char sql[512], hex[2][2 * SHA256_BYTES + 1];
    uint64_t ignored;
    struct error err = {0};
    struct journal_chain c;

    s = opened();
    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    s->type->close(s);
    ck_assert_int_eq(chain_open(&c, &err), STATUS_OK);
    chain_content(&c, &(struct journal_record){0}, content);
    {
        struct journal_record open = record(JOURNAL_OPEN, 0, 0, "o");

        chain_content(&c, &open, content);
    }
    chain_add(&c, chain, content);
    chain_content(&c, &r, content);
    chain_add(&c, chain, content);
    chain_close(&c);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        (void)snprintf(hex[0] + 2 * i, 3, "%02x", content[i]);
        (void)snprintf(hex[1] + 2 * i, 3, "%02x", chain[i]);
    }
    (void)snprintf(sql, sizeof(sql),
                   "INSERT INTO event (conversation, generation, turn, kind, unix_ms, body, hash,"
                   " chain) SELECT id, 1, 1, 77, 0, CAST('new' AS BLOB), x'%s', x'%s' FROM"
                   " conversation",
                   hex[0], hex[1]);
    kept_sql(sql);
    s = opened();
    ck_assert_str_eq(stored(s, 0), "1.1.0:o 77.1.1:new");
    ck_assert_msg(s->type->check(s, &ignored, &ignored, &err) == STATUS_OK, "%s", err.text);
    commit(s, record(JOURNAL_OBSERVE, 0, 2, "b"));
    ck_assert_str_eq(stored(s, 0), "1.1.0:o 77.1.1:new 5.1.2:b");
    s->type->close(s);
}
END_TEST

/* What belongs to a conversation that is gone is left out, and nothing is left of it. */
START_TEST(test_late_record)
{
    struct journal_store *s = opened();
    uint64_t ignored;
    struct error err = {0};

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    commit(s, record(JOURNAL_ACCEPT, 0, 1, "a"));
    commit(s, record(JOURNAL_CLOSE, 0, 0, ""));
    commit(s, record(JOURNAL_FINISH, 0, 1, "f"));
    ck_assert_msg(s->type->check(s, &ignored, &ignored, &err) == STATUS_OK, "%s", err.text);
    ck_assert_str_eq(stored(s, 0), "");
    s->type->close(s);
}
END_TEST

/* A long conversation is read a slice at a time, with what came in between. */
START_TEST(test_slices)
{
    enum { LEN = 100000, TURNS = 40 };
    static char body[LEN + 1];
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_record update = record(JOURNAL_UPDATE, 0, 0, "new");
    struct journal_store *s = opened();
    struct error err = {0};
    struct journal_found f;
    size_t n_events = 0;
    int n_slices = 0;

    memset(body, 'x', LEN);
    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    update.generation = 0;
    update.body = "old";
    commit(s, update);
    for (uint32_t turn = 1; turn <= TURNS; turn++)
        commit(s, record(JOURNAL_OBSERVE, 0, turn, body));
    memcpy(q.id, kept_ids[0], JOURNAL_ID_BYTES);
    update.body = "new";
    journal_found_init(&f);
    do {
        ck_assert_msg(s->type->read(s, &q, 8 << 20, &f, &err) == STATUS_OK, "%s", err.text);
        if (++n_slices == 1)
            commit(s, update);
    } while (f.reading != NULL);
    ck_assert_int_ge(n_slices, 4);
    for (struct link *l = list_first(&f.events); l != NULL; l = list_next(&f.events, l))
        n_events++;
    ck_assert_uint_eq(n_events, 1 + 1 + TURNS + 1); /* both updates */
    journal_found_deinit(&f);
    ck_assert_msg(s->type->read(s, &q, 8 << 20, &f, &err) == STATUS_OK, "%s", err.text);
    commit(s, record(JOURNAL_CLOSE, 0, 0, ""));
    while (f.reading != NULL)
        ck_assert_msg(s->type->read(s, &q, 8 << 20, &f, &err) == STATUS_OK, "%s", err.text);
    ck_assert(!f.is_found); /* it was deleted in between */
    journal_found_deinit(&f);
    s->type->close(s);
}
END_TEST

static void fill_with_fixture(void)
{
    static char sql[1 << 16];
    FILE *f = fopen(JOURNAL_5, "r");
    size_t n;

    ck_assert_ptr_nonnull(f);
    n = fread(sql, 1, sizeof(sql) - 1, f);
    ck_assert_uint_lt(n, sizeof(sql) - 1);
    sql[n] = '\0';
    (void)fclose(f);
    kept_sql("PRAGMA page_size = 8192; PRAGMA journal_mode = WAL");
    kept_sql(sql);
}

/* The power goes at each write while a journal of the version before is brought to this one, then
 * it is opened again: it has all that it had, with a chain. */
START_TEST(test_version_before)
{
    bool is_gone = true;
    long n;

    for (n = 0; is_gone; n++) {
        struct journal_store *s = NULL;
        uint64_t n_conversations, n_turns;
        struct error err = {0};
        struct journal_found f;

        fill_with_fixture();
        power_watch(n, false);
        (void)!journal_sqlite.open(&s, kept_dir, &err); /* the power may be gone */
        is_gone = power_is_gone();
        if (s != NULL)
            s->type->close(s);
        power_return((unsigned)n % 4);
        {
            char path[64];

            (void)snprintf(path, sizeof(path), "%s/journal.db-shm", kept_dir);
            (void)unlink(path);
        }
        s = opened();
        ck_assert_msg(s->type->check(s, &n_conversations, &n_turns, &err) == STATUS_OK,
                      "power gone at %ld: %s", n, err.text);
        ck_assert_uint_eq(n_conversations, FIXTURE_CONVERSATIONS);
        journal_found_init(&f);
        ck_assert_int_eq(s->type->read(s,
                                       &(struct journal_query){.by = JOURNAL_PAGE,
                                                               .principal = "",
                                                               .place = INT64_MAX,
                                                               .max_rows = 99,
                                                               .wants_total = true},
                                       KEPT_MAX_BYTES, &f, &err),
                         STATUS_OK);
        ck_assert_uint_eq(f.n_total, FIXTURE_CONVERSATIONS - N_KINDS_OF_OPEN);
        journal_found_deinit(&f);
        s->type->close(s);
        kept_empty();
    }
    ck_assert_int_ge(n, 20);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_values,      test_alterations, test_unknown_kind,
                                  test_late_record, test_slices,      test_version_before};
    Suite *suite = suite_create("server/journal/chain");
    TCase *t = tcase_create("all");
    SRunner *runner;
    int failed;

    faulty_vfs_install();
    tcase_add_checked_fixture(t, kept_setup, kept_teardown);
    tcase_set_timeout(t, 120);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(t, tests[i]);
    suite_add_tcase(suite, t);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
