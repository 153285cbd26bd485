/* A batch is at most three passes of the model: one that learns from the rows with labels, one that
 * scores the others, and one that generates their replies. A pass that fails fails its rows. */
#include "worlds/learners/seq2seq.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/list.h"
#include "worlds/metrics/metrics.h"

enum { MAX_REPLY_WORDS = 128, N_SEQ2SEQ_METRICS = 4 };

struct seq2seq_participant {
    struct participant base;
    struct seq2seq *model;
    struct seq2seq_participant_config config;
    bool is_paused;
    pthread_mutex_t lock; /* held while a batch uses the model */
};

struct seq2seq_participant_clone {
    struct participant_clone base;
    struct dialogue_listener *listener;
};

static struct seq2seq_participant *seq2seq_participant_of(struct participant *p)
{
    return container_of(p, struct seq2seq_participant, base);
}

static struct dialogue_listener *seq2seq_listener_of(struct participant_clone *c)
{
    return container_of(c, struct seq2seq_participant_clone, base)->listener;
}

void seq2seq_participant_config_init(struct seq2seq_participant_config *c)
{
    *c = (struct seq2seq_participant_config){.rate = 0.003F, .max_words = MAX_REPLY_WORDS};
}

static void seq2seq_participant_close(struct participant *p)
{
    seq2seq_close(seq2seq_participant_of(p)->model);
    (void)pthread_mutex_destroy(&seq2seq_participant_of(p)->lock);
    free(seq2seq_participant_of(p));
}

static enum status seq2seq_participant_encode(const void *self, const char *text, size_t len,
                                              struct buf *ids, struct error *err)
{
    return word_table_encode(seq2seq_words(self), text, len, ids, err);
}

static size_t seq2seq_bound(size_t given)
{
    return given == 0 || given > SEQ2SEQ_MAX_WORDS ? SEQ2SEQ_MAX_WORDS : given;
}

static const struct participant_type seq2seq_participant;

enum status seq2seq_participant_open(struct participant **out, struct seq2seq *s,
                                     const struct seq2seq_participant_config *config,
                                     struct error *err)
{
    struct seq2seq_participant *p = xalloc(sizeof(*p));
    enum status rc = STATUS_OK;

    participant_init(&p->base, &seq2seq_participant);
    (void)pthread_mutex_init(&p->lock, NULL); /* cannot fail with default attributes */
    p->model = s;
    p->config = *config;
    p->config.listener.history.coder = (struct coder){
        .encode = seq2seq_participant_encode, .self = s, .start = -1, .end = WORD_END};
    p->config.listener.text_truncate = seq2seq_bound(config->listener.text_truncate);
    p->config.listener.label_truncate = seq2seq_bound(config->listener.label_truncate);
    listener_config_digest(&p->config.listener, word_table_crc(seq2seq_words(s)));
    if (config->learns && (!(config->rate > 0) || !isfinite(config->rate)))
        rc = error_field(err, "learning_rate", "is %g, it must be above 0", (double)config->rate);
    else if (config->max_words == 0)
        rc = error_field(err, "max_tokens", "is 0, it must be at least 1");
    if (rc == STATUS_OK)
        *out = &p->base;
    else
        seq2seq_participant_close(&p->base);
    return rc;
}

struct seq2seq *seq2seq_participant_model(const struct participant *p)
{
    return container_of(p, const struct seq2seq_participant, base)->model;
}

void seq2seq_participant_pause(struct participant *p, bool is_paused)
{
    seq2seq_participant_of(p)->is_paused = is_paused;
}

/* --- clones ----------------------------------------------------------------------------------- */

static enum status seq2seq_participant_clone_init(struct participant_clone *c,
                                                  const struct participant_slot *place,
                                                  struct error *err)
{
    struct dialogue_listener *l = try_alloc(1, sizeof(*l));

    if (l == NULL)
        return error_no_memory(err, sizeof(*l), "a conversation");
    listener_init(l, &seq2seq_participant_of(c->original)->config.listener);
    container_of(c, struct seq2seq_participant_clone, base)->listener = l;
    return STATUS_OK;
}

static void seq2seq_participant_clone_deinit(struct participant_clone *c)
{
    struct dialogue_listener *l = seq2seq_listener_of(c);

    if (l != NULL)
        listener_deinit(l);
    free(l);
}

static void seq2seq_participant_reset(struct participant_clone *c)
{
    listener_reset(seq2seq_listener_of(c));
}

static enum status seq2seq_participant_observe(struct participant_clone *c, const struct act *act,
                                               const struct act **out, struct error *err)
{
    return listener_observe(seq2seq_listener_of(c), act, out, err);
}

static enum status seq2seq_participant_self_observe(struct participant_clone *c,
                                                    const struct act *reply, struct error *err)
{
    struct dialogue_listener *l = seq2seq_listener_of(c);

    if (!l->has_seen && !l->is_padding)
        return history_say(&l->history, act_text(reply), err);
    return listener_self_observe(l, reply, err);
}

/* --- a batch ---------------------------------------------------------------------------------- */

/* What a batch does with a row: nothing more, learning from it, or scoring and answering it. */
enum row_use { ROW_NOTHING, ROW_LEARN, ROW_ANSWER };

struct seq2seq_batch {
    struct seq2seq_participant *of;
    struct participant_row *rows; /* [n] */
    size_t n;
    enum row_use *uses;         /* [n] */
    struct seq2seq_row *packed; /* [n_packed] the rows of the next pass; room for n */
    size_t *from;               /* [n_packed] the index in rows of each */
    size_t n_packed;
};

static const struct value *seq2seq_label(const struct act *heard)
{
    const struct value *v = act_get(heard, ACT_LABELS_VEC);

    if (v == NULL)
        v = act_get(heard, ACT_EVAL_LABELS_VEC);
    return v != NULL && v->type == VALUE_IDS && v->ids.n > 0 ? v : NULL;
}

static void participant_row_fail(struct participant_row *row, const struct error *err)
{
    row->failed = true;
    row->err = *err;
}

/* Starts a row's reply with id, episode_done and perhaps the opening, and returns the row's use. */
static enum row_use seq2seq_batch_begin(const struct seq2seq_batch *b, struct participant_row *row,
                                        struct error *err)
{
    const struct seq2seq_participant_config *c = &b->of->config;
    const struct act *heard = row->observation;

    if (act_set(row->out, ACT_ID, value_text((struct text){"Seq2Seq", 7}), err) != STATUS_OK ||
        act_set(row->out, ACT_EPISODE_DONE, value_bool(false), err) != STATUS_OK)
        goto failed;
    if (heard == NULL && c->opening != NULL &&
        act_set(row->out, ACT_TEXT, value_text((struct text){c->opening, strlen(c->opening)}),
                err) != STATUS_OK)
        goto failed;
    if (heard == NULL && c->opening == NULL) {
        (void)error_set(err, STATUS_PRECONDITION, "seq2seq has observed nothing yet");
        goto failed;
    }
    if (heard == NULL || act_is_padding(heard))
        return ROW_NOTHING;
    return c->learns && act_has(heard, ACT_LABELS_VEC) ? ROW_LEARN : ROW_ANSWER;
failed:
    participant_row_fail(row, err);
    return ROW_NOTHING;
}

/* Packs the rows of one use; with needs_label, only those that have a label. */
static void seq2seq_batch_pack(struct seq2seq_batch *b, enum row_use use, bool needs_label)
{
    b->n_packed = 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct act *heard = b->rows[i].observation;
        const struct value *text, *label;

        if (b->uses[i] != use || b->rows[i].failed)
            continue;
        text = act_get(heard, ACT_TEXT_VEC);
        label = seq2seq_label(heard);
        if (needs_label && label == NULL)
            continue;
        b->packed[b->n_packed] = (struct seq2seq_row){0};
        if (text != NULL && text->type == VALUE_IDS) {
            b->packed[b->n_packed].text = text->ids.items;
            b->packed[b->n_packed].n_text = text->ids.n;
        }
        if (label != NULL) {
            b->packed[b->n_packed].label = label->ids.items;
            b->packed[b->n_packed].n_label = label->ids.n;
        }
        buf_init(&b->packed[b->n_packed].reply, SIZE_MAX);
        b->from[b->n_packed++] = i;
    }
}

static enum status seq2seq_tell_metrics(const struct seq2seq_row *r, struct act *out,
                                        struct error *err)
{
    const double n = (double)r->n_label;
    struct metric_list *list = arena_alloc(out->arena, 1, sizeof(*list));
    struct named_metric *items = arena_alloc(out->arena, N_SEQ2SEQ_METRICS, sizeof(*items));

    if (list == NULL || items == NULL)
        return error_no_memory(err, N_SEQ2SEQ_METRICS * sizeof(*items), "metrics");
    items[0] = (struct named_metric){{"loss", 4}, metric_average(r->loss, n)};
    items[1] = (struct named_metric){{"ppl", 3}, metric_ppl(r->loss, n)};
    items[2] = (struct named_metric){{"token_acc", 9}, metric_average(r->n_right, n)};
    items[3] = (struct named_metric){{"token_em", 8}, metric_average(r->n_right == r->n_label, 1)};
    *list = (struct metric_list){.items = items, .n = N_SEQ2SEQ_METRICS};
    return act_set(out, ACT_METRICS, value_metrics(list), err);
}

static enum status seq2seq_tell_reply(const struct seq2seq_batch *b, const struct seq2seq_row *r,
                                      struct act *out, struct error *err)
{
    const char *kept;
    struct buf text;
    enum status rc;

    buf_init(&text, SIZE_MAX);
    rc =
        word_table_decode(seq2seq_words(b->of->model), (const int32_t *)(const void *)r->reply.data,
                          r->reply.len / sizeof(int32_t), &text, err);
    if (rc == STATUS_OK) {
        kept = arena_strndup(out->arena, text.len != 0 ? text.data : "", text.len);
        rc = kept != NULL ? act_set(out, ACT_TEXT, value_text((struct text){kept, text.len}), err)
                          : error_no_memory(err, text.len, "a reply");
    }
    buf_deinit(&text);
    return rc;
}

/* A pass that fails fails its rows. */
static void seq2seq_batch_finish(struct seq2seq_batch *b, enum status rc, bool has_reply,
                                 const struct error *err)
{
    for (size_t k = 0; k < b->n_packed; k++) {
        struct participant_row *row = &b->rows[b->from[k]];
        struct error own = *err;

        if (rc == STATUS_OK)
            own.status = has_reply ? seq2seq_tell_reply(b, &b->packed[k], row->out, &own)
                                   : seq2seq_tell_metrics(&b->packed[k], row->out, &own);
        if (own.status != STATUS_OK)
            participant_row_fail(row, &own);
        buf_deinit(&b->packed[k].reply);
    }
}

static void seq2seq_batch_run(struct seq2seq_batch *b)
{
    const struct seq2seq_participant_config *c = &b->of->config;
    struct error err = {0};

    for (size_t i = 0; i < b->n; i++)
        b->uses[i] = seq2seq_batch_begin(b, &b->rows[i], &err);
    err = (struct error){0};
    seq2seq_batch_pack(b, ROW_LEARN, true);
    if (b->n_packed > 0 && !b->of->is_paused)
        seq2seq_batch_finish(b, seq2seq_learn(b->of->model, b->packed, b->n_packed, c->rate, &err),
                             false, &err);
    err = (struct error){0};
    seq2seq_batch_pack(b, ROW_ANSWER, true);
    if (b->n_packed > 0 && !c->no_score)
        seq2seq_batch_finish(b, seq2seq_score(b->of->model, b->packed, b->n_packed, &err), false,
                             &err);
    err = (struct error){0};
    seq2seq_batch_pack(b, ROW_ANSWER, false);
    if (b->n_packed > 0 && !c->no_reply)
        seq2seq_batch_finish(
            b, seq2seq_generate(b->of->model, b->packed, b->n_packed, c->max_words, &err), true,
            &err);
}

static void seq2seq_participant_batch_act(struct participant *p, struct participant_row *rows,
                                          size_t n)
{
    struct seq2seq_batch b = {
        .of = seq2seq_participant_of(p),
        .rows = rows,
        .n = n,
        .uses = try_alloc(n, sizeof(enum row_use)),
        .packed = try_alloc(n, sizeof(struct seq2seq_row)),
        .from = try_alloc(n, sizeof(size_t)),
    };
    struct error err;

    if (b.uses != NULL && b.packed != NULL && b.from != NULL) {
        (void)pthread_mutex_lock(&b.of->lock); /* cannot fail: it is not destroyed while in use */
        seq2seq_batch_run(&b);
        (void)pthread_mutex_unlock(&b.of->lock);
    } else {
        (void)error_no_memory(&err, n * sizeof(struct seq2seq_row), "a batch");
        for (size_t i = 0; i < n; i++)
            participant_row_fail(&rows[i], &err);
    }
    free(b.uses);
    free(b.packed);
    free(b.from);
}

static void seq2seq_participant_lengths(const struct participant_clone *c,
                                        const struct act *observation, struct lengths *out)
{
    const struct value *text = act_get(observation, ACT_TEXT_VEC),
                       *label = seq2seq_label(observation);

    out->text = text != NULL && text->type == VALUE_IDS ? (uint32_t)text->ids.n : 0;
    out->label = label != NULL ? (uint32_t)label->ids.n : 0;
}

static const char *seq2seq_participant_vectors_of(const struct participant *p)
{
    return container_of(p, const struct seq2seq_participant, base)->config.listener.vectors_of;
}

static const struct participant_type seq2seq_participant = {
    .name = "seq2seq",
    .clone_size = sizeof(struct seq2seq_participant_clone),
    .close = seq2seq_participant_close,
    .clone_init = seq2seq_participant_clone_init,
    .clone_deinit = seq2seq_participant_clone_deinit,
    .reset = seq2seq_participant_reset,
    .observe = seq2seq_participant_observe,
    .self_observe = seq2seq_participant_self_observe,
    .batch_act = seq2seq_participant_batch_act,
    .lengths = seq2seq_participant_lengths,
    .vectors_of = seq2seq_participant_vectors_of,
};
