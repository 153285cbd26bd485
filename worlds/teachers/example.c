#include "worlds/teachers/example.h"

#include <string.h>

#include "base/counter_rng.h"

/* Of preprocessed data the label's vector, by the datatype too: it is not there where the label is
 * hidden, and never one to learn from where nothing may be learned. */
static enum status example_move_vector(struct act *a, bool is_training, bool is_hidden,
                                       struct error *err)
{
    const struct value vector = *act_get(a, ACT_LABELS_VEC),
                       *at = act_get_named(a, "labels_choice", 13);
    const struct value choice = at != NULL ? *at : (struct value){.type = VALUE_NULL};
    enum status rc;

    if (is_training && !is_hidden)
        return STATUS_OK;
    rc = act_remove(a, "labels_vec", 10, NULL, err);
    if (rc == STATUS_OK)
        rc = act_remove(a, "labels_choice", 13, NULL, err);
    if (rc == STATUS_OK && !is_hidden)
        rc = act_force(a, ACT_EVAL_LABELS_VEC, vector, err);
    if (rc == STATUS_OK && !is_hidden && choice.type == VALUE_TEXT)
        rc = act_force_named(a, (struct text){"eval_labels_choice", 18}, choice, err);
    return rc;
}

/* Copies exactly the existing fields, so that data take no more memory than needed. */
static enum status example_fit(struct act *a, struct arena *arena, struct error *err)
{
    struct field *fields = arena_alloc(arena, a->n, sizeof(*fields));

    if (fields == NULL)
        return error_no_memory(err, a->n * sizeof(*fields), "an example");
    memcpy(fields, a->fields, a->n * sizeof(*fields));
    *a = (struct act){.fields = fields, .n = a->n, .present = a->present};
    return STATUS_OK;
}

enum status example_make(struct example *out, const struct act *turn, struct text id,
                         const struct teacher_config *config, bool is_last, struct arena *arena,
                         struct error *err)
{
    const struct value *labels = act_list(turn, ACT_LABELS);
    struct example e = {.labels = {.type = VALUE_NULL}};
    struct field fields[24];
    struct arena scratch;
    enum status rc = STATUS_OK;

    if (labels != NULL)
        e.labels = *labels;
    arena_init(&scratch, SIZE_MAX);
    act_share(&e.act, turn, &scratch);
    if (turn->n + 3 <= sizeof(fields) / sizeof(fields[0])) { /* the usual case: no heap memory */
        memcpy(fields, turn->fields, turn->n * sizeof(fields[0]));
        e.act.fields = fields;
        e.act.cap = sizeof(fields) / sizeof(fields[0]);
    }
    rc = act_force(&e.act, ACT_EPISODE_DONE, value_bool(is_last), err);
    if (rc == STATUS_OK)
        rc = act_force(&e.act, ACT_ID, value_text(id), err);
    if (rc == STATUS_OK && (!datatype_is_training(&config->datatype) || config->hide_labels))
        rc = act_remove(&e.act, "labels", 6, NULL, err);
    if (rc == STATUS_OK && !datatype_is_training(&config->datatype) && !config->hide_labels &&
        e.labels.type == VALUE_LIST)
        rc = act_force(&e.act, ACT_EVAL_LABELS, e.labels, err);
    if (rc == STATUS_OK && act_has(&e.act, ACT_LABELS_VEC))
        rc = example_move_vector(&e.act, datatype_is_training(&config->datatype),
                                 config->hide_labels, err);
    if (rc == STATUS_OK)
        rc = example_fit(&e.act, arena, err);
    arena_deinit(&scratch);
    if (rc == STATUS_OK)
        *out = e;
    return rc;
}

/* --- squashing ------------------------------------------------------------------------------- */

/* The newest utterances, oldest first: a window over all of an episode's. */
struct window {
    struct text *items; /* [2 a turn at most] */
    size_t from, n;
    size_t limit;
};

static void window_push(struct window *w, struct text t)
{
    w->items[w->n++] = t;
    if (w->n - w->from > w->limit)
        w->from++;
}

static enum status window_joined(const struct window *w, struct arena *arena, struct text *out,
                                 struct error *err)
{
    size_t len = w->n - w->from - 1; /* newlines between */
    char *text, *to;

    for (size_t i = w->from; i < w->n; i++)
        len += w->items[i].len;
    to = text = arena_alloc(arena, len + 1, 1);
    if (text == NULL)
        return error_no_memory(err, len, "a squashed text");
    for (size_t i = w->from; i < w->n; i++) {
        if (i > w->from)
            *to++ = '\n';
        if (w->items[i].len > 0)
            memcpy(to, w->items[i].text, w->items[i].len);
        to += w->items[i].len;
    }
    *out = (struct text){text, len};
    return STATUS_OK;
}

static struct text one_label(const struct value *labels, uint64_t seed, uint64_t draw,
                             uint32_t turn)
{
    float chance = counter_rng_uniform(seed, (uint32_t)draw, turn, (uint32_t)(draw >> 32));
    size_t i = (size_t)(chance * (float)labels->list.n);

    return labels->list.items[i < labels->list.n ? i : labels->list.n - 1];
}

enum status squash(struct act *turns, size_t n, const struct teacher_config *config, uint64_t draw,
                   struct arena *arena, struct error *err)
{
    int64_t limit = config->context_length;
    struct window w = {.limit = limit < 0 ? SIZE_MAX : limit == 0 ? 1 : (size_t)limit};

    w.items = arena_alloc(arena, 2 * n, sizeof(*w.items));
    if (w.items == NULL)
        return error_no_memory(err, 2 * n * sizeof(*w.items), "squashing");
    for (size_t i = 0; i < n; i++) {
        const struct value *labels = act_list(&turns[i], ACT_LABELS);
        struct text text = {NULL, 0};

        window_push(&w, act_text(&turns[i]));
        if (window_joined(&w, arena, &text, err) != STATUS_OK ||
            act_force(&turns[i], ACT_TEXT, value_text(text), err) != STATUS_OK)
            return err->status;
        if (config->include_labels && labels != NULL && labels->list.n > 0)
            window_push(&w, one_label(labels, config->seed, draw, (uint32_t)i));
    }
    return STATUS_OK;
}

/* --- lengths --------------------------------------------------------------------------------- */

uint32_t count_words(struct text t)
{
    uint32_t n = 1;

    for (size_t i = 0; i < t.len; i++)
        n += t.text[i] == ' ';
    return n;
}

struct example_length example_length(const struct example *e)
{
    const struct value *labels = act_list(&e->act, ACT_LABELS);
    struct example_length out = {.text_words = count_words(act_text(&e->act))};
    double sum = 0;

    if (labels == NULL || labels->list.n == 0)
        return out;
    for (size_t i = 0; i < labels->list.n; i++)
        sum += count_words(labels->list.items[i]);
    out.label_words = sum / (double)labels->list.n;
    return out;
}
