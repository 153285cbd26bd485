#include "agents/constraint/char_property.h"

#include <check.h>
#include <string.h>
#include <unictype.h>

#include "agents/constraint/guard.h"
#include "tests/support/stride.h"
#include "tests/unit/base/suite.h"

static struct char_range room[CHAR_SET_MAX];

static enum status find(struct char_set *set, const char *name, struct error *err)
{
    size_t work = GUARD_MAX_WORK;

    *set = (struct char_set){room, 0, CHAR_SET_MAX};
    return char_property_set(set, name, strlen(name), &work, err);
}

static void check_set(const char *name, bool (*has)(uint32_t code, const void *what),
                      const void *what)
{
    struct char_set set;
    struct error err;
    size_t at = 0;

    ck_assert_msg(find(&set, name, &err) == STATUS_OK, "%s: %s", name, err.text);
    for (size_t i = 1; i < set.n; i++)
        ck_assert(set.ranges[i - 1].last + 1 < set.ranges[i].first);
    for (uint32_t code = 0; code <= CHAR_LAST; code++) {
        const bool is_char = code < CHAR_FIRST_SURROGATE || code > CHAR_LAST_SURROGATE;

        while (at < set.n && set.ranges[at].last < code)
            at++;
        if ((at < set.n && set.ranges[at].first <= code) != (is_char && has(code, what)))
            ck_abort_msg("%s: U+%04X", name, (unsigned)code);
    }
}

static bool has_category(uint32_t code, const void *what)
{
    return uc_is_general_category(code, *(const uc_general_category_t *)what);
}

static bool has_script(uint32_t code, const void *what)
{
    return uc_is_script(code, what);
}

static bool has_property(uint32_t code, const void *what)
{
    return uc_is_property(code, *(const uc_property_t *)what);
}

/* Each character of Unicode, as another library knows it. */
START_TEST(test_categories)
{
    static const char *const names[] = {
        "LC", "Pe", "Pc", "Cc", "Sc", "Pd", "Nd", "Me", "Pf", "Cf", "Pi", "L",  "Nl",
        "Zl", "Ll", "M",  "Sm", "Lm", "Sk", "Mn", "N",  "Ps", "C",  "Lo", "No", "Po",
        "So", "Zp", "Co", "P",  "Z",  "Zs", "Mc", "Cs", "S",  "Lt", "Cn", "Lu",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i += (size_t)test_stride()) {
        const uc_general_category_t category = uc_general_category_byname(names[i]);

        check_set(names[i], has_category, &category);
    }
}
END_TEST

START_TEST(test_scripts)
{
    static const char *const names[] = {"Latin", "Greek",  "Cyrillic", "Han",       "Arabic",
                                        "Thai",  "Common", "Hangul",   "Inherited", "Phags_Pa"};
    char name[32] = "Script=";

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i += (size_t)test_stride()) {
        memcpy(name + 7, names[i], strlen(names[i]) + 1);
        check_set(name, has_script, uc_script_byname(names[i]));
    }
}
END_TEST

START_TEST(test_properties)
{
    static const struct {
        const char *name;
        const uc_property_t *property;
    } rows[] = {
        {"Alphabetic", &UC_PROPERTY_ALPHABETIC},
        {"Uppercase", &UC_PROPERTY_UPPERCASE},
        {"Lowercase", &UC_PROPERTY_LOWERCASE},
        {"White_Space", &UC_PROPERTY_WHITE_SPACE},
        {"ID_Start", &UC_PROPERTY_ID_START},
        {"ID_Continue", &UC_PROPERTY_ID_CONTINUE},
        {"XID_Start", &UC_PROPERTY_XID_START},
        {"XID_Continue", &UC_PROPERTY_XID_CONTINUE},
        {"Ideographic", &UC_PROPERTY_IDEOGRAPHIC},
        {"Hex_Digit", &UC_PROPERTY_HEX_DIGIT},
        {"Dash", &UC_PROPERTY_DASH},
        {"Math", &UC_PROPERTY_MATH},
        {"Emoji", &UC_PROPERTY_EMOJI},
        {"Emoji_Presentation", &UC_PROPERTY_EMOJI_PRESENTATION},
        {"Emoji_Modifier", &UC_PROPERTY_EMOJI_MODIFIER},
        {"Extended_Pictographic", &UC_PROPERTY_EXTENDED_PICTOGRAPHIC},
        {"Diacritic", &UC_PROPERTY_DIACRITIC},
        {"Quotation_Mark", &UC_PROPERTY_QUOTATION_MARK},
        {"Cased", &UC_PROPERTY_CASED},
        {"Case_Ignorable", &UC_PROPERTY_CASE_IGNORABLE},
        {"Radical", &UC_PROPERTY_RADICAL},
        {"Default_Ignorable_Code_Point", &UC_PROPERTY_DEFAULT_IGNORABLE_CODE_POINT},
        {"Pattern_Syntax", &UC_PROPERTY_PATTERN_SYNTAX},
        {"Variation_Selector", &UC_PROPERTY_VARIATION_SELECTOR},
        {"Regional_Indicator", &UC_PROPERTY_REGIONAL_INDICATOR},
        {"Grapheme_Extend", &UC_PROPERTY_GRAPHEME_EXTEND},
        {"Noncharacter_Code_Point", &UC_PROPERTY_NOT_A_CHARACTER},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i += (size_t)test_stride())
        check_set(rows[i].name, has_property, rows[i].property);
}
END_TEST

/* Each name and its alias are the same property. */
START_TEST(test_aliases)
{
    static const char *const rows[][2] = {
        {"General_Category=Letter", "L"},
        {"gc=Lu", "Uppercase_Letter"},
        {"Alpha", "Alphabetic"},
        {"sc=Grek", "Script=Greek"},
        {"scx=Cyrl", "Script_Extensions=Cyrillic"},
        {"punct", "P"},
        {"digit", "Nd"},
        {"space", "White_Space"},
        {"IDS", "ID_Start"},
        {"ExtPict", "Extended_Pictographic"},
    };
    static struct char_range kept[CHAR_SET_MAX];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct char_set a, b;
        struct error err;

        ck_assert_msg(find(&a, rows[i][0], &err) == STATUS_OK, "%s", err.text);
        memcpy(kept, a.ranges, a.n * sizeof(*kept));
        ck_assert_msg(find(&b, rows[i][1], &err) == STATUS_OK, "%s", err.text);
        ck_assert(a.n == b.n && memcmp(kept, b.ranges, b.n * sizeof(*kept)) == 0);
    }
}
END_TEST

/* Work that is not there is not done, and a set without room is a refusal. */
START_TEST(test_bounds)
{
    struct char_set set = {room, 0, 4};
    struct error err;
    size_t work = 100;

    ck_assert_int_eq(char_property_set(&set, "L", 1, &work, &err), STATUS_UNIMPLEMENTED);
    ck_assert_uint_eq(work, 100);
    work = GUARD_MAX_WORK;
    ck_assert_int_eq(char_property_set(&set, "L", 1, &work, &err), STATUS_UNIMPLEMENTED);
    ck_assert_int_eq(char_property_set(&set, "", 0, &work, &err), STATUS_UNIMPLEMENTED);
    ck_assert_int_eq(char_property_set(&set, "L\0u", 3, &work, &err), STATUS_UNIMPLEMENTED);
}
END_TEST

SUITE_MAIN("char_property", test_categories, test_scripts, test_properties, test_aliases,
           test_bounds)
