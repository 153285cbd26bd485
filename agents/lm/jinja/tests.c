/* What stands behind "is". */
#include <string.h>

#include "agents/lm/jinja/parts.h"

static bool test_order(struct jinja_run *r, const char *name, struct jinja_value v,
                       struct jinja_value other, bool *ret)
{
    int order;

    if (!jinja_compare(r, v, other, &order))
        return false;
    *ret = name[0] == 'l' || name[0] == '<' ? order < 0 : order > 0;
    if (name[1] == 'e' || name[1] == '=')
        *ret = *ret || order == 0;
    return true;
}

/* Tests with an argument; *is_known is false if name is none of them. */
static bool test_against(struct jinja_run *r, const char *name, struct jinja_value v,
                         struct jinja_args *args, bool *ret, bool *is_known)
{
    static const char *const orders[] = {"lt", "le", "gt", "ge", "<", "<=", ">", ">="};
    const struct jinja_value other = args->n > 0 ? args->values[0] : jinja_undefined(NULL);

    *is_known = true;
    if (strcmp(name, "equalto") == 0 || strcmp(name, "eq") == 0 || strcmp(name, "==") == 0 ||
        strcmp(name, "sameas") == 0)
        return jinja_equal(r, v, other, ret);
    if (strcmp(name, "ne") == 0 || strcmp(name, "!=") == 0) {
        if (!jinja_equal(r, v, other, ret))
            return false;
        *ret = !*ret;
        return true;
    }
    if (strcmp(name, "in") == 0)
        return jinja_contains(r, other, v, ret);
    if (strcmp(name, "lessthan") == 0 || strcmp(name, "greaterthan") == 0)
        return test_order(r, name[0] == 'l' ? "lt" : "gt", v, other, ret);
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (strcmp(orders[i], name) == 0)
            return test_order(r, name, v, other, ret);
    if (strcmp(name, "divisibleby") == 0) {
        struct jinja_value rest;

        if (!jinja_binary(r, '%', v, other, &rest))
            return false;
        *ret = !jinja_is_true(rest);
        return true;
    }
    *is_known = false;
    return true;
}

static bool test_parity(struct jinja_run *r, struct jinja_value v, int64_t rest, bool *ret)
{
    if (v.kind != JINJA_INT)
        return jinja_fail(r, "a %s is neither even nor odd", jinja_kind_name(v));
    *ret = (v.as.number & 1) == rest;
    return true;
}

static bool test_case(struct jinja_run *r, struct jinja_value v, enum jinja_case how, bool *ret)
{
    struct jinja_value text, other;

    return jinja_str(r, v, &text) && jinja_recase(r, text.as.text, how, &other) &&
           jinja_equal(r, text, other, ret);
}

static bool is_kind(const char *name, struct jinja_value v, bool *ret)
{
    const bool is_sequence = v.kind == JINJA_TEXT || v.kind == JINJA_LIST || v.kind == JINJA_MAP;
    const struct {
        const char *name;
        bool is_true;
    } tests[] = {
        {"defined", v.kind != JINJA_UNDEFINED},
        {"undefined", v.kind == JINJA_UNDEFINED},
        {"none", v.kind == JINJA_NONE},
        {"string", v.kind == JINJA_TEXT},
        {"mapping", v.kind == JINJA_MAP},
        {"sequence", is_sequence || v.kind == JINJA_UNDEFINED},
        {"iterable", is_sequence || v.kind == JINJA_UNDEFINED || v.kind == JINJA_LOOP},
        {"boolean", v.kind == JINJA_BOOL},
        {"true", v.kind == JINJA_BOOL && v.as.flag},
        {"false", v.kind == JINJA_BOOL && !v.as.flag},
        {"integer", v.kind == JINJA_INT},
        {"float", v.kind == JINJA_FLOAT},
        {"number", jinja_is_number(v)},
        {"callable", v.kind >= JINJA_MACRO},
        {"escaped", false},
    };

    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        if (strcmp(tests[i].name, name) == 0) {
            *ret = tests[i].is_true;
            return true;
        }
    return false;
}

bool jinja_test(struct jinja_run *r, const char *name, struct jinja_value v,
                struct jinja_args *args, bool *ret)
{
    bool is_known;

    if (is_kind(name, v, ret))
        return true;
    if (strcmp(name, "even") == 0 || strcmp(name, "odd") == 0)
        return test_parity(r, v, name[0] == 'o', ret);
    if (strcmp(name, "lower") == 0 || strcmp(name, "upper") == 0)
        return test_case(r, v, name[0] == 'l' ? JINJA_LOWER : JINJA_UPPER, ret);
    if (!test_against(r, name, v, args, ret, &is_known))
        return false;
    return is_known || jinja_fail(r, "unknown test '%.80s'", name);
}
