/* The agent attached:NAME whose worker takes whole acts: the Python package's agents do. All clones
 * of a thread share one conversation with the worker, and a batch of the world is one turn of it.
 *
 * The conversation's system prompt is {"parley.world": {"system": TEXT or null, "temperature": X,
 * "max_tokens": N}}. A message has JSON lines. The first line is an object that says what to do:
 *
 *   {"do": "begin"}                  the first turn. The reply is {"parley.world": 1, "rows": N},
 *                                    where N is the most rows of a batch, 0: any number. A worker
 *                                    that answers anything else gets texts (attached_agent.h)
 *   {"do": "act", "closed": [ID…]}   the clones ID are of no use any more. Each further line is a
 *                                    row. The reply has one act for each row, on a line each
 *   {"do": "save", "path": TEXT}     the agent is to save what it has learned; the reply is {}
 *   {"do": "load", "path": TEXT}     the agent is to load it; the reply is {}
 *
 * Any client may write this: a worker must refuse save, load and acts with labels, unless who runs
 * it has allowed that.
 *
 * A row is {"clone": ID, "turn": N, "seed": N, "heard": [ACT…]}: what the clone has heard since its
 * last reply. With "fresh": true the clone is new, or its episode is; "past" then has the turns of
 * its episode that it has had already, [[ACT…], REPLY] each. */
#ifndef WORLDS_VERBS_ATTACHED_ACTS_H
#define WORLDS_VERBS_ATTACHED_ACTS_H

#include <stdbool.h>

#include "base/status.h"
#include "client/cli/connection.h"
#include "worlds/message/act.h"

struct parley_channel;
struct participant;

/* The participant borrows the texts as long as it lives. */
struct attached_agent_config {
    const char *name;    /* of the model */
    const char *system;  /* NULL: the model's own */
    const char *opening; /* reply of a clone that observed nothing; NULL: an error */
    bool hears_names;    /* who gets texts alone gets the speaker's name before each */
    float temperature;   /* 0: greedy */
    uint32_t max_tokens; /* of a reply; 0: the model's */
    uint64_t seed;       /* of the run; each clone's own seed follows from it */
};

/* Takes the channel if *ret_takes_acts; else the channel is as it was, and *out is not set. */
enum status attached_acts_open(struct participant **out, bool *ret_takes_acts,
                               struct parley_channel *channel,
                               const struct connection_options *connection,
                               const struct attached_agent_config *config,
                               struct error *err) MUST_CHECK;
/* Has the agent save what it has learned, or load it. p was made by attached_acts_open, and no
 * batch is under way. */
enum status attached_acts_save(struct participant *p, const char *path,
                               struct error *err) MUST_CHECK;
enum status attached_acts_load(struct participant *p, const char *path,
                               struct error *err) MUST_CHECK;
/* Reads an act that a worker's code has written as JSON into *out, which has an arena. id is the
 * act's if it has none. INVALID: it is no JSON, or a standard field has a wrong type. */
enum status attached_act_read(struct act *out, struct text json, const char *id,
                              struct error *err) MUST_CHECK;
/* Returns whether attached_acts_open made p. */
bool attached_acts_is(const struct participant *p);

#endif
