/* How families of models write calls of tools and reasoning ("thoughts") into a reply: one row of a
 * table each, found by what their chat templates say. A further family is a further row. */
#ifndef AGENTS_REPLY_REPLY_FORMAT_H
#define AGENTS_REPLY_REPLY_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"

enum call_shape {
    CALL_OBJECT,     /* {"name": …, "arguments": {…}} */
    CALL_LIST,       /* a list of such objects */
    CALL_NAMED,      /* the name, a mark, the arguments as JSON */
    CALL_PARAMETERS, /* <function=NAME><parameter=KEY>VALUE</parameter></function> */
    CALL_PAIRS,      /* NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value> */
    CALL_PYTHON,     /* [NAME(KEY='VALUE', …), …], or without the brackets */
    CALL_BRACES,     /* NAME{KEY:<|"|>VALUE<|"|>,…} */
};

/* A reply's calls are: open, then each of them (before, prefix, the call, after), then close. Texts
 * are "" where a family has none; white space may stand between them. */
struct call_format {
    const char *family;
    const char *probes[2]; /* texts that its templates have, both */
    const char *alone[2];  /* texts that only its templates have, either; NULL: none */
    enum call_shape shape;
    const char *open, *close;
    const char *before, *prefix, *after;
    const char *arguments; /* CALL_NAMED: the mark before the arguments; objects: their key */
    bool may_be_bare;      /* the whole reply may be a call, without open */
};

/* How a model reasons: open, the reasoning, close, and then its answer. */
struct thought_format {
    const char *open, *close;
    const char *probe;      /* a text that its templates have */
    const char *between[2]; /* texts around its messages, which are no part of any; may be NULL */
    bool has_headers;       /* messages have headers with channels and recipients (gpt-oss) */
    bool is_anywhere; /* open and between count anywhere; else open counts before all other text,
                         and anywhere else it is text */
    /* What is written where a constraint binds the answer, or may be written. */
    const char *begin; /* the open, and what follows it */
    const char *cut;   /* ends reasoning that has no more room: has the close */
    const char *after; /* between the model's own close and the answer */
    const char *alone; /* before an answer without reasoning */
};

/* A family of models. */
struct reply_family {
    struct call_format calls;
    struct thought_format thoughts; /* of those of its models that reason; open NULL: none does */
};

/* A control token of a delimiter. The letters of such a delimiter count only where the token
 * stands: spelled by other tokens they are text. */
struct reply_control {
    int32_t id;
    char text[48]; /* NUL-ended; not empty */
};

enum { REPLY_FORMAT_MAX_MARKS = 8, REPLY_FORMAT_MAX_CONTROLS = 32 };

/* A model's own. */
struct reply_format {
    const struct call_format *calls;       /* never NULL */
    bool takes_tools;                      /* the template shows the tools to the model */
    bool takes_names;                      /* and the names of messages */
    const struct thought_format *thoughts; /* NULL: it has none */
    bool begins_in_thought[N_THINKING];    /* the prompt then ends behind the open of a thought */
    bool marks_calls; /* its marks are ordinary text, and a forced call is to have them */
    struct reply_control controls[REPLY_FORMAT_MAX_CONTROLS]; /* [n_controls] */
    size_t n_controls;
};

/* text NULL: a model without a template. Leaves begins_in_thought and marks_calls false, and has no
 * control tokens. */
void reply_format_find(struct reply_format *out, const char *text, size_t len, bool takes_tools);
/* All texts of the format, which may have control tokens: of thoughts, or of calls. At most
 * REPLY_FORMAT_MAX_MARKS; returns how many. */
size_t reply_format_marks(const struct reply_format *f, bool of_calls, const char *out[]);
/* The control token that a delimiter begins with; NULL: it is ordinary text. */
const struct reply_control *reply_format_control(const struct reply_format *f, const char *mark);

/* The calls of the i-th family; NULL after the last that has a form of its own. */
const struct call_format *call_format_at(size_t i);

#endif
