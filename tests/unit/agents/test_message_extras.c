#include "agents/message_extras.h"

#include <string.h>

#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

enum { EXTRAS_MAX_BYTES = 1 << 16 };

static const struct tool_call calls[] = {
    {{"id1", 3}, {"f", 1}, {"{\"a\": [1, 2.0, \"\xc3\xa9\"]}", 21}},
    {{"", 0}, {"g", 1}, {"{\"a\": ", 6}}, /* cut, so no object */
};
static const struct message_extras all[] = {
    {0},
    {.calls = calls, .n_calls = 2, .thoughts = {"h\"m\n", 4}},
    {.call_id = {"id1", 3}, .name = {"f", 1}},
    {.calls = calls, .n_calls = 2, .thoughts = {"m\0!", 3}, .name = {"\0f", 2}},
};

static void check_text(struct text is, struct text expected)
{
    ck_assert_uint_eq(is.len, expected.len);
    ck_assert_int_eq(is.text[is.len], '\0');
    ck_assert_mem_eq(is.text, expected.len == 0 ? "" : expected.text, is.len);
}

static bool are_all(const char *more, size_t len)
{
    const struct message m = {.role = ROLE_USER, .text = "", .more = more, .more_len = len};

    return message_extras_are_all(&m);
}

/* What is written is all that there is; a part that nobody reads but a template is found. */
START_TEST(hidden_parts)
{
    static const char *const bad[] = {
        "{\"content\": \"x\"}",
        "{\"name\": \"f\", \"role\": \"system\"}",
        "{\"name\": 1}",
        ("{\"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"also\": 1, \"function\": "
         "{\"name\": \"f\", \"arguments\": {}}}]}"),
        "{\"name\": \"f\"",
        "[]",
        "{}",
        "\xff",
    };
    struct buf more;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        buf_init(&more, EXTRAS_MAX_BYTES);
        ck_assert_int_eq(message_extras_write(&more, &all[i]), STATUS_OK);
        ck_assert(are_all(more.data, more.len));
        buf_deinit(&more);
    }
    ck_assert(are_all("{\"name\": \"f\"}", 13));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!are_all(bad[i], strlen(bad[i])), "%s", bad[i]);
    ck_assert(tools_are_array((struct text){"", 0}) && tools_are_array((struct text){"[{}]", 4}));
    ck_assert(tools_are_array((struct text){"[\"\\u0000\"]", 10}));
    ck_assert(!tools_are_array((struct text){"[{}", 3}) &&
              !tools_are_array((struct text){"{}", 2}));
}
END_TEST

static enum status there_and_back(const struct message_extras *x, struct arena *arena,
                                  struct message_extras *out)
{
    struct message m = {.role = ROLE_ASSISTANT, .text = ""};
    struct buf more;
    enum status rc;

    buf_init(&more, EXTRAS_MAX_BYTES);
    rc = message_extras_write(&more, x);
    m.more = more.data;
    m.more_len = more.len;
    if (rc == STATUS_OK)
        rc = message_extras_read(out, &m, arena);
    buf_deinit(&more);
    return rc;
}

/* What was written is read again: calls in order, arguments that are an object or not. */
START_TEST(test_round_trip)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct message_extras x;
        struct arena arena;

        arena_init(&arena, EXTRAS_MAX_BYTES);
        ck_assert_int_eq(there_and_back(&all[i], &arena, &x), STATUS_OK);
        ck_assert_uint_eq(x.n_calls, all[i].n_calls);
        check_text(x.thoughts, all[i].thoughts);
        check_text(x.call_id, all[i].call_id);
        check_text(x.name, all[i].name);
        for (size_t k = 0; k < x.n_calls; k++) {
            check_text(x.calls[k].id, calls[k].id);
            check_text(x.calls[k].name, calls[k].name);
            check_text(x.calls[k].arguments, calls[k].arguments);
        }
        arena_deinit(&arena);
    }
}
END_TEST

static enum status read_once(void *arg)
{
    struct message_extras x;
    struct arena arena;
    enum status rc;

    arena_init(&arena, EXTRAS_MAX_BYTES);
    rc = there_and_back(&all[1], &arena, &x);
    arena_deinit(&arena);
    return rc;
}

/* Without memory nothing is read. */
START_TEST(memory_fails)
{
    ck_assert_int_gt(sweep(read_once, NULL), 1);
}
END_TEST

/* Keys are UUIDs of version 8, the same for the same call, and others for all others. */
START_TEST(keys_of_calls)
{
    enum { SEEDS = 32, CALLS = 8 };
    char keys[SEEDS * CALLS][CALL_KEY_CHARS], again[CALL_KEY_CHARS];

    for (uint32_t i = 0; i < SEEDS * CALLS; i++) {
        call_key_format(keys[i], i / CALLS, i % CALLS);
        call_key_format(again, i / CALLS, i % CALLS);
        ck_assert_str_eq(keys[i], again);
        ck_assert_uint_eq(strlen(keys[i]), CALL_KEY_CHARS - 1);
        ck_assert_int_eq(keys[i][14], '8');
        ck_assert_ptr_nonnull(strchr("89ab", keys[i][19]));
        for (uint32_t k = 0; k < i; k++)
            ck_assert_str_ne(keys[i], keys[k]);
    }
}
END_TEST

SUITE_MAIN("agents/message_extras", test_round_trip, hidden_parts, memory_fails, keys_of_calls)
