/* Acts, field by field. An act that borrows its fields (cap 0) gets an array of its own with the
 * first change. */
#include "worlds/message/act.h"

#include <assert.h>
#include <string.h>

#define NAME(s)          \
    {                    \
        s, sizeof(s) - 1 \
    }

static const struct text key_names[ACT_N_KEYS] = {
    [ACT_OTHER] = NAME(""),
    [ACT_ID] = NAME("id"),
    [ACT_TEXT] = NAME("text"),
    [ACT_LABELS] = NAME("labels"),
    [ACT_EVAL_LABELS] = NAME("eval_labels"),
    [ACT_LABEL_CANDIDATES] = NAME("label_candidates"),
    [ACT_TEXT_CANDIDATES] = NAME("text_candidates"),
    [ACT_EPISODE_DONE] = NAME("episode_done"),
    [ACT_REWARD] = NAME("reward"),
    [ACT_IMAGE] = NAME("image"),
    [ACT_METRICS] = NAME("metrics"),
    [ACT_BATCH_PADDING] = NAME("batch_padding"),
    [ACT_TEXT_VEC] = NAME("text_vec"),
    [ACT_LABELS_VEC] = NAME("labels_vec"),
    [ACT_EVAL_LABELS_VEC] = NAME("eval_labels_vec"),
};

static const struct field padding_fields[] = {
    {NAME("batch_padding"), ACT_BATCH_PADDING, {.type = VALUE_BOOL, .boolean = true}},
    {NAME("episode_done"), ACT_EPISODE_DONE, {.type = VALUE_BOOL, .boolean = true}},
};

enum { FIRST_FIELDS = 8 };

enum act_key act_key_of(const char *name, size_t len)
{
    for (size_t i = 1; i < ACT_N_KEYS; i++)
        if (key_names[i].len == len && memcmp(key_names[i].text, name, len) == 0)
            return (enum act_key)i;
    return ACT_OTHER;
}

struct text act_key_name(enum act_key key)
{
    return key_names[key];
}

void act_init(struct act *a, struct arena *arena)
{
    *a = (struct act){.arena = arena};
}

void act_share(struct act *a, const struct act *from, struct arena *arena)
{
    *a = (struct act){
        .fields = from->fields, .n = from->n, .present = from->present, .arena = arena};
}

void act_padding(struct act *a, struct arena *arena)
{
    *a = (struct act){.fields = padding_fields,
                      .n = sizeof(padding_fields) / sizeof(padding_fields[0]),
                      .present = 1u << ACT_BATCH_PADDING | 1u << ACT_EPISODE_DONE,
                      .arena = arena};
}

static const struct field *act_find_field(const struct act *a, enum act_key key, const char *name,
                                          size_t len)
{
    if (key != ACT_OTHER && !act_has(a, key))
        return NULL;
    for (size_t i = 0; i < a->n; i++) {
        const struct field *f = &a->fields[i];

        if (f->key != key)
            continue;
        if (key != ACT_OTHER || (f->name.len == len && memcmp(f->name.text, name, len) == 0))
            return f;
    }
    return NULL;
}

const struct value *act_get(const struct act *a, enum act_key key)
{
    const struct field *f;

    assert(key != ACT_OTHER);
    f = act_find_field(a, key, NULL, 0);
    return f == NULL ? NULL : &f->value;
}

const struct value *act_get_named(const struct act *a, const char *name, size_t len)
{
    const struct field *f = act_find_field(a, act_key_of(name, len), name, len);

    return f == NULL ? NULL : &f->value;
}

/* Makes the fields the act's own, with room for one more. */
static enum status act_make_room(struct act *a, struct error *err)
{
    uint32_t cap = a->n + 1 > FIRST_FIELDS ? 2 * (a->n + 1) : FIRST_FIELDS;
    struct field *fields;

    if (a->cap > a->n)
        return STATUS_OK;
    if (a->arena == NULL)
        return error_set(err, STATUS_EXHAUSTED, "an act without memory of its own");
    fields = arena_alloc(a->arena, cap, sizeof(*fields));
    if (fields == NULL)
        return error_no_memory(err, cap * sizeof(*fields), "an act's fields");
    if (a->n > 0)
        memcpy(fields, a->fields, a->n * sizeof(*fields));
    a->fields = fields;
    a->cap = cap;
    return STATUS_OK;
}

static enum status act_put_field(struct act *a, enum act_key key, struct text name, struct value v,
                                 bool overwrites, struct error *err)
{
    const struct field *at = act_find_field(a, key, name.text, name.len);
    struct field *fields;
    size_t i = at == NULL ? a->n : (size_t)(at - a->fields);

    if (at != NULL && !overwrites)
        return error_set(err, STATUS_EXISTS, "the act has a field '%.*s' already",
                         (int)(name.len < 64 ? name.len : 64), name.text);
    if (act_make_room(a, err) != STATUS_OK)
        return err->status;
    fields = (struct field *)(uintptr_t)a->fields; /* the act's own: cap > 0 */
    fields[i] = (struct field){name, (uint8_t)key, v};
    a->n += at == NULL;
    a->present |= key == ACT_OTHER ? 0 : 1u << key;
    return STATUS_OK;
}

enum status act_set(struct act *a, enum act_key key, struct value v, struct error *err)
{
    assert(key != ACT_OTHER);
    return act_put_field(a, key, key_names[key], v, false, err);
}

enum status act_set_named(struct act *a, struct text name, struct value v, struct error *err)
{
    return act_put_field(a, act_key_of(name.text, name.len), name, v, false, err);
}

enum status act_force(struct act *a, enum act_key key, struct value v, struct error *err)
{
    assert(key != ACT_OTHER);
    return act_put_field(a, key, key_names[key], v, true, err);
}

enum status act_force_named(struct act *a, struct text name, struct value v, struct error *err)
{
    return act_put_field(a, act_key_of(name.text, name.len), name, v, true, err);
}

enum status act_remove(struct act *a, const char *name, size_t len, bool *ret_was_there,
                       struct error *err)
{
    enum act_key key = act_key_of(name, len);
    const struct field *at = act_find_field(a, key, name, len);
    size_t i = at == NULL ? 0 : (size_t)(at - a->fields);
    struct field *fields;

    if (at != NULL) {
        if (act_make_room(a, err) != STATUS_OK)
            return err->status;
        fields = (struct field *)(uintptr_t)a->fields;
        memmove(&fields[i], &fields[i + 1], (a->n - i - 1) * sizeof(*fields));
        a->n--;
        a->present &= ~(key == ACT_OTHER ? 0 : 1u << key);
    }
    if (ret_was_there != NULL)
        *ret_was_there = at != NULL;
    return STATUS_OK;
}

static bool act_is_white(char ch)
{
    return ch == ' ' || (ch >= '\t' && ch <= '\r');
}

uint32_t act_count_words(struct text t)
{
    uint32_t n = 0;

    for (size_t i = 0; i < t.len && n < UINT32_MAX; i++)
        n += !act_is_white(t.text[i]) && (i == 0 || act_is_white(t.text[i - 1]));
    return n;
}

struct text act_text(const struct act *a)
{
    const struct value *v = act_get(a, ACT_TEXT);

    return v != NULL && v->type == VALUE_TEXT ? v->text : (struct text){NULL, 0};
}

struct text act_speaker(const struct act *a)
{
    const struct value *v = act_get(a, ACT_ID);

    return v != NULL && v->type == VALUE_TEXT ? v->text : (struct text){0};
}

enum status act_named_text(struct text *out, const struct act *a, struct arena *arena,
                           struct error *err)
{
    const struct text speaker = act_speaker(a), text = act_text(a);
    char *named;

    *out = text;
    if (speaker.len == 0 || text.len == 0)
        return STATUS_OK;
    named = arena_alloc(arena, speaker.len + 2 + text.len, 1);
    if (named == NULL)
        return error_no_memory(err, speaker.len + 2 + text.len, "a message");
    memcpy(named, speaker.text, speaker.len);
    memcpy(named + speaker.len, ": ", 2);
    memcpy(named + speaker.len + 2, text.text, text.len);
    *out = (struct text){named, speaker.len + 2 + text.len};
    return STATUS_OK;
}

const struct value *act_list(const struct act *a, enum act_key key)
{
    const struct value *v = act_get(a, key);

    return v != NULL && v->type == VALUE_LIST ? v : NULL;
}

const struct value *act_labels(const struct act *a)
{
    return act_list(a, act_has(a, ACT_LABELS) ? ACT_LABELS : ACT_EVAL_LABELS);
}

bool act_is(const struct act *a, enum act_key key)
{
    const struct value *v = act_get(a, key);

    if (v == NULL)
        return false;
    switch ((enum value_type)v->type) {
    case VALUE_NULL:
        return false;
    case VALUE_TEXT:
    case VALUE_JSON:
        return v->text.len > 0;
    case VALUE_BOOL:
        return v->boolean;
    case VALUE_INT:
        return v->integer != 0;
    case VALUE_REAL:
        return v->real != 0;
    case VALUE_LIST:
        return v->list.n > 0;
    case VALUE_IDS:
        return v->ids.n > 0;
    case VALUE_METRICS:
        return true;
    }
    return false;
}

static bool copy_text(struct text *t, struct arena *arena)
{
    t->text = arena_strndup(arena, t->text == NULL ? "" : t->text, t->len);
    return t->text != NULL;
}

static bool copy_value(struct value *v, struct arena *arena)
{
    struct text *texts;
    int32_t *ids;

    switch ((enum value_type)v->type) {
    case VALUE_TEXT:
    case VALUE_JSON:
        return copy_text(&v->text, arena);
    case VALUE_LIST:
        texts = arena_alloc(arena, v->list.n + 1, sizeof(*texts)); /* never zero bytes */
        if (texts == NULL)
            return false;
        for (size_t i = 0; i < v->list.n; i++) {
            texts[i] = v->list.items[i];
            if (!copy_text(&texts[i], arena))
                return false;
        }
        v->list.items = texts;
        return true;
    case VALUE_IDS:
        ids = arena_alloc(arena, v->ids.n + 1, sizeof(*ids));
        if (ids == NULL)
            return false;
        if (v->ids.n > 0)
            memcpy(ids, v->ids.items, v->ids.n * sizeof(*ids));
        v->ids.items = ids;
        return true;
    case VALUE_NULL:
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_REAL:
    case VALUE_METRICS:
        return true;
    }
    return false;
}

enum status act_copy(struct act *a, const struct act *from, struct arena *arena, struct error *err)
{
    struct act copy = {.n = from->n, .cap = from->n, .present = from->present, .arena = arena};
    struct field *fields;

    fields = arena_alloc(arena, (size_t)from->n + 1, sizeof(*fields));
    for (size_t i = 0; fields != NULL && i < from->n; i++) {
        fields[i] = from->fields[i];
        if (fields[i].key != ACT_OTHER) {
            fields[i].name = key_names[fields[i].key];
        } else if (!copy_text(&fields[i].name, arena)) {
            fields = NULL;
            break;
        }
        if (!copy_value(&fields[i].value, arena))
            fields = NULL;
    }
    if (fields == NULL)
        return error_no_memory(err, from->n * sizeof(*fields), "a copy of an act");
    copy.fields = fields;
    *a = copy;
    return STATUS_OK;
}
