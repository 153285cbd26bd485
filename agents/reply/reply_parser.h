/* Divides the text of a reply, as it comes, into text, thoughts and calls of tools. A call is one
 * of the request's tools with arguments that are a whole JSON object; anything else is text, and so
 * are delimiters where the family's format does not allow them. What may become a call or a thought
 * is held back until that is known. The parts do not depend on how the text was cut. One thread at
 * a time. */
#ifndef AGENTS_REPLY_REPLY_PARSER_H
#define AGENTS_REPLY_REPLY_PARSER_H

#include <stdint.h>

#include "agents/message.h"
#include "agents/reply/reply_format.h"
#include "base/status.h"

struct reply_parser;

enum {
    REPLY_MAX_HEAD_BYTES = 8 << 10,    /* of a call before its arguments; a longer one is text */
    REPLY_MAX_MARKED_BYTES = 64 << 10, /* of a whole call whose arguments are not JSON, likewise */
};

enum reply_part_kind {
    REPLY_TEXT,
    REPLY_THOUGHT,
    REPLY_CALL,      /* a call begins; the text is its tool's name */
    REPLY_ARGUMENTS, /* more of the call's arguments, JSON as the model wrote it */
};

struct reply_part {
    enum reply_part_kind kind;
    uint32_t call; /* which one, from 0 */
    const char *text;
    size_t len;
};

/* Where the tokens of a reply stand in its text. */
struct reply_places {
    /* Whether the text of this token, [len] bytes, begins at this byte of the reply. The text up to
     * there and the text of the token were added. */
    bool (*has)(const void *arg, int32_t id, size_t at, size_t len);
    const void *arg; /* borrowed as long as the parser is there */
};

struct reply_parser_config {
    const struct reply_format *format; /* borrowed; NULL: all is text */
    struct reply_places
        places;         /* has NULL: tokens are not known, delimiters count by their letters */
    struct text tools;  /* an array in OpenAI's form; len 0: no calls are looked for */
    bool is_forced;     /* the reply is a call, perhaps without its family's marks */
    bool is_json;       /* behind its thoughts the reply is JSON by a constraint: has no calls */
    bool streams_calls; /* a forced call's arguments are given as they come: only the reply's end
                           can cut them, see reply_parser_is_in_call */
    bool is_single;     /* calls after the first are left out */
    enum thinking thinking; /* what its prompt asked for */
    bool keeps_thoughts;    /* as text, with their marks */
};

/* Borrows the format and the places. Fails without memory alone. */
enum status reply_parser_open(struct reply_parser **out, const struct reply_parser_config *config,
                              struct error *err) MUST_CHECK;
void reply_parser_close(struct reply_parser *p); /* NULL is fine */

/* Takes more text. What it decides is read by reply_parser_next, before the next call of these. */
enum status reply_parser_add(struct reply_parser *p, const char *text, size_t len,
                             struct error *err) MUST_CHECK;
/* The reply has ended: what is held back is decided. */
enum status reply_parser_end(struct reply_parser *p, struct error *err) MUST_CHECK;

/* False: no further part. */
bool reply_parser_next(struct reply_parser *p, struct reply_part *out);
/* The same, and the part comes again. */
bool reply_parser_peek(const struct reply_parser *p, struct reply_part *out);
uint32_t reply_parser_n_calls(const struct reply_parser *p);
/* A call's beginning has been given, and its end has not come. */
bool reply_parser_is_in_call(const struct reply_parser *p);

/* Bytes of the reply, [from, to). */
struct reply_range {
    size_t from, to;
};

/* Where the thoughts stand in all the text that was added, in order: [*ret_n], valid until the next
 * call that takes text. */
const struct reply_range *reply_parser_thoughts(const struct reply_parser *p, size_t *ret_n);

#endif
