/* What every store does, whatever it keeps its records in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "tests/unit/server/journal/kept_store.h"

/* What was committed is read again, also after the store was opened anew, by id, request and name;
 * to another principal it is not there. */
START_TEST(test_kept)
{
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "berta"};
    struct journal_store *s = opened();
    struct journal_record r = record(JOURNAL_OPEN, 0, 0, "o");
    uint8_t secret[JOURNAL_SECRET_BYTES];

    memcpy(secret, s->secret, sizeof(secret));
    r.request_id = "once";
    r.name = "home";
    commit(s, r);
    commit(s, record(JOURNAL_ACCEPT, 0, 1, "a1"));
    commit(s, record(JOURNAL_FINISH, 0, 1, "f1"));
    commit(s, record(JOURNAL_ACCEPT, 0, 2, "a2"));
    commit(s, record(JOURNAL_WITHDRAW, 0, 2, ""));
    commit(s, record(JOURNAL_OBSERVE, 0, 2, "b2"));
    r = record(JOURNAL_UPDATE, 0, 0, "u1");
    r.generation = 0;
    commit(s, r);
    r.body = "u2";
    commit(s, r);
    s->type->close(s);
    s = opened();
    ck_assert_mem_eq(s->secret, secret, sizeof(secret));
    ck_assert_str_eq(stored(s, 0), "1.1.0:o 3.1.1:a1 4.1.1:f1 5.1.2:b2 2.0.0:u2");
    memcpy(q.id, kept_ids[0], sizeof(q.id));
    ck_assert_str_eq(stored_by(s, &q), "");
    q = (struct journal_query){.by = JOURNAL_BY_REQUEST, .principal = "anna", .text = "once"};
    ck_assert_str_ne(stored_by(s, &q), "");
    q.principal = "berta";
    ck_assert_str_eq(stored_by(s, &q), "");
    q = (struct journal_query){.by = JOURNAL_BY_NAME, .principal = "anna", .text = "home"};
    ck_assert_str_ne(stored_by(s, &q), "");
    r = record(JOURNAL_OPEN, 1, 0, "p"); /* takes the name */
    r.name = "home";
    commit(s, r);
    ck_assert_str_eq(stored_by(s, &q), "1.1.0:p");
    s->type->close(s);
}
END_TEST

/* Turns are found by their key in the order of its parts, until they are withdrawn or their
 * conversation is closed; to another principal they are not there. */
START_TEST(test_keys)
{
    struct journal_query q = {.by = JOURNAL_BY_KEY, .principal = "anna", .text = "key"};
    struct journal_store *s = opened();
    uint64_t n_conversations, n_turns;
    struct error err = {0};

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    commit(s, record(JOURNAL_OPEN, 1, 0, "p"));
    ck_assert_str_eq(stored_by(s, &q), "");
    commit_keyed(s, 1, 1, 1, "second");
    commit_keyed(s, 0, 1, 0, "first");
    s->type->close(s);
    s = opened();
    ck_assert_str_eq(stored_by(s, &q), "9.1.1:first 9.1.1:second");
    q.principal = "berta";
    ck_assert_str_eq(stored_by(s, &q), "");
    q = (struct journal_query){.by = JOURNAL_BY_KEY, .principal = "anna", .text = "ke"};
    ck_assert_str_eq(stored_by(s, &q), "");
    q.text = "key";
    commit(s, record(JOURNAL_WITHDRAW, 0, 1, ""));
    ck_assert_str_eq(stored_by(s, &q), "9.1.1:second");
    commit_keyed(s, 0, 1, 0, "again");
    commit_keyed(s, 0, 2, 0, "later"); /* in place of it */
    ck_assert_str_eq(stored_by(s, &q), "9.1.2:later 9.1.1:second");
    ck_assert_int_eq(s->type->check(s, &n_conversations, &n_turns, &err), STATUS_OK);
    commit(s, record(JOURNAL_CLOSE, 1, 0, ""));
    ck_assert_str_eq(stored_by(s, &q), "9.1.2:later");
    s->type->close(s);
}
END_TEST

/* What nobody sends again goes with later requests. */
START_TEST(test_old_keys)
{
    struct journal_query q = {.by = JOURNAL_BY_KEY, .principal = "anna", .text = "old"};
    struct journal_store *s = opened();
    struct journal_record r = record(JOURNAL_ACCEPT, 0, 1, "a");

    for (int i = 0; i < 3; i++)
        commit(s, record(JOURNAL_OPEN, i, 0, "o"));
    r.principal = "anna";
    r.key = "old";
    r.unix_ms = 10;
    r.key_until_unix_ms = 20;
    commit(s, r);
    commit(s, record(JOURNAL_FINISH, 0, 1, "f"));
    r = record(JOURNAL_ACCEPT, 1, 1, "a");
    r.principal = "anna";
    r.key = "next";
    r.unix_ms = 30; /* its own time ends nothing */
    r.keys_over_unix_ms = 20;
    commit(s, r);
    ck_assert_str_eq(stored_by(s, &q), "9.1.1:");
    r = record(JOURNAL_ACCEPT, 2, 1, "a");
    r.principal = "anna";
    r.key = "last";
    r.unix_ms = 31;
    r.keys_over_unix_ms = 21;
    commit(s, r);
    ck_assert_str_eq(stored_by(s, &q), "");
    ck_assert_str_eq(stored(s, 0), "");
    q.text = "next"; /* it is not for its turn alone */
    ck_assert_str_eq(stored_by(s, &q), "9.1.1:");
    s->type->close(s);
}
END_TEST

/* Which conversation each record of one is of: the number of its id. */
static const char *owners_of(struct journal_store *s, int conversation)
{
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    static char out[64];
    struct journal_found f;
    struct error err = {0};
    size_t n = 0;

    memcpy(q.id, kept_ids[conversation], sizeof(q.id));
    journal_found_init(&f);
    ck_assert_int_eq(s->type->read(s, &q, KEPT_MAX_BYTES, &f, &err), STATUS_OK);
    for (struct link *l = list_first(&f.events); l != NULL; l = list_next(&f.events, l)) {
        const struct journal_event *e = container_of(l, struct journal_event, link);

        for (char i = 0; i < 3; i++)
            if (memcmp(e->conversation, kept_ids[(int)i], JOURNAL_ID_BYTES) == 0)
                out[n++] = (char)('0' + i);
    }
    out[n] = '\0';
    journal_found_deinit(&f);
    return out;
}

/* A fork has the past of its parent until then, whatever happens to that, and pins it: a closed
 * parent is deleted with its last fork. */
START_TEST(test_forks)
{
    struct journal_store *s = opened();
    struct journal_record r = record(JOURNAL_OPEN, 1, 1, "fork");
    uint64_t n_conversations, n_turns;
    struct error err = {0};

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    commit(s, record(JOURNAL_OBSERVE, 0, 1, "b1"));
    r.parent = kept_ids[0];
    commit(s, r);
    commit(s, record(JOURNAL_OBSERVE, 0, 2, "b2"));
    r = record(JOURNAL_OPEN, 2, 1, "again");
    r.parent = kept_ids[1];
    commit(s, r);
    commit(s, record(JOURNAL_OBSERVE, 1, 2, "c2"));
    ck_assert_str_eq(stored(s, 1), "1.1.0:o 5.1.1:b1 1.1.1:fork 5.1.2:c2");
    ck_assert_str_eq(owners_of(s, 1), "0011");
    ck_assert_str_eq(owners_of(s, 2), "0012");
    ck_assert_str_eq(stored(s, 2), "1.1.0:o 5.1.1:b1 1.1.1:fork 1.1.1:again");
    commit(s, record(JOURNAL_CLOSE, 0, 0, ""));
    commit(s, record(JOURNAL_CLOSE, 1, 0, ""));
    ck_assert_str_eq(stored(s, 0), "");
    ck_assert_str_eq(stored(s, 1), "");
    ck_assert_str_eq(stored(s, 2), "1.1.0:o 5.1.1:b1 1.1.1:fork 1.1.1:again");
    ck_assert_msg(s->type->check(s, &n_conversations, &n_turns, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq(n_conversations, 1);
    ck_assert_uint_eq(n_turns, 3);
    commit(s, record(JOURNAL_CLOSE, 2, 0, ""));
    ck_assert_int_eq(s->type->check(s, &n_conversations, &n_turns, &err), STATUS_OK);
    ck_assert_uint_eq(n_turns, 0);
    s->type->close(s);
}
END_TEST

/* A transaction is there wholly or not at all; a place is taken once. */
START_TEST(test_atomic)
{
    struct journal_store *s = opened();
    struct journal_record open = record(JOURNAL_OPEN, 0, 0, "o");
    struct journal_record accept = record(JOURNAL_ACCEPT, 0, 1, "a");
    const struct journal_record *all[] = {&open, &accept, &accept};
    struct error err = {0};

    ck_assert_int_eq(s->type->commit(s, all, 3, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(err.reason, REASON_JOURNAL_FAILING);
    ck_assert_str_eq(stored(s, 0), "");
    ck_assert_int_eq(s->type->commit(s, all, 2, &err), STATUS_OK);
    ck_assert_str_eq(stored(s, 0), "1.1.0:o 3.1.1:a");
    s->type->close(s);
}
END_TEST

/* What is read is bounded. */
START_TEST(test_bound)
{
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_store *s = opened();
    struct journal_found f;
    struct error err = {0};

    memcpy(q.id, kept_ids[0], sizeof(q.id));
    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    commit(s, record(JOURNAL_OBSERVE, 0, 1, "many bytes"));
    journal_found_init(&f);
    ck_assert_int_eq(s->type->read(s, &q, 8, &f, &err), STATUS_EXHAUSTED);
    ck_assert(!f.is_found && list_is_empty(&f.events));
    s->type->close(s);
}
END_TEST

static const char *block(struct journal_store *s, int checkpoint, uint32_t number)
{
    struct journal_query q = {.by = JOURNAL_BLOCKS, .number = number};

    memcpy(q.id, kept_ids[checkpoint], JOURNAL_ID_BYTES);
    return stored_by(s, &q);
}

/* A checkpoint replaces the one before as a whole; one that was never completed is gone with the
 * next opening, and a set that was deleted at once. */
START_TEST(test_checkpoints)
{
    struct journal_store *s = opened();

    commit(s, part_of(0, 0, "old"));
    commit(s, part_of(0, 1, "older"));
    commit(s, part_of(0, 1, "part"));
    ck_assert_str_eq(checkpoints(s), "");
    commit(s, of_params(JOURNAL_CHECKPOINT, 0, "first"));
    commit(s, part_of(1, 0, "new"));
    s->type->close(s);
    s = opened();
    ck_assert_str_eq(checkpoints(s), "17.0.0:first");
    ck_assert_str_eq(block(s, 0, 0), "16.0.0:old");
    ck_assert_str_eq(block(s, 0, 1), "16.0.1:part");
    ck_assert_str_eq(block(s, 0, 2), "");
    ck_assert_str_eq(block(s, 1, 0), "");
    commit(s, part_of(1, 0, "new"));
    commit(s, of_params(JOURNAL_CHECKPOINT, 1, "second"));
    ck_assert_str_eq(checkpoints(s), "17.0.0:second");
    ck_assert_str_eq(block(s, 0, 0), "");
    ck_assert_str_eq(block(s, 1, 0), "16.0.0:new");
    commit(s, part_of(2, 0, "begun"));
    commit(s, of_params(JOURNAL_NO_PARAMS, 2, ""));
    ck_assert_str_eq(checkpoints(s), "");
    ck_assert_str_eq(block(s, 1, 0), "");
    ck_assert_str_eq(block(s, 2, 0), "");
    s->type->close(s);
}
END_TEST

static struct journal_record at_time(struct journal_record r, uint64_t unix_ms)
{
    r.unix_ms = unix_ms;
    return r;
}

/* Lists tell the turns that are complete, of what is open and the principal's, by pages. */
START_TEST(test_list)
{
    struct journal_store *s = opened();
    struct journal_record other = record(JOURNAL_OPEN, 3, 0, "terms"),
                          fork = record(JOURNAL_OPEN, 2, 1, "terms"),
                          update = record(JOURNAL_UPDATE, 0, 0, "updated");
    struct journal_query page = {.by = JOURNAL_PAGE,
                                 .principal = "anna",
                                 .place = INT64_MAX,
                                 .max_rows = 2,
                                 .wants_total = true};
    struct journal_query sweep = {.by = JOURNAL_SWEEP, .max_rows = 3};
    struct journal_record rewind = record(JOURNAL_REWIND, 1, 0, "");
    struct journal_record keyed = record(JOURNAL_ACCEPT, 4, 1, "a");

    other.principal = "ben";
    fork.parent = kept_ids[0];
    update.generation = 0;
    rewind.generation = 2;
    commit(s, at_time(record(JOURNAL_OPEN, 0, 0, "terms"), 1));
    commit(s, at_time(record(JOURNAL_ACCEPT, 0, 1, "a"), 2));
    commit(s, at_time(record(JOURNAL_FINISH, 0, 1, "f"), 3));
    commit(s, at_time(record(JOURNAL_ACCEPT, 0, 2, "a"), 4));
    commit(s, at_time(update, 9));
    commit(s, at_time(record(JOURNAL_OPEN, 1, 0, "terms"), 5));
    commit(s, at_time(record(JOURNAL_OBSERVE, 1, 1, "o"), 6));
    commit(s, at_time(fork, 7));
    commit(s, at_time(other, 8));
    ck_assert_str_eq(listed(s, &page), "2:1.1.7 1:1.1.6[3]…");
    page.wants_total = false;
    ck_assert_str_eq(listed(s, &page), "0:1.1.4");
    ck_assert_str_eq(listed(s, &sweep), "0:1.1.4 1:1.1.6 2:1.1.7…");
    ck_assert_str_eq(listed(s, &sweep), "3:0.1.8");
    commit(s, at_time(rewind, 10));
    commit(s, record(JOURNAL_CLOSE, 0, 0, ""));
    page.place = INT64_MAX;
    page.wants_total = true;
    ck_assert_str_eq(listed(s, &page), "2:1.1.7 1:0.2.10[2]…");
    keyed.principal = "anna";
    keyed.key = "key";
    keyed.key_until_unix_ms = 100; /* the conversation is for this request alone */
    commit(s, record(JOURNAL_OPEN, 4, 0, "terms"));
    commit(s, keyed);
    page.place = INT64_MAX;
    ck_assert_str_eq(listed(s, &page), "2:1.1.7 1:0.2.10[2]…");
    keyed.key = "another";
    keyed.unix_ms = 10;
    memcpy(keyed.conversation, kept_ids[1], sizeof(keyed.conversation));
    keyed.generation = 2;
    keyed.key_until_unix_ms = 0;
    commit(s, keyed);
    page.place = INT64_MAX;
    ck_assert_str_eq(listed(s, &page), "2:1.1.7 1:0.2.10[2]…");
    s->type->close(s);
}
END_TEST

/* The cases of a store of any kind: `test_store` for SQLite, `test_store postgres` for the database
 * of PARLEY_TEST_POSTGRES. */
int main(int argc, char **argv)
{
    const bool is_postgres = argc > 1 && strcmp(argv[1], "postgres") == 0;
    Suite *suite = suite_create("server/journal/store");
    TCase *t = tcase_create("all");
    SRunner *runner;
    int failed;

    kept_choose(is_postgres);
    tcase_add_checked_fixture(t, kept_setup, kept_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_kept);
    tcase_add_test(t, test_keys);
    tcase_add_test(t, test_old_keys);
    tcase_add_test(t, test_forks);
    tcase_add_test(t, test_atomic);
    tcase_add_test(t, test_bound);
    tcase_add_test(t, test_checkpoints);
    tcase_add_test(t, test_list);
    suite_add_tcase(suite, t);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
