/* The participant of the first thread owns the vectors; those of other threads hold a reference to
 * it, and have a learner, an index and scratch of their own. A clone's state is its listener. */
#include "worlds/learners/starspace.h"

#include <stdlib.h>
#include <string.h>

#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/list.h"
#include "worlds/metrics/metrics.h"

enum { MOST_TEXT_CANDIDATES = 100 }; /* of a reply, as ParlAI's */

struct starspace_participant {
    struct participant base;
    struct starspace *space;    /* owned by the first participant; shares borrow it */
    struct participant *shared; /* the first participant; NULL: this one is the first */
    struct starspace_participant_config config;
    struct starspace_learner *learner; /* of this thread; NULL unless it learns */
    struct starspace_index *index;     /* of this thread */
    float *query, *candidate;          /* [n_dims] */
    bool is_paused; /* only in the first participant; set while no thread is in a parley */
};

/* A clone's state of its conversation. */
struct starspace_dialogue {
    struct dialogue_listener listener;
    const struct act *heard; /* the last observation; NULL: none yet */
};

struct starspace_participant_clone {
    struct participant_clone base;
    struct starspace_dialogue *dialogue;
};

static struct starspace_participant *starspace_participant_of(struct participant *p)
{
    return container_of(p, struct starspace_participant, base);
}

static struct starspace_dialogue *starspace_dialogue_of(struct participant_clone *c)
{
    return container_of(c, struct starspace_participant_clone, base)->dialogue;
}

void starspace_participant_config_init(struct starspace_participant_config *c)
{
    *c = (struct starspace_participant_config){
        .listener = {.history = {.delimiter = {"", 0}}},
        .learn = {.rate = 0.1F, .margin = 0.1F, .n_negatives = 10, .cache_size = 1000}};
}

static void starspace_participant_close(struct participant *p)
{
    struct starspace_participant *s = starspace_participant_of(p);

    starspace_learner_close(s->learner);
    starspace_index_close(s->index);
    free(s->query);
    free(s->candidate);
    if (s->shared == NULL)
        starspace_close(s->space);
    participant_unref(s->shared);
    free(s);
}

static enum status starspace_participant_encode(const void *self, const char *text, size_t len,
                                                struct buf *ids, struct error *err)
{
    return word_table_encode(starspace_words(self), text, len, ids, err);
}

static const struct participant_type starspace_participant;

/* Takes s and shared. */
static enum status starspace_participant_make(struct participant **out, struct starspace *s,
                                              struct participant *shared,
                                              const struct starspace_participant_config *config,
                                              struct error *err)
{
    struct starspace_participant *p = xalloc(sizeof(*p));
    enum status rc = STATUS_OK;

    participant_init(&p->base, &starspace_participant);
    p->space = s;
    p->shared = shared;
    p->config = *config;
    p->config.listener.history.coder =
        (struct coder){.encode = starspace_participant_encode, .self = s, .start = -1, .end = -1};
    listener_config_digest(&p->config.listener, word_table_crc(starspace_words(s)));
    p->query = try_alloc(starspace_spec(s)->n_dims, sizeof(float));
    p->candidate = try_alloc(starspace_spec(s)->n_dims, sizeof(float));
    if (p->query == NULL || p->candidate == NULL)
        rc = error_no_memory(err, starspace_spec(s)->n_dims * sizeof(float), "an agent");
    if (rc == STATUS_OK && config->learns)
        rc = starspace_learner_open(&p->learner, s, &config->learn, err);
    if (rc == STATUS_OK)
        *out = &p->base;
    else
        starspace_participant_close(&p->base);
    return rc;
}

enum status starspace_participant_open(struct participant **out, struct starspace *s,
                                       const struct starspace_participant_config *config,
                                       struct error *err)
{
    return starspace_participant_make(out, s, NULL, config, err);
}

struct starspace *starspace_participant_space(const struct participant *p)
{
    return container_of(p, const struct starspace_participant, base)->space;
}

struct starspace_learner *starspace_participant_learner(const struct participant *p)
{
    return container_of(p, const struct starspace_participant, base)->learner;
}

void starspace_participant_pause(struct participant *p, bool is_paused)
{
    starspace_participant_of(p)->is_paused = is_paused;
}

static bool starspace_participant_is_paused(struct starspace_participant *s)
{
    return s->shared != NULL ? starspace_participant_of(s->shared)->is_paused : s->is_paused;
}

/* Each thread learns and ranks in memory of its own, over the same vectors. */
static enum status starspace_participant_share(struct participant **out, struct participant *p,
                                               uint32_t thread, struct error *err)
{
    const struct starspace_participant *s = starspace_participant_of(p);
    struct starspace_participant_config config = s->config;

    *out = participant_ref(p);
    if (thread == 0)
        return STATUS_OK;
    config.learn.thread = thread;
    return starspace_participant_make(out, s->space, *out, &config, err);
}

/* --- clones ----------------------------------------------------------------------------------- */

static enum status starspace_participant_clone_init(struct participant_clone *c,
                                                    const struct participant_slot *place,
                                                    struct error *err)
{
    struct starspace_dialogue *d = try_alloc(1, sizeof(*d));

    if (d == NULL)
        return error_no_memory(err, sizeof(*d), "a conversation");
    listener_init(&d->listener, &starspace_participant_of(c->original)->config.listener);
    container_of(c, struct starspace_participant_clone, base)->dialogue = d;
    return STATUS_OK;
}

static void starspace_participant_clone_deinit(struct participant_clone *c)
{
    struct starspace_dialogue *d = starspace_dialogue_of(c);

    if (d != NULL)
        listener_deinit(&d->listener);
    free(d);
}

static void starspace_participant_reset(struct participant_clone *c)
{
    listener_reset(&starspace_dialogue_of(c)->listener);
    starspace_dialogue_of(c)->heard = NULL;
}

static enum status starspace_participant_observe(struct participant_clone *c, const struct act *act,
                                                 const struct act **out, struct error *err)
{
    struct starspace_dialogue *d = starspace_dialogue_of(c);
    enum status rc = listener_observe(&d->listener, act, out, err);

    if (rc == STATUS_OK)
        d->heard = *out;
    return rc;
}

static enum status starspace_participant_self_observe(struct participant_clone *c,
                                                      const struct act *reply, struct error *err)
{
    struct starspace_dialogue *d = starspace_dialogue_of(c);

    if (d->heard == NULL)
        return history_say(&d->listener.history, act_text(reply), err);
    return listener_self_observe(&d->listener, reply, err);
}

/* --- the reply -------------------------------------------------------------------------------- */

static enum status starspace_participant_learn(struct starspace_participant *s,
                                               const struct act *heard, struct act *out,
                                               struct error *err)
{
    const struct value *text = act_get(heard, ACT_TEXT_VEC),
                       *label = act_get(heard, ACT_LABELS_VEC);
    struct starspace_lesson lesson = {0};
    struct named_metric *items;
    struct metric_list *list;

    if (text == NULL || text->type != VALUE_IDS || label == NULL || label->type != VALUE_IDS)
        return STATUS_OK;
    if (starspace_learn(s->learner, text->ids.items, text->ids.n, label->ids.items, label->ids.n,
                        &lesson, err) != STATUS_OK)
        return err->status;
    if (!lesson.has_learned)
        return STATUS_OK;
    list = arena_alloc(out->arena, 1, sizeof(*list));
    items = arena_alloc(out->arena, 2, sizeof(*items));
    if (list == NULL || items == NULL)
        return error_no_memory(err, 2 * sizeof(*items), "metrics");
    items[0] = (struct named_metric){{"loss", 4}, metric_average(lesson.loss, 1)};
    items[1] = (struct named_metric){{"mean_rank", 9}, metric_average((double)lesson.rank, 1)};
    *list = (struct metric_list){.items = items, .n = 2};
    return act_set(out, ACT_METRICS, value_metrics(list), err);
}

struct near_candidate {
    struct text text;
    float similarity;
    size_t place;
};

static int near_candidate_compare(const void *a, const void *b)
{
    const struct near_candidate *x = a, *y = b;

    if (x->similarity != y->similarity)
        return x->similarity > y->similarity ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* The similarities of the act's candidates, or of the file's. */
static enum status starspace_participant_compare(struct starspace_participant *s,
                                                 const struct value *given,
                                                 struct near_candidate *all, size_t n,
                                                 struct error *err)
{
    const size_t n_dims = starspace_spec(s->space)->n_dims;
    enum status rc = STATUS_OK;
    struct buf ids;

    buf_init(&ids, SIZE_MAX);
    for (size_t i = 0; i < n && rc == STATUS_OK; i++) {
        all[i].place = i;
        if (given == NULL) {
            all[i].text = starspace_candidate(s->space, i);
            all[i].similarity = starspace_index_similarity(s->index, s->query, i);
            continue;
        }
        all[i].text = given->list.items[i];
        buf_clear(&ids);
        rc = word_table_encode(starspace_words(s->space), all[i].text.text, all[i].text.len, &ids,
                               err);
        if (rc != STATUS_OK)
            break;
        starspace_embed(s->space, (const int32_t *)(const void *)ids.data,
                        ids.len / sizeof(int32_t), s->candidate);
        all[i].similarity = starspace_similarity(s->query, s->candidate, n_dims);
    }
    buf_deinit(&ids);
    return rc;
}

static enum status starspace_participant_index(struct starspace_participant *s, struct error *err)
{
    if (s->index == NULL && starspace_index_open(&s->index, s->space, err) != STATUS_OK)
        return err->status;
    return starspace_index_ready(s->index, err);
}

static enum status starspace_participant_rank(struct starspace_participant *s,
                                              const struct act *heard, struct act *out,
                                              struct error *err)
{
    const struct value *text = act_get(heard, ACT_TEXT_VEC),
                       *given = act_list(heard, ACT_LABEL_CANDIDATES);
    const size_t n = given != NULL ? given->list.n : starspace_n_candidates(s->space);
    const size_t n_told = n < MOST_TEXT_CANDIDATES ? n : MOST_TEXT_CANDIDATES;
    struct near_candidate *all;
    struct text *texts;

    if (n == 0)
        return act_set(out, ACT_TEXT, value_text((struct text){"I dunno.", 8}), err);
    if (given == NULL && starspace_participant_index(s, err) != STATUS_OK)
        return err->status;
    if (text != NULL && text->type == VALUE_IDS)
        starspace_embed(s->space, text->ids.items, text->ids.n, s->query);
    else
        starspace_embed(s->space, NULL, 0, s->query);
    all = arena_alloc(out->arena, n, sizeof(*all));
    texts = arena_alloc(out->arena, n_told, sizeof(*texts));
    if (all == NULL || texts == NULL)
        return error_no_memory(err, n * sizeof(*all), "candidates");
    if (starspace_participant_compare(s, given, all, n, err) != STATUS_OK)
        return err->status;
    qsort(all, n, sizeof(*all), near_candidate_compare);
    for (size_t i = 0; i < n_told; i++)
        texts[i] = all[i].text;
    if (act_set(out, ACT_TEXT, value_text(texts[0]), err) != STATUS_OK)
        return err->status;
    return act_set(out, ACT_TEXT_CANDIDATES, value_list(texts, n_told), err);
}

static enum status starspace_participant_answer(struct participant_clone *c, struct act *out,
                                                struct error *err)
{
    struct starspace_participant *s = starspace_participant_of(c->original);
    const struct act *heard = starspace_dialogue_of(c)->heard;
    enum status rc = act_set(out, ACT_ID, value_text((struct text){"Starspace", 9}), err);

    if (rc == STATUS_OK)
        rc = act_set(out, ACT_EPISODE_DONE, value_bool(false), err);
    if (rc != STATUS_OK || (heard != NULL && act_is_padding(heard)))
        return rc;
    if (heard == NULL && s->config.opening == NULL)
        return error_set(err, STATUS_PRECONDITION, "starspace has observed nothing yet");
    if (heard == NULL)
        return act_set(out, ACT_TEXT,
                       value_text((struct text){s->config.opening, strlen(s->config.opening)}),
                       err);
    if (s->learner != NULL && act_has(heard, ACT_LABELS) && starspace_participant_is_paused(s))
        return STATUS_OK;
    if (s->learner != NULL && act_has(heard, ACT_LABELS))
        return starspace_participant_learn(s, heard, out, err);
    return starspace_participant_rank(s, heard, out, err);
}

static enum status starspace_participant_act(struct participant_clone *c, struct act *out,
                                             struct error *err)
{
    enum status rc = starspace_participant_answer(c, out, err);

    return rc == STATUS_OK ? starspace_participant_self_observe(c, out, err) : rc;
}

/* Each row by itself, in order: a batch learns what its rows would one after the other. */
static void starspace_participant_batch_act(struct participant *p, struct participant_row *rows,
                                            size_t n)
{
    for (size_t i = 0; i < n; i++)
        rows[i].failed =
            starspace_participant_answer(rows[i].clone, rows[i].out, &rows[i].err) != STATUS_OK;
}

static const char *starspace_participant_vectors_of(const struct participant *p)
{
    return container_of(p, const struct starspace_participant, base)->config.listener.vectors_of;
}

static const struct participant_type starspace_participant = {
    .name = "starspace",
    .clone_size = sizeof(struct starspace_participant_clone),
    .close = starspace_participant_close,
    .share = starspace_participant_share,
    .clone_init = starspace_participant_clone_init,
    .clone_deinit = starspace_participant_clone_deinit,
    .reset = starspace_participant_reset,
    .observe = starspace_participant_observe,
    .self_observe = starspace_participant_self_observe,
    .act = starspace_participant_act,
    .batch_act = starspace_participant_batch_act,
    .vectors_of = starspace_participant_vectors_of,
    .is_ragged = true,
};
