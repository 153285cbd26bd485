/* Statements of a template: what it prints, binds and repeats. */
#include <string.h>

#include "agents/lm/jinja/jinja.h"
#include "agents/lm/jinja/parts.h"

/* How a body ended. */
enum run_end { RUN_FAILED, RUN_ON, RUN_BREAK, RUN_CONTINUE };

static enum run_end run_body(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                             struct jinja_text_builder *out);

static bool bind_name(struct jinja_run *r, struct jinja_scope *s, uint32_t name,
                      struct jinja_value v)
{
    struct jinja_binding *b;

    if (s->parent == NULL) {
        r->globals[name] = v;
        return true;
    }
    for (b = s->first; b != NULL; b = b->next)
        if (b->name == name) {
            b->value = v;
            return true;
        }
    b = jinja_take(r, 1, sizeof(*b));
    if (b == NULL)
        return false;
    *b = (struct jinja_binding){name, v, s->first};
    s->first = b;
    return true;
}

static bool bind_attribute(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                           struct jinja_value v)
{
    struct jinja_value space, key;

    if (!jinja_eval(r, s, n->a, &space))
        return false;
    if (space.kind != JINJA_NAMESPACE)
        return jinja_fail(r, "an attribute of a %s cannot be set, only a namespace's",
                          jinja_kind_name(space));
    return jinja_string(r, n->word, strlen(n->word), JINJA_OF_TEMPLATE, &key) &&
           jinja_map_set(r, space.as.map, key, v);
}

bool jinja_bind(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *target,
                struct jinja_value v)
{
    struct jinja_value items;
    size_t i = 0;

    if (target->kind == JINJA_N_NAME)
        return bind_name(r, s, target->name, v);
    if (target->kind == JINJA_N_ATTRIBUTE)
        return bind_attribute(r, s, target, v);
    if (!jinja_iterate(r, v, &items))
        return false;
    for (const struct jinja_node *t = target->items; t != NULL; t = t->next, i++)
        if (i == items.as.list->n || !jinja_bind(r, s, t, items.as.list->items[i]))
            return i == items.as.list->n && jinja_fail(r, "there are too few values to unpack");
    return i == items.as.list->n || jinja_fail(r, "there are too many values to unpack");
}

/* The items for which the loop's condition holds. */
static bool choose_items(struct jinja_run *r, const struct jinja_scope *s,
                         const struct jinja_node *n, struct jinja_value *items)
{
    const struct jinja_list *all = items->as.list;

    if (n->c == NULL)
        return true;
    if (!jinja_list_new(r, 0, items))
        return false;
    for (size_t i = 0; i < all->n; i++) {
        struct jinja_scope inner = {.parent = s};
        struct jinja_value is_chosen;

        if (!jinja_bind(r, &inner, n->a, all->items[i]) ||
            !jinja_eval(r, &inner, n->c, &is_chosen) ||
            (jinja_is_true(is_chosen) && !jinja_list_push(r, items->as.list, all->items[i])))
            return false;
    }
    return true;
}

static uint32_t run_name_of(const struct jinja *t, const char *name)
{
    for (uint32_t i = 0; i < t->n_names; i++)
        if (strcmp(t->names[i], name) == 0)
            return i;
    return UINT32_MAX;
}

static const struct jinja_scope *kept_scope(struct jinja_run *r, const struct jinja_scope *s);

static bool call_loop_deeper(struct jinja_run *r, const struct jinja_loop *self,
                             struct jinja_value items, struct jinja_value *out);

/* One pass a chosen item. */
static enum run_end run_passes(struct jinja_run *r, struct jinja_scope *s,
                               const struct jinja_node *n, struct jinja_loop *loop,
                               struct jinja_text_builder *out)
{
    const uint32_t name = run_name_of(r->template, "loop");

    for (size_t i = 0; i < loop->items->n; i++) {
        struct jinja_scope inner = {.parent = s};
        const struct jinja_value value = {.kind = JINJA_LOOP, .as.loop = loop};
        enum run_end end;

        loop->index0 = i;
        if ((name != UINT32_MAX && !bind_name(r, &inner, name, value)) ||
            !jinja_bind(r, &inner, n->a, loop->items->items[i]))
            return RUN_FAILED;
        end = run_body(r, &inner, n->body, out);
        if (end == RUN_FAILED)
            return RUN_FAILED;
        if (end == RUN_BREAK)
            break;
    }
    return RUN_ON;
}

static enum run_end run_loop(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                             struct jinja_value items, unsigned depth0,
                             struct jinja_text_builder *out)
{
    struct jinja_loop *loop = jinja_take(r, 1, sizeof(*loop));

    if (loop == NULL || !jinja_iterate(r, items, &items) || !choose_items(r, s, n, &items))
        return RUN_FAILED;
    loop->items = items.as.list;
    loop->depth0 = depth0;
    if (n->kind == JINJA_N_FOR_RECURSIVE) { /* its value may outlive the scopes on the C stack */
        loop->call = call_loop_deeper;
        loop->node = n;
        loop->scope = kept_scope(r, s);
        if (loop->scope == NULL)
            return RUN_FAILED;
    }
    return items.as.list->n == 0 ? run_body(r, s, n->other, out) : run_passes(r, s, n, loop, out);
}

static bool call_loop_deeper(struct jinja_run *r, const struct jinja_loop *self,
                             struct jinja_value items, struct jinja_value *out)
{
    struct jinja_scope inner = {.parent = self->scope};
    struct jinja_text_builder b = {0};

    return run_loop(r, &inner, self->node, items, self->depth0 + 1, &b) != RUN_FAILED &&
           jinja_built(r, &b, out);
}

static enum run_end run_for(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                            struct jinja_text_builder *out)
{
    struct jinja_value items;

    return jinja_eval(r, s, n->b, &items) ? run_loop(r, s, n, items, 0, out) : RUN_FAILED;
}

static enum run_end run_if(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                           struct jinja_text_builder *out)
{
    struct jinja_value is_true;

    while (n != NULL && n->kind == JINJA_N_IF) {
        if (!jinja_eval(r, s, n->a, &is_true))
            return RUN_FAILED;
        if (jinja_is_true(is_true))
            return run_body(r, s, n->body, out);
        if (n->other == NULL || n->other->kind != JINJA_N_IF || n->other->next != NULL)
            return run_body(r, s, n->other, out);
        n = n->other; /* an elif, or an else that has only an if */
    }
    return RUN_ON;
}

/* Runs a body of its own scope into a string. */
static bool capture_body(struct jinja_run *r, const struct jinja_scope *s,
                         const struct jinja_node *body, struct jinja_value *out)
{
    struct jinja_scope inner = {.parent = s};
    struct jinja_text_builder b = {0};

    return run_body(r, &inner, body, &b) != RUN_FAILED && jinja_built(r, &b, out);
}

static bool run_set(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n)
{
    struct jinja_value v;

    return jinja_eval(r, s, n->b, &v) && jinja_bind(r, s, n->a, v);
}

static bool run_set_block(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n)
{
    struct jinja_value text, v;
    struct jinja_scope inner = {.parent = s, .captured = &text};

    return capture_body(r, s, n->body, &text) && jinja_eval(r, &inner, n->b, &v) &&
           jinja_bind(r, s, n->a, v);
}

static bool run_filter_block(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                             struct jinja_text_builder *out)
{
    struct jinja_value text, v;
    struct jinja_scope inner = {.parent = s, .captured = &text};

    return capture_body(r, s, n->body, &text) && jinja_eval(r, &inner, n->a, &v) &&
           jinja_put_value(r, out, v);
}

/* A macro outlives the pass that defines it: its scope is copied from the C stack. */
static const struct jinja_scope *kept_scope(struct jinja_run *r, const struct jinja_scope *s)
{
    struct jinja_scope *kept;

    if (s->parent == NULL)
        return s;
    kept = jinja_take(r, 1, sizeof(*kept));
    if (kept == NULL)
        return NULL;
    *kept = *s;
    kept->captured = NULL;
    kept->parent = kept_scope(r, s->parent);
    return kept->parent == NULL ? NULL : kept;
}

static const struct jinja_value *arg_of(const struct jinja_args *args, size_t i, const char *name)
{
    if (i < args->n)
        return &args->values[i];
    for (size_t at = 0; at < args->n_named; at++)
        if (strcmp(args->named[at].name, name) == 0)
            return &args->named[at].value;
    return NULL;
}

static bool bind_parameters(struct jinja_run *r, struct jinja_scope *s, const struct jinja_macro *m,
                            const struct jinja_args *args)
{
    size_t i = 0;

    for (const struct jinja_node *n = m->node->items; n != NULL; n = n->next, i++) {
        const struct jinja_value *given = arg_of(args, i, n->word);
        struct jinja_value v = jinja_undefined(n->word);

        if (given != NULL)
            v = *given;
        else if (n->a != NULL && !jinja_eval(r, s, n->a, &v))
            return false;
        if (!bind_name(r, s, n->name, v))
            return false;
    }
    return i >= args->n || jinja_fail(r, "macro '%.80s' takes at most %zu arguments, not %zu",
                                      m->node->word, i, args->n);
}

static bool call_macro(struct jinja_run *r, const struct jinja_macro *m,
                       const struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_scope s = {.parent = m->scope};
    struct jinja_text_builder b = {0};

    return bind_parameters(r, &s, m, args) && run_body(r, &s, m->node->body, &b) != RUN_FAILED &&
           jinja_built(r, &b, out);
}

static bool macro_value(struct jinja_run *r, const struct jinja_scope *s,
                        const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_macro *m = jinja_take(r, 1, sizeof(*m));

    if (m == NULL)
        return false;
    m->call = call_macro;
    m->node = n;
    m->scope = kept_scope(r, s);
    *out = (struct jinja_value){.kind = JINJA_MACRO, .as.macro = m};
    return m->scope != NULL;
}

static bool run_macro(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n)
{
    struct jinja_value v;

    return macro_value(r, s, n, &v) && bind_name(r, s, n->name, v);
}

/* The macro of the call sees the block as caller(). */
static bool run_call_block(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                           struct jinja_text_builder *out)
{
    const uint32_t name = run_name_of(r->template, "caller");
    struct jinja_value caller, before, v;
    bool is_good;

    if (name == UINT32_MAX)
        return jinja_eval(r, s, n->a, &v) && jinja_put_value(r, out, v);
    if (!macro_value(r, s, n, &caller))
        return false;
    before = r->globals[name];
    r->globals[name] = caller;
    is_good = jinja_eval(r, s, n->a, &v) && jinja_put_value(r, out, v);
    r->globals[name] = before;
    return is_good;
}

static enum run_end run_scope(struct jinja_run *r, struct jinja_scope *s,
                              const struct jinja_node *n, struct jinja_text_builder *out)
{
    struct jinja_scope inner = {.parent = s};
    struct jinja_value v;

    for (const struct jinja_node *i = n->items; i != NULL; i = i->next)
        if (!jinja_eval(r, s, i->b, &v) || !jinja_bind(r, &inner, i->a, v))
            return RUN_FAILED;
    return run_body(r, &inner, n->body, out);
}

static enum run_end run_end_of(bool is_good)
{
    return is_good ? RUN_ON : RUN_FAILED;
}

static enum run_end run_one(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                            struct jinja_text_builder *out)
{
    struct jinja_value v;

    switch (n->kind) {
    case JINJA_N_DATA:
        return run_end_of(jinja_put_text(r, out, n->value.as.text));
    case JINJA_N_PRINT:
        return run_end_of(jinja_eval(r, s, n->a, &v) && jinja_put_value(r, out, v));
    case JINJA_N_FOR:
    case JINJA_N_FOR_RECURSIVE:
        return run_for(r, s, n, out);
    case JINJA_N_IF:
        return run_if(r, s, n, out);
    case JINJA_N_SET:
        return run_end_of(run_set(r, s, n));
    case JINJA_N_SET_BLOCK:
        return run_end_of(run_set_block(r, s, n));
    case JINJA_N_MACRO:
        return run_end_of(run_macro(r, s, n));
    case JINJA_N_CALL_BLOCK:
        return run_end_of(run_call_block(r, s, n, out));
    case JINJA_N_FILTER_BLOCK:
        return run_end_of(run_filter_block(r, s, n, out));
    case JINJA_N_SCOPE:
        return run_scope(r, s, n, out);
    case JINJA_N_BREAK:
        return RUN_BREAK;
    default:
        return RUN_CONTINUE;
    }
}

static enum run_end run_body(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                             struct jinja_text_builder *out)
{
    enum run_end end = RUN_ON;

    if (!jinja_enter(r))
        return RUN_FAILED;
    for (; n != NULL && end == RUN_ON; n = n->next) {
        r->line = n->line;
        end = run_end_of(jinja_charge(r, 0));
        if (end == RUN_ON)
            end = run_one(r, s, n, out);
    }
    r->depth--;
    return end;
}

bool jinja_begin(struct jinja_run *out, const struct jinja *t, struct arena *arena,
                 const struct tm *now, uint64_t max_steps, struct error *err)
{
    *out = (struct jinja_run){
        .arena = arena, .template = t, .now = now, .steps_left = max_steps, .err = err};
    out->globals = jinja_take(out, t->n_names, sizeof(*out->globals));
    if (out->globals == NULL)
        return false;
    for (uint32_t i = 0; i < t->n_names; i++) {
        const int f = jinja_function_named(t->names[i]);

        if (f >= 0)
            out->globals[i] = (struct jinja_value){.kind = JINJA_FUNCTION, .as.function = f};
    }
    return true;
}

bool jinja_uses(const struct jinja *t, const char *name)
{
    return run_name_of(t, name) != UINT32_MAX;
}

void jinja_set(struct jinja_run *r, const char *name, struct jinja_value value)
{
    const uint32_t i = run_name_of(r->template, name);

    if (i != UINT32_MAX)
        r->globals[i] = value;
}

enum status jinja_render(struct jinja_run *r, struct jinja_text *out)
{
    struct jinja_scope top = {0};
    struct jinja_text_builder b = {0};
    struct jinja_value text;

    if (run_body(r, &top, r->template->body, &b) == RUN_FAILED || !jinja_built(r, &b, &text))
        return r->err->status;
    *out = *text.as.text;
    return STATUS_OK;
}
