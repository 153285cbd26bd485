/* Reads a person's input at a terminal, with editing and history (libedit), in UTF-8: one line, or
 * several lines: pasted, joined by Alt-Enter, or continued by a backslash at a line's end. */
#ifndef CLI_OUTPUT_PROMPT_H
#define CLI_OUTPUT_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct line_prompt;

enum { PROMPT_MAX_BYTES = 1 << 20 };

enum prompt_end {
    PROMPT_TEXT,
    PROMPT_CLEARED,  /* a Ctrl-C discarded the text */
    PROMPT_NOTHING,  /* there was a Ctrl-C, and no text */
    PROMPT_TOO_LONG, /* the text was too long, and was discarded */
    PROMPT_QUIT,     /* there was a Ctrl-D, or the terminal was closed */
    PROMPT_OVER,     /* the watch's act has ended it */
};

/* What happens while the prompt waits for a person. All functions are called in prompt_read. */
struct prompt_watch {
    int fd; /* when it is readable, act is called */
    /* May print on stdout and stderr: what was typed is taken off the terminal, and shown again
     * below. False: prompt_read returns PROMPT_OVER. */
    bool (*act)(void *arg);
    /* A text begins, or there is none any more; one that begins with `command` counts as none. */
    void (*typing)(void *arg, bool is_text);
    char command;
    const char *(*label)(void *arg); /* what stands before the text; valid until the next */
    void *arg;
};

/* How a text may go on that a person begins, and completes by Tab. Adds whole words, also such as
 * do not fit; returns at which byte of text they begin. PROMPT_NO_COMPLETION: a Tab is only a Tab.
 */
#define PROMPT_NO_COMPLETION SIZE_MAX
typedef void (*prompt_add_fn)(void *of, const char *word);
typedef size_t (*prompt_complete_fn)(void *arg, const char *text, prompt_add_fn add, void *of);

/* Opens the only prompt, on the main thread. Stdin must be a terminal, and interrupt_catch must
 * have been called. A signal that ends or stops the program leaves the terminal as prompt_open
 * found it, whichever thread gets the signal. */
enum status prompt_open(struct line_prompt **out, struct error *err) MUST_CHECK;
void prompt_close(struct line_prompt *p);
/* Copies the watch, which may be NULL. */
void prompt_set_watch(struct line_prompt *p, const struct prompt_watch *watch);
/* complete is called with arg in prompt_read, when Tab is pressed in the first line of a text. */
void prompt_set_completion(struct line_prompt *p, prompt_complete_fn complete, void *arg);

/* Waits for the person. After PROMPT_TEXT *ret_text is the text, without a newline at its end; the
 * text is valid until the next call. */
enum prompt_end prompt_read(struct line_prompt *p, const char **ret_text);

#endif
