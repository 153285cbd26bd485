/* Reads one call of a tool in the text of a reply, up to its arguments. */
#ifndef AGENTS_REPLY_CALL_TEXT_H
#define AGENTS_REPLY_CALL_TEXT_H

#include <jansson.h>

#include "agents/reply/reply_format.h"
#include "base/buf.h"
#include "base/json_place.h"

enum call_read {
    CALL_UNDECIDED, /* more text may make it a call */
    CALL_IS_NONE,
    CALL_BEGINS,   /* its arguments, an object, begin at end */
    CALL_IS_WHOLE, /* it ends at end, and arguments has all of them */
};

struct call_text {
    const char *name; /* [name_len], in the text; one of the tools */
    size_t name_len, end;
};

/* text [len]: what follows the calls' open. tools: in OpenAI's form, an array. Appends to arguments
 * where it is CALL_IS_WHOLE; *ret_is_short: there was no memory for them. */
enum call_read call_text_read(struct call_text *out, const struct call_format *f, const char *text,
                              size_t len, const json_t *tools, struct buf *arguments,
                              bool *ret_is_short) MUST_CHECK;

/* The object of a tool's name, with its parameters; NULL: there is none. */
const json_t *call_text_tool(const json_t *tools, const char *name, size_t len);

bool call_text_is_space(char c);

#endif
