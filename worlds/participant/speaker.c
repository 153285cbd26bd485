#include "worlds/participant/speaker.h"

#include <stdlib.h>
#include <string.h>

#include "agents/turn.h"
#include "base/alloc.h"
#include "worlds/message/act.h"

enum { SPEAKER_REPLY_BYTES = 16 << 20, SPEAKER_TURN_BYTES = 256 << 20 };

struct speaker {
    struct participant base;
    struct agent *agent;
    struct speaker_config config;
};

/* What a clone has of its conversation. */
struct spoken {
    struct clone *clone;    /* NULL until it is asked */
    struct arena arena;     /* the turn's */
    struct agent_turn turn; /* the reply stays until the next one */
    uint32_t n_turns;
    uint32_t place;
    bool is_over; /* the episode: the next observation begins another */
};

struct speaker_clone {
    struct participant_clone base;
    struct spoken *spoken;
};

static struct speaker *speaker_of(struct participant *p)
{
    return container_of(p, struct speaker, base);
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
    arena_init(&spoken->arena, SPEAKER_TURN_BYTES);
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

static void speaker_clone_deinit(struct participant_clone *c)
{
    struct spoken *spoken = spoken_of(c);

    if (spoken == NULL)
        return;
    speaker_drop(c);
    spoken_forget_turn(spoken);
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
    spoken_begin_again(spoken_of(c));
}

/* --- a turn --- */

static enum status spoken_take(struct spoken *spoken, const struct act *heard, struct error *err)
{
    struct message *message = arena_alloc(&spoken->arena, 1, sizeof(*message));
    const struct text text = act_text(heard);
    char *copy = arena_strndup(&spoken->arena, text.text != NULL ? text.text : "", text.len);

    if (message == NULL || copy == NULL)
        return error_no_memory(err, text.len, "a message");
    *message = (struct message){.role = ROLE_USER, .text = copy, .len = text.len};
    spoken->turn.seen.messages = message;
    spoken->turn.seen.n_messages = 1;
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
    if (observation == NULL)
        return error_set(err, STATUS_PRECONDITION, "%s has observed nothing yet", s->agent->name);
    if (act_is_padding(observation))
        return STATUS_OK;
    if (spoken->is_over)
        spoken_begin_again(spoken);
    if (spoken->clone == NULL && clone_open(&spoken->clone, s->agent, &config, err) != STATUS_OK)
        return err->status;
    agent_turn_init(&spoken->turn, &spoken->arena, SPEAKER_REPLY_BYTES);
    spoken->turn.seen =
        (struct observation){.sampling = s->config.sampling, .turn = spoken->n_turns + 1};
    spoken->turn.seen.sampling.seed += spoken->place;
    if (spoken_take(spoken, observation, err) != STATUS_OK ||
        agent_turn_observe(&spoken->turn, spoken->clone, err) != STATUS_OK)
        return err->status;
    spoken->is_over = act_is(observation, ACT_EPISODE_DONE);
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

    if (agent_turn_is_open(&spoken->turn)) { /* else it was padding */
        agent_turn_keep(&spoken->turn);
        spoken->n_turns++;
        if (rc == STATUS_OK)
            rc = act_set(out, ACT_TEXT,
                         value_text((struct text){text->len != 0 ? text->data : "", text->len}),
                         err);
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
