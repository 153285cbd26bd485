/* A conversation at the keyboard or over a pipe: what chat.c and its commands share. */
#ifndef CLIENT_CLI_CHAT_H
#define CLIENT_CLI_CHAT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cli/connection.h"
#include "client/cli/sampling_options.h"
#include "client/lib/parley.h"

struct chat {
    struct connection_options connection;
    struct sampling_options sampling;
    const char *wanted_model;        /* NULL: the server's default */
    const char *wanted_conversation; /* NULL: a new one */
    const char *first_system;        /* NULL: the model's own */
    struct parley_channel *channel;
    char *system;          /* of conversations to come, NULL: the model's own; owned */
    char conversation[33]; /* "": the next turn opens one */
    char model[128];
    uint32_t n_turns; /* complete ones */
    bool is_mine;     /* opened here: nobody else knows it */
};

/* Opens a new conversation and leaves the present one; false, with an error said, if it cannot, and
 * the present one then goes on. */
bool chat_begin(struct chat *c);
/* Closes the conversation if nobody can want it any more. */
void chat_leave(struct chat *c);

enum chat_next { CHAT_GOES_ON, CHAT_QUITS };

/* A line that begins with '/'. */
enum chat_next chat_command(struct chat *c, const char *line);

#endif
