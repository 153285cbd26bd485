/* What the simple agents have in common: the structs of their originals and clones, and functions
 * that make their replies. For this folder only. */
#ifndef WORLDS_BASELINES_REPLY_H
#define WORLDS_BASELINES_REPLY_H

#include "base/list.h"
#include "worlds/baselines/config.h"
#include "worlds/message/act.h"
#include "worlds/participant/participant.h"

struct simple {
    struct participant base;
    struct simple_config config; /* use the two texts below, not those in config */
    char *cant_answer_message,
        *fixed_response;                   /* copies of the config's texts, or their defaults */
    void *prepared;                        /* data of the kind; NULL: none */
    void (*free_prepared)(void *prepared); /* set with prepared */
};

struct simple_clone {
    struct participant_clone base;
    const struct act *heard; /* the last observation, borrowed; NULL: none yet */
    struct participant_slot place;
    uint32_t n_drawn; /* how many random numbers were drawn */
    void *context;    /* data of the kind; NULL: none */
};

/* A kind of simple agent: prepares its original, then answers observations. */
struct simple_type {
    struct participant_type base;
    bool needs_dictionary;
    enum status (*prepare)(struct simple *s, struct error *err); /* sets prepared; may be NULL */
};

extern const struct simple_type unigram_agent, ir_baseline_agent;

static inline const struct simple *simple_of(const struct participant_clone *c)
{
    return container_of(c->original, const struct simple, base);
}
static inline struct simple_clone *simple_clone_of(struct participant_clone *c)
{
    return container_of(c, struct simple_clone, base);
}

/* Draws a number, uniform in [0, 1). */
double simple_draw(struct simple_clone *c);

/* The table entries close, clone_init, observe and reset that kinds have in common. */
void simple_close(struct participant *p);
enum status simple_clone_init(struct participant_clone *c, const struct participant_slot *place,
                              struct error *err);
enum status simple_observe(struct participant_clone *c, const struct act *act,
                           const struct act **ret_observation, struct error *err);
void simple_reset(struct participant_clone *c);

/* Makes the act {id}, with room for three more fields. id is borrowed. EXHAUSTED. */
enum status reply_start(struct act *out, const char *id, struct error *err);
/* Makes the act {id, text}, as reply_start. text is borrowed. */
enum status reply_say(struct act *out, const char *id, struct text text, struct error *err);

#endif
