/* An observation is the heard act, shared, with the fields that are made from the history set in
 * the listener's arena. All checks come before the history changes; a failure after that resets
 * the listener. */
#include "worlds/participant/listener.h"

#include <stdio.h>
#include <string.h>

#include "base/checksum.h"

enum { MAX_OBSERVATION_BYTES = 256 << 20 };

enum status use_reply_parse(enum use_reply *out, const char *name, struct error *err)
{
    static const char *const names[] = {
        [USE_REPLY_LABEL] = "label", [USE_REPLY_MODEL] = "model", [USE_REPLY_NONE] = "none"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0) {
            *out = (enum use_reply)i;
            return STATUS_OK;
        }
    return error_set(err, STATUS_INVALID, "'%.40s' must be label, model or none", name);
}

void listener_init(struct dialogue_listener *l, const struct dialogue_listener_config *config)
{
    *l = (struct dialogue_listener){.config = config};
    history_open(&l->history, &config->history);
    arena_init(&l->arena, MAX_OBSERVATION_BYTES);
}

void listener_deinit(struct dialogue_listener *l)
{
    history_close(&l->history);
    arena_deinit(&l->arena);
}

void listener_config_digest(struct dialogue_listener_config *c, uint32_t vocabulary)
{
    const struct history_config *h = &c->history;
    const struct text delimiter = h->delimiter.text != NULL ? h->delimiter : (struct text){"\n", 1};
    char text[160];
    int n = snprintf(text, sizeof(text), "%d %d %lld %zu %zu %d%d%d%d%d %d ", h->coder.start,
                     h->coder.end, h->size > 0 ? (long long)h->size : 0, c->text_truncate,
                     c->label_truncate, h->split_lines, h->person_tokens, h->p1_after_newline,
                     h->reversed, h->add_end, (int)c->use_reply);
    uint32_t how = crc32c(crc32c(0, text, (size_t)n), delimiter.text, delimiter.len);

    (void)snprintf(c->vectors_of, sizeof(c->vectors_of), "%08x%08x", vocabulary, how); /* fits */
}

static void listener_forget(struct dialogue_listener *l)
{
    l->has_seen = l->is_reply_due = l->is_padding = l->is_end = l->is_answered = false;
    l->label = (struct text){0};
}

void listener_reset(struct dialogue_listener *l)
{
    history_clear(&l->history);
    arena_deinit(&l->arena);
    l->is_kept = false;
    listener_forget(l);
}

static enum status check_order(const struct dialogue_listener *l, struct error *err)
{
    if (l->has_seen && l->is_end && !l->is_answered)
        return error_set(err, STATUS_PRECONDITION,
                         "the last observation ended its episode and has no answer yet: call act "
                         "and self_observe before the next observe");
    if (l->has_seen && l->is_reply_due && !l->is_answered)
        return error_set(err, STATUS_PRECONDITION,
                         "the last observation had a label and has no answer yet: call act and "
                         "self_observe before the next observe");
    return STATUS_OK;
}

/* Chooses a label by the texts of the labels and of the observation, not by turn or clone. */
static size_t listener_choose(const struct act *heard, const struct value *labels)
{
    const struct text text = act_text(heard);
    uint32_t hash = crc32c(0, text.text, text.len);

    for (size_t i = 0; i < labels->list.n; i++)
        hash = crc32c(hash, labels->list.items[i].text, labels->list.items[i].len);
    return hash % labels->list.n;
}

static enum status find_label(const struct act *heard, struct text *out, struct error *err)
{
    const struct value *labels = act_labels(heard);

    *out = (struct text){0};
    if (labels == NULL)
        return STATUS_OK;
    if (labels->list.n == 0)
        return error_set(err, STATUS_INVALID, "an act has an empty list of labels");
    *out = labels->list.items[labels->list.n == 1 ? 0 : listener_choose(heard, labels)];
    return STATUS_OK;
}

static enum status keep_ids(struct dialogue_listener *l, const struct buf *ids, struct value *out,
                            struct error *err)
{
    size_t n = ids->len / sizeof(int32_t);
    int32_t *own = arena_alloc(&l->arena, n != 0 ? n : 1, sizeof(*own));

    if (own == NULL)
        return error_no_memory(err, ids->len, "an observation");
    if (n != 0)
        memcpy(own, ids->data, ids->len);
    *out = value_ids(own, n);
    return STATUS_OK;
}

static enum status set_named(struct dialogue_listener *l, const char *name, struct value v,
                             struct error *err)
{
    return act_force_named(&l->seen, (struct text){name, strlen(name)}, v, err);
}

/* Keeps `most` of the ids (0: all), the last ones or the first. */
static struct value listener_cut(struct value ids, size_t most, bool keeps_last)
{
    size_t n = ids.ids.n;

    if (most == 0 || n <= most)
        return ids;
    return value_ids(ids.ids.items + (keeps_last ? n - most : 0), most);
}

/* The prefix of a vector's names, and the names of its lengths. */
struct lengths_names {
    const char *original, *rate, *cut;
};

static enum status set_lengths(struct dialogue_listener *l, const struct lengths_names *names,
                               size_t n, size_t n_kept, struct error *err)
{
    enum status rc = set_named(l, names->original, value_int((int64_t)n), err);

    if (rc == STATUS_OK)
        rc = set_named(l, names->rate, value_bool(n != n_kept), err);
    if (rc == STATUS_OK)
        rc = set_named(l, names->cut, value_int((int64_t)(n - n_kept)), err);
    return rc;
}

static enum status set_text(struct dialogue_listener *l, struct buf *scratch, struct error *err)
{
    static const struct lengths_names names = {"context_original_length", "context_truncate_rate",
                                               "context_truncated_length"};
    const struct value *given = act_get(&l->seen, ACT_TEXT_VEC);
    struct value whole = {0}, kept;
    const char *full;
    enum status rc;

    if (l->history.n == 0)
        return STATUS_OK;
    rc = history_text(&l->history, scratch, err);
    if (rc != STATUS_OK)
        return rc;
    full = arena_strndup(&l->arena, scratch->len != 0 ? scratch->data : "", scratch->len);
    if (full == NULL)
        return error_no_memory(err, scratch->len, "an observation");
    rc = set_named(l, "full_text", value_text((struct text){full, scratch->len}), err);
    buf_clear(scratch);
    if (rc == STATUS_OK)
        rc = history_ids(&l->history, scratch, err);
    if (rc == STATUS_OK)
        rc = keep_ids(l, scratch, &whole, err);
    if (rc == STATUS_OK)
        rc = set_named(l, "full_text_vec", whole, err);
    if (rc != STATUS_OK)
        return rc;
    if (given != NULL && given->type == VALUE_IDS)
        whole = *given;
    kept = listener_cut(whole, l->config->text_truncate, !l->config->history.reversed);
    rc = act_force(&l->seen, ACT_TEXT_VEC, kept, err);
    return rc == STATUS_OK ? set_lengths(l, &names, whole.ids.n, kept.ids.n, err) : rc;
}

static enum status encode_label(const struct dialogue_listener *l, struct buf *out,
                                struct error *err)
{
    const struct coder *c = &l->config->history.coder;
    enum status rc = STATUS_OK;

    if (c->start >= 0 && buf_append(out, &c->start, sizeof(c->start)) != STATUS_OK)
        rc = error_no_memory(err, sizeof(c->start), "an observation");
    if (rc == STATUS_OK)
        rc = c->encode(c->self, l->label.text, l->label.len, out, err);
    if (rc == STATUS_OK && c->end >= 0 && buf_append(out, &c->end, sizeof(c->end)) != STATUS_OK)
        rc = error_no_memory(err, sizeof(c->end), "an observation");
    return rc;
}

static enum status set_label(struct dialogue_listener *l, struct buf *scratch, struct error *err)
{
    static const struct lengths_names names = {"label_original_length", "label_truncate_rate",
                                               "label_truncated_length"};
    const bool is_train = act_has(&l->seen, ACT_LABELS);
    const enum act_key key = is_train ? ACT_LABELS_VEC : ACT_EVAL_LABELS_VEC;
    const struct value *given = act_get(&l->seen, key);
    struct value whole = {0}, kept;
    enum status rc = STATUS_OK;

    if (l->label.text == NULL)
        return STATUS_OK;
    buf_clear(scratch);
    if (given != NULL && given->type == VALUE_IDS)
        whole = *given;
    else if ((rc = encode_label(l, scratch, err)) == STATUS_OK)
        rc = keep_ids(l, scratch, &whole, err);
    if (rc != STATUS_OK)
        return rc;
    kept = listener_cut(whole, l->config->label_truncate, false);
    rc = act_force(&l->seen, key, kept, err);
    if (rc == STATUS_OK)
        rc = set_named(l, is_train ? "labels_choice" : "eval_labels_choice", value_text(l->label),
                       err);
    return rc == STATUS_OK ? set_lengths(l, &names, whole.ids.n, kept.ids.n, err) : rc;
}

static enum status make_observation(struct dialogue_listener *l, const struct act *heard,
                                    struct error *err)
{
    struct buf scratch;
    enum status rc;

    buf_init(&scratch, SIZE_MAX);
    arena_deinit(&l->arena);
    act_share(&l->seen, heard, &l->arena);
    rc = act_has(heard, ACT_TEXT) ? set_text(l, &scratch, err) : STATUS_OK;
    if (rc == STATUS_OK)
        rc = set_label(l, &scratch, err);
    buf_deinit(&scratch);
    return rc;
}

/* *ret: the act's vectors are those that would be made of it here. */
static enum status check_kept(const struct dialogue_listener *l, const struct act *heard,
                              const struct text label, bool *ret, struct error *err)
{
    const struct value *of = act_get_named(heard, "vectors_of", 10);
    const char *own = l->config->vectors_of;

    *ret = of != NULL && own[0] != '\0';
    if (*ret && (of->type != VALUE_TEXT || of->text.len != strlen(own) ||
                 memcmp(of->text.text, own, of->text.len) != 0))
        return error_set(err, STATUS_PRECONDITION,
                         "the data were preprocessed for an agent with other words, or with other "
                         "limits or history: build them again with build-data --preprocess");
    if (*ret && label.text == NULL && l->config->use_reply == USE_REPLY_LABEL &&
        !act_is(heard, ACT_EPISODE_DONE))
        return error_set(err, STATUS_PRECONDITION,
                         "preprocessed data contain the labels as the agent's replies, so the "
                         "labels cannot be hidden");
    if (!*ret && l->is_kept)
        return error_set(err, STATUS_PRECONDITION,
                         "an episode is preprocessed, but this turn of it is not");
    return STATUS_OK;
}

enum status listener_observe(struct dialogue_listener *l, const struct act *heard,
                             const struct act **out, struct error *err)
{
    const struct value *passing = act_get_named(heard, "temp_history", 12);
    const struct text none = {NULL, 0};
    struct text label;
    bool is_kept = false;
    enum status rc;

    if (act_is_padding(heard)) { /* the previous episode is over */
        listener_reset(l);
        l->is_padding = true;
        *out = heard;
        return STATUS_OK;
    }
    rc = check_order(l, err);
    if (rc == STATUS_OK)
        rc = find_label(heard, &label, err);
    if (rc == STATUS_OK)
        rc = check_kept(l, heard, label, &is_kept, err);
    if (rc == STATUS_OK && !is_kept)
        rc = history_hear(
            &l->history, act_text(heard), l->config->hears_names ? act_speaker(heard) : none,
            passing != NULL && passing->type == VALUE_TEXT ? passing->text : none, err);
    if (rc != STATUS_OK)
        return rc;
    listener_forget(l);
    l->label = label;
    l->is_kept = is_kept;
    if (is_kept)
        act_share(&l->seen, heard, &l->arena);
    else
        rc = make_observation(l, heard, err);
    if (rc != STATUS_OK) {
        listener_reset(l); /* without memory the episode is lost, but calls stay in order */
        return rc;
    }
    l->has_seen = true;
    l->is_end = act_is(heard, ACT_EPISODE_DONE);
    l->is_reply_due = label.text != NULL;
    *out = &l->seen;
    return STATUS_OK;
}

enum status listener_answer(const struct dialogue_listener *l, struct error *err)
{
    if (!l->has_seen)
        return error_set(
            err, STATUS_PRECONDITION,
            "act was called, but nothing was observed since the end of the last episode");
    return STATUS_OK;
}

static enum status add_reply(struct dialogue_listener *l, const struct act *reply,
                             struct error *err)
{
    struct text text = act_text(reply);

    if (l->config->use_reply == USE_REPLY_NONE)
        return STATUS_OK;
    if (l->config->use_reply == USE_REPLY_LABEL && l->label.text != NULL)
        text = l->label;
    if (text.text == NULL)
        return error_set(err, STATUS_INVALID,
                         "the reply has no text, so the conversation cannot continue");
    return history_say(&l->history, text, err);
}

enum status listener_self_observe(struct dialogue_listener *l, const struct act *reply,
                                  struct error *err)
{
    enum status rc;

    if (l->is_padding)
        return STATUS_OK;
    if (!l->has_seen || l->is_answered)
        return error_set(err, STATUS_PRECONDITION,
                         "self_observe must be called once after each observe, but %s",
                         l->has_seen ? "it was called a second time" : "nothing was observed");
    if (!act_has(&l->seen, ACT_EPISODE_DONE))
        return error_set(err, STATUS_INVALID, "the observation has no episode_done");
    if (l->is_end) {
        history_clear(&l->history);
        l->is_kept = false;
        listener_forget(l);
        return STATUS_OK;
    }
    rc = l->is_kept ? STATUS_OK : add_reply(l, reply, err);
    if (rc == STATUS_OK)
        l->is_answered = true;
    return rc;
}
