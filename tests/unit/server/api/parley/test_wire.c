#include "server/api/parley/wire.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/sampling_fields.h"
#include "server/access/access.h"
#include "server/api/parley/wire_sampling.h"
#include "tests/support/fake_server.h"
#include "tests/support/sampling_message.h"

static struct fake_server s;
static struct arena arena;
static const struct principal nobody = {.weight = 1, .name = ""}; /* without keys */

static void setup(void)
{
    fake_server_open(&s, "fake", 0, NULL);
    arena_init(&arena, (size_t)64 << 20);
}

static void teardown(void)
{
    arena_deinit(&arena);
    fake_server_close(&s);
}

static Parley__V1__Conversation *message_of(const struct conversation *c)
{
    Parley__V1__Conversation *m;
    struct error err;

    ck_assert_int_eq(wire_conversation(&m, c, &nobody, &arena, &err), STATUS_OK);
    return m;
}

/* What was given to Open stands in the message, and no other field. */
START_TEST(test_given)
{
    struct text stop = {"END", 3};
    struct logit_bias bias = {4, -1.5f};
    struct sampling_overrides overrides = {
        .given = SAMPLING_TOP_P | SAMPLING_STOPS | SAMPLING_BIASES | SAMPLING_IGNORE_EOS,
        .values = {.top_p = 0.5f,
                   .top_k = 9,
                   .stops = &stop,
                   .n_stops = 1,
                   .biases = &bias,
                   .n_biases = 1},
    };
    struct open_request r = {.overrides = &overrides, .limits = {.max_turns = 4, .priority = -7}};
    Parley__V1__Conversation *m;
    struct conversation *c;
    struct error err;

    ck_assert_int_eq(conversation_open(&c, &s.all, &s.model, &r, &err), STATUS_OK);
    m = message_of(c);
    ck_assert(m->sampling->has_top_p && m->sampling->top_p == 0.5f);
    ck_assert(m->sampling->has_ignore_eos && !m->sampling->ignore_eos);
    ck_assert(!m->sampling->has_top_k && !m->sampling->has_seed && !m->sampling->has_temperature);
    ck_assert(!m->sampling->has_clear_stop && !m->sampling->has_clear_logit_bias);
    ck_assert_uint_eq(m->sampling->n_stop, 1);
    ck_assert_str_eq(m->sampling->stop[0], "END");
    ck_assert_uint_eq(m->sampling->n_logit_bias, 1);
    ck_assert_int_eq(m->sampling->logit_bias[0]->key, 4);
    ck_assert(m->sampling->logit_bias[0]->value == -1.5f);
    ck_assert_uint_eq(m->limits->max_turns, 4);
    ck_assert_uint_eq(m->limits->max_tokens, 0);
    ck_assert_int_eq(m->limits->priority, -7);
    ck_assert_uint_eq(m->generation, 1);
    ck_assert_ptr_null(message_of(fake_conversation(&s))->sampling);
}
END_TEST

/* The owner stands in the message by name, and not where there are no keys. */
START_TEST(test_owner)
{
    const struct principal alice = {.id = 1, .weight = 1, .name = "alice"};
    struct conversation *c = fake_conversation(&s);
    Parley__V1__Conversation *m;
    struct error err;

    ck_assert_int_eq(wire_conversation(&m, c, &alice, &arena, &err), STATUS_OK);
    ck_assert_str_eq(m->principal->name, "alice");
    ck_assert_ptr_null(message_of(c)->principal);
}
END_TEST

static const char *name_of_field(unsigned number)
{
    return protobuf_c_message_descriptor_get_field(&parley__v1__sampling__descriptor, number)->name;
}

/* Each number of the message is a parameter of the same field number, and comes back unchanged. */
START_TEST(test_numbers)
{
    Parley__V1__Sampling message, *back;
    const struct sampling_overrides *overrides;
    uint32_t given = 0;
    struct error err;

    sampling_message_set_numbers(&message);
    ck_assert_int_eq(wire_sampling(&overrides, &message, &arena, &err), STATUS_OK);
    ck_assert_int_eq(wire_sampling_message(&back, &overrides->values, overrides->given, &arena),
                     STATUS_OK);
    sampling_message_check_equal(back, &message);
#define CHECK(name, NAME, kind, number, ...)        \
    ck_assert_str_eq(name_of_field(number), #name); \
    given |= SAMPLING_##NAME;
    SAMPLING_FIELDS(CHECK)
#undef CHECK
    ck_assert_uint_eq(overrides->given, given);
}
END_TEST

/* Stop texts and biases that were cleared are read back as cleared. */
START_TEST(test_cleared)
{
    struct sampling_overrides overrides = {.given = SAMPLING_STOPS | SAMPLING_BIASES};
    struct open_request r = {.overrides = &overrides};
    const struct sampling_overrides *again;
    Parley__V1__Conversation *m;
    struct conversation *c;
    struct error err;

    ck_assert_int_eq(conversation_open(&c, &s.all, &s.model, &r, &err), STATUS_OK);
    m = message_of(c);
    ck_assert(m->sampling->clear_stop && m->sampling->clear_logit_bias);
    ck_assert_int_eq(wire_sampling(&again, m->sampling, &arena, &err), STATUS_OK);
    ck_assert(sampling_overrides_is_equal(again, &overrides));
}
END_TEST

/* Appends the page of token to the numbers; returns the next page's token. */
static const char *read_page(const struct conversation *c, uint32_t size, const char *token,
                             size_t *ret_n_turns)
{
    Parley__V1__Conversation *m = message_of(c);
    struct error err;

    ck_assert_int_eq(wire_transcript(m, c, size, token, &arena, &err), STATUS_OK);
    for (size_t i = 0; i < m->n_transcript; i++)
        ck_assert_uint_eq(m->transcript[i]->turn, *ret_n_turns + i + 1);
    *ret_n_turns += m->n_transcript;
    return m->next_page_token;
}

/* The pages of a transcript are the whole, whatever their size. */
START_TEST(test_pages)
{
    struct conversation *c = fake_conversation(&s);
    size_t n = 0;

    ck_assert_str_eq(read_page(c, 0, "", &n), "");
    ck_assert_uint_eq(n, 0);
    for (uint32_t i = 1; i <= WIRE_PAGE_TURNS + 5; i++)
        fake_turn_whole(&s, c, i, "say 1", FINISH_STOP, "<0>");
    for (uint32_t size = 1; size < WIRE_PAGE_TURNS + 10; size += 13) {
        const char *token = "";
        size_t n_pages = 0;

        n = 0;
        do {
            token = read_page(c, size, token, &n);
            n_pages++;
        } while (*token != '\0');
        ck_assert_uint_eq(n, WIRE_PAGE_TURNS + 5);
        ck_assert_uint_eq(n_pages, (n + size - 1) / size);
    }
    n = 0;
    (void)read_page(c, 0, "", &n);
    ck_assert_uint_eq(n, WIRE_PAGE_TURNS);
}
END_TEST

static enum status refusal(const struct conversation *c, const char *token)
{
    Parley__V1__Conversation *m = message_of(c);
    struct error err;
    enum status rc = wire_transcript(m, c, 0, token, &arena, &err);

    ck_assert_str_eq(err.field, "page_token");
    return rc;
}

/* A token of turns that a rewind took back is refused, though there are new ones in their place; so
 * is one that never was. */
START_TEST(test_stale_page)
{
    struct conversation *c = fake_conversation(&s);
    const char *token;
    struct error err;
    size_t n = 0;

    for (uint32_t i = 1; i <= 4; i++)
        fake_turn_whole(&s, c, i, "say 1", FINISH_STOP, "<0>");
    token = read_page(c, 2, "", &n);
    ck_assert_int_eq(conversation_rewind(c, 1, &err), STATUS_OK);
    ck_assert_int_eq(refusal(c, token), STATUS_RANGE);
    for (uint32_t i = 2; i <= 4; i++)
        fake_turn_whole(&s, c, i, "say 2", FINISH_STOP, "<0><1>");
    ck_assert_int_eq(refusal(c, token), STATUS_RANGE);
    ck_assert_int_eq(refusal(c, "2-4"), STATUS_RANGE);
    ck_assert_int_eq(refusal(c, "2"), STATUS_INVALID);
    ck_assert_int_eq(refusal(c, "2-1x"), STATUS_INVALID);
    ck_assert_int_eq(refusal(c, "02-1"), STATUS_INVALID);
}
END_TEST

/* A page ends before its message is too large, but has a turn. */
START_TEST(test_page_bytes)
{
    enum { TEXT_BYTES = WIRE_PAGE_BYTES / 3 };
    struct conversation *c = fake_conversation(&s);
    char *text = malloc(WIRE_PAGE_BYTES + 1);
    const char *token = "";
    size_t n = 0, n_pages = 0;

    memset(text, 'x', WIRE_PAGE_BYTES);
    text[WIRE_PAGE_BYTES] = '\0';
    fake_turn_whole(&s, c, 1, text, FINISH_STOP, "<0>");
    text[TEXT_BYTES] = '\0';
    for (uint32_t i = 2; i <= 7; i++)
        fake_turn_whole(&s, c, i, text, FINISH_STOP, "<0>");
    do {
        Parley__V1__Conversation *m = message_of(c);
        struct error err;

        ck_assert_int_eq(wire_transcript(m, c, 0, token, &arena, &err), STATUS_OK);
        ck_assert_uint_eq(m->n_transcript, n == 0 ? 1 : 2);
        ck_assert(n == 0 || codec_size(&m->base) <= WIRE_PAGE_BYTES);
        n += m->n_transcript;
        n_pages++;
        token = m->next_page_token;
    } while (*token != '\0');
    ck_assert_uint_eq(n, 7);
    ck_assert_uint_eq(n_pages, 4);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server/wire");
    TCase *tc = tcase_create("wire");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tc, 30);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_given);
    tcase_add_test(tc, test_owner);
    tcase_add_test(tc, test_numbers);
    tcase_add_test(tc, test_cleared);
    tcase_add_test(tc, test_pages);
    tcase_add_test(tc, test_stale_page);
    tcase_add_test(tc, test_page_bytes);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
