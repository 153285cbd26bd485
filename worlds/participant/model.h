/* A language model as a participant of worlds: it observes as ParlAI's generative agents do (see
 * listener.h), scores the label and the candidates, generates a reply, and returns the metrics that
 * only a model has: loss, ppl, token_acc, token_em, and the lengths of context and label (clen,
 * ctrunc, ctrunclen, llen, ltrunc, ltrunclen).
 *
 * A turn's prompt is a chat, user and assistant in turn, by the model's own template; or, if
 * is_plain, one text whose tokens are cut from the left. Of a chat that is longer than
 * text_truncate the oldest words are dropped. Each turn starts from an empty context; the prefix
 * cache finds what turns have in common. Scores and replies do not depend on the batch. */
#ifndef WORLDS_PARTICIPANT_MODEL_H
#define WORLDS_PARTICIPANT_MODEL_H

#include "agents/agent.h"
#include "worlds/participant/listener.h"
#include "worlds/participant/participant.h"

struct model_participant_config {
    const struct agent_type *type; /* NULL: the kind that reads the file */
    struct agent_config agent;     /* texts are borrowed as long as the participant lives */
    struct dialogue_listener_config
        listener;       /* its coder is filled in here; truncation of 0: by context */
    const char *system; /* system prompt; NULL: the model's own */
    bool is_plain;
    bool no_score, no_reply; /* of labels; text */
    struct sampling sampling;
    bool seed_by_place;  /* each clone samples by a seed of its own, so that one opening leads to
                            different conversations */
    const char *opening; /* reply of a clone without an observation; NULL: an error */
    const char *id;      /* NULL: the agent's name */
};

/* Greedy replies of at most 128 tokens. */
void model_config_init(struct model_participant_config *c);

/* Opens the model; each thread but the first of a world gets one of its own, with the same file.
 * STATUS_INVALID for an agent without tokens. */
enum status model_open(struct participant **out, const struct model_participant_config *config,
                       struct error *err) MUST_CHECK;
/* The agent, for its statistics. */
const struct agent *model_agent(const struct participant *p);

#endif
