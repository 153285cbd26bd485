/* Reads a person's input at a terminal, with editing and history (libedit), in UTF-8: one line, or
 * several lines: pasted, joined by Alt-Enter, or continued by a backslash at a line's end. */
#ifndef CLI_OUTPUT_PROMPT_H
#define CLI_OUTPUT_PROMPT_H

#include <stdbool.h>

#include "base/status.h"

struct line_prompt;

enum { PROMPT_MAX_BYTES = 1 << 20 };

enum prompt_end {
    PROMPT_TEXT,
    PROMPT_CLEARED,  /* by Ctrl-C: the text was discarded */
    PROMPT_NOTHING,  /* Ctrl-C on an empty prompt */
    PROMPT_TOO_LONG, /* the text was discarded */
    PROMPT_QUIT,     /* Ctrl-D, or the terminal was closed */
};

/* On the main thread; one at a time. Stdin is a terminal; interrupts are caught. A signal that ends
 * or stops the program leaves the terminal as it was found, whichever thread it comes to. */
enum status prompt_open(struct line_prompt **out, struct error *err) MUST_CHECK;
void prompt_close(struct line_prompt *p);

/* *ret_text, for PROMPT_TEXT, does not end with a newline and is valid until the next call. */
enum prompt_end prompt_read(struct line_prompt *p, const char **ret_text);

#endif
