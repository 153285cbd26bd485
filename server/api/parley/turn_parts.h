/* A turn's reply as one call reads it. If tools were offered, or reasoning was asked for, the
 * reply's text is divided into text, reasoning and calls of tools. All functions are called on the
 * loop. */
#ifndef SERVER_API_PARLEY_TURN_PARTS_H
#define SERVER_API_PARLEY_TURN_PARTS_H

#include "parley/v1/conversations.pb-c.h"

#include "agents/reply/reply_parser.h"
#include "base/arena.h"
#include "server/conversation/reader.h"

struct turn_parts {
    struct reply_format format; /* the model's; a copy, since the model may be unloaded */
    bool has_format;
    bool wants_thoughts;
    bool is_begun;               /* it is known whether a parser is needed */
    uint64_t seed;               /* of the ids of calls */
    struct reply_parser *parser; /* NULL: the text is text alone */
    struct turn_event end;       /* waits for the parts that it has released */
    bool has_end;
    struct error err;
};

/* format is NULL for a model that has no format. */
void turn_parts_init(struct turn_parts *p, const struct reply_format *format, bool wants_thoughts);
void turn_parts_close(struct turn_parts *p);

/* The same as reader_next and reader_has_more. If there is a parser, turn_parts_fill then reads the
 * piece's text. A piece without tokens may come before the end: text that was held back. */
bool turn_parts_next(struct turn_parts *p, struct turn_reader *r, struct turn_event *out);
bool turn_parts_has_more(const struct turn_parts *p, const struct turn_reader *r);

/* Puts the parts that were read into the piece. EXHAUSTED. */
enum status turn_parts_fill(Parley__V1__TurnPiece *out, struct turn_parts *p,
                            struct arena *arena) MUST_CHECK;
/* Returns how many calls of tools the reply has so far. p may be NULL. */
uint32_t turn_parts_n_calls(const struct turn_parts *p);

/* Returns how many tokens of a reply are reasoning, whether or not the reply is divided. */
uint32_t turn_parts_n_thought(const struct turn_parts *p, const struct completed_turn *r);

/* Puts the parts of a whole reply into out, which has the reply's text already. EXHAUSTED. */
enum status turn_parts_message(Parley__V1__Message *out, const struct turn_parts *p,
                               const struct completed_turn *r, struct arena *arena) MUST_CHECK;

#endif
