#include "server/conversation/body.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/conversation/conversations.h"
#include "tests/unit/base/suite.h"

static struct arena arena;

static void put_all(struct sampling *s)
{
    static const struct text stops[] = {{"stop", 4}, {"\0x", 2}};
    static const struct logit_bias biases[] = {{7, -1.5f}, {9, 3}};
    static const struct constraint constraint = {CONSTRAINT_REGEX, "a+", 2};

    sampling_init(s);
    s->temperature = 0.7f;
    s->top_p = 0.9f;
    s->min_p = 0.1f;
    s->top_k = 3;
    s->repetition_penalty = 1.1f;
    s->presence_penalty = -1;
    s->frequency_penalty = 2;
    s->max_tokens = 11;
    s->min_tokens = 2;
    s->seed = UINT64_MAX - 5;
    s->has_seed = true;
    s->ignore_eos = true;
    s->stops = stops;
    s->n_stops = 2;
    s->biases = biases;
    s->n_biases = 2;
    s->constraint = &constraint;
}

/* A body is read as it was written; each part of it that is cut off, and one byte more, is refused.
 */
static void check_cuts(const struct buf *body,
                       enum status (*read)(const void *body, size_t size_bytes, struct error *err))
{
    struct error err;
    char *cut;

    ck_assert_int_eq(read(body->data, body->len, &err), STATUS_OK);
    for (size_t len = 0; len < body->len; len++) {
        cut = malloc(len + 1); /* its end is the block's, for the sanitizer */
        memcpy(cut, body->data, len);
        ck_assert_int_eq(read(cut, len, &err), STATUS_DATA_LOSS);
        free(cut);
    }
    cut = malloc(body->len + 1);
    memcpy(cut, body->data, body->len);
    cut[body->len] = 0;
    ck_assert_int_eq(read(cut, body->len + 1, &err), STATUS_DATA_LOSS);
    /* A byte that is another may mean something else, and is never followed out of the body. */
    for (size_t i = 0; i < body->len; i++) {
        enum status rc;

        cut[i] = (char)(cut[i] ^ 0x41);
        rc = read(cut, body->len, &err);
        ck_assert(rc == STATUS_OK || rc == STATUS_DATA_LOSS || rc == STATUS_EXHAUSTED);
        cut[i] = (char)(cut[i] ^ 0x41);
    }
    free(cut);
}

static enum status read_terms(const void *body, size_t size_bytes, struct error *err)
{
    struct body_terms out;

    arena_deinit(&arena);
    arena_init(&arena, 1 << 20);
    return body_read_terms(&out, body, size_bytes, &arena, err);
}

static enum status read_accept(const void *body, size_t size_bytes, struct error *err)
{
    struct body_accept out;

    arena_deinit(&arena);
    arena_init(&arena, 1 << 20);
    return body_read_accept(&out, body, size_bytes, &arena, err);
}

static enum status read_finish(const void *body, size_t size_bytes, struct error *err)
{
    struct body_finish out;

    arena_deinit(&arena);
    arena_init(&arena, 1 << 20);
    return body_read_finish(&out, body, size_bytes, &arena, err);
}

START_TEST(terms_are_kept)
{
    static const struct pair pairs[] = {{"a", "1"}, {"", ""}};
    struct sampling_overrides given = {.given = SAMPLING_SEED | SAMPLING_STOPS};
    struct body_terms in = {.model = "m",
                            .version = "abc",
                            .seed = 1ull << 63,
                            .ttl_ms = 5,
                            .limits = {1, 2, -3},
                            .system = "be\nbrief",
                            .system_len = 8,
                            .overrides = &given,
                            .metadata = pairs,
                            .n_metadata = 2,
                            .has_digest = true,
                            .digest = {{4, 5}},
                            .opened_turns = 6};
    struct body_terms out;
    struct error err;
    struct buf body;

    put_all(&given.values);
    buf_init(&body, 1 << 20);
    ck_assert_int_eq(body_write_terms(&body, &in, &err), STATUS_OK);
    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(body_read_terms(&out, body.data, body.len, &arena, &err), STATUS_OK);
    ck_assert_str_eq(out.model, "m");
    ck_assert_str_eq(out.version, "abc");
    ck_assert(out.seed == in.seed && out.ttl_ms == 5 && out.limits.priority == -3);
    ck_assert(out.limits.max_turns == 1 && out.limits.max_tokens == 2);
    ck_assert_uint_eq(out.system_len, 8);
    ck_assert_mem_eq(out.system, "be\nbrief", 8);
    ck_assert(sampling_overrides_is_equal(out.overrides, &given));
    ck_assert_uint_eq(out.n_metadata, 2);
    ck_assert_str_eq(out.metadata[0].value, "1");
    ck_assert_str_eq(out.metadata[1].key, "");
    ck_assert(out.has_digest && out.digest.words[1] == 5 && out.opened_turns == 6);
    check_cuts(&body, read_terms);
    body.data[0] = 3; /* which had the server's where a client had asked for none */
    ck_assert_int_eq(body_read_terms(&out, body.data, body.len, &arena, &err), STATUS_OK);
    ck_assert(out.ttl_ms == 0 && out.seed == in.seed);
    buf_deinit(&body);
    arena_deinit(&arena);
}
END_TEST

START_TEST(an_acceptance_is_kept)
{
    static const struct message messages[] = {
        {.role = ROLE_SYSTEM, .text = "s", .len = 1},
        {.role = ROLE_USER, .text = "u\0v", .len = 3},
        {.role = ROLE_ASSISTANT, .text = "", .more = "{\"tool_calls\": []}", .more_len = 18},
        {.role = ROLE_TOOL, .text = "t", .len = 1, .more = "{}", .more_len = 2},
    };
    static const int32_t ids[] = {1, -2, INT32_MAX};
    struct sampling_overrides all = {.given = ~0u};
    struct turn_request r = {.messages = messages,
                             .n_messages = 4,
                             .plain_ids = ids,
                             .n_plain_ids = 3,
                             .is_plain = true,
                             .raw = {true, false, true, false},
                             .n_logprobs = 4,
                             .tool_use = {{"[1]", 3}, true, true, 77},
                             .variables = {{"{\"a\":1}", 7}, THINKING_OFF},
                             .overrides = &all};
    struct sampling_overrides read_all = {.given = ~0u};
    const struct turn_origin origin = {.conversation = {{9, 8, 7}}, .generation = 3};
    struct stored_request *stored;
    struct body_accept out;
    struct error err;
    struct buf body;

    put_all(&all.values);
    buf_init(&body, 1 << 20);
    ck_assert_int_eq(stored_request_open(&stored, &r, &err), STATUS_OK);
    ck_assert_int_eq(body_write_accept(&body, stored, &all.values, "engine 1", NULL, &err),
                     STATUS_OK);
    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(body_read_accept(&out, body.data, body.len, &arena, &err), STATUS_OK);
    ck_assert(stored_request_matches(stored, &out.request));
    ck_assert_uint_eq(out.request.tool_use.seed, 77);
    out.request.variables.thinking = THINKING_ON; /* another prompt, so another request */
    ck_assert(!stored_request_matches(stored, &out.request));
    out.request.variables = (struct template_variables){{"{\"a\":2}", 7}, THINKING_OFF};
    ck_assert(!stored_request_matches(stored, &out.request));
    out.request.variables = r.variables;
    ck_assert(stored_request_matches(stored, &out.request));
    for (size_t i = 0; i < 4; i++) {
        struct turn_request other = out.request;

        ((bool *)&other.raw)[i] = !((bool *)&other.raw)[i];
        ck_assert(!stored_request_matches(stored, &other));
    }
    ck_assert_str_eq(out.binding, "engine 1");
    ck_assert_uint_eq(out.engine_revision, AGENT_ENGINE_REVISION);
    ck_assert_uint_eq(out.compiler_revision, AGENT_COMPILER_REVISION);
    read_all.values = *out.sampling;
    ck_assert(sampling_overrides_is_equal(&read_all, &all));
    ck_assert_uint_eq(out.origin.generation, 0);
    check_cuts(&body, read_accept);
    body.data[0] = 5; /* a version without rules of raw prompts */
    ck_assert_int_eq(body_read_accept(&out, body.data, body.len - 4, &arena, &err), STATUS_OK);
    ck_assert(out.request.is_plain && !out.request.raw.parses_control);
    body.data[0] = 4; /* a version without origins, too */
    ck_assert_int_eq(body_read_accept(&out, body.data, body.len - 8, &arena, &err), STATUS_OK);
    ck_assert_str_eq(out.binding, "engine 1");
    ck_assert_uint_eq(out.origin.generation, 0);
    buf_clear(&body);
    ck_assert_int_eq(body_write_accept(&body, stored, NULL, "", &origin, &err), STATUS_OK);
    ck_assert_int_eq(body_read_accept(&out, body.data, body.len, &arena, &err), STATUS_OK);
    ck_assert_uint_eq(out.origin.generation, 3);
    ck_assert_mem_eq(&out.origin.conversation, &origin.conversation, sizeof(origin.conversation));
    check_cuts(&body, read_accept);
    stored_request_close(stored);
    for (size_t n = 1; n <= 2; n++) { /* what fills in stands between two texts */
        r = (struct turn_request){.messages = messages, .n_messages = n, .raw.fills_in = true};
        buf_clear(&body);
        ck_assert_int_eq(stored_request_open(&stored, &r, &err), STATUS_OK);
        ck_assert_int_eq(body_write_accept(&body, stored, NULL, "", NULL, &err), STATUS_OK);
        ck_assert_int_eq(read_accept(body.data, body.len, &err),
                         n == 1 ? STATUS_DATA_LOSS : STATUS_OK);
        stored_request_close(stored);
    }
    buf_deinit(&body);
    arena_deinit(&arena);
}
END_TEST

START_TEST(an_end_is_kept)
{
    static const struct top_logprob tops[] = {{1, -0.5f}, {2, -1}};
    char text[] = "hello";
    struct reply_token tokens[] = {
        {.id = 5, .logprob = -0.25f, .top = tops, .n_top = 2, .text_end = 2},
        {.id = 6, .logprob = -2, .text_end = 5}};
    const struct turn_request r = {.n_logprobs = 1};
    struct reply reply = {.tokens = tokens,
                          .n_tokens = 2,
                          .finish = FINISH_LENGTH,
                          .n_prompt = 9,
                          .n_cached = 3,
                          .text = {.data = text, .len = 5}};
    struct completed_turn *t, *again;
    struct stored_request *stored, *same;
    struct body_finish out;
    struct error err;
    struct buf body;

    buf_init(&body, 1 << 20);
    ck_assert_int_eq(stored_request_open(&stored, &r, &err), STATUS_OK);
    ck_assert_int_eq(stored_request_open(&same, &r, &err), STATUS_OK);
    ck_assert_int_eq(completed_turn_open(&t, NULL, stored, &reply, &err), STATUS_OK);
    t->timings = (struct timings){1, 2, 3, 4, 5};
    ck_assert_int_eq(body_write_finish(&body, t, "trace", 5, &err), STATUS_OK);
    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(body_read_finish(&out, body.data, body.len, &arena, &err), STATUS_OK);
    ck_assert_uint_eq(out.trace_size, 5);
    ck_assert_mem_eq(out.trace, "trace", 5);
    ck_assert_mem_eq(&out.timings.queue_us, &t->timings.queue_us, 4 * sizeof(uint64_t));
    ck_assert_int_eq(completed_turn_open(&again, NULL, same, &out.reply, &err), STATUS_OK);
    ck_assert_str_eq(again->text, "hello");
    ck_assert_int_eq(again->finish, FINISH_LENGTH);
    ck_assert_mem_eq(&again->usage, &t->usage, sizeof(t->usage));
    ck_assert_mem_eq(again->tokens, t->tokens, 2 * sizeof(t->tokens[0]));
    ck_assert_mem_eq(again->logprobs, t->logprobs, 2 * sizeof(t->logprobs[0]));
    ck_assert_mem_eq(again->tops, t->tops, sizeof(tops));
    check_cuts(&body, read_finish);
    completed_turn_unref(t);
    completed_turn_unref(again);
    buf_deinit(&body);
    arena_deinit(&arena);
}
END_TEST

static enum status read_key(const void *body, size_t size_bytes, struct error *err)
{
    struct body_key out;

    return body_read_key(&out, body, size_bytes, &arena, err);
}

START_TEST(a_key_is_kept)
{
    const struct body_key key = {.conversation = {7},
                                 .digest = {8},
                                 .n_turns = 3,
                                 .is_ephemeral = true,
                                 .created_s = 99,
                                 .id = "resp_1",
                                 .model = "tiny",
                                 .version = "abc",
                                 .instructions = "Be brief."};
    struct body_key out, bare = key;
    struct error err;
    struct buf body;

    buf_init(&body, 1 << 20);
    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(body_write_key(&body, &key, &err), STATUS_OK);
    ck_assert_int_eq(body_read_key(&out, body.data, body.len, &arena, &err), STATUS_OK);
    ck_assert_mem_eq(out.conversation, key.conversation, sizeof(key.conversation));
    ck_assert_mem_eq(out.digest, key.digest, sizeof(key.digest));
    ck_assert_uint_eq(out.n_turns, 3);
    ck_assert(out.is_ephemeral);
    ck_assert_uint_eq(out.created_s, 99);
    ck_assert_str_eq(out.id, "resp_1");
    ck_assert_str_eq(out.model, "tiny");
    ck_assert_str_eq(out.version, "abc");
    ck_assert_str_eq(out.instructions, "Be brief.");
    check_cuts(&body, read_key);
    buf_clear(&body);
    bare.instructions = NULL;
    ck_assert_int_eq(body_write_key(&body, &bare, &err), STATUS_OK);
    ck_assert_int_eq(body_read_key(&out, body.data, body.len, &arena, &err), STATUS_OK);
    ck_assert_ptr_null(out.instructions);
    buf_deinit(&body);
    arena_deinit(&arena);
}
END_TEST

SUITE_MAIN("server/conversation/body", terms_are_kept, an_acceptance_is_kept, an_end_is_kept,
           a_key_is_kept)
