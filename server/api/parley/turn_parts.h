/* A turn's reply as it is read by one call: where tools were offered, or reasoning is asked for,
 * its text is divided into text, reasoning and calls of tools. Loop. */
#ifndef SERVER_API_PARLEY_TURN_PARTS_H
#define SERVER_API_PARLEY_TURN_PARTS_H

#include "parley/v1/conversations.pb-c.h"

#include "agents/reply/reply_parser.h"
#include "base/arena.h"
#include "server/conversation/reader.h"

struct turn_parts {
    struct reply_format format; /* of the model; a copy, since models come and go */
    bool has_format;
    bool wants_thoughts;
    bool is_begun;               /* it is known whether a parser is needed */
    uint64_t seed;               /* of the ids of calls */
    struct reply_parser *parser; /* NULL: the text is text alone */
    struct turn_event end;       /* waits for the parts that it has released */
    bool has_end;
    struct error err;
};

/* format NULL: the model has none. */
void turn_parts_init(struct turn_parts *p, const struct reply_format *format, bool wants_thoughts);
void turn_parts_close(struct turn_parts *p);

/* As reader_next and reader_has_more. A piece's text is then read by turn_parts_fill, if there is a
 * parser; before the end may come a piece without tokens, of what was held back. */
bool turn_parts_next(struct turn_parts *p, struct turn_reader *r, struct turn_event *out);
bool turn_parts_has_more(const struct turn_parts *p, const struct turn_reader *r);

/* Puts the parts that were read into the piece. EXHAUSTED without memory. */
enum status turn_parts_fill(Parley__V1__TurnPiece *out, struct turn_parts *p,
                            struct arena *arena) MUST_CHECK;
/* Calls so far; p may be NULL. */
uint32_t turn_parts_n_calls(const struct turn_parts *p);

/* Tokens of thoughts in a reply, whether or not they come apart. */
uint32_t turn_parts_n_thought(const struct turn_parts *p, const struct completed_turn *r);

/* The same of a whole reply, whose text is out's already. */
enum status turn_parts_message(Parley__V1__Message *out, const struct turn_parts *p,
                               const struct completed_turn *r, struct arena *arena) MUST_CHECK;

#endif
