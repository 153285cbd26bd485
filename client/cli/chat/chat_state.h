/* The conversation of a chat: begin, leave, resume. */
#ifndef CLIENT_CLI_CHAT_CHAT_STATE_H
#define CLIENT_CLI_CHAT_CHAT_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "client/cli/chat/reply_view.h"
#include "client/cli/connection.h"
#include "client/cli/options/sampling.h"
#include "client/lib/parley.h"

struct chat {
    struct connection_options connection;
    struct sampling_options sampling;
    const char *wanted_model;        /* NULL: the server's default */
    const char *wanted_conversation; /* NULL: a new one */
    const char *first_system;        /* NULL: the model's own */
    const char *room;                /* NULL: a conversation with a model */
    const char *person;              /* the name in the room; NULL: made up */
    struct parley_channel *channel;
    char *system;           /* of the next conversations; NULL: the model's own; owned */
    char *chosen_model;     /* by /model; NULL: wanted_model; owned */
    struct arena settings;  /* the texts of /set */
    char *again;            /* after CHAT_SAYS: what the person says next; owned */
    struct reply_view view; /* of the reply that is shown */
    char conversation[33];  /* "": the next turn opens one */
    char model[128], version[65];
    uint32_t n_turns; /* complete ones */
    bool is_mine;     /* opened by this chat: no other client knows its id */
    bool is_lost;     /* the link, during a turn */
    bool is_in_doubt; /* the server went away during a turn: n_turns is to be asked again */
};

/* Opens a new conversation and leaves the present one. On failure prints an error, returns false
 * and keeps the present one. */
bool chat_begin(struct chat *c);
/* Goes on with a conversation, by its id, name or the beginning of its id, in place of the present
 * one, which is closed only if nothing was said in it. At a terminal the last turns are shown.
 * False, with an error printed, on failure: the present one is kept. */
bool chat_go_to(struct chat *c, const char *conversation);
/* After a turn whose end is unknown: cancels it, and gets the number of complete turns from the
 * server. */
void chat_count_turns(struct chat *c);
/* Leaves the conversation, and closes it if it cannot be resumed. */
void chat_leave(struct chat *c);

#endif
