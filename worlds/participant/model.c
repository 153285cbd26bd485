/* A turn of the model: begin lays out the prompt and the texts to score and has the agent observe
 * them; the batcher computes the turn; finish makes the act of the reply and drops the turn, since
 * the next one starts from an empty context. Reply and metrics stay in the clone's memory until its
 * next begin. */
#include "worlds/participant/model.h"

#include <stdlib.h>
#include <string.h>

#include "agents/message_extras.h"
#include "agents/reply/reply_format.h"
#include "agents/turn.h"
#include "base/alloc.h"
#include "base/utf8.h"
#include "worlds/metrics/metrics.h"

enum {
    MAX_REPLY_TOKENS = 128, /* default max_tokens */
    MAX_REPLY_BYTES = 16 << 20,
    MAX_TURN_BYTES = 256 << 20,
};

struct model_participant {
    struct participant base;
    struct agent *agent;
    struct model_participant_config config;
    bool takes_names; /* the model's template does */
};

/* A clone's state of its conversation with the model. */
struct dialogue_state {
    struct dialogue_listener listener;
    struct clone *clone;    /* the agent's clone; NULL until the first request */
    struct arena arena;     /* memory of the turn */
    struct agent_turn turn; /* the last turn; its reply stays until the next one begins */
    size_t n_labels;        /* labels that the turn scores: 1, or 0 */
    uint32_t place;         /* the clone's index in its world */
    bool is_opening;        /* the last answer was the opening */
};

struct model_clone {
    struct participant_clone base;
    struct dialogue_state *dialogue;
};

static struct model_participant *model_of(struct participant *p)
{
    return container_of(p, struct model_participant, base);
}

static struct dialogue_state *dialogue_of(struct participant_clone *c)
{
    return container_of(c, struct model_clone, base)->dialogue;
}

void model_config_init(struct model_participant_config *c)
{
    *c = (struct model_participant_config){
        .agent = {.options = {.backend = "cpu"}, .env = &env_real}};
    sampling_init(&c->sampling);
    c->sampling.temperature = 0;
    c->sampling.has_seed = true;
    c->sampling.max_tokens = MAX_REPLY_TOKENS;
}

static enum status model_participant_encode(const void *self, const char *text, size_t len,
                                            struct buf *ids, struct error *err)
{
    const struct agent *a = self;

    return a->type->text->tokenize(a, text, len, false, ids, err);
}

static void close_model(struct participant *p)
{
    struct model_participant *m = model_of(p);

    agent_unref(m->agent);
    free(m);
}

/* Default truncation, from the model's context: most of it for the text; and what its template
 * takes. */
static void bound_lengths(struct model_participant *m)
{
    struct dialogue_listener_config *l = &m->config.listener;
    struct sampling *s = &m->config.sampling;
    struct agent_info info;
    size_t eighth;

    agent_describe(m->agent, &info);
    m->takes_names = info.text.reply_format != NULL && info.text.reply_format->takes_names &&
                     !m->config.is_plain;
    eighth = info.text.context / 8;
    if (l->text_truncate == 0 || l->text_truncate > 5 * eighth)
        l->text_truncate = 5 * eighth;
    if (l->label_truncate == 0 || l->label_truncate > eighth)
        l->label_truncate = eighth;
    if (s->max_tokens == 0 || s->max_tokens > eighth)
        s->max_tokens = (uint32_t)eighth;
}

static const struct participant_type model_participant;

enum status model_open(struct participant **out, const struct model_participant_config *config,
                       struct error *err)
{
    struct model_participant *m = try_alloc(1, sizeof(*m));
    enum status rc;

    if (m == NULL)
        return error_no_memory(err, sizeof(*m), "a model");
    participant_init(&m->base, &model_participant);
    m->config = *config;
    rc = config->type != NULL ? agent_open_type(&m->agent, config->type, &config->agent, err)
                              : agent_open(&m->agent, NULL, &config->agent, err);
    if (rc == STATUS_OK && m->agent->type->text == NULL)
        rc = error_set(err, STATUS_INVALID, "an agent of kind '%s' is not a language model",
                       m->agent->type->name);
    if (rc != STATUS_OK) {
        close_model(&m->base);
        return rc;
    }
    m->config.listener.history.coder = (struct coder){
        .encode = model_participant_encode, .self = m->agent, .start = -1, .end = -1};
    bound_lengths(m);
    *out = &m->base;
    return STATUS_OK;
}

const struct agent *model_agent(const struct participant *p)
{
    return container_of(p, const struct model_participant, base)->agent;
}

/* Steps of a model are one thread's, so each thread has a model of its own, on the weights of the
 * first. */
static enum status share(struct participant **out, struct participant *p, uint32_t thread,
                         struct error *err)
{
    struct model_participant_config config = model_of(p)->config;

    if (thread > 0) {
        config.agent.weights_of = model_of(p)->agent;
        return model_open(out, &config, err);
    }
    *out = participant_ref(p);
    return STATUS_OK;
}

static enum status clone_init(struct participant_clone *base, const struct participant_slot *place,
                              struct error *err)
{
    struct model_clone *c = container_of(base, struct model_clone, base);

    c->dialogue = try_alloc(1, sizeof(*c->dialogue));
    if (c->dialogue == NULL)
        return error_no_memory(err, sizeof(*c->dialogue), "a conversation");
    c->dialogue->place = place->index;
    listener_init(&c->dialogue->listener, &model_of(base->original)->config.listener);
    arena_init(&c->dialogue->arena, MAX_TURN_BYTES);
    return STATUS_OK;
}

/* Drops the turn; its reply stays readable. */
static void model_participant_drop(struct participant_clone *base)
{
    struct dialogue_state *d = dialogue_of(base);

    if (agent_turn_is_open(&d->turn))
        agent_turn_drop(&d->turn);
}

static void forget_turn(struct dialogue_state *d)
{
    agent_turn_deinit(&d->turn);
    arena_deinit(&d->arena);
}

static void model_participant_clone_deinit(struct participant_clone *base)
{
    struct dialogue_state *d = dialogue_of(base);

    if (d == NULL)
        return;
    model_participant_drop(base);
    forget_turn(d);
    clone_close(d->clone);
    listener_deinit(&d->listener);
    free(d);
}

static void model_participant_reset(struct participant_clone *base)
{
    model_participant_drop(base);
    listener_reset(&dialogue_of(base)->listener);
}

static enum status model_participant_observe(struct participant_clone *base, const struct act *act,
                                             const struct act **out, struct error *err)
{
    return listener_observe(&dialogue_of(base)->listener, act, out, err);
}

static enum status self_observe(struct participant_clone *base, const struct act *reply,
                                struct error *err)
{
    struct dialogue_state *d = dialogue_of(base);

    if (d->is_opening)
        return history_say(&d->listener.history, act_text(reply), err);
    return listener_self_observe(&d->listener, reply, err);
}

/* --- the turn -------------------------------------------------------------------------------- */

static enum status model_participant_append(struct buf *out, const char *text, size_t len,
                                            struct error *err)
{
    return len == 0 || buf_append(out, text, len) == STATUS_OK
               ? STATUS_OK
               : error_no_memory(err, len, "a question");
}

/* The text of the last n of an utterance's ids; half a character at its start goes too. */
static enum status append_last(struct buf *out, const struct agent *a, const struct utterance *u,
                               size_t n, struct error *err)
{
    struct buf text;
    size_t at = 0;
    enum status rc;

    buf_init(&text, SIZE_MAX);
    rc = a->type->text->detokenize(a, u->ids + u->n_ids - n, n, &text, err);
    while (rc == STATUS_OK && at < text.len && ((unsigned char)text.data[at] & 0xC0) == 0x80)
        at++;
    if (rc == STATUS_OK && utf8_is_valid(text.data + at, text.len - at))
        rc = model_participant_append(out, text.data + at, text.len - at, err);
    buf_deinit(&text);
    return rc;
}

/* The first utterance to keep, and how many of its last ids. */
static size_t first_kept(const struct history *h, size_t most, size_t *ret_n_ids)
{
    size_t i = h->n, left = most;

    *ret_n_ids = 0;
    while (i > 0 && left > 0) {
        const size_t n_between = i < h->n ? h->n_delimiter : 0;

        if (left <= n_between)
            break;
        left -= n_between;
        i--;
        *ret_n_ids = h->items[i].n_ids < left ? h->items[i].n_ids : left;
        left -= *ret_n_ids;
    }
    return i;
}

/* Whether the next utterance goes into the same message. */
static bool model_goes_on(const struct model_participant *m, const struct history *h, size_t i)
{
    const struct utterance *u = &h->items[i], *next = u + 1;

    if (i + 1 == h->n || u->is_own != next->is_own)
        return false;
    return !m->takes_names || u->speaker == NULL || next->speaker == NULL ||
           strcmp(u->speaker, next->speaker) == 0;
}

/* The name of who said it: before the text if the template does not take it. */
static enum status model_append_speaker(const struct model_participant *m, struct buf *text,
                                        const struct utterance *u, struct error *err)
{
    if (u->speaker == NULL || m->takes_names)
        return STATUS_OK;
    if (buf_append_text(text, u->speaker) != STATUS_OK || buf_append(text, ": ", 2) != STATUS_OK)
        return error_no_memory(err, strlen(u->speaker), "a question");
    return STATUS_OK;
}

static enum status model_add_message(const struct model_participant *m, struct dialogue_state *d,
                                     const struct utterance *u, const struct buf *text,
                                     struct message *out, struct error *err)
{
    const bool has_name = m->takes_names && u->speaker != NULL;
    const struct message_extras x = {
        .name = {has_name ? u->speaker : "", has_name ? strlen(u->speaker) : 0}};
    const char *copy = arena_strndup(&d->arena, text->len != 0 ? text->data : "", text->len);
    enum status rc = STATUS_OK;
    struct buf more;

    if (copy == NULL)
        return error_no_memory(err, text->len, "a question");
    *out = (struct message){
        .role = u->is_own ? ROLE_ASSISTANT : ROLE_USER, .text = copy, .len = text->len};
    if (!has_name)
        return STATUS_OK;
    buf_init(&more, SIZE_MAX);
    if (message_extras_write(&more, &x) != STATUS_OK ||
        (out->more = arena_strndup(&d->arena, more.data, more.len)) == NULL)
        rc = error_no_memory(err, more.len, "a question");
    out->more_len = more.len;
    buf_deinit(&more);
    return rc;
}

/* Successive utterances of one side become one message, with the delimiter between; of one speaker
 * where the template takes names. */
static enum status make_messages(struct model_participant *m, struct dialogue_state *d,
                                 struct error *err)
{
    const struct history *h = &d->listener.history;
    const struct dialogue_listener_config *l = &m->config.listener;
    size_t n_ids, n = 0, first = first_kept(h, l->text_truncate, &n_ids);
    struct message *messages = arena_alloc(&d->arena, h->n + 1, sizeof(*messages));
    struct buf text;
    enum status rc = STATUS_OK;

    if (messages == NULL)
        return error_no_memory(err, (h->n + 1) * sizeof(*messages), "a question");
    buf_init(&text, SIZE_MAX);
    for (size_t i = first; rc == STATUS_OK && i < h->n; i++) {
        const struct utterance *u = &h->items[i];
        const bool goes_on = model_goes_on(m, h, i);

        rc = model_append_speaker(m, &text, u, err);
        if (rc == STATUS_OK && i == first && n_ids < u->n_ids)
            rc = append_last(&text, m->agent, u, n_ids, err);
        else if (rc == STATUS_OK)
            rc = model_participant_append(&text, u->text + u->raw, u->len - u->raw, err);
        if (rc == STATUS_OK && i + 1 == h->n && h->passing != NULL)
            rc = model_participant_append(&text, h->passing, h->passing_len, err);
        if (rc == STATUS_OK && goes_on)
            rc = l->history.delimiter.text != NULL
                     ? model_participant_append(&text, l->history.delimiter.text,
                                                l->history.delimiter.len, err)
                     : model_participant_append(&text, "\n", 1, err);
        if (rc != STATUS_OK || goes_on)
            continue;
        rc = model_add_message(m, d, u, &text, &messages[n++], err);
        buf_clear(&text);
    }
    if (n == 0) /* empty history: the model begins */
        messages[n++] = (struct message){.role = ROLE_USER, .text = "", .len = 0};
    d->turn.seen.messages = messages;
    d->turn.seen.n_messages = n;
    buf_deinit(&text);
    return rc;
}

static const struct value *label_vec(const struct act *observation)
{
    const struct value *v = act_get(observation, ACT_LABELS_VEC);

    return v != NULL ? v : act_get(observation, ACT_EVAL_LABELS_VEC);
}

/* The label first, then the candidates. A truncated label is not followed by the end of the turn.
 */
static enum status add_scored(struct model_participant *m, struct dialogue_state *d,
                              const struct act *observation, struct error *err)
{
    const struct value *vec = label_vec(observation);
    const struct value *candidates = act_list(observation, ACT_LABEL_CANDIDATES);
    const size_t n_candidates = candidates != NULL ? candidates->list.n : 0;
    struct scored_continuation *scored = arena_alloc(&d->arena, 1 + n_candidates, sizeof(*scored));
    size_t n = 0;

    if (scored == NULL)
        return error_no_memory(err, (1 + n_candidates) * sizeof(*scored), "a question");
    if (!m->config.no_score && vec != NULL && vec->type == VALUE_IDS && vec->ids.n > 0) {
        const struct value *is_cut = act_get_named(observation, "label_truncate_rate", 19);

        scored[n].text = d->listener.label;
        if (is_cut == NULL || is_cut->boolean) {
            scored[n].ids = vec->ids.items;
            scored[n].n_ids = vec->ids.n;
        }
        n++;
        d->n_labels = 1;
    }
    for (size_t i = 0; i < n_candidates; i++)
        scored[n++].text = candidates->list.items[i];
    d->turn.seen.scored = scored;
    d->turn.seen.n_scored = n;
    return STATUS_OK;
}

static enum status model_participant_begin(struct participant_clone *base,
                                           const struct act *observation, struct agent_turn **out,
                                           struct error *err)
{
    struct model_participant *m = model_of(base->original);
    struct dialogue_state *d = dialogue_of(base);
    const struct clone_config config = {
        .system = m->config.system,
        .system_len = m->config.system != NULL ? strlen(m->config.system) : 0};
    const struct value *vec;
    enum status rc;

    forget_turn(d);
    d->n_labels = 0;
    *out = NULL;
    d->is_opening = observation == NULL && m->config.opening != NULL;
    if (d->is_opening || (observation != NULL && act_is_padding(observation)))
        return STATUS_OK;
    rc = listener_answer(&d->listener, err);
    if (rc == STATUS_OK && d->clone == NULL)
        rc = clone_open(&d->clone, m->agent, &config, err);
    if (rc != STATUS_OK)
        return rc;
    vec = act_get(observation, ACT_TEXT_VEC);
    agent_turn_init(&d->turn, &d->arena, MAX_REPLY_BYTES);
    d->turn.seen = (struct observation){.sampling = m->config.sampling,
                                        .turn = 1 + (uint32_t)d->listener.history.n,
                                        .no_reply = m->config.no_reply,
                                        .is_raw_prompt = m->config.is_plain};
    if (m->config.seed_by_place)
        d->turn.seen.sampling.seed += d->place;
    if (!m->config.is_plain) {
        rc = make_messages(m, d, err);
    } else if (vec != NULL && vec->type == VALUE_IDS) {
        d->turn.seen.raw_ids = vec->ids.items;
        d->turn.seen.n_raw_ids = vec->ids.n;
    }
    if (rc == STATUS_OK)
        rc = add_scored(m, d, observation, err);
    if (rc == STATUS_OK)
        rc = agent_turn_observe(&d->turn, d->clone, err);
    if (rc != STATUS_OK)
        return rc;
    /* A waiting turn holds no pages, or many waiting turns would leave none for the running ones;
     * the prefix cache finds shared prefixes when the turn starts. */
    if (m->agent->type->release != NULL)
        m->agent->type->release(m->agent, &d->turn.row);
    *out = &d->turn;
    return STATUS_OK;
}

static void compute(struct participant *p, struct row *const *rows, size_t n)
{
    agent_compute(model_of(p)->agent, rows, n);
}

static void batching(struct participant *p, struct batch_agent *out, struct batcher_config *config)
{
    struct agent *a = model_of(p)->agent;

    const size_t max_waiting = config->max_waiting;

    agent_batch_adapter(a, out);
    a->type->batching(a, config);
    config->max_waiting = max_waiting;
    config->max_itl_us = 0; /* the reply is read whole */
}

/* --- the answer ------------------------------------------------------------------------------ */

enum { MAX_METRICS = 10 };

struct token_counts {
    struct named_metric *items;
    size_t n;
};

static void token_counts_add(struct token_counts *c, const char *name, struct metric metric)
{
    c->items[c->n++] = (struct named_metric){.name = {name, strlen(name)}, .metric = metric};
}

static double number_of(const struct act *observation, const char *name)
{
    const struct value *v = act_get_named(observation, name, strlen(name));

    if (v == NULL)
        return 0;
    return v->type == VALUE_BOOL ? (double)v->boolean : (double)v->integer;
}

static void count_lengths(struct token_counts *c, const struct act *seen)
{
    if (act_has(seen, ACT_TEXT_VEC)) {
        token_counts_add(c, "clen", metric_average(number_of(seen, "context_original_length"), 1));
        token_counts_add(c, "ctrunc", metric_average(number_of(seen, "context_truncate_rate"), 1));
        token_counts_add(c, "ctrunclen",
                         metric_average(number_of(seen, "context_truncated_length"), 1));
    }
    if (label_vec(seen) != NULL) {
        token_counts_add(c, "llen", metric_average(number_of(seen, "label_original_length"), 1));
        token_counts_add(c, "ltrunc", metric_average(number_of(seen, "label_truncate_rate"), 1));
        token_counts_add(c, "ltrunclen",
                         metric_average(number_of(seen, "label_truncated_length"), 1));
    }
}

static enum status add_metrics(struct dialogue_state *d, struct act *out, struct error *err)
{
    const struct reply *r = &d->turn.reply;
    struct metric_list *list = arena_alloc(&d->arena, 1, sizeof(*list));
    struct token_counts c = {.items = arena_alloc(&d->arena, MAX_METRICS, sizeof(*c.items))};

    if (list == NULL || c.items == NULL)
        return error_no_memory(err, MAX_METRICS * sizeof(*c.items), "metrics");
    if (d->n_labels > 0 && r->n_scores > 0) {
        const struct text_score *s = &r->scores[0];

        token_counts_add(&c, "loss", metric_average(-s->logprob, s->n_tokens));
        token_counts_add(&c, "ppl", metric_ppl(-s->logprob, s->n_tokens));
        token_counts_add(&c, "token_acc", metric_average(s->n_top, s->n_tokens));
        token_counts_add(&c, "token_em", metric_average(s->n_top == s->n_tokens, 1));
    }
    count_lengths(&c, &d->listener.seen);
    *list = (struct metric_list){.items = c.items, .n = c.n};
    return act_set(out, ACT_METRICS, value_metrics(list), err);
}

struct ranked_candidate {
    struct text text;
    double logprob;
    size_t place;
};

static int ranked_candidate_compare(const void *a, const void *b)
{
    const struct ranked_candidate *x = a, *y = b;

    if (x->logprob != y->logprob)
        return x->logprob > y->logprob ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* Candidates, the likeliest first. */
static enum status add_candidates(struct dialogue_state *d, struct act *out, struct error *err)
{
    const struct reply *r = &d->turn.reply;
    const size_t n = r->n_scores - d->n_labels;
    struct ranked_candidate *ranked;
    struct text *texts;

    if (n == 0)
        return STATUS_OK;
    ranked = arena_alloc(&d->arena, n, sizeof(*ranked));
    texts = arena_alloc(&d->arena, n, sizeof(*texts));
    if (ranked == NULL || texts == NULL)
        return error_no_memory(err, n * (sizeof(*ranked) + sizeof(*texts)), "candidates");
    for (size_t i = 0; i < n; i++)
        ranked[i] = (struct ranked_candidate){.text = d->turn.seen.scored[d->n_labels + i].text,
                                              .logprob = r->scores[d->n_labels + i].logprob,
                                              .place = i};
    qsort(ranked, n, sizeof(*ranked), ranked_candidate_compare);
    for (size_t i = 0; i < n; i++)
        texts[i] = ranked[i].text;
    return act_set(out, ACT_TEXT_CANDIDATES, value_list(texts, n), err);
}

static enum status model_participant_finish(struct participant_clone *base, struct act *out,
                                            struct error *err)
{
    struct model_participant *m = model_of(base->original);
    struct dialogue_state *d = dialogue_of(base);
    const struct buf *text = &d->turn.reply.text;
    const char *id = m->config.id != NULL ? m->config.id : m->agent->name;
    const bool was_asked = agent_turn_is_open(&d->turn);
    enum status rc;

    model_participant_drop(base);
    rc = act_set(out, ACT_ID, value_text((struct text){id, strlen(id)}), err);
    if (rc == STATUS_OK && d->is_opening)
        rc = act_set(out, ACT_TEXT,
                     value_text((struct text){m->config.opening, strlen(m->config.opening)}), err);
    if (rc == STATUS_OK && was_asked && !m->config.no_reply)
        rc = act_set(out, ACT_TEXT,
                     value_text((struct text){text->len != 0 ? text->data : "", text->len}), err);
    if (rc == STATUS_OK)
        rc = act_set(out, ACT_EPISODE_DONE, value_bool(false), err);
    if (rc == STATUS_OK && was_asked)
        rc = add_candidates(d, out, err);
    return rc == STATUS_OK && was_asked ? add_metrics(d, out, err) : rc;
}

static void lengths(const struct participant_clone *c, const struct act *observation,
                    struct lengths *out)
{
    const struct value *text = act_get(observation, ACT_TEXT_VEC);
    const struct value *label = label_vec(observation);

    out->text = text != NULL && text->type == VALUE_IDS ? (uint32_t)text->ids.n : 0;
    out->label = label != NULL && label->type == VALUE_IDS ? (uint32_t)label->ids.n : 0;
}

static const struct participant_type model_participant = {
    .name = "lm",
    .clone_size = sizeof(struct model_clone),
    .close = close_model,
    .share = share,
    .clone_init = clone_init,
    .clone_deinit = model_participant_clone_deinit,
    .reset = model_participant_reset,
    .observe = model_participant_observe,
    .self_observe = self_observe,
    .batching = batching,
    .begin = model_participant_begin,
    .compute = compute,
    .finish = model_participant_finish,
    .drop = model_participant_drop,
    .lengths = lengths,
    .is_ragged = true,
};
