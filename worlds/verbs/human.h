/* A person at the terminal as a participant of a world (ParlAI's local_human): what it observes is
 * printed on stdout, and a line of stdin is what it says. Several persons take turns at one
 * terminal. */
#ifndef WORLDS_VERBS_HUMAN_H
#define WORLDS_VERBS_HUMAN_H

#include <stdbool.h>

#include "base/status.h"

struct human_terminal;
struct participant;

/* What a person typed in place of a message. The act of the person has then failed. */
enum human_wish {
    HUMAN_NONE,
    HUMAN_BEGINS_ANEW, /* [DONE]: the world is to be reset */
    HUMAN_LEAVES,      /* [EXIT], Ctrl-D, or the end of stdin */
};

struct human_options {
    bool is_json;        /* what is heard is printed as one JSON object each */
    bool is_single_turn; /* each message ends its episode */
};

/* The terminal of all persons of a verb. While it is open, Ctrl-C is the prompt's. One thread. */
enum status human_terminal_open(struct human_terminal **out, const struct human_options *options,
                                struct error *err) MUST_CHECK;
void human_terminal_close(struct human_terminal *t); /* t may be NULL */
/* Returns the wish of the last act, and forgets it. t may be NULL. */
enum human_wish human_terminal_wish(struct human_terminal *t);

/* Opens a person, which borrows all. name: the id of what it says; NULL: localHuman, ParlAI's.
 * is_one_of_many: what it hears is printed with its name. */
enum status human_open(struct participant **out, struct human_terminal *t, const char *name,
                       bool is_one_of_many, struct error *err) MUST_CHECK;

#endif
