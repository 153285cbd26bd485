/* A language model as a participant of worlds: it listens as ParlAI's generative agents do (see
 * listener.h), scores the label and the candidates of what it hears, writes a reply, and gives with
 * it the metrics that only a model has: loss, ppl, token_acc, token_em, and how long context and
 * label were (clen, ctrunc, ctrunclen, llen, ltrunc, ltrunclen).
 *
 * A conversation is asked for as a chat, user and assistant in turn, by the model's own template;
 * or, if is_plain, as one text whose tokens are cut from the left. Of a chat that is longer than
 * text_truncate the oldest words go. Every turn is asked from its beginning, so nothing of a turn
 * is left in the model but pages that whoever begins alike finds. Scores and replies are the same
 * whatever the batch. */
#ifndef WORLDS_MODEL_H
#define WORLDS_MODEL_H

#include "agents/agent.h"
#include "worlds/listener.h"
#include "worlds/participant.h"

struct model_config {
    const struct agent_type *type;   /* NULL: the kind that serves the file */
    struct agent_config agent;       /* texts are borrowed as long as the participant lives */
    struct listener_config listener; /* its coder is filled in here; truncation of 0: by context */
    const char *system;              /* system prompt; NULL: the model's own */
    bool is_plain;
    bool no_score, no_reply; /* of labels; text */
    struct sampling sampling;
    bool seed_by_place;  /* clones of one opening go on differently: each draws by a seed of its own
                          */
    const char *opening; /* what a clone says that has heard nothing; NULL: that is an error */
    const char *id;      /* NULL: the agent's name */
};

/* Greedy replies of at most 128 tokens. */
void model_config_init(struct model_config *c);

/* Opens the model; each thread but the first of a world gets one of its own, with the same file.
 * STATUS_INVALID for a kind that has no tokens. */
enum status model_open(struct participant **out, const struct model_config *config,
                       struct error *err) MUST_CHECK;
/* The agent, for its figures. */
const struct agent *model_agent(const struct participant *p);

#endif
