/* A language model as a participant of worlds. It observes as ParlAI's generative agents do (see
 * listener.h), scores the label and the candidates, generates a reply, and returns the metrics that
 * only a model has: loss, ppl, token_acc, token_em, and the lengths of context and label (clen,
 * ctrunc, ctrunclen, llen, ltrunc, ltrunclen).
 *
 * A turn's prompt is a chat in the model's own template, in which user and assistant alternate. If
 * is_plain is set, the prompt is one text without a template. Either loses its oldest tokens if it
 * is longer than text_truncate. Each turn starts from an empty context; the prefix cache finds what
 * turns have in common. Scores and replies do not depend on the batch. */
#ifndef WORLDS_PARTICIPANT_MODEL_H
#define WORLDS_PARTICIPANT_MODEL_H

#include "agents/agent.h"
#include "worlds/participant/listener.h"
#include "worlds/participant/participant.h"

struct model_participant_config {
    const struct agent_type *type; /* NULL: the kind that serves the file */
    struct agent_config agent;     /* its texts are borrowed as long as the participant lives */
    struct dialogue_listener_config
        listener;       /* model_open fills in the coder, lowers a truncation to 5/8 (text) and 1/8
                           (label) of the context, and sets one of 0 to that */
    const char *system; /* system prompt; NULL: the model's own */
    bool is_plain;      /* the prompt is one text without a template */
    bool no_score, no_reply;  /* labels are not scored; no reply is generated */
    struct sampling sampling; /* max_tokens is lowered to 1/8 of the context; 0: set to that */
    bool seed_by_place;  /* each clone samples by a seed of its own, so that one opening leads to
                            different conversations */
    const char *opening; /* reply of a clone that has observed nothing; NULL: such a turn fails */
    const char *id;      /* id of the replies; NULL: the agent's name */
};

/* Sets the defaults: the backend cpu, and greedy replies of at most 128 tokens. */
void model_config_init(struct model_participant_config *c);

/* Opens the model. In a world of several threads each thread but the first opens an agent of its
 * own, which shares the first one's weights. STATUS_INVALID for an agent that is no language model;
 * other errors are those of agent_open. */
enum status model_open(struct participant **out, const struct model_participant_config *config,
                       struct error *err) MUST_CHECK;
/* Returns the agent, for its statistics; borrowed. p was made by model_open. */
const struct agent *model_agent(const struct participant *p);

#endif
