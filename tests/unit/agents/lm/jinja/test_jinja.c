#include "agents/lm/jinja/jinja.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"

enum { TEST_MAX_STEPS = 1 << 20, TEST_MAX_BYTES = 32 << 20 };

static struct error err;
static struct arena arena;
static const struct tm now = {.tm_year = 126, .tm_mon = 1, .tm_mday = 3};

static const char messages[] = "[{\"role\":\"user\",\"content\":\" <|end|>Hi \"},"
                               "{\"role\":\"tool\",\"content\":null,\"n\":[1,2.0,true]}]";

static enum status render(const char *text, struct jinja_text *out)
{
    struct jinja *t;
    struct jinja_run run;
    struct jinja_value v;
    enum status rc = jinja_open(&t, text, strlen(text), &err);

    if (rc != STATUS_OK)
        return rc;
    arena_init(&arena, TEST_MAX_BYTES);
    ck_assert(jinja_begin(&run, t, &arena, &now, TEST_MAX_STEPS, &err));
    ck_assert(jinja_parse_json(&run, messages, sizeof(messages) - 1, &v));
    jinja_set(&run, "messages", v);
    rc = jinja_render(&run, out);
    jinja_close(t);
    return rc;
}

static void renders(const char *text, const char *want)
{
    struct jinja_text out;

    ck_assert_msg(render(text, &out) == STATUS_OK, "%s: %s", text, err.text);
    ck_assert_msg(out.len == strlen(want) && memcmp(out.data, want, out.len) == 0,
                  "%s: '%.*s', not '%s'", text, (int)out.len, out.data, want);
    arena_deinit(&arena);
}

/* Control characters of tags, values as Python writes them, and Jinja2's scopes. The comparison
 * with jinja2 itself is tests/integration/chat_templates.py. */
START_TEST(as_jinja2_renders)
{
    renders("{% if true %}\n  a\n  {% endif %}\nb\n\n", "  a\nb\n");
    renders("a  {%- if true -%}  b  {%- endif -%}  c", "abc");
    renders("x\r\n{% set a = 1 %}\r\n{{ a }}\r\n", "x\n1");
    renders("{{ [1, 2.0, true, none, 'a', {'k': (1,)}] }}",
            "[1, 2.0, True, None, 'a', {'k': (1,)}]");
    renders("{{ {'b': 1, 'a': '<\xC3\xA9>\\n'} | tojson }}",
            "{\"b\": 1, \"a\": \"<\xC3\xA9>\\n\"}");
    renders("{{ [1, {}] | tojson(indent=1) }}", "[\n 1,\n {}\n]");
    renders("{{ 7 // -2 }} {{ 7 % -2 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ 3 / 1 }}",
            "-4 -1 1e+20 0.30000000000000004 3.0");
    renders("{{ 'abc'[::-1] }} {{ 'h\xC3\xA9llo'[1] }} {{ 'h\xC3\xA9'|length }}", "cba \xC3\xA9 2");
    renders("{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{% endfor %}{{ a }}", "1");
    renders("{% set n = namespace(a=1) %}{% for i in [1] %}{% set n.a = 2 %}{% endfor %}{{ n.a }}",
            "2");
    renders("{{ none.x is defined }}{{ y }}{{ messages[9] is undefined }}", "FalseTrue");
    renders("{{ strftime_now('%d %b %Y') }}", "03 Feb 2026");
    renders("{{ messages[1].n }} {{ messages[0].content | trim }}", "[1, 2.0, True] <|end|>Hi");
    renders("[{{ 'ab' | center(7) }}][{{ 'a' | center(4) }}][{{ 'abc' | center(2) }}]",
            "[   ab  ][ a  ][abc]");
    renders("{{ messages[0] | attr('role') is defined }} {{ (messages[0] | attr('get'))('role') }} "
            "{{ namespace(a=1) | attr('a') }}",
            "False user 1");
}
END_TEST

/* f(*list), f(**mapping): of macros, functions and filters, behind and before other arguments. */
START_TEST(arguments_come_from_lists)
{
    static const char macro[] = "{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}";
    static const char *const calls[][2] = {
        {"{{ m(*[7, 8]) }}", "783"},
        {"{{ m(7, *[8, 9]) }}", "789"},
        {"{{ m(*'xy') }}", "xy3"},
        {"{{ m(7, **{'c': 9}) }}", "729"},
        {"{{ m(*[7], **{'b': 8, 'c': 9}) }}", "789"},
        {"{{ m(*[], a=1) }}", "123"},
        {"{{ range(*[1, 4]) | join }}", "123"},
        {"{{ 'a' | replace(*['a', 'b']) }}", "b"},
    };
    char text[256];

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        (void)snprintf(text, sizeof(text), "%s%s", macro, calls[i][0]);
        renders(text, calls[i][1]);
    }
}
END_TEST

/* The loop as a function: over children, with a condition, its depth, and where it was defined. */
START_TEST(loops_are_recursive)
{
    static const char tree[] = "{% set t = [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}, {'n': 4}]}, "
                               "{'n': 5}] %}";
    static const char *const loops[][2] = {
        {"{% for x in t recursive %}{{ x.n }}({{ loop(x.c) if x.c else '' }}){% endfor %}",
         "1(2(3())4())5()"},
        {"{% for x in t if x.n != 4 recursive %}{{ x.n }}/{{ loop.depth }}/{{ loop.index }} "
         "{{ loop(x.c or []) }}{% endfor %}",
         "1/1/1 2/2/1 3/3/1 5/1/2 "},
        {"{% for x in t recursive %}{{ x.n }}{{ loop(x.c or []) }}{% else %}-{% endfor %}",
         "123-4-5-"},
        {"{% set k = 9 %}{% for x in t recursive %}{{ k }}{% set k = 8 %}{{ loop(x.c or []) }}"
         "{% endfor %}",
         "99999"},
        {"{% set ns = namespace() %}{% for x in t[1:] recursive %}{% set ns.f = loop %}{{ x.n }}"
         "{% endfor %}{{ ns.f([{'n': 6}]) }}",
         "56"},
    };
    char text[512];

    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
        (void)snprintf(text, sizeof(text), "%s%s", tree, loops[i][0]);
        renders(text, loops[i][1]);
    }
}
END_TEST

/* Bytes of a message stay the caller's through filters, methods, macros and captures. */
START_TEST(origin_of_text_is_kept)
{
    static const char *const ways[] = {
        "{{ messages[0].content | trim }}",
        "{{ messages[0].content[1:-1] }}",
        "{{ messages[0].content.split(' ')[1] }}",
        "{% set a %}{{ messages[0].content | trim }}{% endset %}{{ a }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(messages[0].content | trim) }}",
        "{{ messages[0].content | trim | upper | lower | replace('hi', 'Hi') }}",
        "{{ [messages[0].content.strip()] | join('') }}",
        "{{ '%s' % messages[0].content.strip() }}",
        "{{ messages[0].content.strip() | tojson }}",
        "{{ [messages[0].content.strip()] | string }}",
    };

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        char text[256];
        struct jinja_text out;
        const char *at;

        (void)snprintf(text, sizeof(text), "<|end|>%s<|end|>", ways[i]);
        ck_assert_msg(render(text, &out) == STATUS_OK, "%s", err.text);
        at = memmem(out.data + 1, out.len - 1, "<|end|>", 7);
        ck_assert_ptr_nonnull(at);
        for (size_t k = 0; k < 7; k++) {
            ck_assert_int_eq(out.origins[k], JINJA_OF_TEMPLATE);
            ck_assert_msg(out.origins[(size_t)(at - out.data) + k] == JINJA_OF_CALLER, "%s",
                          ways[i]);
            ck_assert_int_eq(out.origins[out.len - 7 + k], JINJA_OF_TEMPLATE);
        }
        arena_deinit(&arena);
    }
}
END_TEST

static void fails(const char *text, const char *why)
{
    struct jinja_text out;

    ck_assert_msg(render(text, &out) == STATUS_INVALID, "%s", text);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s: %s", text, err.text);
    arena_deinit(&arena);
}

/* What is wrong is named, with its line. */
START_TEST(errors_are_clear)
{
    fails("a\n{% if %}", "line 2: an expression is missing");
    fails("{% for a in b %}", "'endfor else' is missing");
    fails("{% include 'x' %}", "unknown tag 'include'");
    fails("{{ a.b }}", "line 1: 'a' is undefined");
    fails("\n\n{{ 1 + 'a' }}", "line 3: the operator '+' does not take a int and a string");
    fails("{{ raise_exception('no ' + messages[1].role) }}", "refuses the messages: no tool");
    fails("{{ x | nofilter }}", "unknown filter 'nofilter'");
    fails("{{ 'a", "line 1: a string has no end");
    fails("{{ 1 // 0 }}", "division by zero");
    fails("{{ '{} {a'.format(1) }}", "the format does not match its values");
    fails("{{ 9223372036854775 * 9999999 }}", "a number is too large");
    fails("{% for a in [1] %}{{ loop([2]) }}{% endfor %}", "marked as recursive");
    fails("{% for a in [1] recursive %}{{ loop() }}{% endfor %}", "loop takes one argument");
    fails("{{ range(*range(99)) }}", "a call has more than");
    fails("{{ dict(a=1, **{'a': 2}) }}", "the argument 'a' twice");
    fails("{{ range(*1) }}", "cannot be iterated over");
    fails("{{ range(**[1]) }}", "must be a mapping");
    fails("{{ y | attr('a') }}", "'y' is undefined");
}
END_TEST

/* Templates that would take for ever or all memory end in an error. */
START_TEST(hostile_templates_end)
{
    char deep[4096] = "{{ ";

    fails("{% set r = range(9999) %}{% for a in r %}{{ 9 in r and 'q' in r }}{% endfor %}",
          "too many steps");
    fails("{% for a in [1] recursive %}{{ loop([a]) }}{% endfor %}", "too deeply");
    fails("{{ range(999999999) }}", "a range has more than");
    fails("{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
          "{% endfor %}",
          "the template ");
    fails("{{ 'a' * 999999999999 }}", "the template ");
    fails("{{ [0] * 999999999999 }}", "the template ");
    fails("{{ 'ab' | replace('', 'x' * 9999999) | replace('', 'x' * 9999999) }}", "the template ");
    fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deep");
    fails("{% set a = [] %}{{ a.append(a) }}{{ a | tojson }}", "nested too deep");
    fails("{% set a = [] %}{{ a.append(a) }}{{ a }}", "nested too deep");
    memset(deep + 3, '(', 1000);
    fails(deep, "nested too deep");
}
END_TEST

SUITE_MAIN("agents/lm/jinja", as_jinja2_renders, arguments_come_from_lists, loops_are_recursive,
           origin_of_text_is_kept, errors_are_clear, hostile_templates_end)
