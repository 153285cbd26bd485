/* The commands of a chat: lines that begin with '/'. */
#ifndef CLIENT_CLI_CHAT_COMMANDS_H
#define CLIENT_CLI_CHAT_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/output/prompt.h"

struct chat;

enum chat_next {
    CHAT_GOES_ON,
    CHAT_SAYS, /* the chat's text "again", as if the person had typed it */
    CHAT_QUITS,
};

/* Whether text is a command: one line that begins with '/', or several for a command that takes
 * a text. */
bool chat_is_command(const char *text);
enum chat_next chat_command(struct chat *c, const char *text);

/* A prompt_complete_fn: the names of commands, and what the argument of some may be. arg: the
 * chat. */
size_t chat_complete(void *arg, const char *text, prompt_add_fn add, void *of);

#endif
