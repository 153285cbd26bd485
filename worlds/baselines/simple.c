/* The simple agents that need no dictionary, each with its one function and its table, and the list
 * of all simple agents. */
#include "worlds/baselines/simple.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "worlds/baselines/reply.h"

static struct text simple_text_of(const char *s)
{
    return (struct text){s, strlen(s)};
}

/* {id, text, episode_done: false} */
static enum status simple_say(struct act *out, const char *id, struct text text, struct error *err)
{
    if (reply_say(out, id, text, err) != STATUS_OK)
        return err->status;
    return act_set(out, ACT_EPISODE_DONE, value_bool(false), err);
}

/* --- repeat_label ------------------------------------------------------------------------------
 */

/* All of them, with commas between. */
static enum status simple_join(struct text *out, const struct value *list, struct arena *arena,
                               struct error *err)
{
    size_t len = 0;
    char *text;

    for (size_t i = 0; i < list->list.n; i++)
        len += list->list.items[i].len + 2;
    text = arena_alloc(arena, len + 1, 1);
    if (text == NULL)
        return error_no_memory(err, len, "a reply");
    *out = (struct text){text, len - 2};
    for (size_t i = 0; i < list->list.n; i++) {
        const struct text *item = &list->list.items[i];

        if (item->len > 0)
            memcpy(text, item->text, item->len);
        text += item->len;
        if (i + 1 < list->list.n)
            memcpy(text, ", ", 2);
        text += 2;
    }
    return STATUS_OK;
}

static enum status repeat_label_act(struct participant_clone *base, struct act *out,
                                    struct error *err)
{
    struct simple_clone *c = simple_clone_of(base);
    const struct simple *s = simple_of(base);
    const struct value *labels = c->heard != NULL ? act_labels(c->heard) : NULL;
    struct text text = simple_text_of(s->cant_answer_message);
    size_t n = labels != NULL ? labels->list.n : 0;

    if (c->heard == NULL)
        return simple_say(out, "RepeatLabelAgent", simple_text_of("Nothing to repeat yet."), err);
    if (n > 0 &&
        (s->config.cant_answer_percent == 0 || simple_draw(c) >= s->config.cant_answer_percent)) {
        size_t i = n > 1 && !s->config.return_all ? (size_t)(simple_draw(c) * (double)n) : 0;

        text = labels->list.items[i];
        if (n > 1 && s->config.return_all &&
            simple_join(&text, labels, out->arena, err) != STATUS_OK)
            return err->status;
        text.text = text.text != NULL ? text.text : ""; /* an empty label is an answer */
    }
    return simple_say(out, "RepeatLabelAgent", text, err);
}

static const struct simple_type repeat_label_agent = {
    .base = {.name = "repeat_label",
             .close = simple_close,
             .clone_size = sizeof(struct simple_clone),
             .clone_init = simple_clone_init,
             .reset = simple_reset,
             .observe = simple_observe,
             .act = repeat_label_act},
};

/* --- repeat_query ------------------------------------------------------------------------------
 */

static enum status repeat_query(const struct act *heard, struct act *out, struct error *err)
{
    struct text text = heard != NULL ? act_text(heard) : (struct text){"", 0};
    const char *line;

    if (heard != NULL && !act_has(heard, ACT_TEXT))
        text = simple_text_of("I don't know");
    line = text.len > 0 ? memrchr(text.text, '\n', text.len) : NULL;
    if (line != NULL)
        text = (struct text){line + 1, text.len - (size_t)(line + 1 - text.text)};
    if (text.len == 0)
        text = simple_text_of("Nothing to repeat yet.");
    return simple_say(out, "RepeatQueryAgent", text, err);
}

static enum status repeat_query_act(struct participant_clone *c, struct act *out, struct error *err)
{
    return repeat_query(simple_clone_of(c)->heard, out, err);
}

static void repeat_query_batch_act(struct participant *p, struct participant_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rows[i].failed = repeat_query(rows[i].observation, rows[i].out, &rows[i].err) != STATUS_OK;
}

static const struct simple_type repeat_query_agent = {
    .base = {.name = "repeat_query",
             .close = simple_close,
             .clone_size = sizeof(struct simple_clone),
             .clone_init = simple_clone_init,
             .reset = simple_reset,
             .observe = simple_observe,
             .act = repeat_query_act,
             .batch_act = repeat_query_batch_act},
};

/* --- random_candidate --------------------------------------------------------------------------
 */

static enum status random_candidate_act(struct participant_clone *base, struct act *out,
                                        struct error *err)
{
    struct simple_clone *c = simple_clone_of(base);
    const struct value *given = c->heard != NULL ? act_list(c->heard, ACT_LABEL_CANDIDATES) : NULL;
    size_t n = given != NULL ? given->list.n : 0;
    struct text *order;

    if (n == 0)
        return reply_say(out, "RandomCandidateAgent", simple_text_of("I don't know."), err);
    order = arena_alloc(out->arena, n, sizeof(*order));
    if (order == NULL)
        return error_no_memory(err, n * sizeof(*order), "candidates");
    memcpy(order, given->list.items, n * sizeof(*order));
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = (size_t)(simple_draw(c) * (double)(i + 1));
        struct text held = order[i];

        order[i] = order[j];
        order[j] = held;
    }
    if (reply_start(out, "RandomCandidateAgent", err) != STATUS_OK ||
        act_set(out, ACT_TEXT_CANDIDATES, value_list(order, n), err) != STATUS_OK)
        return err->status;
    return act_set(out, ACT_TEXT, value_text(order[0]), err);
}

static const struct simple_type random_candidate_agent = {
    .base = {.name = "random_candidate",
             .close = simple_close,
             .clone_size = sizeof(struct simple_clone),
             .clone_init = simple_clone_init,
             .reset = simple_reset,
             .observe = simple_observe,
             .act = random_candidate_act},
};

/* --- fixed_response ----------------------------------------------------------------------------
 */

static enum status fixed_response_act(struct participant_clone *c, struct act *out,
                                      struct error *err)
{
    return simple_say(out, "FixedResponseAgent", simple_text_of(simple_of(c)->fixed_response), err);
}

static const struct simple_type fixed_response_agent = {
    .base = {.name = "fixed_response",
             .close = simple_close,
             .clone_size = sizeof(struct simple_clone),
             .clone_init = simple_clone_init,
             .reset = simple_reset,
             .observe = simple_observe,
             .act = fixed_response_act},
};

/* --- all ---------------------------------------------------------------------------------------
 */

static const struct simple_type *const types[] = {
    &fixed_response_agent, &ir_baseline_agent,  &random_candidate_agent,
    &repeat_label_agent,   &repeat_query_agent, &unigram_agent,
};

enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

void simple_config_init(struct simple_config *c)
{
    *c = (struct simple_config){.length_penalty = -1};
}

const char *simple_name_at(size_t i)
{
    return i < N_TYPES ? types[i]->base.name : NULL;
}

static const struct simple_type *simple_type_of(const char *name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcmp(types[i]->base.name, name) == 0)
            return types[i];
    return NULL;
}

bool simple_needs_dictionary(const char *name)
{
    const struct simple_type *type = simple_type_of(name);

    return type != NULL && type->needs_dictionary;
}

static enum status simple_check(const struct simple_type *type, const char *name,
                                const struct simple_config *config, struct error *err)
{
    if (type == NULL) {
        char names[160] = "";
        size_t len = 0;

        for (size_t i = 0; i < N_TYPES; i++)
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", i > 0 ? ", " : "",
                                    types[i]->base.name);
        return error_set(err, STATUS_NOT_FOUND, "there is no agent '%.40s', it must be one of: %s",
                         name, names);
    }
    if (!(config->cant_answer_percent >= 0 && config->cant_answer_percent <= 1))
        return error_field(err, "cant_answer_percent", "is %g, it must be from 0 to 1",
                           config->cant_answer_percent);
    if (config->length_penalty > 100 || config->history_size > 1u << 20)
        return error_field(err, "length_penalty", "or history_size is out of range");
    if (type->needs_dictionary && config->dictionary == NULL)
        return error_set(err, STATUS_INVALID, "'%s' needs a dictionary", name);
    return STATUS_OK;
}

enum status simple_open(struct participant **out, const char *name,
                        const struct simple_config *config, struct error *err)
{
    const struct simple_type *type = simple_type_of(name);
    enum status rc = simple_check(type, name, config, err);
    struct simple *s;

    if (rc != STATUS_OK)
        return rc;
    s = xalloc(sizeof(*s));
    participant_init(&s->base, &type->base);
    s->config = *config;
    s->cant_answer_message = xstrdup(
        config->cant_answer_message != NULL ? config->cant_answer_message : "I don't know.");
    s->fixed_response =
        xstrdup(config->fixed_response != NULL ? config->fixed_response : "fixed response");
    if (type->prepare != NULL)
        rc = type->prepare(s, err);
    if (rc == STATUS_OK)
        *out = &s->base;
    else
        simple_close(&s->base);
    return rc;
}
