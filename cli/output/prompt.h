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
    PROMPT_CLEARED,  /* a Ctrl-C discarded the text */
    PROMPT_NOTHING,  /* there was a Ctrl-C, and no text */
    PROMPT_TOO_LONG, /* the text was too long, and was discarded */
    PROMPT_QUIT,     /* there was a Ctrl-D, or the terminal was closed */
};

/* Opens the only prompt, on the main thread. Stdin must be a terminal, and interrupt_catch must
 * have been called. A signal that ends or stops the program leaves the terminal as prompt_open
 * found it, whichever thread gets the signal. */
enum status prompt_open(struct line_prompt **out, struct error *err) MUST_CHECK;
void prompt_close(struct line_prompt *p);

/* Waits for the person. After PROMPT_TEXT *ret_text is the text, without a newline at its end; the
 * text is valid until the next call. */
enum prompt_end prompt_read(struct line_prompt *p, const char **ret_text);

#endif
