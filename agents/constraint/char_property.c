/* The names are ECMA-262's, the characters PCRE2's, which has the same properties by names of its
 * own. A text of all characters is searched for the longest runs that have the property. Planes
 * whose characters are all alike are tried by their first one. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "agents/constraint/char_property.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum {
    MAX_NAME = 48,
    PLANE = 0x10000,
    PLANE_LAST_CHAR = 0xFFFD, /* of a plane; the two behind it are no characters by their nature */
    MAX_TEXT = 5 * PLANE * 4,
    COMPILED_WORK =
        1 << 15,          /* looks that a search costs, where PCRE2 compiles it to machine code */
    PLAIN_WORK = 1 << 18, /* and where it may not */
};

struct property_name {
    const char *name, *alias; /* alias: NULL if there is none */
    const char *pattern;      /* PCRE2's, for what has the property */
};

static const struct property_name categories[] = {
    {"Cased_Letter", "LC", "\\p{L&}"},
    {"Close_Punctuation", "Pe", "\\p{Pe}"},
    {"Connector_Punctuation", "Pc", "\\p{Pc}"},
    {"Control", "Cc", "\\p{Cc}"},
    {"cntrl", NULL, "\\p{Cc}"},
    {"Currency_Symbol", "Sc", "\\p{Sc}"},
    {"Dash_Punctuation", "Pd", "\\p{Pd}"},
    {"Decimal_Number", "Nd", "\\p{Nd}"},
    {"digit", NULL, "\\p{Nd}"},
    {"Enclosing_Mark", "Me", "\\p{Me}"},
    {"Final_Punctuation", "Pf", "\\p{Pf}"},
    {"Format", "Cf", "\\p{Cf}"},
    {"Initial_Punctuation", "Pi", "\\p{Pi}"},
    {"Letter", "L", "\\p{L}"},
    {"Letter_Number", "Nl", "\\p{Nl}"},
    {"Line_Separator", "Zl", "\\p{Zl}"},
    {"Lowercase_Letter", "Ll", "\\p{Ll}"},
    {"Mark", "M", "\\p{M}"},
    {"Combining_Mark", NULL, "\\p{M}"},
    {"Math_Symbol", "Sm", "\\p{Sm}"},
    {"Modifier_Letter", "Lm", "\\p{Lm}"},
    {"Modifier_Symbol", "Sk", "\\p{Sk}"},
    {"Nonspacing_Mark", "Mn", "\\p{Mn}"},
    {"Number", "N", "\\p{N}"},
    {"Open_Punctuation", "Ps", "\\p{Ps}"},
    {"Other", "C", "\\p{C}"},
    {"Other_Letter", "Lo", "\\p{Lo}"},
    {"Other_Number", "No", "\\p{No}"},
    {"Other_Punctuation", "Po", "\\p{Po}"},
    {"Other_Symbol", "So", "\\p{So}"},
    {"Paragraph_Separator", "Zp", "\\p{Zp}"},
    {"Private_Use", "Co", "\\p{Co}"},
    {"Punctuation", "P", "\\p{P}"},
    {"punct", NULL, "\\p{P}"},
    {"Separator", "Z", "\\p{Z}"},
    {"Space_Separator", "Zs", "\\p{Zs}"},
    {"Spacing_Mark", "Mc", "\\p{Mc}"},
    {"Surrogate", "Cs", "\\p{Cs}"},
    {"Symbol", "S", "\\p{S}"},
    {"Titlecase_Letter", "Lt", "\\p{Lt}"},
    {"Unassigned", "Cn", "\\p{Cn}"},
    {"Uppercase_Letter", "Lu", "\\p{Lu}"},
};

static const struct property_name binaries[] = {
    {"ASCII", NULL, "[\\x{0}-\\x{7F}]"},
    {"ASCII_Hex_Digit", "AHex", "\\p{ASCII_Hex_Digit}"},
    {"Alphabetic", "Alpha", "\\p{Alphabetic}"},
    {"Any", NULL, "[\\x{0}-\\x{10FFFF}]"},
    {"Assigned", NULL, "\\P{Cn}"},
    {"Bidi_Control", "Bidi_C", "\\p{Bidi_Control}"},
    {"Bidi_Mirrored", "Bidi_M", "\\p{Bidi_Mirrored}"},
    {"Case_Ignorable", "CI", "\\p{Case_Ignorable}"},
    {"Cased", NULL, "\\p{Cased}"},
    {"Changes_When_Casefolded", "CWCF", "\\p{Changes_When_Casefolded}"},
    {"Changes_When_Casemapped", "CWCM", "\\p{Changes_When_Casemapped}"},
    {"Changes_When_Lowercased", "CWL", "\\p{Changes_When_Lowercased}"},
    {"Changes_When_Titlecased", "CWT", "\\p{Changes_When_Titlecased}"},
    {"Changes_When_Uppercased", "CWU", "\\p{Changes_When_Uppercased}"},
    {"Dash", NULL, "\\p{Dash}"},
    {"Default_Ignorable_Code_Point", "DI", "\\p{Default_Ignorable_Code_Point}"},
    {"Deprecated", "Dep", "\\p{Deprecated}"},
    {"Diacritic", "Dia", "\\p{Diacritic}"},
    {"Emoji", NULL, "\\p{Emoji}"},
    {"Emoji_Component", "EComp", "\\p{Emoji_Component}"},
    {"Emoji_Modifier", "EMod", "\\p{Emoji_Modifier}"},
    {"Emoji_Modifier_Base", "EBase", "\\p{Emoji_Modifier_Base}"},
    {"Emoji_Presentation", "EPres", "\\p{Emoji_Presentation}"},
    {"Extended_Pictographic", "ExtPict", "\\p{Extended_Pictographic}"},
    {"Extender", "Ext", "\\p{Extender}"},
    {"Grapheme_Base", "Gr_Base", "\\p{Grapheme_Base}"},
    {"Grapheme_Extend", "Gr_Ext", "\\p{Grapheme_Extend}"},
    {"Hex_Digit", "Hex", "\\p{Hex_Digit}"},
    {"IDS_Binary_Operator", "IDSB", "\\p{IDS_Binary_Operator}"},
    {"IDS_Trinary_Operator", "IDST", "\\p{IDS_Trinary_Operator}"},
    {"ID_Continue", "IDC", "\\p{ID_Continue}"},
    {"ID_Start", "IDS", "\\p{ID_Start}"},
    {"Ideographic", "Ideo", "\\p{Ideographic}"},
    {"Join_Control", "Join_C", "\\p{Join_Control}"},
    {"Logical_Order_Exception", "LOE", "\\p{Logical_Order_Exception}"},
    {"Lowercase", "Lower", "\\p{Lowercase}"},
    {"Math", NULL, "\\p{Math}"},
    {"Noncharacter_Code_Point", "NChar", "\\p{Noncharacter_Code_Point}"},
    {"Pattern_Syntax", "Pat_Syn", "\\p{Pattern_Syntax}"},
    {"Pattern_White_Space", "Pat_WS", "\\p{Pattern_White_Space}"},
    {"Quotation_Mark", "QMark", "\\p{Quotation_Mark}"},
    {"Radical", NULL, "\\p{Radical}"},
    {"Regional_Indicator", "RI", "\\p{Regional_Indicator}"},
    {"Sentence_Terminal", "STerm", "\\p{Sentence_Terminal}"},
    {"Soft_Dotted", "SD", "\\p{Soft_Dotted}"},
    {"Terminal_Punctuation", "Term", "\\p{Terminal_Punctuation}"},
    {"Unified_Ideograph", "UIdeo", "\\p{Unified_Ideograph}"},
    {"Uppercase", "Upper", "\\p{Uppercase}"},
    {"Variation_Selector", "VS", "\\p{Variation_Selector}"},
    {"White_Space", "space", "\\p{White_Space}"},
    {"XID_Continue", "XIDC", "\\p{XID_Continue}"},
    {"XID_Start", "XIDS", "\\p{XID_Start}"},
};

static const char *name_find(const struct property_name *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i].name, name) == 0 ||
            (names[i].alias != NULL && strcmp(names[i].alias, name) == 0))
            return names[i].pattern;
    return NULL;
}

static const char *category_find(const char *name)
{
    return name_find(categories, sizeof(categories) / sizeof(categories[0]), name);
}

static enum status property_refuse(struct error *err, const char *name, const char *why)
{
    return error_set(err, STATUS_UNIMPLEMENTED, "has \\p{%s}, %s", name, why);
}

/* PCRE2 takes names of scripts in any case, and without underscores; ECMA-262 as they are. */
static bool is_script_name(const char *name)
{
    bool is_begin = true;

    for (; *name != '\0'; name++) {
        const bool is_upper = *name >= 'A' && *name <= 'Z', is_lower = *name >= 'a' && *name <= 'z';

        if (*name == '_' ? is_begin : is_begin ? !is_upper : !is_upper && !is_lower)
            return false;
        is_begin = *name == '_';
    }
    return !is_begin;
}

/* What PCRE2 is to search for. */
static enum status property_pattern(char out[2 * MAX_NAME], const char *name, struct error *err)
{
    const char *equals = strchr(name, '='), *value = equals != NULL ? equals + 1 : NULL;
    const size_t len = equals != NULL ? (size_t)(equals - name) : 0;
    const char *known = NULL, *kind = NULL;

    if (value == NULL) {
        known = category_find(name);
        if (known == NULL)
            known = name_find(binaries, sizeof(binaries) / sizeof(binaries[0]), name);
    } else if ((len == 2 && memcmp(name, "gc", 2) == 0) ||
               (len == 16 && memcmp(name, "General_Category", 16) == 0)) {
        known = category_find(value);
    } else if ((len == 2 && memcmp(name, "sc", 2) == 0) ||
               (len == 6 && memcmp(name, "Script", 6) == 0)) {
        kind = "sc";
    } else if ((len == 3 && memcmp(name, "scx", 3) == 0) ||
               (len == 17 && memcmp(name, "Script_Extensions", 17) == 0)) {
        kind = "scx";
        /* PCRE2 counts those that have other extensions as these two, ECMA-262 does not. */
        if (strcmp(value, "Common") == 0 || strcmp(value, "Zyyy") == 0 ||
            strcmp(value, "Inherited") == 0 || strcmp(value, "Zinh") == 0 ||
            strcmp(value, "Qaai") == 0)
            return property_refuse(err, name, "which is not supported: use Script=");
    }
    if (kind != NULL && is_script_name(value))
        (void)snprintf(out, 2 * MAX_NAME, "\\p{%s:%s}", kind, value); /* fits */
    else if (known != NULL)
        (void)snprintf(out, 2 * MAX_NAME, "%s", known); /* fits */
    else
        return property_refuse(err, name, "which is no property of characters that is known");
    return STATUS_OK;
}

/* --- the characters --- */

/* Whether all characters of the plane but its last two are alike: it has none, or is for private
 * use. */
static bool is_plain_plane(uint32_t plane)
{
    return (plane >= 4 && plane <= 13) || plane >= 15;
}

/* The characters that are tried, as UTF-8; returns the bytes. */
static size_t put_all_chars(char *text)
{
    size_t n = 0;

    for (uint32_t code = 0; code <= CHAR_LAST; code++) {
        if (code == CHAR_FIRST_SURROGATE)
            code = CHAR_LAST_SURROGATE + 1;
        n += utf8_encode(code, text + n);
        if (is_plain_plane(code / PLANE) && code % PLANE == 0)
            code += PLANE_LAST_CHAR;
    }
    return n;
}

/* The last character of which the one that ends before the place is an example. */
static uint32_t last_before(const char *text, size_t at)
{
    uint32_t code = 0;

    do
        at--;
    while (((unsigned char)text[at] & 0xC0) == 0x80);
    (void)utf8_decode(text + at, 4, &code); /* it is whole */
    return is_plain_plane(code / PLANE) && code % PLANE == 0 ? code + PLANE_LAST_CHAR : code;
}

static enum status chars_find(struct char_set *s, const pcre2_code *code, pcre2_match_data *match,
                              const char *text, size_t len, struct error *err)
{
    size_t at = 0;
    int n = 1;

    s->n = 0;
    while (at < len && n > 0) {
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
        uint32_t first = 0;

        n = pcre2_match(code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, match, NULL);
        if (n <= 0)
            break;
        (void)utf8_decode(text + found[0], len - found[0], &first); /* it is whole */
        at = found[1];
        if (!char_set_add(s, first, last_before(text, at)))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "has a character class with this many ranges");
    }
    return n > 0 || n == PCRE2_ERROR_NOMATCH
               ? STATUS_OK
               : error_set(err, STATUS_INTERNAL, "a property of characters: PCRE2's error %d", n);
}

/* A run is taken whole, without steps back. */
static pcre2_code *search_open(const char *pattern)
{
    char repeated[2 * MAX_NAME + 4];
    PCRE2_SIZE at;
    int code;

    (void)snprintf(repeated, sizeof(repeated), "%s++", pattern); /* fits */
    return pcre2_compile((PCRE2_SPTR)repeated, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
}

enum status char_property_set(struct char_set *ret_set, const char *name, size_t len, size_t *work,
                              struct error *err)
{
    char copy[MAX_NAME], pattern[2 * MAX_NAME];
    pcre2_match_data *match = NULL;
    pcre2_code *code = NULL;
    char *text = NULL;
    size_t cost;
    enum status rc;

    if (len >= sizeof(copy) || memchr(name, '\0', len) != NULL)
        return error_set(err, STATUS_UNIMPLEMENTED, "has an unknown property of characters (\\p)");
    memcpy(copy, name, len);
    copy[len] = '\0';
    rc = property_pattern(pattern, copy, err);
    if (rc != STATUS_OK)
        return rc;
    code = search_open(pattern);
    if (code == NULL) { /* or it has no memory */
        rc = property_refuse(err, copy, "which is no property of characters that is known");
        goto out;
    }
    cost = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0 ? COMPILED_WORK : PLAIN_WORK;
    if (*work < cost) {
        rc = error_set(err, STATUS_UNIMPLEMENTED, "has too many properties of characters");
        goto out;
    }
    *work -= cost;
    match = pcre2_match_data_create(1, NULL);
    text = try_alloc(1, MAX_TEXT);
    if (match == NULL || text == NULL)
        rc = error_no_memory(err, MAX_TEXT, "all characters");
    else
        rc = chars_find(ret_set, code, match, text, put_all_chars(text), err);
out:
    free(text);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return rc;
}
