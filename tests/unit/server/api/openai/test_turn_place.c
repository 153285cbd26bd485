#include "server/api/openai/turn_place.h"

#include "tests/unit/base/suite.h"
#include <stdio.h>
#include <string.h>

#define ID "0123456789abcdef0123456789abcdef"

/* Each place is read as it was written, and what follows it is left. */
START_TEST(a_place_is_read_as_written)
{
    static const struct {
        uint32_t turn, generation;
        bool is_of_named;
        const char *text;
    } cases[] = {
        {1, 1, false, ID "00000001"},
        {1, 1, true, ID "80000001"},
        {0x7fffffff, 2, true, ID "ffffffffg2"},
        {16, 16, false, ID "00000010g10"},
        {1, UINT32_MAX, true, ID "80000001gffffffff"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct turn_place p = {.turn = cases[i].turn,
                               .origin.generation = cases[i].generation,
                               .is_of_named = cases[i].is_of_named};
        char text[TURN_PLACE_CHARS], more[TURN_PLACE_CHARS + 8];
        struct turn_place again;
        const char *end;

        ck_assert(conversation_id_parse(&p.origin.conversation, ID));
        turn_place_format(&p, text);
        ck_assert_str_eq(text, cases[i].text);
        (void)snprintf(more, sizeof(more), "%s_7", text);
        end = turn_place_read(&again, more);
        ck_assert_ptr_nonnull(end);
        ck_assert_str_eq(end, "_7");
        ck_assert_uint_eq(again.turn, p.turn);
        ck_assert_uint_eq(again.origin.generation, p.origin.generation);
        ck_assert(again.is_of_named == p.is_of_named);
        ck_assert_mem_eq(&again.origin.conversation, &p.origin.conversation,
                         sizeof(p.origin.conversation));
    }
}
END_TEST

/* A place has one spelling: others, and texts that are cut, name nothing. */
START_TEST(other_spellings_name_nothing)
{
    static const char *const wrongs[] = {
        "",
        "x",
        ID,
        ID "0000001",
        ID "0000000x",
        ID "0000000A",
        ID " 0000001",
        ID "+0000001",
        ID "00000001g",
        ID "00000001g0",
        ID "00000001g1",
        ID "00000001g02",
        ID "00000001gx",
        ID "00000001gA",
        "0123456789ABCDEF0123456789abcdef00000001",
        "g123456789abcdef0123456789abcdef00000001",
    };
    struct turn_place p;

    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++)
        ck_assert_msg(turn_place_read(&p, wrongs[i]) == NULL, "%s", wrongs[i]);
    /* A ninth digit is left, so an id with it is none. */
    ck_assert_str_eq(turn_place_read(&p, ID "00000001g123456789"), "9");
    ck_assert_str_eq(turn_place_read(&p, ID "000000011"), "1");
}
END_TEST

SUITE_MAIN("server/api/openai/turn_place", a_place_is_read_as_written, other_spellings_name_nothing)
