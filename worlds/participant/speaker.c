/* observe copies each message that a clone hears; begin makes one turn of all messages since the
 * last reply, and finish keeps the turn in the agent's clone. An act that ends the episode is still
 * answered; the observation after that answer begins the next episode with a reset clone. */
#include "worlds/participant/speaker.h"

#include <stdlib.h>
#include <string.h>

#include "agents/turn.h"
#include "base/alloc.h"
#include "worlds/message/act.h"

enum {
    SPEAKER_REPLY_BYTES = 16 << 20,
    SPEAKER_TURN_BYTES = 256 << 20,
    SPEAKER_MAX_HEARD = 1024,
};

struct speaker {
    struct participant base;
    struct agent *agent;
    struct speaker_config config;
};

/* A message that was observed and is not yet answered. */
struct speaker_heard {
    struct speaker_heard *next;
    const char *text;
    size_t len;
};

/* A clone's state of its conversation with the agent. */
struct spoken {
    struct clone *clone;    /* the agent's clone; NULL until the first request */
    struct arena arena;     /* memory of the turn */
    struct agent_turn turn; /* the last turn; its reply stays until the next one begins */
    struct arena ears;      /* memory of the messages heard since the last turn began */
    struct speaker_heard *first, **end; /* these messages, the oldest first */
    size_t n_heard;                     /* their number */
    const struct text *labels;          /* [n_labels] of the last of them; in ears */
    size_t n_labels;
    uint32_t n_turns; /* completed turns of the episode */
    uint32_t place;   /* the clone's index in its world */
    bool opens;       /* the answer is the opening */
    bool is_over;     /* the episode has ended: the observation after the reply begins another */
};

struct speaker_clone {
    struct participant_clone base;
    struct spoken *spoken;
};

static struct speaker *speaker_of(struct participant *p)
{
    return container_of(p, struct speaker, base);
}

struct agent *speaker_agent(struct participant *p)
{
    return speaker_of(p)->agent;
}

static struct spoken *spoken_of(struct participant_clone *c)
{
    return container_of(c, struct speaker_clone, base)->spoken;
}

static void speaker_close(struct participant *p)
{
    struct speaker *s = speaker_of(p);

    agent_unref(s->agent);
    free(s);
}

static enum status speaker_share(struct participant **out, struct participant *p, uint32_t thread,
                                 struct error *err)
{
    if (thread > 0)
        return speaker_open(out, &speaker_of(p)->config, err);
    *out = participant_ref(p);
    return STATUS_OK;
}

/* --- clones --- */

static enum status speaker_clone_init(struct participant_clone *c,
                                      const struct participant_slot *place, struct error *err)
{
    struct spoken *spoken = try_alloc(1, sizeof(*spoken));

    if (spoken == NULL)
        return error_no_memory(err, sizeof(*spoken), "a conversation");
    spoken->place = place->index;
    spoken->end = &spoken->first;
    arena_init(&spoken->arena, SPEAKER_TURN_BYTES);
    arena_init(&spoken->ears, SPEAKER_TURN_BYTES);
    container_of(c, struct speaker_clone, base)->spoken = spoken;
    return STATUS_OK;
}

static void speaker_drop(struct participant_clone *c)
{
    struct spoken *spoken = spoken_of(c);

    if (agent_turn_is_open(&spoken->turn))
        agent_turn_drop(&spoken->turn);
}

static void spoken_forget_turn(struct spoken *spoken)
{
    agent_turn_deinit(&spoken->turn);
    arena_deinit(&spoken->arena);
}

static void spoken_forget_heard(struct spoken *spoken)
{
    arena_deinit(&spoken->ears);
    spoken->first = NULL;
    spoken->end = &spoken->first;
    spoken->n_heard = 0;
    spoken->n_labels = 0;
}

static void speaker_clone_deinit(struct participant_clone *c)
{
    struct spoken *spoken = spoken_of(c);

    if (spoken == NULL)
        return;
    speaker_drop(c);
    spoken_forget_turn(spoken);
    spoken_forget_heard(spoken);
    clone_close(spoken->clone);
    free(spoken);
}

static void spoken_begin_again(struct spoken *spoken)
{
    if (spoken->clone != NULL)
        spoken->clone->agent->type->reset(spoken->clone);
    spoken->n_turns = 0;
    spoken->is_over = false;
}

static void speaker_reset(struct participant_clone *c)
{
    speaker_drop(c);
    spoken_forget_heard(spoken_of(c));
    spoken_begin_again(spoken_of(c));
}

/* --- a turn --- */

/* The labels of what was heard last. */
static enum status spoken_keep_labels(struct spoken *spoken, const struct act *act,
                                      struct error *err)
{
    const struct value *labels = act_list(act, ACT_LABELS);
    const size_t n = labels != NULL ? labels->list.n : 0;
    struct text *own = arena_alloc(&spoken->ears, n + 1, sizeof(*own));

    spoken->n_labels = 0;
    if (own == NULL)
        return error_no_memory(err, n * sizeof(*own), "labels");
    for (size_t i = 0; i < n; i++) {
        const struct text *label = &labels->list.items[i];

        own[i].text = arena_strndup(&spoken->ears, label->len > 0 ? label->text : "", label->len);
        own[i].len = label->len;
        if (own[i].text == NULL)
            return error_no_memory(err, label->len, "labels");
    }
    spoken->labels = own;
    spoken->n_labels = n;
    return STATUS_OK;
}

static enum status speaker_observe(struct participant_clone *c, const struct act *act,
                                   const struct act **ret_observation, struct error *err)
{
    struct spoken *spoken = spoken_of(c);
    struct text text = act_text(act);
    struct speaker_heard *heard;

    *ret_observation = act;
    if (act_is_padding(act))
        return STATUS_OK;
    if (spoken->is_over && spoken->n_heard == 0)
        spoken_begin_again(spoken);
    if (spoken->n_heard == SPEAKER_MAX_HEARD)
        return error_set(err, STATUS_EXHAUSTED, "more than %d messages are waiting for its reply",
                         SPEAKER_MAX_HEARD);
    if (speaker_of(c->original)->config.hears_names &&
        act_named_text(&text, act, &spoken->ears, err) != STATUS_OK)
        return err->status;
    heard = arena_alloc(&spoken->ears, 1, sizeof(*heard));
    if (heard != NULL)
        heard->text = arena_strndup(&spoken->ears, text.text != NULL ? text.text : "", text.len);
    if (heard == NULL || heard->text == NULL)
        return error_no_memory(err, text.len, "a message");
    heard->len = text.len;
    *spoken->end = heard;
    spoken->end = &heard->next;
    spoken->n_heard++;
    if (speaker_of(c->original)->config.learns && spoken_keep_labels(spoken, act, err) != STATUS_OK)
        return err->status;
    spoken->is_over |= act_is(act, ACT_EPISODE_DONE);
    return STATUS_OK;
}

/* What was heard becomes the turn's. */
static enum status spoken_take(struct spoken *spoken, struct error *err)
{
    struct message *messages = arena_alloc(&spoken->arena, spoken->n_heard, sizeof(*messages));
    const struct speaker_heard *heard = spoken->first;

    if (messages == NULL)
        return error_no_memory(err, spoken->n_heard * sizeof(*messages), "messages");
    for (size_t i = 0; i < spoken->n_heard; i++, heard = heard->next)
        messages[i] = (struct message){.role = ROLE_USER, .text = heard->text, .len = heard->len};
    spoken->turn.seen.messages = messages;
    spoken->turn.seen.n_messages = spoken->n_heard;
    spoken->turn.seen.labels = spoken->labels;
    spoken->turn.seen.n_labels = spoken->n_labels;
    return STATUS_OK;
}

static enum status speaker_begin(struct participant_clone *c, const struct act *observation,
                                 struct agent_turn **out, struct error *err)
{
    struct speaker *s = speaker_of(c->original);
    struct spoken *spoken = spoken_of(c);
    const struct clone_config config = {
        .system = s->config.system,
        .system_len = s->config.system != NULL ? strlen(s->config.system) : 0};

    spoken_forget_turn(spoken);
    *out = NULL;
    spoken->opens = observation == NULL && spoken->n_heard == 0;
    if (spoken->opens && s->config.opening == NULL)
        return error_set(err, STATUS_PRECONDITION, "%s has observed nothing yet", s->agent->name);
    if (spoken->n_heard == 0) /* padding */
        return STATUS_OK;
    if (spoken->clone == NULL && clone_open(&spoken->clone, s->agent, &config, err) != STATUS_OK)
        return err->status;
    arena_deinit(&spoken->arena);
    spoken->arena = spoken->ears; /* the messages live as long as the turn */
    arena_init(&spoken->ears, SPEAKER_TURN_BYTES);
    agent_turn_init(&spoken->turn, &spoken->arena, SPEAKER_REPLY_BYTES);
    spoken->turn.seen =
        (struct observation){.sampling = s->config.sampling, .turn = spoken->n_turns + 1};
    spoken->turn.seen.sampling.seed += spoken->place;
    if (spoken_take(spoken, err) != STATUS_OK ||
        agent_turn_observe(&spoken->turn, spoken->clone, err) != STATUS_OK)
        return err->status;
    spoken_forget_heard(spoken);
    *out = &spoken->turn;
    return STATUS_OK;
}

static enum status speaker_finish(struct participant_clone *c, struct act *out, struct error *err)
{
    struct speaker *s = speaker_of(c->original);
    struct spoken *spoken = spoken_of(c);
    const struct buf *text = &spoken->turn.reply.text;
    const char *id = s->agent->name;
    enum status rc = act_set(out, ACT_ID, value_text((struct text){id, strlen(id)}), err);

    if (agent_turn_is_open(&spoken->turn)) { /* else the observation was padding */
        agent_turn_keep(&spoken->turn);
        spoken->n_turns++;
        if (rc == STATUS_OK)
            rc = act_set(out, ACT_TEXT,
                         value_text((struct text){text->len != 0 ? text->data : "", text->len}),
                         err);
    } else if (spoken->opens && rc == STATUS_OK) {
        const char *opening = s->config.opening;

        rc = act_set(out, ACT_TEXT, value_text((struct text){opening, strlen(opening)}), err);
    }
    return rc == STATUS_OK ? act_set(out, ACT_EPISODE_DONE, value_bool(false), err) : rc;
}

static void speaker_compute(struct participant *p, struct row *const *rows, size_t n)
{
    agent_compute(speaker_of(p)->agent, rows, n);
}

static void speaker_batching(struct participant *p, struct batch_agent *out,
                             struct batcher_config *config)
{
    struct agent *a = speaker_of(p)->agent;
    const size_t max_waiting = config->max_waiting;

    agent_batch_adapter(a, out);
    a->type->batching(a, config);
    config->max_waiting = max_waiting;
}

static const struct participant_type speaker_participant = {
    .name = "speaker",
    .clone_size = sizeof(struct speaker_clone),
    .close = speaker_close,
    .share = speaker_share,
    .clone_init = speaker_clone_init,
    .clone_deinit = speaker_clone_deinit,
    .reset = speaker_reset,
    .observe = speaker_observe,
    .batching = speaker_batching,
    .begin = speaker_begin,
    .compute = speaker_compute,
    .finish = speaker_finish,
    .drop = speaker_drop,
    .is_ragged = true,
};

enum status speaker_open(struct participant **out, const struct speaker_config *config,
                         struct error *err)
{
    struct speaker *s = try_alloc(1, sizeof(*s));

    if (s == NULL)
        return error_no_memory(err, sizeof(*s), "an agent");
    participant_init(&s->base, &speaker_participant);
    s->config = *config;
    if (agent_open_type(&s->agent, config->type, &config->agent, err) != STATUS_OK) {
        speaker_close(&s->base);
        return err->status;
    }
    *out = &s->base;
    return STATUS_OK;
}
