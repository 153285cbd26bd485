/* A reply that is complete, divided into text, thoughts and calls. */
#ifndef AGENTS_REPLY_WHOLE_REPLY_H
#define AGENTS_REPLY_WHOLE_REPLY_H

#include "agents/message_extras.h"
#include "agents/reply/reply_parser.h"
#include "base/buf.h"

/* A run of one kind: the next len bytes of the text or the thoughts, or the next call. */
struct whole_run {
    enum reply_part_kind kind; /* not REPLY_ARGUMENTS */
    size_t len;
};

struct whole_reply {
    struct buf text, thoughts;
    struct buf runs;   /* struct whole_run, in the order in which the model wrote them */
    struct buf calls;  /* names and arguments, one after the other */
    struct buf bounds; /* size_t: the end of each in calls */
    uint32_t n_calls;
};

/* On failure, which is that of memory, out is as after whole_reply_deinit. */
enum status whole_reply_read(struct whole_reply *out, const struct reply_parser_config *config,
                             const char *text, size_t len, struct error *err) MUST_CHECK;
void whole_reply_deinit(struct whole_reply *r);

/* The texts are r's; arguments is "{}" if the model wrote none. The id is left empty. */
void whole_reply_call(const struct whole_reply *r, uint32_t i, struct tool_call *out);

/* Appends the extras of an assistant's message with r's calls, and its thoughts if so wished. */
enum status whole_reply_extras(const struct whole_reply *r, uint64_t seed, bool with_thoughts,
                               struct buf *out, struct error *err) MUST_CHECK;

#endif
