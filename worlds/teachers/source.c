/* Reads a source by its format, checks what the format has read, and collects acts into episodes.
 * An arena that recycles is replaced when an episode has been taken; the old one is freed a line
 * later, since the format may still read from it. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "worlds/teachers/format.h"

static enum status take_episode(struct source *s, struct error *err)
{
    size_t n = s->n_turns;

    s->n_turns = 0;
    return n == 0 ? STATUS_OK : s->take(s->to, s->turns, n, err);
}

/* Begins a new arena with a copy of a. The old one is freed before the next line, since the
 * format may still read this line. */
static enum status source_recycle(struct source *s, struct act *a, struct error *err)
{
    struct arena fresh;
    struct act copy;

    arena_init(&fresh, SIZE_MAX);
    if (act_copy(&copy, a, &fresh, err) != STATUS_OK) {
        arena_deinit(&fresh);
        return err->status;
    }
    s->retired = *s->arena;
    *s->arena = fresh;
    copy.arena = s->arena;
    *a = copy;
    return STATUS_OK;
}

enum status source_give(struct source *s, const struct act *given, bool begins, struct error *err)
{
    struct act a = *given;

    if (begins && s->n_turns > 0) {
        if (take_episode(s, err) != STATUS_OK ||
            (s->recycles && s->retired.chunks == NULL && source_recycle(s, &a, err) != STATUS_OK))
            return err->status;
    }
    if (s->n_turns == s->cap_turns) {
        size_t cap = s->cap_turns == 0 ? 16 : 2 * s->cap_turns;
        struct act *turns = try_realloc(s->turns, cap, sizeof(*turns));

        if (turns == NULL)
            return error_no_memory(err, cap * sizeof(*turns), "an episode");
        s->turns = turns;
        s->cap_turns = cap;
    }
    s->turns[s->n_turns++] = a;
    return STATUS_OK;
}

/* A single text becomes a list of one. */
static enum status check_list(struct act *a, enum act_key key, struct arena *arena,
                              struct error *err)
{
    const struct value *v = act_get(a, key);
    struct text *item;

    if (v == NULL || v->type == VALUE_LIST)
        return STATUS_OK;
    if (v->type != VALUE_TEXT)
        return error_set(err, STATUS_INVALID, "%s is not a list of texts", act_key_name(key).text);
    item = arena_alloc(arena, 1, sizeof(*item));
    if (item == NULL)
        return error_no_memory(err, sizeof(*item), "a list");
    *item = v->text;
    return act_force(a, key, value_list(item, 1), err);
}

/* Logs have "NaN" and the infinities as texts, since JSON has no such numbers. */
static enum status check_reward(struct act *a, struct error *err)
{
    static const struct {
        const char *name;
        double value;
    } known[] = {
        {"NaN", (double)NAN}, {"Infinity", (double)INFINITY}, {"-Infinity", -(double)INFINITY}};
    const struct value *reward = act_get(a, ACT_REWARD);

    if (reward == NULL || reward->type == VALUE_INT || reward->type == VALUE_REAL)
        return STATUS_OK;
    for (size_t i = 0; reward->type == VALUE_TEXT && i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i].name) == reward->text.len &&
            memcmp(known[i].name, reward->text.text, reward->text.len) == 0)
            return act_force(a, ACT_REWARD, value_real(known[i].value), err);
    return error_set(err, STATUS_INVALID, "reward is not a number");
}

enum status source_check(struct act *a, struct arena *arena, bool needs_labels, struct error *err)
{
    const struct value *text = act_get(a, ACT_TEXT), *done = act_get(a, ACT_EPISODE_DONE),
                       *id = act_get(a, ACT_ID);

    if (text == NULL)
        return error_set(err, STATUS_INVALID, "the field text is missing");
    if (text->type != VALUE_TEXT)
        return error_set(err, STATUS_INVALID, "text is not a string");
    if (act_has(a, ACT_EVAL_LABELS))
        return error_set(
            err, STATUS_INVALID,
            "the field eval_labels is not allowed: use the field labels in every fold");
    if (needs_labels && !act_has(a, ACT_LABELS))
        return error_set(err, STATUS_INVALID, "the field labels is missing");
    if (done != NULL && done->type != VALUE_BOOL)
        return error_set(err, STATUS_INVALID, "episode_done is neither true nor false");
    if (check_reward(a, err) != STATUS_OK)
        return err->status;
    if (id != NULL && id->type != VALUE_TEXT)
        return error_set(err, STATUS_INVALID, "id is not a string");
    if (check_list(a, ACT_LABELS, arena, err) != STATUS_OK ||
        check_list(a, ACT_LABEL_CANDIDATES, arena, err) != STATUS_OK ||
        check_list(a, ACT_TEXT_CANDIDATES, arena, err) != STATUS_OK)
        return err->status;
    return STATUS_OK;
}

enum status source_line(struct source *s, const struct data_format *format, const char *line,
                        size_t len, struct error *err)
{
    char *kept;

    if (!utf8_is_valid(line, len))
        return error_set(err, STATUS_INVALID, "not UTF-8");
    kept = arena_strndup(s->arena, line, len);
    if (kept == NULL)
        return error_no_memory(err, len, "a line of data");
    return format->line(s, kept, len, err);
}

static void source_end(struct source *s)
{
    arena_deinit(&s->retired);
    free(s->turns);
    s->turns = NULL;
    s->cap_turns = 0;
}

enum status source_read(struct source *s, const char *path, size_t max_line_bytes,
                        struct error *err)
{
    enum status rc;

    s->begins = true;
    s->n_turns = 0;
    if (s->format->read != NULL) {
        rc = s->format->read(s, path, err);
        if (rc == STATUS_OK)
            rc = take_episode(s, err);
        source_end(s);
        return rc;
    }
    buf_init(&s->context, SIZE_MAX / 2);
    rc = lines_open(&s->lines, path, max_line_bytes, err);
    if (rc != STATUS_OK)
        return rc;
    s->lines.ends_universally = !s->format->keeps_returns;
    for (;;) {
        const char *line = NULL;
        size_t len = 0;

        arena_deinit(&s->retired);
        rc = lines_next(&s->lines, &line, &len, err);
        if (rc == STATUS_OK && line == NULL)
            break;
        if (rc == STATUS_OK)
            rc = source_line(s, s->format, line, len, err);
        if (rc == STATUS_INVALID && s->skip_bad) {
            s->n_skipped++;
            continue;
        }
        if (rc != STATUS_OK) {
            rc = error_prefix(err, "%s:%zu", path, s->lines.number);
            goto out;
        }
    }
    if (s->format->end != NULL)
        rc = s->format->end(s, err);
    if (rc == STATUS_OK)
        rc = take_episode(s, err);
    if (rc != STATUS_OK)
        rc = error_prefix(err, "%s:%zu", path, s->lines.number);
out:
    lines_close(&s->lines);
    buf_deinit(&s->context);
    source_end(s);
    return rc;
}
