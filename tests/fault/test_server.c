/* Conversations when memory fails: a refused operation changes nothing, and succeeds when it is
 * repeated. */
#include <stdlib.h>
#include <string.h>

#include "server/conversation/observed.h"
#include "server/conversation/opening.h"
#include "tests/fault/sweep.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

/* Repeats until success; a fault hits once, so the second attempt must succeed. */
static bool has_failed;

static bool worked(enum status rc)
{
    ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
    if (rc != STATUS_OK) {
        ck_assert(!has_failed);
        has_failed = true;
    }
    return rc == STATUS_OK;
}

static struct conversation *open_one(struct fake_server *s)
{
    static const struct logit_bias bias = {3, 1.0f};
    static const struct text stop = {"END", 3};
    struct sampling_overrides overrides = {
        .given = SAMPLING_STOPS | SAMPLING_BIASES,
        .values = {.stops = &stop, .n_stops = 1, .biases = &bias, .n_biases = 1},
    };
    struct pair pair = {"key", "value"};
    struct open_request r = {.system = "brief",
                             .system_len = 5,
                             .overrides = &overrides,
                             .metadata = &pair,
                             .n_metadata = 1};
    struct conversation *c = NULL;
    struct error err;

    while (!worked(opening_open(&c, &s->all, &s->model, "one", &r, &err)))
        ck_assert_uint_eq(s->all.n + s->all.opened.by_id.n, 0);
    return c;
}

static struct conversation *fork_one(struct conversation *c)
{
    struct pair pair = {"key", "value"};
    char parent[CONVERSATION_ID_CHARS];
    struct fork_request r = {.parent = parent, .metadata = &pair, .n_metadata = 1};
    struct conversation *f = NULL;
    struct error err;
    uint32_t n;

    conversation_id_format(&c->id, parent);
    while (!worked(opening_fork(&f, &n, c->all, "two", &r, &err)))
        ck_assert_uint_eq(c->all->n + c->all->opened.by_id.n, 2);
    return f;
}

static void update_one(struct conversation *c, struct conversation *f)
{
    struct sampling_overrides overrides = {.given = SAMPLING_TOP_K, .values = {.top_k = 2}};
    struct pair pair = {"other", "value"};
    const struct update_request r = {.has_overrides = true,
                                     .overrides = &overrides,
                                     .has_ttl = true,
                                     .ttl_ms = 60000,
                                     .has_metadata = true,
                                     .metadata = &pair,
                                     .n_metadata = 1};
    const struct conversation_options *options = f->host.options;
    struct error err;

    while (!worked(conversation_update(c, &r, &err))) {
        ck_assert_ptr_eq(c->host.options, options);
        ck_assert_str_eq(c->metadata->pairs[0].key, "key");
    }
    ck_assert_uint_eq(c->host.options->overrides->given, SAMPLING_TOP_K);
    ck_assert_uint_eq(c->host.options->ttl_ms, 60000);
    ck_assert_str_eq(c->metadata->pairs[0].key, "other");
    ck_assert_ptr_eq(f->host.options, options);
}

/* Runs a turn with a second reader, until both have the whole reply. */
static void talk(struct fake_server *s, struct conversation *c, uint32_t number)
{
    struct sampling_overrides overrides = {.given = SAMPLING_TOP_K, .values = {.top_k = 3}};
    struct message m = {.role = ROLE_USER, .text = "say 3", .len = 5};
    struct turn_request r = {.number = number,
                             .messages = &m,
                             .n_messages = 1,
                             .overrides = &overrides,
                             .n_logprobs = 2};
    bool is_done = false;

    while (!is_done) {
        struct fake_reader readers[2];
        struct error err;

        for (size_t i = 0; i < 2; i++) {
            fake_reader_init(&readers[i]);
            while (!worked(conversation_turn(c, &r, &readers[i].reader, &err)))
                ck_assert_uint_eq(c->host.n_turns, number - 1);
        }
        fake_server_run(s);
        for (size_t i = 0; i < 2; i++) {
            struct turn_event e;

            while (reader_next(&readers[i].reader, &e))
                is_done = e.kind == EVENT_DONE;
            if (i == 1 && e.kind == EVENT_FAILED)
                (void)worked(e.err->status);
            fake_reader_deinit(&readers[i]);
        }
        ck_assert_uint_eq(c->host.n_turns, is_done ? number : number - 1);
        ck_assert_uint_eq(fake_clone_n_turns(c), observed_n_acted(c->host.newest));
        ck_assert_uint_eq(c->host.n_live, 0);
    }
    ck_assert_str_eq(c->host.newest->text, "<0><1><2>");
}

/* A turn without a reply, complete at once. */
static void tell(struct conversation *c, uint32_t number)
{
    struct message m = {.role = ROLE_USER, .text = "say 3", .len = 5};
    struct turn_request r = {
        .number = number, .messages = &m, .n_messages = 1, .is_observed = true};
    struct fake_reader reader;
    struct error err;

    fake_reader_init(&reader);
    while (!worked(conversation_turn(c, &r, &reader.reader, &err))) {
        ck_assert_uint_eq(c->host.n_turns, number - 1);
        ck_assert_uint_eq(c->host.n_live, 0);
    }
    ck_assert_uint_eq(c->host.n_turns, number);
    fake_reader_deinit(&reader);
}

static enum status converse(void *arg)
{
    long armed = fault_after;
    struct conversation *c, *f;
    struct fake_server s;

    has_failed = false;
    fault_after = -1;
    fake_server_open(&s, "fake", 0, NULL);
    fault_after = armed;
    c = open_one(&s);
    talk(&s, c, 1);
    f = fork_one(c);
    update_one(c, f);
    talk(&s, f, 2);
    talk(&s, c, 2);
    tell(c, 3);
    talk(&s, c, 4);
    armed = fault_after;
    fault_after = -1;
    fake_server_close(&s);
    fault_after = armed;
    return has_failed ? STATUS_EXHAUSTED : STATUS_OK;
}

/* Opening, turns, forks, updates. */
START_TEST(test_conversation)
{
    ck_assert_int_gt(sweep(converse, NULL), 30);
}
END_TEST

/* The table grows, or gets longer chains: every entry is found. */
static enum status fill(void *arg)
{
    enum { N = 80 };
    long armed = fault_after;
    struct conversation *c[N];
    struct fake_server s;
    struct open_request r = {.system = ""};
    struct error err;

    has_failed = false;
    fault_after = -1;
    fake_server_open(&s, "fake", 0, NULL);
    fault_after = armed;
    for (size_t i = 0; i < N; i++)
        while (!worked(conversation_open(&c[i], &s.all, &s.model, &r, &err)))
            continue;
    armed = fault_after;
    fault_after = -1;
    for (size_t i = 0; i < N; i++)
        ck_assert_ptr_eq(conversations_get(&s.all, &c[i]->id), c[i]);
    fake_server_close(&s);
    fault_after = armed;
    return has_failed ? STATUS_EXHAUSTED : STATUS_OK;
}

START_TEST(test_many)
{
    ck_assert_int_gt(sweep(fill, NULL), 240);
}
END_TEST

SUITE_MAIN("fault/server", test_conversation, test_many)
