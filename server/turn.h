/* A turn on its way. It lives from its acceptance until its end; what comes of it is a record, in
 * which its readers go on. Loop. */
#ifndef SERVER_TURN_H
#define SERVER_TURN_H

#include "agents/agent.h"
#include "batching/batcher.h"
#include "server/reader.h"
#include "server/record.h"

struct conversation;

enum turn_state {
    TURN_QUEUED, /* behind another one */
    TURN_ASKED,  /* observed; the batcher has its ask */
    TURN_ENDING, /* cancelled; the batcher will say so */
    TURN_GONE,
};

struct turn {
    struct link link; /* of the conversation's turns */
    struct conversation *conversation;
    enum turn_state state;
    uint32_t number;
    bool is_numbered;  /* by the caller */
    enum finish why;   /* TURN_ENDING: FINISH_CANCELLED or FINISH_DEADLINE */
    struct body *body; /* owned until the record takes it */
    struct list readers;
    uint64_t accepted_us, input_us;         /* input: to observe */
    uint64_t first_token_us, last_token_us; /* 0: none yet */
    /* How much of the reply may be read: a step that runs may not have ended what lies beyond. */
    size_t told_len, told_tokens;
    uint32_t told_prompt, told_cached, told_prefilled;
    uint64_t first_step_us;
    uint32_t n_steps; /* of asks before this one: a turn is asked again when its deadline grew */
    struct arena arena;
    struct agent_turn agent;
    struct ask ask;
};

/* Makes the turn of r, with this number, at the end of the conversation's queue, read by reader.
 * If it is the first it is observed and asked now. On failure nothing has changed. */
enum status turn_open(struct conversation *c, const struct turn_request *r, uint32_t number,
                      struct reader *reader, struct error *err) MUST_CHECK;

/* One more who reads it, from its start. */
void turn_attach(struct turn *t, struct reader *r);
void turn_attach_record(struct record *record, struct reader *r);

/* Ends it: a queued one is gone at once, its readers told with CANCELLED or DEADLINE; one that was
 * asked ends after the step that runs. Turns behind one that never was move up. */
void turn_end(struct turn *t, enum finish why);

#endif
