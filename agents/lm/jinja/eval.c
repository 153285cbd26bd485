/* Expressions of a template: values of its tree's nodes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agents/lm/jinja/parts.h"

static bool fail_undefined(struct jinja_run *r, struct jinja_value v)
{
    return jinja_fail(r, "'%.80s' is undefined", v.as.name == NULL ? "a value" : v.as.name);
}

static bool find_name(struct jinja_run *r, const struct jinja_scope *s, uint32_t name,
                      struct jinja_value *out)
{
    size_t n = 0;

    for (; s != NULL; s = s->parent)
        for (const struct jinja_binding *b = s->first; b != NULL; b = b->next, n++)
            if (b->name == name) {
                *out = b->value;
                return jinja_charge(r, 4 * n);
            }
    *out = r->globals[name];
    if (out->kind == JINJA_UNDEFINED)
        out->as.name = r->template->names[name];
    return jinja_charge(r, 4 * n);
}

static bool loop_attribute(struct jinja_run *r, struct jinja_value of, const char *name,
                           struct jinja_value *out)
{
    const struct jinja_loop *l = of.as.loop;
    const size_t i = l->index0, n = l->items->n;
    const struct {
        const char *name;
        struct jinja_value value;
    } attributes[] = {
        {"index", jinja_int((int64_t)i + 1)},
        {"index0", jinja_int((int64_t)i)},
        {"revindex", jinja_int((int64_t)(n - i))},
        {"revindex0", jinja_int((int64_t)(n - i) - 1)},
        {"first", jinja_bool(i == 0)},
        {"last", jinja_bool(i + 1 == n)},
        {"length", jinja_int((int64_t)n)},
        {"depth", jinja_int(1)},
        {"depth0", jinja_int(0)},
        {"previtem", i == 0 ? jinja_undefined("previtem") : l->items->items[i - 1]},
        {"nextitem", i + 1 == n ? jinja_undefined("nextitem") : l->items->items[i + 1]},
    };

    (void)r;
    for (size_t at = 0; at < sizeof attributes / sizeof attributes[0]; at++)
        if (strcmp(attributes[at].name, name) == 0) {
            *out = attributes[at].value;
            return true;
        }
    *out = jinja_undefined(name);
    return true;
}

static bool method_value(struct jinja_run *r, struct jinja_value self, const char *name,
                         struct jinja_value *out)
{
    struct jinja_method *m = jinja_take(r, 1, sizeof *m);

    if (m == NULL)
        return false;
    *m = (struct jinja_method){self, name};
    *out = (struct jinja_value){.kind = JINJA_METHOD, .as.method = m};
    return true;
}

/* Methods come before keys, as in Python. */
bool jinja_get_attribute(struct jinja_run *r, struct jinja_value of, const char *name,
                         struct jinja_value *out)
{
    const struct jinja_value *found;

    if (of.kind == JINJA_UNDEFINED)
        return fail_undefined(r, of);
    if (jinja_has_method(of, name))
        return method_value(r, of, name, out);
    if (of.kind == JINJA_LOOP)
        return loop_attribute(r, of, name, out);
    *out = jinja_undefined(name);
    if (of.kind != JINJA_MAP && of.kind != JINJA_NAMESPACE)
        return true;
    found = jinja_map_find(of.as.map, name, strlen(name));
    if (found != NULL)
        *out = *found;
    return jinja_charge(r, 8 * of.as.map->n);
}

/* The byte where character i begins; i may be past the end. */
static size_t byte_of(const struct jinja_text *t, size_t i)
{
    size_t at = 0;

    for (; at < t->len; at++)
        if (((unsigned char)t->data[at] & 0xC0) != 0x80 && i-- == 0)
            return at;
    return at;
}

static bool item_index(int64_t i, size_t n, size_t *ret)
{
    if (i < 0)
        i += (int64_t)n;
    *ret = (size_t)i;
    return i >= 0 && (uint64_t)i < n;
}

static bool text_item(struct jinja_run *r, const struct jinja_text *t, int64_t i,
                      struct jinja_value *out)
{
    size_t at;

    if (!jinja_charge(r, t->len))
        return false;
    if (!item_index(i, jinja_n_characters(t), &at))
        return true;
    return jinja_part(r, t, byte_of(t, at), byte_of(t, at + 1), out);
}

bool jinja_get_item(struct jinja_run *r, struct jinja_value of, struct jinja_value key,
                    struct jinja_value *out)
{
    struct jinja_value *found;
    size_t at;

    if (of.kind == JINJA_UNDEFINED)
        return fail_undefined(r, of);
    *out = jinja_undefined(key.kind == JINJA_TEXT && key.as.text->origin == JINJA_OF_TEMPLATE &&
                                   key.as.text->origins == NULL
                               ? key.as.text->data
                               : NULL);
    if (of.kind == JINJA_MAP) {
        if (!jinja_map_get(r, of.as.map, key, &found))
            return false;
        if (found != NULL)
            *out = *found;
        return true;
    }
    if (key.kind == JINJA_TEXT && key.as.text->origins == NULL && key.as.text->len < 40) {
        char name[40];

        memcpy(name, key.as.text->data, key.as.text->len);
        name[key.as.text->len] = '\0';
        if (of.kind != JINJA_LOOP && of.kind != JINJA_NAMESPACE)
            return true;
        return jinja_get_attribute(r, of, name, out);
    }
    if (key.kind != JINJA_INT)
        return true;
    if (of.kind == JINJA_TEXT)
        return text_item(r, of.as.text, key.as.number, out);
    if (of.kind == JINJA_LIST && item_index(key.as.number, of.as.list->n, &at))
        *out = of.as.list->items[at];
    return true;
}

/* Python's slice: from, to and step over n items. */
struct slice {
    int64_t from, to, step;
};

static bool slice_part(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                       int64_t missing, int64_t *ret)
{
    struct jinja_value v;

    *ret = missing;
    if (n == NULL)
        return true;
    if (!jinja_eval(r, s, n, &v))
        return false;
    if (v.kind == JINJA_NONE)
        return true;
    if (v.kind != JINJA_INT)
        return jinja_fail(r, "a slice needs an int, not a %s", jinja_kind_name(v));
    *ret = v.as.number;
    return true;
}

static int64_t slice_clamp(int64_t i, int64_t n, int64_t least, int64_t most)
{
    if (i < 0)
        i += n;
    return i < least ? least : i > most ? most : i;
}

static bool slice_read(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                       size_t n_items, struct slice *out)
{
    const int64_t all = (int64_t)n_items;
    int64_t from, to;

    if (!slice_part(r, s, n->d, 1, &out->step))
        return false;
    if (out->step == 0 || out->step > INT32_MAX || out->step < -INT32_MAX)
        return jinja_fail(r, "a slice's step is out of range");
    if (!slice_part(r, s, n->b, INT64_MIN, &from) || !slice_part(r, s, n->c, INT64_MIN, &to))
        return false;
    if (out->step > 0) {
        out->from = from == INT64_MIN ? 0 : slice_clamp(from, all, 0, all);
        out->to = to == INT64_MIN ? all : slice_clamp(to, all, 0, all);
    } else {
        out->from = from == INT64_MIN ? all - 1 : slice_clamp(from, all, -1, all - 1);
        out->to = to == INT64_MIN ? -1 : slice_clamp(to, all, -1, all - 1);
    }
    return true;
}

static bool slice_has(const struct slice *p, int64_t i)
{
    return p->step > 0 ? i < p->to : i > p->to;
}

static bool slice_list(struct jinja_run *r, const struct jinja_list *l, const struct slice *p,
                       struct jinja_value *out)
{
    if (!jinja_list_new(r, 0, out))
        return false;
    for (int64_t i = p->from; slice_has(p, i); i += p->step)
        if (!jinja_charge(r, 0) || !jinja_list_push(r, out->as.list, l->items[i]))
            return false;
    return true;
}

static bool slice_text(struct jinja_run *r, const struct jinja_text *t, const struct slice *p,
                       struct jinja_value *out)
{
    struct jinja_text_builder b = {0};

    if (p->step == 1) {
        const size_t from = byte_of(t, (size_t)p->from);
        const size_t to = p->to < p->from ? from : byte_of(t, (size_t)p->to);

        return jinja_part(r, t, from, to, out);
    }
    for (int64_t i = p->from; slice_has(p, i); i += p->step) {
        struct jinja_value one;

        if (!text_item(r, t, i, &one) || !jinja_put_text(r, &b, one.as.text))
            return false;
    }
    return jinja_built(r, &b, out);
}

static bool eval_slice(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                       struct jinja_value *out)
{
    struct jinja_value of;
    struct slice part;

    if (!jinja_eval(r, s, n->a, &of))
        return false;
    if (of.kind == JINJA_UNDEFINED)
        return fail_undefined(r, of);
    if (of.kind == JINJA_TEXT)
        return jinja_charge(r, of.as.text->len) &&
               slice_read(r, s, n, jinja_n_characters(of.as.text), &part) &&
               slice_text(r, of.as.text, &part, out);
    if (of.kind != JINJA_LIST) {
        *out = jinja_undefined(NULL);
        return true;
    }
    if (!slice_read(r, s, n, of.as.list->n, &part) || !slice_list(r, of.as.list, &part, out))
        return false;
    out->is_tuple = of.is_tuple;
    return true;
}

static bool iterate_text(struct jinja_run *r, const struct jinja_text *t, struct jinja_value *out)
{
    if (!jinja_list_new(r, 0, out))
        return false;
    for (size_t at = 0, end; at < t->len; at = end) {
        struct jinja_value one;

        for (end = at + 1; end < t->len && ((unsigned char)t->data[end] & 0xC0) == 0x80;)
            end++;
        if (!jinja_charge(r, 0) || !jinja_part(r, t, at, end, &one) ||
            !jinja_list_push(r, out->as.list, one))
            return false;
    }
    return true;
}

bool jinja_iterate(struct jinja_run *r, struct jinja_value v, struct jinja_value *out)
{
    switch (v.kind) {
    case JINJA_LIST:
        *out = v;
        return true;
    case JINJA_UNDEFINED:
        return jinja_list_new(r, 0, out);
    case JINJA_TEXT:
        return iterate_text(r, v.as.text, out);
    case JINJA_MAP:
        if (!jinja_charge(r, 16 * v.as.map->n) || !jinja_list_new(r, v.as.map->n, out))
            return false;
        for (size_t i = 0; i < v.as.map->n; i++)
            out->as.list->items[out->as.list->n++] = v.as.map->pairs[i].key;
        return true;
    default:
        return jinja_fail(r, "a %s cannot be iterated over", jinja_kind_name(v));
    }
}

bool jinja_contains(struct jinja_run *r, struct jinja_value in, struct jinja_value what, bool *ret)
{
    struct jinja_value *found;

    *ret = false;
    if (in.kind == JINJA_MAP) {
        if (!jinja_map_get(r, in.as.map, what, &found))
            return false;
        *ret = found != NULL;
        return true;
    }
    if (in.kind == JINJA_TEXT) {
        if (what.kind != JINJA_TEXT)
            return jinja_fail(
                r, "the left side of 'in' is a %s, but a string can only contain a string",
                jinja_kind_name(what));
        *ret = what.as.text->len == 0 ||
               (in.as.text->len != 0 && memmem(in.as.text->data, in.as.text->len,
                                               what.as.text->data, what.as.text->len) != NULL);
        return jinja_charge(r, in.as.text->len);
    }
    if (in.kind == JINJA_UNDEFINED)
        return true;
    if (in.kind != JINJA_LIST)
        return jinja_fail(
            r, "the right side of 'in' is a %s, it must be a string, a list or a mapping",
            jinja_kind_name(in));
    for (size_t i = 0; i < in.as.list->n && !*ret; i++)
        if (!jinja_charge(r, 0) || !jinja_equal(r, in.as.list->items[i], what, ret))
            return false;
    return true;
}

static bool repeat_value(struct jinja_run *r, struct jinja_value v, int64_t n,
                         struct jinja_value *out)
{
    struct jinja_text_builder b = {0};

    if (v.kind == JINJA_TEXT) {
        for (int64_t i = 0; i < n; i++)
            if (!jinja_charge(r, 0) || !jinja_put_text(r, &b, v.as.text))
                return false;
        return jinja_built(r, &b, out);
    }
    if (!jinja_list_new(r, 0, out))
        return false;
    out->is_tuple = v.is_tuple;
    for (int64_t i = 0; i < n; i++) {
        if (!jinja_charge(r, 0))
            return false;
        for (size_t at = 0; at < v.as.list->n; at++)
            if (!jinja_charge(r, 0) || !jinja_list_push(r, out->as.list, v.as.list->items[at]))
                return false;
    }
    return true;
}

static bool add_sequences(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                          struct jinja_value *out)
{
    struct jinja_text_builder text = {0};

    if (a.kind == JINJA_TEXT) {
        if (a.as.text->len == 0 || b.as.text->len == 0) {
            *out = a.as.text->len == 0 ? b : a;
            return true;
        }
        return jinja_put_text(r, &text, a.as.text) && jinja_put_text(r, &text, b.as.text) &&
               jinja_built(r, &text, out);
    }
    if (!jinja_charge(r, 16 * (a.as.list->n + b.as.list->n)) ||
        !jinja_list_new(r, a.as.list->n + b.as.list->n, out))
        return false;
    out->is_tuple = a.is_tuple;
    for (size_t i = 0; i < a.as.list->n; i++)
        out->as.list->items[out->as.list->n++] = a.as.list->items[i];
    for (size_t i = 0; i < b.as.list->n; i++)
        out->as.list->items[out->as.list->n++] = b.as.list->items[i];
    return true;
}

static bool real_binary(struct jinja_run *r, int op, double a, double b, struct jinja_value *out)
{
    double result;

    if (b == 0 && (op == '/' || op == '%' || op == JINJA_OP('/', '/')))
        return jinja_fail(r, "division by zero");
    switch (op) {
    case '+':
        result = a + b;
        break;
    case '-':
        result = a - b;
        break;
    case '*':
        result = a * b;
        break;
    case '/':
        result = a / b;
        break;
    case '%':
        result = fmod(a, b);
        if (result != 0 && (result < 0) != (b < 0))
            result += b;
        break;
    case JINJA_OP('/', '/'):
        result = floor(a / b);
        break;
    default:
        result = pow(a, b);
        break;
    }
    *out = jinja_float(result);
    return true;
}

static bool int_power(struct jinja_run *r, int64_t a, int64_t b, struct jinja_value *out)
{
    int64_t result = 1;

    if (b < 0)
        return real_binary(r, JINJA_OP('*', '*'), (double)a, (double)b, out);
    if (b > 64 && a != 0 && a != 1 && a != -1)
        return jinja_fail(r, "a number is too large");
    for (int64_t i = 0; i < (b > 64 ? b % 2 + 2 : b); i++)
        if (__builtin_mul_overflow(result, a, &result))
            return jinja_fail(r, "a number is too large");
    *out = jinja_int(result);
    return true;
}

static bool int_binary(struct jinja_run *r, int op, int64_t a, int64_t b, struct jinja_value *out)
{
    int64_t result = 0;
    bool is_over = false;

    if (op == '/')
        return real_binary(r, op, (double)a, (double)b, out);
    if (op == JINJA_OP('*', '*'))
        return int_power(r, a, b, out);
    if (op == '%' || op == JINJA_OP('/', '/')) {
        if (b == 0)
            return jinja_fail(r, "division by zero");
        if (b == -1) { /* INT64_MIN / -1 does not exist */
            is_over = op != '%' && __builtin_sub_overflow(0, a, &result);
        } else {
            const bool is_rounded_down = a % b != 0 && (a < 0) != (b < 0);

            result = op == '%' ? a % b + (is_rounded_down ? b : 0) : a / b - is_rounded_down;
        }
    } else {
        is_over = op == '+'   ? __builtin_add_overflow(a, b, &result)
                  : op == '-' ? __builtin_sub_overflow(a, b, &result)
                              : __builtin_mul_overflow(a, b, &result);
    }
    *out = jinja_int(result);
    return !is_over || jinja_fail(r, "a number is too large");
}

static int64_t as_int(struct jinja_value v)
{
    return v.kind == JINJA_BOOL ? v.as.flag : v.as.number;
}

/* '%s' and '%d' alone. */
static bool format_percent(struct jinja_run *r, const struct jinja_text *t, struct jinja_value args,
                           struct jinja_value *out)
{
    struct jinja_text_builder b = {0};
    size_t used = 0;

    for (size_t i = 0; i < t->len; i++) {
        const char next = t->data[i] == '%' && i + 1 < t->len ? t->data[i + 1] : '\0';
        struct jinja_value piece;

        if (t->data[i] != '%' || next == '%') {
            if (!jinja_part(r, t, i, i + 1, &piece) || !jinja_put_text(r, &b, piece.as.text))
                return false;
            i += next == '%';
            continue;
        }
        if ((next != 's' && next != 'd') || (args.is_tuple && used == args.as.list->n) ||
            (!args.is_tuple && used == 1))
            return jinja_fail(r, "the format does not match its values");
        if (!jinja_put_value(r, &b, args.is_tuple ? args.as.list->items[used] : args))
            return false;
        used++;
        i++;
    }
    return jinja_built(r, &b, out);
}

bool jinja_binary(struct jinja_run *r, int op, struct jinja_value a, struct jinja_value b,
                  struct jinja_value *out)
{
    if (op == '~') {
        struct jinja_text_builder text = {0};

        return jinja_put_value(r, &text, a) && jinja_put_value(r, &text, b) &&
               jinja_built(r, &text, out);
    }
    if (a.kind == JINJA_UNDEFINED)
        return fail_undefined(r, a);
    if (b.kind == JINJA_UNDEFINED)
        return fail_undefined(r, b);
    if (jinja_is_number(a) && jinja_is_number(b))
        return a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT
                   ? real_binary(r, op, jinja_as_real(a), jinja_as_real(b), out)
                   : int_binary(r, op, as_int(a), as_int(b), out);
    if (op == '+' && a.kind == b.kind && a.is_tuple == b.is_tuple &&
        (a.kind == JINJA_TEXT || a.kind == JINJA_LIST))
        return add_sequences(r, a, b, out);
    if (op == '*' && (a.kind == JINJA_TEXT || a.kind == JINJA_LIST) &&
        (b.kind == JINJA_INT || b.kind == JINJA_BOOL))
        return repeat_value(r, a, as_int(b), out);
    if (op == '*' && (b.kind == JINJA_TEXT || b.kind == JINJA_LIST) &&
        (a.kind == JINJA_INT || a.kind == JINJA_BOOL))
        return repeat_value(r, b, as_int(a), out);
    if (op == '%' && a.kind == JINJA_TEXT)
        return format_percent(r, a.as.text, b, out);
    return jinja_fail(r, "the operator '%c' does not take a %s and a %s", op & 0x7F,
                      jinja_kind_name(a), jinja_kind_name(b));
}

static bool eval_args(struct jinja_run *r, const struct jinja_scope *s,
                      const struct jinja_node *items, struct jinja_args *out)
{
    out->n = out->n_named = 0;
    for (const struct jinja_node *i = items; i != NULL; i = i->next) {
        if (out->n == JINJA_MAX_ARGS || out->n_named == JINJA_MAX_ARGS)
            return jinja_fail(r, "a call has more than %d arguments", JINJA_MAX_ARGS);
        if (i->kind == JINJA_N_KEYWORD) {
            out->named[out->n_named].name = i->word;
            if (!jinja_eval(r, s, i->a, &out->named[out->n_named++].value))
                return false;
        } else if (!jinja_eval(r, s, i, &out->values[out->n++])) {
            return false;
        }
    }
    return true;
}

static bool call_loop(struct jinja_run *r, struct jinja_value self, const char *name,
                      const struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_loop *l = self.as.loop;
    struct jinja_value list;
    bool is_equal = false;

    if (strcmp(name, "cycle") == 0) {
        if (args->n == 0)
            return jinja_fail(r, "loop.cycle needs at least one argument");
        *out = args->values[l->index0 % args->n];
        return true;
    }
    if (strcmp(name, "changed") != 0)
        return jinja_fail(r, "loop has no method '%.40s'", name);
    if (!jinja_list_new(r, 0, &list))
        return false;
    for (size_t i = 0; i < args->n; i++)
        if (!jinja_list_push(r, list.as.list, args->values[i]))
            return false;
    if (l->has_changed && !jinja_equal(r, l->changed, list, &is_equal))
        return false;
    l->has_changed = true;
    l->changed = list;
    *out = jinja_bool(!is_equal);
    return true;
}

static bool call_value(struct jinja_run *r, struct jinja_value f, struct jinja_args *args,
                       struct jinja_value *out)
{
    switch (f.kind) {
    case JINJA_MACRO:
        return jinja_call_macro(r, f.as.macro, args, out);
    case JINJA_FUNCTION:
        return jinja_call_function(r, f.as.function, args, out);
    case JINJA_METHOD:
        return jinja_call_method(r, f.as.method->self, f.as.method->name, args, out);
    case JINJA_UNDEFINED:
        return fail_undefined(r, f);
    default:
        return jinja_fail(r, "a %s cannot be called", jinja_kind_name(f));
    }
}

static bool eval_call(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                      struct jinja_value *out)
{
    struct jinja_value f;
    struct jinja_args args;

    if (n->a->kind == JINJA_N_ATTRIBUTE) {
        struct jinja_value self;

        if (!jinja_eval(r, s, n->a->a, &self) || !eval_args(r, s, n->items, &args))
            return false;
        if (self.kind == JINJA_LOOP)
            return call_loop(r, self, n->a->word, &args, out);
        if (jinja_has_method(self, n->a->word))
            return jinja_call_method(r, self, n->a->word, &args, out);
        if (!jinja_get_attribute(r, self, n->a->word, &f))
            return false;
        if (f.kind == JINJA_UNDEFINED)
            return jinja_fail(r, "a %s has no '%.80s'", jinja_kind_name(self), n->a->word);
        return call_value(r, f, &args, out);
    }
    return jinja_eval(r, s, n->a, &f) && eval_args(r, s, n->items, &args) &&
           call_value(r, f, &args, out);
}

static bool compare_once(struct jinja_run *r, int op, struct jinja_value a, struct jinja_value b,
                         bool *ret)
{
    int order;

    if (op == JINJA_OP_IN || op == JINJA_OP_NOT_IN) {
        if (!jinja_contains(r, b, a, ret))
            return false;
        *ret = *ret == (op == JINJA_OP_IN);
        return true;
    }
    if (op == JINJA_OP('=', '=') || op == JINJA_OP('!', '=')) {
        if (!jinja_equal(r, a, b, ret))
            return false;
        *ret = *ret == (op == JINJA_OP('=', '='));
        return true;
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return fail_undefined(r, a.kind == JINJA_UNDEFINED ? a : b);
    if (!jinja_compare(r, a, b, &order))
        return false;
    *ret = op == '<'                  ? order < 0
           : op == '>'                ? order > 0
           : op == JINJA_OP('<', '=') ? order <= 0
                                      : order >= 0;
    return true;
}

static bool eval_compare(struct jinja_run *r, const struct jinja_scope *s,
                         const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value a, b;
    bool is_true = true;

    if (!jinja_eval(r, s, n->a, &a))
        return false;
    for (const struct jinja_node *i = n->items; i != NULL && is_true; i = i->next) {
        if (!jinja_eval(r, s, i->a, &b) || !compare_once(r, i->operator, a, b, &is_true))
            return false;
        a = b;
    }
    *out = jinja_bool(is_true);
    return true;
}

static bool eval_list(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                      struct jinja_value *out)
{
    if (!jinja_list_new(r, 0, out))
        return false;
    out->is_tuple = n->kind == JINJA_N_TUPLE;
    for (const struct jinja_node *i = n->items; i != NULL; i = i->next) {
        struct jinja_value v;

        if (!jinja_eval(r, s, i, &v) || !jinja_list_push(r, out->as.list, v))
            return false;
    }
    return true;
}

static bool eval_dict(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                      struct jinja_value *out)
{
    if (!jinja_map_new(r, 0, out))
        return false;
    for (const struct jinja_node *i = n->items; i != NULL; i = i->next->next) {
        struct jinja_value key, value;

        if (!jinja_eval(r, s, i, &key) || !jinja_eval(r, s, i->next, &value) ||
            !jinja_map_set(r, out->as.map, key, value))
            return false;
    }
    return true;
}

static bool eval_filter(struct jinja_run *r, const struct jinja_scope *s,
                        const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value v;
    struct jinja_args args;

    return jinja_eval(r, s, n->a, &v) && eval_args(r, s, n->items, &args) &&
           jinja_filter(r, n->word, v, &args, out);
}

static bool eval_test(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                      struct jinja_value *out)
{
    struct jinja_value v;
    struct jinja_args args;
    bool is_true;

    if (!jinja_eval(r, s, n->a, &v) || !eval_args(r, s, n->items, &args) ||
        !jinja_test(r, n->word, v, &args, &is_true))
        return false;
    *out = jinja_bool(is_true);
    return true;
}

static bool eval_sign(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                      struct jinja_value *out)
{
    if (!jinja_eval(r, s, n->a, out))
        return false;
    return jinja_binary(r, n->kind == JINJA_N_NEGATIVE ? '-' : '+', jinja_int(0), *out, out);
}

static bool eval_short(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                       struct jinja_value *out)
{
    if (!jinja_eval(r, s, n->a, out))
        return false;
    return jinja_is_true(*out) == (n->kind == JINJA_N_OR) || jinja_eval(r, s, n->b, out);
}

static bool eval_choice(struct jinja_run *r, const struct jinja_scope *s,
                        const struct jinja_node *n, struct jinja_value *out)
{
    if (!jinja_eval(r, s, n->b, out))
        return false;
    if (jinja_is_true(*out))
        return jinja_eval(r, s, n->a, out);
    *out = jinja_undefined(NULL);
    return n->c == NULL || jinja_eval(r, s, n->c, out);
}

static bool eval_body(const struct jinja_scope *s, struct jinja_value *out)
{
    while (s->captured == NULL)
        s = s->parent;
    *out = *s->captured;
    return true;
}

static bool eval_binary(struct jinja_run *r, const struct jinja_scope *s,
                        const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value a, b;

    return jinja_eval(r, s, n->a, &a) && jinja_eval(r, s, n->b, &b) &&
           jinja_binary(r, n->operator, a, b, out);
}

static bool eval_item(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                      struct jinja_value *out)
{
    struct jinja_value of, key;

    return jinja_eval(r, s, n->a, &of) && jinja_eval(r, s, n->b, &key) &&
           jinja_get_item(r, of, key, out);
}

static bool eval_node(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                      struct jinja_value *out)
{
    struct jinja_value of;

    switch (n->kind) {
    case JINJA_N_CONST:
        *out = n->value;
        return true;
    case JINJA_N_NAME:
        return find_name(r, s, n->name, out);
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
        return eval_list(r, s, n, out);
    case JINJA_N_DICT:
        return eval_dict(r, s, n, out);
    case JINJA_N_ATTRIBUTE:
        return jinja_eval(r, s, n->a, &of) && jinja_get_attribute(r, of, n->word, out);
    case JINJA_N_ITEM:
        return eval_item(r, s, n, out);
    case JINJA_N_SLICE:
        return eval_slice(r, s, n, out);
    case JINJA_N_CALL:
        return eval_call(r, s, n, out);
    case JINJA_N_FILTER:
        return eval_filter(r, s, n, out);
    case JINJA_N_TEST:
        return eval_test(r, s, n, out);
    case JINJA_N_NOT:
        if (!jinja_eval(r, s, n->a, out))
            return false;
        *out = jinja_bool(!jinja_is_true(*out));
        return true;
    case JINJA_N_NEGATIVE:
    case JINJA_N_POSITIVE:
        return eval_sign(r, s, n, out);
    case JINJA_N_AND:
    case JINJA_N_OR:
        return eval_short(r, s, n, out);
    case JINJA_N_BINARY:
        return eval_binary(r, s, n, out);
    case JINJA_N_COMPARE:
        return eval_compare(r, s, n, out);
    case JINJA_N_IF_ELSE:
        return eval_choice(r, s, n, out);
    default:
        return eval_body(s, out);
    }
}

bool jinja_eval(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                struct jinja_value *out)
{
    bool is_good;

    r->line = n->line;
    if (!jinja_charge(r, 0) || !jinja_enter(r))
        return false;
    is_good = eval_node(r, s, n, out);
    r->depth--;
    return is_good;
}
