/* Expressions of a template: values of its tree's nodes. */
#include <string.h>

#include "agents/lm/jinja/parts.h"

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
        const size_t from = jinja_byte_of(t, (size_t)p->from);
        const size_t to = p->to < p->from ? from : jinja_byte_of(t, (size_t)p->to);

        return jinja_part(r, t, from, to, out);
    }
    for (int64_t i = p->from; slice_has(p, i); i += p->step) {
        struct jinja_value one;

        if (!jinja_text_item(r, t, i, &one) || !jinja_put_text(r, &b, one.as.text))
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
        return jinja_fail_undefined(r, of);
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

static bool args_no_room(struct jinja_run *r)
{
    return jinja_fail(r, "a call has more than %d arguments", JINJA_MAX_ARGS);
}

static bool args_add(struct jinja_run *r, struct jinja_args *args, struct jinja_value v)
{
    if (args->n == JINJA_MAX_ARGS)
        return args_no_room(r);
    args->values[args->n++] = v;
    return true;
}

static bool args_add_named(struct jinja_run *r, struct jinja_args *args, const char *name,
                           struct jinja_value v)
{
    if (args->n_named == JINJA_MAX_ARGS)
        return args_no_room(r);
    for (size_t i = 0; i < args->n_named; i++)
        if (strcmp(args->named[i].name, name) == 0)
            return jinja_fail(r, "a call has the argument '%.80s' twice", name);
    args->named[args->n_named].name = name;
    args->named[args->n_named++].value = v;
    return true;
}

/* f(*items) */
static bool args_add_items(struct jinja_run *r, struct jinja_args *args, struct jinja_value of)
{
    struct jinja_value items;

    if (of.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, of);
    if (!jinja_iterate(r, of, &items))
        return false;
    for (size_t i = 0; i < items.as.list->n; i++)
        if (!args_add(r, args, items.as.list->items[i]))
            return false;
    return true;
}

/* f(**pairs) */
static bool args_add_pairs(struct jinja_run *r, struct jinja_args *args, struct jinja_value of)
{
    if (of.kind != JINJA_MAP)
        return jinja_fail(r, "arguments behind '**' must be a mapping, not a %s",
                          jinja_kind_name(of));
    for (size_t i = 0; i < of.as.map->n; i++) {
        const struct jinja_pair *p = &of.as.map->pairs[i];
        char *name;

        if (p->key.kind != JINJA_TEXT)
            return jinja_fail(r, "the name of an argument must be a string, not a %s",
                              jinja_kind_name(p->key));
        name = jinja_take(r, p->key.as.text->len + 1, 1);
        if (name == NULL)
            return false;
        memcpy(name, p->key.as.text->data, p->key.as.text->len);
        if (!args_add_named(r, args, name, p->value))
            return false;
    }
    return true;
}

static bool eval_args(struct jinja_run *r, const struct jinja_scope *s,
                      const struct jinja_node *items, struct jinja_args *out)
{
    out->n = out->n_named = 0;
    for (const struct jinja_node *i = items; i != NULL; i = i->next) {
        const bool is_whole =
            i->kind != JINJA_N_KEYWORD && i->kind != JINJA_N_STAR && i->kind != JINJA_N_STARS;
        struct jinja_value v;

        if (!jinja_eval(r, s, is_whole ? i : i->a, &v) ||
            !(i->kind == JINJA_N_KEYWORD ? args_add_named(r, out, i->word, v)
              : i->kind == JINJA_N_STAR  ? args_add_items(r, out, v)
              : i->kind == JINJA_N_STARS ? args_add_pairs(r, out, v)
                                         : args_add(r, out, v)))
            return false;
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
        return f.as.macro->call(r, f.as.macro, args, out);
    case JINJA_FUNCTION:
        return jinja_call_function(r, f.as.function, args, out);
    case JINJA_METHOD:
        return jinja_call_method(r, f.as.method->self, f.as.method->name, args, out);
    case JINJA_LOOP:
        if (f.as.loop->call == NULL)
            return jinja_fail(r, "only a loop that is marked as recursive can be called");
        return args->n == 1 ? f.as.loop->call(r, f.as.loop, args->values[0], out)
                            : jinja_fail(r, "loop takes one argument, what to loop over");
    case JINJA_UNDEFINED:
        return jinja_fail_undefined(r, f);
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
        return jinja_fail_undefined(r, a.kind == JINJA_UNDEFINED ? a : b);
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
