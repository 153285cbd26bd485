#include "server/conversation/conversation.h"

#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fake_server.h"

static struct fake_server s;

static void setup(void)
{
    fake_server_open(&s, "fake", 0, NULL);
}

static void teardown(void)
{
    fake_server_close(&s);
}

static enum status open_with(struct conversation **out, const struct open_request *r,
                             struct error *err)
{
    return conversation_open(out, &s.all, &s.model, r, err);
}

/* A conversation is found by its id until it is closed; other texts find none. */
START_TEST(test_found_by_id)
{
    struct conversation *c = fake_conversation(&s), *found;
    char id[CONVERSATION_ID_CHARS];
    struct error err;

    conversation_id_format(&c->id, id);
    ck_assert_uint_eq(strlen(id), 32);
    ck_assert_int_eq(conversations_find(&found, &s.all, 0, id, &err), STATUS_OK);
    ck_assert_ptr_eq(found, c);
    ck_assert_int_eq(conversations_find(&found, &s.all, 0, "", &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(conversations_find(&found, &s.all, 0, "nobody", &err), STATUS_NOT_FOUND);
    id[0] = id[0] == 'f' ? '0' : 'f';
    ck_assert_int_eq(conversations_find(&found, &s.all, 0, id, &err), STATUS_NOT_FOUND);
    conversation_id_format(&c->id, id);
    conversation_close(c, WATCH_CLOSED, "");
    ck_assert_int_eq(conversations_find(&found, &s.all, 0, id, &err), STATUS_NOT_FOUND);
}
END_TEST

/* Thousands of conversations are each found, and listed newest first. */
START_TEST(test_many)
{
    enum { N = 5000 };
    static struct conversation *c[N];
    struct conversation *at;
    size_t i;

    for (i = 0; i < N; i++)
        c[i] = fake_conversation(&s);
    for (i = 0; i < N; i++)
        ck_assert_ptr_eq(conversations_get(&s.all, &c[i]->id), c[i]);
    for (at = conversations_newest(&s.all), i = N; at != NULL; at = conversations_older(&s.all, at))
        ck_assert_ptr_eq(at, c[--i]);
    ck_assert_uint_eq(i, 0);
    for (i = 0; i < N; i += 3)
        conversation_close(c[i], WATCH_CLOSED, "");
    for (i = 0; i < N; i++)
        if (i % 3 != 0)
            ck_assert_ptr_eq(conversations_get(&s.all, &c[i]->id), c[i]);
    ck_assert_uint_eq(s.all.n, s.model.n_conversations);
}
END_TEST

/* The clone gets the system prompt. */
START_TEST(test_system)
{
    struct open_request r = {.system = "be brief", .system_len = 8};
    struct conversation *c;
    struct error err;

    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_OK);
    ck_assert_str_eq(fake_last_system(), "be brief");
    ck_assert_str_eq(c->host.options->system, "be brief");
    (void)fake_conversation(&s);
    ck_assert_str_eq(fake_last_system(), "");
}
END_TEST

/* Invalid requests are refused by field, and count for nothing. */
START_TEST(test_bad_opens)
{
    struct sampling_overrides cold = {.given = SAMPLING_TEMPERATURE, .values = {.temperature = -1}};
    struct pair pairs[METADATA_MAX_PAIRS + 1];
    struct open_request r;
    struct conversation *c;
    struct error err;
    char *big = calloc(1, METADATA_MAX_BYTES + 1);

    memset(big, 'x', METADATA_MAX_BYTES);
    for (size_t i = 0; i < METADATA_MAX_PAIRS + 1; i++)
        pairs[i] = (struct pair){.key = "k", .value = "v"};
    r = (struct open_request){.overrides = &cold};
    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "temperature");
    r = (struct open_request){.limits = {.priority = 101}};
    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "limits.priority");
    r = (struct open_request){.ttl_ms = UINT64_MAX};
    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "ttl_ms");
    r = (struct open_request){.metadata = pairs, .n_metadata = METADATA_MAX_PAIRS + 1};
    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "metadata");
    pairs[0].value = big;
    r.n_metadata = 1;
    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "metadata");
    r = (struct open_request){.system = big, .system_len = SYSTEM_MAX_BYTES + 1};
    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "system");
    ck_assert_uint_eq(s.all.n, 0);
    ck_assert_uint_eq(s.model.agent->n_clones, 0);
    s.model.state = MODEL_LOADING;
    r = (struct open_request){0};
    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_UNAVAILABLE);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    s.model.state = MODEL_READY;
    free(big);
}
END_TEST

/* Metadata are kept as given. */
START_TEST(test_metadata)
{
    struct pair pairs[] = {{"user", "ada"}, {"empty", ""}};
    struct open_request r = {.metadata = pairs, .n_metadata = 2};
    struct conversation *c;
    struct error err;

    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_OK);
    ck_assert_uint_eq(c->metadata->n_pairs, 2);
    ck_assert_str_eq(c->metadata->pairs[0].key, "user");
    ck_assert_str_eq(c->metadata->pairs[0].value, "ada");
    ck_assert_str_eq(c->metadata->pairs[1].value, "");
}
END_TEST

/* At the bound a further open is refused; a close makes room. */
START_TEST(test_max_conversations)
{
    struct conversations_config config = {.max_conversations = 2};
    struct open_request r = {0};
    struct fake_server small;
    struct conversation *c;
    struct error err;

    fake_server_open(&small, "fake", 0, &config);
    c = fake_conversation(&small);
    (void)fake_conversation(&small);
    ck_assert_int_eq(conversation_open(&c, &small.all, &small.model, &r, &err), STATUS_EXHAUSTED);
    ck_assert_str_eq(error_reason(&err), "LIMIT_REACHED");
    ck_assert_int_eq(conversation_fork(&c, conversations_newest(&small.all), 0, NULL, 0, &err),
                     STATUS_EXHAUSTED);
    ck_assert_uint_eq(small.model.agent->n_clones, 2);
    conversation_close(conversations_newest(&small.all), WATCH_CLOSED, "");
    (void)fake_conversation(&small);
    fake_server_close(&small);
}
END_TEST

/* With keys a principal may open half of them, and recalls no more from the journal. */
START_TEST(test_half_of_conversations)
{
    struct conversations_config config = {.max_conversations = 4};
    struct open_request alice = {.principal = 1}, bob = {.principal = 2};
    struct fake_server small;
    struct conversation *c;
    struct error err;

    fake_server_open(&small, "fake", 0, &config);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(conversation_open(&c, &small.all, &small.model, &alice, &err), STATUS_OK);
    ck_assert_int_eq(conversation_open(&c, &small.all, &small.model, &alice, &err),
                     STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "half of the limit of 4 open conversations"));
    ck_assert_ptr_nonnull(strstr(err.text, "--max-conversations"));
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(conversation_open(&c, &small.all, &small.model, &bob, &err), STATUS_OK);
    conversation_close(c, WATCH_CLOSED, "");
    ck_assert_int_eq(conversation_open(&c, &small.all, &small.model, &alice, &err),
                     STATUS_EXHAUSTED);
    ck_assert_int_eq(conversation_open(&c, &small.all, &small.model, &bob, &err), STATUS_OK);
    fake_server_close(&small);
}
END_TEST

/* The model's defaults, then the conversation's, then the turn's parameters; each overrides only
 * the given ones. */
START_TEST(test_sampling_layers)
{
    struct sampling_overrides mine = {.given = SAMPLING_TEMPERATURE | SAMPLING_MAX_TOKENS,
                                      .values = {.temperature = 0.5f, .max_tokens = 9}};
    struct sampling_overrides turns = {.given = SAMPLING_TEMPERATURE | SAMPLING_TOP_P,
                                       .values = {.temperature = 0.25f, .top_p = 0.75f}};
    struct message m = {.role = ROLE_USER, .text = "say 1", .len = 5};
    struct turn_request request = {.messages = &m, .n_messages = 1, .overrides = &turns};
    struct open_request r = {.overrides = &mine};
    struct conversation *c;
    struct fake_reader reader;
    struct error err;

    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_OK);
    fake_reader_init(&reader);
    ck_assert_int_eq(conversation_turn(c, &request, &reader.reader, &err), STATUS_OK);
    ck_assert(fake_last_sampling()->temperature == 0.25f);
    ck_assert(fake_last_sampling()->top_p == 0.75f);
    ck_assert_uint_eq(fake_last_sampling()->max_tokens, 9);
    ck_assert_uint_eq(fake_last_sampling()->top_k, 7);
    ck_assert(fake_last_sampling()->has_seed);
    ck_assert_uint_eq(fake_last_sampling()->seed, c->host.seed);
    fake_server_run(&s);
    fake_reader_deinit(&reader);
    fake_turn_whole(&s, c, 2, "say 1", FINISH_STOP, "<0>");
    ck_assert(fake_last_sampling()->temperature == 0.5f);
    ck_assert(fake_last_sampling()->top_p == 1.0f);
}
END_TEST

/* Each conversation draws its own seed; a fork has its parent's; a given seed is used. */
START_TEST(test_seeds)
{
    struct sampling_overrides given = {.given = SAMPLING_SEED, .values = {.seed = 42}};
    struct open_request r = {.overrides = &given};
    struct conversation *a = fake_conversation(&s), *b = fake_conversation(&s), *f, *g;
    struct error err;

    ck_assert_uint_ne(a->host.seed, b->host.seed);
    ck_assert_int_eq(conversation_fork(&f, a, 0, NULL, 0, &err), STATUS_OK);
    ck_assert_uint_eq(f->host.seed, a->host.seed);
    ck_assert_int_eq(open_with(&g, &r, &err), STATUS_OK);
    fake_turn_whole(&s, g, 1, "say 1", FINISH_STOP, "<0>");
    ck_assert_uint_eq(fake_last_sampling()->seed, 42);
}
END_TEST

/* An invalid turn names the field and starts nothing. */
START_TEST(test_bad_turns)
{
    struct conversation *c = fake_conversation(&s);
    struct sampling_overrides wrong = {.given = SAMPLING_TOP_P, .values = {.top_p = 1.5f}};
    struct message m = {.role = ROLE_USER, .text = "", .len = 0};
    struct turn_request request = {.n_messages = 0};
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    ck_assert_int_eq(conversation_turn(c, &request, &r.reader, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "messages");
    request.messages = &m;
    request.n_messages = 1;
    ck_assert_int_eq(conversation_turn(c, &request, &r.reader, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "messages[0].text");
    m.text = "say 1";
    m.len = 5;
    request.n_logprobs = SAMPLING_MAX_LOGPROBS + 1;
    ck_assert_int_eq(conversation_turn(c, &request, &r.reader, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "want_logprobs");
    request.n_logprobs = 0;
    request.overrides = &wrong;
    ck_assert_int_eq(conversation_turn(c, &request, &r.reader, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "top_p");
    ck_assert_uint_eq(c->host.n_live, 0);
    fake_reader_deinit(&r);
}
END_TEST

/* The conversation's own limits: turns, tokens of its context. */
START_TEST(test_limits)
{
    struct open_request r = {.limits = {.max_turns = 2, .max_tokens = 5}};
    struct conversation *c;
    struct fake_reader reader;
    struct error err;

    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_OK);
    /* The prompt is 3 tokens, so 2 are left. */
    fake_turn_whole(&s, c, 1, "say 9", FINISH_LENGTH, "<0><1>");
    fake_reader_init(&reader);
    ck_assert_int_eq(fake_turn(c, 2, "long 5", &reader, &err), STATUS_RANGE);
    ck_assert_str_eq(error_reason(&err), "CONTEXT_EXCEEDED");
    ck_assert_str_eq(err.field, "messages");
    ck_assert_uint_eq(fake_clone_n_dropped(c), 1);
    fake_turn_whole(&s, c, 2, "say 1", FINISH_STOP, "<0>");
    ck_assert_int_eq(fake_turn(c, 3, "say 1", &reader, &err), STATUS_PRECONDITION);
    ck_assert_str_eq(error_reason(&err), "CONVERSATION_FULL");
    fake_reader_deinit(&reader);
}
END_TEST

/* A transcript is bounded. */
START_TEST(test_transcript_limit)
{
    struct conversations_config config = {.max_transcript_bytes = 600};
    struct fake_server small;
    struct conversation *c;
    struct fake_reader r;
    struct error err;
    uint32_t n = 0;

    fake_server_open(&small, "fake", 0, &config);
    c = fake_conversation(&small);
    for (;;) {
        enum status rc;

        fake_reader_init(&r);
        rc = fake_turn(c, 0, "say 9", &r, &err);
        fake_server_run(&small);
        fake_reader_deinit(&r);
        if (rc == STATUS_RANGE)
            break;
        ck_assert_int_eq(rc, STATUS_OK);
        ck_assert_uint_lt(++n, 10);
    }
    ck_assert_uint_gt(n, 0);
    ck_assert_str_eq(error_reason(&err), "CONVERSATION_FULL");
    ck_assert_str_eq(err.field, "messages");
    fake_server_close(&small);
}
END_TEST

/* A fork shares the past and continues independently; its parent is unaffected. */
START_TEST(test_fork)
{
    struct pair pair = {"why", "test"};
    struct conversation *c = fake_conversation(&s), *f, *early;
    struct error err;

    fake_turn_whole(&s, c, 1, "say 1", FINISH_STOP, "<0>");
    fake_turn_whole(&s, c, 2, "say 2", FINISH_STOP, "<0><1>");
    ck_assert_int_eq(conversation_fork(&f, c, 2, &pair, 1, &err), STATUS_OK);
    ck_assert_uint_eq(f->host.n_turns, 2);
    ck_assert_ptr_eq(f->host.newest, c->host.newest);
    ck_assert_ptr_eq(f->host.options, c->host.options);
    ck_assert(f->has_parent);
    ck_assert_mem_eq(&f->parent, &c->id, sizeof(c->id));
    ck_assert_str_eq(f->metadata->pairs[0].value, "test");
    fake_turn_whole(&s, f, 3, "say 3", FINISH_STOP, "<0><1><2>");
    ck_assert_uint_eq(c->host.n_turns, 2);
    fake_turn_whole(&s, c, 3, "say 4", FINISH_STOP, "<0><1><2><3>");
    ck_assert_int_eq(conversation_fork(&early, c, 1, NULL, 0, &err), STATUS_OK);
    ck_assert_uint_eq(early->host.n_turns, 1);
    ck_assert_str_eq(early->host.newest->text, "<0>");
    ck_assert_int_eq(conversation_fork(&f, c, 4, NULL, 0, &err), STATUS_RANGE);
    conversation_close(c, WATCH_CLOSED, "");
    fake_turn_whole(&s, early, 2, "say 1", FINISH_STOP, "<0>");
    /* A shared turn can be repeated from the fork. */
    fake_turn_whole(&s, early, 1, "say 1", FINISH_STOP, "<0>");
}
END_TEST

/* A fork during a turn has the completed turns. */
START_TEST(test_fork_while_busy)
{
    struct conversation *c = fake_conversation(&s), *f;
    struct fake_reader r;
    struct error err;

    fake_turn_whole(&s, c, 1, "say 1", FINISH_STOP, "<0>");
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 2, "say 5", &r, &err), STATUS_OK);
    ck_assert(fake_server_step(&s));
    ck_assert_int_eq(conversation_fork(&f, c, c->host.n_turns, NULL, 0, &err), STATUS_OK);
    ck_assert_uint_eq(f->host.n_turns, 1);
    fake_turn_whole(&s, f, 2, "say 2", FINISH_STOP, "<0><1>");
    fake_reader_read(&r);
    ck_assert(r.is_done);
    fake_reader_deinit(&r);
}
END_TEST

/* Rewinding drops turns; their numbers can be used again. */
START_TEST(test_rewind)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    for (uint32_t i = 1; i <= 3; i++)
        fake_turn_whole(&s, c, i, "say 1", FINISH_STOP, "<0>");
    ck_assert_int_eq(conversation_rewind(c, 4, &err), STATUS_RANGE);
    ck_assert_int_eq(conversation_rewind(c, 1, &err), STATUS_OK);
    ck_assert_uint_eq(c->host.n_turns, 1);
    fake_turn_whole(&s, c, 2, "say 2", FINISH_STOP, "<0><1>");
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 3, "say 2", &r, &err), STATUS_OK);
    ck_assert_int_eq(conversation_rewind(c, 0, &err), STATUS_PRECONDITION);
    fake_server_run(&s);
    fake_reader_deinit(&r);
    ck_assert_int_eq(conversation_rewind(c, 0, &err), STATUS_OK);
    ck_assert_ptr_null(c->host.newest);
    fake_turn_whole(&s, c, 1, "say 3", FINISH_STOP, "<0><1><2>");
}
END_TEST

/* A rewind from a generation that is not the conversation's is refused. */
START_TEST(test_rewind_generation)
{
    struct conversation *c = fake_conversation(&s);
    struct error err;

    for (uint32_t i = 1; i <= 3; i++)
        fake_turn_whole(&s, c, i, "say 1", FINISH_STOP, "<0>");
    ck_assert_int_eq(conversation_rewind_from(c, 2, 1, &err), STATUS_PRECONDITION);
    ck_assert_str_eq(err.field, "generation");
    ck_assert_uint_eq(c->host.n_turns, 3);
    ck_assert_int_eq(conversation_rewind_from(c, 1, 4, &err), STATUS_RANGE);
    ck_assert_int_eq(conversation_rewind_from(c, 1, 2, &err), STATUS_OK);
    ck_assert_uint_eq(c->host.n_turns, 2);
    ck_assert_uint_eq(c->host.generation, 2);
    ck_assert_int_eq(conversation_rewind_from(c, 0, 1, &err), STATUS_OK);
    ck_assert_uint_eq(c->host.generation, 3);
    ck_assert_int_eq(conversation_rewind_from(c, 1, 1, &err), STATUS_PRECONDITION);
}
END_TEST

/* The last rewind, repeated, is done; once another turn has come it drops none. That holds for one
 * that dropped nothing, too. */
START_TEST(test_rewind_again)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r;
    struct error err;

    for (uint32_t to_turn = 1; to_turn <= 2; to_turn++) {
        uint32_t generation = c->host.generation;

        while (c->host.n_turns < 2)
            fake_turn_whole(&s, c, c->host.n_turns + 1, "say 1", FINISH_STOP, "<0>");
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(conversation_rewind_from(c, generation, to_turn, &err), STATUS_OK);
            ck_assert_uint_eq(c->host.n_turns, to_turn);
            ck_assert_uint_eq(c->host.generation, generation + 1);
        }
        ck_assert_int_eq(conversation_rewind_from(c, generation, 0, &err), STATUS_PRECONDITION);
        fake_reader_init(&r);
        ck_assert_int_eq(fake_turn(c, to_turn + 1, "say 1", &r, &err), STATUS_OK);
        ck_assert_int_eq(conversation_rewind_from(c, generation, to_turn, &err),
                         STATUS_PRECONDITION);
        ck_assert_str_eq(err.field, "generation");
        fake_server_run(&s);
        fake_reader_deinit(&r);
        for (uint32_t to = 0; to <= to_turn + 1; to++)
            ck_assert_int_eq(conversation_rewind_from(c, generation, to, &err),
                             STATUS_PRECONDITION);
        ck_assert_uint_eq(c->host.n_turns, to_turn + 1);
    }
}
END_TEST

/* Closing ends the turn in flight as cancelled; the conversation is freed when the step is back. */
START_TEST(test_close_while_busy)
{
    struct conversation *c = fake_conversation(&s);
    struct fake_reader r[2];
    struct error err;

    for (uint32_t i = 0; i < 2; i++) {
        fake_reader_init(&r[i]);
        ck_assert_int_eq(fake_turn(c, i + 1, "say 50", &r[i], &err), STATUS_OK);
    }
    ck_assert(fake_server_step(&s));
    conversation_close(c, WATCH_CLOSED, "");
    ck_assert_uint_eq(s.all.n, 0);
    fake_server_run(&s);
    ck_assert_uint_eq(s.all.n_closing, 0);
    for (size_t i = 0; i < 2; i++)
        fake_reader_read(&r[i]);
    ck_assert(r[0].is_done);
    ck_assert_int_eq(r[0].done.finish, FINISH_CANCELLED);
    ck_assert_int_eq(r[1].err.status, STATUS_CANCELLED);
    for (size_t i = 0; i < 2; i++)
        fake_reader_deinit(&r[i]);
}
END_TEST

/* Idle time counts from the end of the last turn, not from its arrival. */
START_TEST(test_expiry)
{
    struct open_request r = {.ttl_ms = 1000};
    struct conversation *c, *longer;
    struct fake_reader reader;
    struct error err;

    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_OK);
    r.ttl_ms = 5000;
    ck_assert_int_eq(open_with(&longer, &r, &err), STATUS_OK);
    ck_assert_uint_eq(s.expiry.at_us, s.now_us + 1000000);
    s.now_us += 900000;
    fake_reader_init(&reader);
    ck_assert_int_eq(fake_turn(c, 1, "say 3", &reader, &err), STATUS_OK);
    s.now_us += 600000; /* a slow turn: busy, not idle */
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 2);
    fake_server_run(&s);
    fake_reader_deinit(&reader);
    s.now_us += 900000;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 2);
    s.now_us += 100000;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 1);
    ck_assert_ptr_eq(conversations_newest(&s.all), longer);
    ck_assert_uint_gt(s.expiry.at_us, s.now_us);
    s.now_us += 5000000;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 0);
    ck_assert_uint_eq(s.expiry.at_us, 0);
}
END_TEST

/* A drain takes nothing new; the running turn goes on, and can still be joined. */
static void on_idle(void *arg)
{
    (*(size_t *)arg)++;
}

START_TEST(test_drain)
{
    struct conversation *c = fake_conversation(&s), *other;
    struct open_request request = {0};
    struct fake_reader a, b;
    struct error err;
    size_t n_idle = 0;

    s.all.on_idle = on_idle;
    s.all.idle_arg = &n_idle;
    fake_reader_init(&a);
    fake_reader_init(&b);
    ck_assert_int_eq(fake_turn(c, 1, "say 3", &a, &err), STATUS_OK);
    conversations_drain(&s.all);
    ck_assert_int_eq(open_with(&other, &request, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(conversation_fork(&other, c, 0, NULL, 0, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(fake_turn(c, 2, "say 3", &b, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(fake_turn(c, 1, "say 3", &b, &err), STATUS_OK);
    ck_assert_uint_eq(n_idle, 0);
    fake_server_run(&s);
    ck_assert_uint_eq(n_idle, 1);
    fake_reader_read(&a);
    fake_reader_read(&b);
    ck_assert(a.is_done && b.is_done);
    fake_reader_deinit(&a);
    fake_reader_deinit(&b);
}
END_TEST

static void on_watch(void *arg)
{
    (*(size_t *)arg)++;
}

static void next_is(struct watcher *w, enum watch_what what, const struct conversation_id *id,
                    uint64_t unix_ms)
{
    struct watch_event e;
    uint64_t lost;

    ck_assert(watcher_next(w, &e, &lost));
    ck_assert_uint_eq(lost, 0);
    ck_assert_int_eq(e.what, what);
    ck_assert_mem_eq(&e.id, id, sizeof(*id));
    ck_assert_uint_eq(e.unix_ms, unix_ms);
}

static enum status update(struct conversation *c, const struct update_request *r)
{
    struct error err;

    return conversation_update(c, r, &err);
}

/* An update replaces what it gives and leaves the rest; turns that are accepted later have it,
 * those before and a fork have what was. */
START_TEST(test_update)
{
    struct text stop = {"END", 3};
    struct sampling_overrides first = {.given = SAMPLING_TOP_K | SAMPLING_STOPS,
                                       .values = {.top_k = 3, .stops = &stop, .n_stops = 1}};
    struct sampling_overrides second = {.given = SAMPLING_MAX_TOKENS, .values = {.max_tokens = 2}};
    struct pair old = {"user", "ada"}, new = {"room", "7"};
    struct open_request r = {.overrides = &first, .metadata = &old, .n_metadata = 1};
    struct conversation *c, *f;
    struct fake_reader one, two;
    struct error err;

    ck_assert_int_eq(open_with(&c, &r, &err), STATUS_OK);
    ck_assert_int_eq(conversation_fork(&f, c, 0, NULL, 0, &err), STATUS_OK);
    fake_reader_init(&one);
    fake_reader_init(&two);
    ck_assert_int_eq(fake_turn(c, 1, "say 5", &one, &err), STATUS_OK);
    ck_assert(fake_server_step(&s)); /* it runs with the stop texts of its options */
    ck_assert_int_eq(fake_turn(c, 2, "say 5", &two, &err), STATUS_OK); /* waits with them */
    ck_assert_int_eq(
        update(c, &(struct update_request){.has_overrides = true, .overrides = &second}),
        STATUS_OK);
    ck_assert_str_eq(c->metadata->pairs[0].key, "user");
    fake_server_run(&s);
    fake_reader_read(&one);
    fake_reader_read(&two);
    ck_assert_uint_eq(one.n_ids, 5);
    ck_assert_uint_eq(two.n_ids, 5);
    ck_assert_uint_eq(fake_last_sampling()->top_k, 3);
    fake_reader_deinit(&one);
    fake_reader_deinit(&two);
    fake_turn_whole(&s, c, 3, "say 5", FINISH_LENGTH, "<0><1>");
    ck_assert_uint_eq(fake_last_sampling()->top_k, 7);
    ck_assert_uint_eq(fake_last_sampling()->n_stops, 0);
    fake_turn_whole(&s, f, 1, "say 5", FINISH_STOP, "<0><1><2><3><4>");
    ck_assert_uint_eq(fake_last_sampling()->top_k, 3);
    ck_assert_int_eq(
        update(c,
               &(struct update_request){.has_metadata = true, .metadata = &new, .n_metadata = 1}),
        STATUS_OK);
    ck_assert_str_eq(c->metadata->pairs[0].key, "room");
    ck_assert_uint_eq(c->host.options->overrides->given, SAMPLING_MAX_TOKENS);
    ck_assert_int_eq(
        update(c, &(struct update_request){.has_overrides = true, .has_metadata = true}),
        STATUS_OK);
    ck_assert_ptr_null(c->metadata);
    ck_assert_ptr_null(c->host.options->overrides);
}
END_TEST

/* An update is checked as an opening is, and one that is refused changes nothing. */
START_TEST(test_bad_updates)
{
    struct sampling_overrides cold = {.given = SAMPLING_TEMPERATURE, .values = {.temperature = -1}};
    struct pair pairs[METADATA_MAX_PAIRS + 1];
    struct update_request r = {.has_overrides = true, .overrides = &cold};
    struct conversation *c = fake_conversation(&s);
    struct conversation_options *options = c->host.options;
    struct error err;

    for (size_t i = 0; i < METADATA_MAX_PAIRS + 1; i++)
        pairs[i] = (struct pair){.key = "k", .value = "v"};
    ck_assert_int_eq(conversation_update(c, &r, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "temperature");
    r = (struct update_request){.has_ttl = true, .ttl_ms = UINT64_MAX};
    ck_assert_int_eq(conversation_update(c, &r, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "ttl_ms");
    r = (struct update_request){.has_ttl = true,
                                .ttl_ms = 5,
                                .has_metadata = true,
                                .metadata = pairs,
                                .n_metadata = METADATA_MAX_PAIRS + 1};
    ck_assert_int_eq(conversation_update(c, &r, &err), STATUS_INVALID);
    ck_assert_ptr_eq(c->host.options, options);
    ck_assert_ptr_null(c->metadata);
    ck_assert_uint_eq(options->n_refs, 1);
}
END_TEST

/* A conversation expires by its new time, whether that is sooner or later; 0 is the server's. */
START_TEST(test_update_of_ttl)
{
    struct conversation *c = fake_conversation(&s), *other = fake_conversation(&s);
    uint64_t day_ms = (uint64_t)24 * 60 * 60 * 1000;
    uint64_t opened_us = s.now_us;

    ck_assert_int_eq(update(c, &(struct update_request){.has_ttl = true, .ttl_ms = 5000}),
                     STATUS_OK);
    ck_assert_uint_eq(s.expiry.at_us, opened_us + 5000 * 1000);
    ck_assert_int_eq(update(c, &(struct update_request){.has_ttl = true}), STATUS_OK);
    ck_assert_uint_eq(conversation_ttl_ms(c), day_ms);
    ck_assert_uint_eq(conversation_ttl_ms(other), day_ms);
    s.now_us += 6000 * 1000;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 2);
    ck_assert_int_eq(update(c, &(struct update_request){.has_ttl = true, .ttl_ms = 5000}),
                     STATUS_OK);
    conversations_tick(&s.all); /* it has been idle for longer than that */
    ck_assert_uint_eq(s.all.n, 1);
    ck_assert_ptr_eq(conversations_newest(&s.all), other);
}
END_TEST

static enum conversation_pin pin_of_all(const void *self, const struct conversation_id *id)
{
    return *(const enum conversation_pin *)self;
}

/* What a room needs, or may need, neither expires nor is rewound. */
START_TEST(test_pinned)
{
    const struct update_request soon = {.has_ttl = true, .ttl_ms = 5000};
    struct conversation *c = fake_conversation(&s);
    enum conversation_pin pin = PIN_HELD;
    struct error err;

    s.all.pin = pin_of_all;
    s.all.pin_self = &pin;
    ck_assert_int_eq(update(c, &soon), STATUS_OK);
    s.now_us += 6000 * 1000;
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 1);
    ck_assert_int_eq(conversation_check_pins(c, &err), STATUS_PRECONDITION);
    ck_assert_int_eq(conversation_rewind(c, 0, &err), STATUS_PRECONDITION);
    pin = PIN_UNKNOWN;
    ck_assert_int_eq(conversation_rewind(c, 0, &err), STATUS_UNAVAILABLE);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    ck_assert(!conversation_expire(c));
    pin = PIN_NONE;
    ck_assert_int_eq(conversation_rewind(c, 0, &err), STATUS_OK);
    ck_assert_int_eq(update(c, &soon), STATUS_OK);
    conversations_tick(&s.all);
    ck_assert_uint_eq(s.all.n, 0);
    s.all.pin = NULL;
}
END_TEST

/* Watchers see conversations open and close, and what the agent does to their clones. */
START_TEST(test_watched)
{
    struct open_request request = {.ttl_ms = 60000};
    struct conversation *c, *f;
    struct conversation_id c_id, f_id;
    struct watcher w;
    struct watch_event e;
    struct error err;
    uint64_t lost, ms = 1700000000000;
    size_t n_notified = 0;

    (void)fake_conversation(&s);
    watcher_open(&w, &s.all.watch, 0, NULL, &(struct watch_place){.is_synced = true}, on_watch,
                 &n_notified);
    s.now_us += 2000;
    ck_assert_int_eq(open_with(&c, &request, &err), STATUS_OK);
    ck_assert_int_eq(conversation_fork(&f, c, c->host.n_turns, NULL, 0, &err), STATUS_OK);
    c_id = c->id;
    f_id = f->id;
    conversations_clone_event(f->host.clone, WATCH_EVICTED, "for others");
    conversation_close(c, WATCH_CLOSED, "asked for");
    s.now_us += 60000000;
    conversations_tick(&s.all);
    ck_assert_uint_eq(n_notified, 5);
    next_is(&w, WATCH_OPENED, &c_id, ms + 2);
    next_is(&w, WATCH_FORKED, &f_id, ms + 2);
    next_is(&w, WATCH_EVICTED, &f_id, ms + 2);
    next_is(&w, WATCH_CLOSED, &c_id, ms + 2);
    next_is(&w, WATCH_EXPIRED, &f_id, ms + 60002);
    ck_assert(!watcher_next(&w, &e, &lost));
    watcher_close(&w);
}
END_TEST

/* An idle echo conversation, with all its memory, is at most 2 KiB. */
START_TEST(test_idle_size)
{
    enum { N = 10000, MAX_BYTES = 2048 };
    struct fake_server echo;
    struct mallinfo2 before, after;
    size_t each;

    fake_server_open(&echo, "echo", 0, NULL);
    before = mallinfo2();
    for (size_t i = 0; i < N; i++)
        (void)fake_conversation(&echo);
    after = mallinfo2();
    each = (after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / N;
    ck_assert_uint_le(each, MAX_BYTES);
    fake_server_close(&echo);
}
END_TEST

static size_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long n_pages = 0;

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%*u %lu", &n_pages), 1);
    (void)fclose(f);
    return n_pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The memory of many closed conversations returns to the system soon, though some between them stay
 * open; not at once, since as many may come again, and not for a few. */
START_TEST(test_memory_is_given_back)
{
    enum { N = 50000, KEPT = 10, FEW = 100 };
    static struct conversation *c[N];
    struct fake_server echo;
    size_t before, most, after;

    fake_server_open(&echo, "echo", 0, NULL);
    before = resident_bytes();
    for (size_t i = 0; i < N; i++)
        c[i] = fake_conversation(&echo);
    most = resident_bytes();
    for (size_t i = 0; i < N; i++)
        if (i % (N / KEPT) != N / KEPT - 1)
            conversation_close(c[i], WATCH_CLOSED, "");
    ck_assert_uint_gt(echo.expiry.at_us, echo.now_us);
    conversations_tick(&echo.all);
    ck_assert_uint_gt(echo.all.by_id.n_heads, N / 2);
    echo.now_us = echo.expiry.at_us;
    conversations_tick(&echo.all);
    after = resident_bytes();
    ck_assert_uint_eq(echo.all.n, KEPT);
    ck_assert_uint_le(echo.all.by_id.n_heads, 64);
    ck_assert_uint_le(echo.all.expiry.cap, 64);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* these keep freed memory */
    ck_assert_uint_gt(most, before + (size_t)N * 200);
    ck_assert_uint_lt(after, before + (most - before) / 4);
#else
    (void)before;
    (void)most;
    (void)after;
#endif
    for (size_t i = 0; i < FEW; i++)
        c[i] = fake_conversation(&echo);
    for (size_t i = 0; i < FEW; i++)
        conversation_close(c[i], WATCH_CLOSED, "");
    ck_assert_uint_eq(echo.all.trim_us, 0);
    fake_server_close(&echo);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conversation");
    TCase *tc = tcase_create("conversation");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tc, 30);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_found_by_id);
    tcase_add_test(tc, test_many);
    tcase_add_test(tc, test_system);
    tcase_add_test(tc, test_bad_opens);
    tcase_add_test(tc, test_metadata);
    tcase_add_test(tc, test_max_conversations);
    tcase_add_test(tc, test_half_of_conversations);
    tcase_add_test(tc, test_sampling_layers);
    tcase_add_test(tc, test_seeds);
    tcase_add_test(tc, test_bad_turns);
    tcase_add_test(tc, test_limits);
    tcase_add_test(tc, test_transcript_limit);
    tcase_add_test(tc, test_fork);
    tcase_add_test(tc, test_fork_while_busy);
    tcase_add_test(tc, test_rewind);
    tcase_add_test(tc, test_rewind_generation);
    tcase_add_test(tc, test_rewind_again);
    tcase_add_test(tc, test_close_while_busy);
    tcase_add_test(tc, test_expiry);
    tcase_add_test(tc, test_drain);
    tcase_add_test(tc, test_update);
    tcase_add_test(tc, test_bad_updates);
    tcase_add_test(tc, test_update_of_ttl);
    tcase_add_test(tc, test_pinned);
    tcase_add_test(tc, test_watched);
    tcase_add_test(tc, test_idle_size);
    tcase_add_test(tc, test_memory_is_given_back);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
