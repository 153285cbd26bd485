/* A line from a person at a terminal, with editing and history (libedit), in UTF-8. */
#ifndef CLIENT_CLI_PROMPT_H
#define CLIENT_CLI_PROMPT_H

#include <stdbool.h>

#include "base/status.h"

struct prompt;

enum prompt_end {
    PROMPT_LINE,
    PROMPT_CLEARED, /* by Ctrl-C, what stood there is gone */
    PROMPT_NOTHING, /* Ctrl-C, and nothing stood there */
    PROMPT_QUIT,    /* Ctrl-D, or the terminal is gone */
};

/* Stdin is a terminal; interrupts are caught. One at a time. */
enum status prompt_open(struct prompt **out, struct error *err) MUST_CHECK;
void prompt_close(struct prompt *p);

/* *ret_line, for PROMPT_LINE, has no newline and is valid until the next call. */
enum prompt_end prompt_read(struct prompt *p, const char **ret_line);

#endif
