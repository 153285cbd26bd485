#include "server/conversation/opening.h"

#include <string.h>

#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

static struct fake_server s;

static enum status opens(struct conversation **out, const char *request_id,
                         const struct open_request *r, struct error *err)
{
    return opening_open(out, &s.all, &s.model, request_id, r, err);
}

static const struct open_request no_options;

/* Opens, which must succeed. */
static struct conversation *opened(const char *request_id, const struct open_request *r)
{
    struct conversation *c = NULL;
    struct error err;

    ck_assert_int_eq(opens(&c, request_id, r, &err), STATUS_OK);
    return c;
}

static void not_opened(const char *request_id, const struct open_request *r)
{
    struct conversation *c = NULL;
    struct error err;

    ck_assert_int_eq(opens(&c, request_id, r, &err), STATUS_EXISTS);
    ck_assert_str_eq(err.field, "request_id");
    ck_assert_ptr_null(c);
}

/* The same id returns the conversation, also while the server stops; another id, or none, opens
 * another. Closing it frees the id. */
START_TEST(test_again)
{
    struct conversation *c, *other;
    struct error err;

    fake_server_open(&s, "fake", 0, NULL);
    c = opened("one", &no_options);
    ck_assert_ptr_eq(opened("one", &no_options), c);
    ck_assert_ptr_ne(opened("two", &no_options), c);
    ck_assert_ptr_ne(opened("", &no_options), opened("", &no_options));
    ck_assert_uint_eq(s.all.n, 4);
    ck_assert_uint_eq(s.all.opened.by_id.n, 2);
    conversation_close(c, WATCH_CLOSED, "");
    ck_assert_uint_eq(s.all.opened.by_id.n, 1);
    c = opened("one", &(struct open_request){.ttl_ms = 5});
    ck_assert_uint_eq(s.all.n, 4);
    conversations_drain(&s.all);
    ck_assert_ptr_eq(opened("one", &(struct open_request){.ttl_ms = 5}), c);
    ck_assert_int_eq(opens(&other, "three", &no_options, &err), STATUS_UNAVAILABLE);
    fake_server_close(&s);
}
END_TEST

/* An expired conversation frees its id. */
START_TEST(test_expired)
{
    const struct open_request brief = {.ttl_ms = 5};

    fake_server_open(&s, "fake", 0, NULL);
    (void)opened("one", &brief);
    s.now_us += 6000;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 0);
    ck_assert_uint_eq(s.all.opened.by_id.n, 0);
    (void)opened("one", &no_options);
    fake_server_close(&s);
}
END_TEST

/* Ids have from 1 to 128 bytes. */
START_TEST(test_long_id)
{
    char id[REQUEST_ID_MAX_BYTES + 2] = {0};
    struct conversation *c;
    struct error err;

    fake_server_open(&s, "fake", 0, NULL);
    memset(id, 'x', REQUEST_ID_MAX_BYTES);
    ck_assert_ptr_eq(opened(id, &no_options), opened(id, &no_options));
    id[REQUEST_ID_MAX_BYTES] = 'x';
    ck_assert_int_eq(opens(&c, id, &no_options, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "request_id");
    ck_assert_uint_eq(s.all.n, 1);
    fake_server_close(&s);
}
END_TEST

/* Each field makes another request; one that is refused takes no id. */
START_TEST(test_another_request)
{
    static const struct text stops[] = {{"END", 3}, {"STOP", 4}};
    static const struct logit_bias biases[] = {{1, 0.5f}, {2, 0.25f}, {2, 0.75f}};
    static const struct pair pairs[] = {{"a", "b"}, {"ab", ""}, {"a", "c"}};
    static const struct sampling_overrides samplings[] = {
        {.given = SAMPLING_TEMPERATURE},
        {.given = SAMPLING_TEMPERATURE, .values = {.temperature = 0.5f}},
        {.given = SAMPLING_TOP_K, .values = {.top_k = 2}},
        {.given = SAMPLING_TOP_P, .values = {.top_p = 0.5f}},
        {.given = SAMPLING_MIN_P, .values = {.min_p = 0.5f}},
        {.given = SAMPLING_REPETITION_PENALTY, .values = {.repetition_penalty = 0.5f}},
        {.given = SAMPLING_PRESENCE_PENALTY, .values = {.presence_penalty = 0.5f}},
        {.given = SAMPLING_FREQUENCY_PENALTY, .values = {.frequency_penalty = 0.5f}},
        {.given = SAMPLING_SEED, .values = {.seed = 0}},
        {.given = SAMPLING_SEED, .values = {.seed = 1}},
        {.given = SAMPLING_MAX_TOKENS, .values = {.max_tokens = 9}},
        {.given = SAMPLING_MIN_TOKENS, .values = {.min_tokens = 9}},
        {.given = SAMPLING_IGNORE_EOS, .values = {.ignore_eos = true}},
        {.given = SAMPLING_STOPS},
        {.given = SAMPLING_STOPS, .values = {.stops = stops, .n_stops = 1}},
        {.given = SAMPLING_STOPS, .values = {.stops = stops, .n_stops = 2}},
        {.given = SAMPLING_BIASES, .values = {.biases = biases, .n_biases = 1}},
        {.given = SAMPLING_BIASES, .values = {.biases = biases, .n_biases = 2}},
        {.given = SAMPLING_BIASES, .values = {.biases = biases + 1, .n_biases = 1}},
        {.given = SAMPLING_BIASES, .values = {.biases = biases + 2, .n_biases = 1}},
    };
    enum { N_SAMPLINGS = sizeof(samplings) / sizeof(samplings[0]), N = 9 + N_SAMPLINGS };
    struct open_request all[N] = {
        {.system = NULL},
        {.system = "brief", .system_len = 5},
        {.ttl_ms = 5},
        {.limits = {.max_turns = 5}},
        {.limits = {.max_tokens = 5}},
        {.limits = {.priority = 5}},
        {.metadata = pairs, .n_metadata = 1},
        {.metadata = pairs + 1, .n_metadata = 1},
        {.metadata = pairs + 2, .n_metadata = 1},
    };
    struct conversation *c;
    struct error err;

    for (size_t i = 0; i < N_SAMPLINGS; i++)
        all[9 + i].overrides = &samplings[i];
    fake_server_open(&s, "fake", 0, NULL);
    ck_assert_int_eq(opens(&c, "one", &(struct open_request){.limits = {.priority = 101}}, &err),
                     STATUS_INVALID);
    for (size_t i = 0; i < N; i++) {
        c = opened("one", &all[i]);
        for (size_t j = 0; j < N; j++) {
            if (i == j)
                ck_assert_ptr_eq(opened("one", &all[j]), c);
            else
                not_opened("one", &all[j]);
        }
        ck_assert_uint_eq(s.all.n, 1);
        conversation_close(c, WATCH_CLOSED, "");
    }
    fake_server_close(&s);
}
END_TEST

/* Entries of maps may come in any order. */
START_TEST(test_order)
{
    static const struct logit_bias biases[] = {{1, 0.5f}, {2, 0.25f}, {1, 0.5f}};
    static const struct pair pairs[] = {{"a", "b"}, {"c", "d"}, {"a", "b"}};
    struct sampling_overrides samplings[2] = {
        {.given = SAMPLING_BIASES, .values = {.biases = biases, .n_biases = 2}},
        {.given = SAMPLING_BIASES, .values = {.biases = biases + 1, .n_biases = 2}},
    };
    struct open_request r[2];
    struct conversation *c;

    for (size_t i = 0; i < 2; i++)
        r[i] = (struct open_request){
            .overrides = &samplings[i], .metadata = pairs + i, .n_metadata = 2};
    fake_server_open(&s, "fake", 0, NULL);
    c = opened("one", &r[0]);
    ck_assert_ptr_eq(opened("one", &r[1]), c);
    fake_server_close(&s);
}
END_TEST

static enum status forks(struct conversation **out, uint32_t *ret_turns, const char *request_id,
                         const struct fork_request *r, struct error *err)
{
    return opening_fork(out, ret_turns, &s.all, request_id, r, err);
}

/* A fork that is repeated is the same one and tells the turns that it began with, though it or its
 * parent went on, and though its parent was closed. */
START_TEST(test_fork)
{
    char parent[CONVERSATION_ID_CHARS];
    struct fork_request r = {.parent = parent};
    struct conversation *c, *f, *again;
    struct error err;
    uint32_t n;

    fake_server_open(&s, "fake", 0, NULL);
    c = fake_conversation(&s);
    conversation_id_format(&c->id, parent);
    fake_turn_whole(&s, c, 1, "say 1", FINISH_STOP, "<0>");
    ck_assert_int_eq(forks(&f, &n, "one", &r, &err), STATUS_OK);
    ck_assert_uint_eq(n, 1);
    fake_turn_whole(&s, c, 2, "say 1", FINISH_STOP, "<0>");
    fake_turn_whole(&s, f, 2, "say 2", FINISH_STOP, "<0><1>");
    conversation_close(c, WATCH_CLOSED, "");
    ck_assert_int_eq(forks(&again, &n, "one", &r, &err), STATUS_OK);
    ck_assert_ptr_eq(again, f);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(forks(&again, &n, "two", &r, &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(forks(&again, &n, "", &r, &err), STATUS_NOT_FOUND);
    ck_assert_uint_eq(s.all.opened.by_id.n, 1);
    fake_server_close(&s);
}
END_TEST

/* Another fork, or an open, under the same id is refused; without an id each is a new one. */
START_TEST(test_another_fork)
{
    static const struct pair pair = {"a", "b"};
    char parent[CONVERSATION_ID_CHARS], sibling[CONVERSATION_ID_CHARS];
    const struct fork_request r = {.parent = parent};
    const struct fork_request others[] = {
        {.parent = sibling},
        {.parent = parent, .has_at_turn = true},
        {.parent = parent, .has_at_turn = true, .at_turn = 1},
        {.parent = parent, .metadata = &pair, .n_metadata = 1},
    };
    struct conversation *c, *f, *again;
    struct error err;
    uint32_t n;

    fake_server_open(&s, "fake", 0, NULL);
    c = fake_conversation(&s);
    conversation_id_format(&c->id, parent);
    conversation_id_format(&fake_conversation(&s)->id, sibling);
    fake_turn_whole(&s, c, 1, "say 1", FINISH_STOP, "<0>");
    ck_assert_int_eq(forks(&f, &n, "one", &r, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        ck_assert_int_eq(forks(&again, &n, "one", &others[i], &err), STATUS_EXISTS);
        ck_assert_str_eq(err.field, "request_id");
    }
    not_opened("one", &no_options);
    ck_assert_int_eq(forks(&again, &n, "", &r, &err), STATUS_OK);
    ck_assert_ptr_ne(again, f);
    ck_assert_int_eq(forks(&f, &n, "", &r, &err), STATUS_OK);
    ck_assert_ptr_ne(again, f);
    fake_server_close(&s);
}
END_TEST

SUITE_MAIN("server/conversation/opening", test_again, test_expired, test_long_id,
           test_another_request, test_order, test_fork, test_another_fork)
