/* Parts that several files of conversions need. */
#ifndef SERVER_API_PARLEY_WIRE_PARTS_H
#define SERVER_API_PARLEY_WIRE_PARTS_H

#include "parley/v1/conversations.pb-c.h"

#include "base/arena.h"
#include "server/conversation/completed_turn.h"

struct piece_token;
struct turn_parts;

/* Makes the message of a turn of a transcript. parts is how the conversation's model divides its
 * replies. EXHAUSTED without memory; no error is filled in. */
enum status wire_transcript_turn(Parley__V1__TranscriptTurn **out, const struct completed_turn *r,
                                 const struct turn_parts *parts, struct arena *arena) MUST_CHECK;

/* Makes the wire's value of how a reply ended. */
Parley__V1__FinishReason wire_finish(enum finish finish);

/* Makes the message of a token's log-probability and of the likeliest tokens. EXHAUSTED. */
enum status wire_logprob(Parley__V1__TokenLogprob **out, const struct piece_token *token,
                         struct arena *arena) MUST_CHECK;

/* Copies a text into the arena, with a NUL behind it and without the NUL bytes in it, which a
 * string of C cannot hold. Returns NULL without memory. */
char *wire_copy(const char *text, size_t len, struct arena *arena) MUST_CHECK;

/* What people read of a text that a model was told, and that has a NUL behind it: all of it, with
 * U+FFFD for each U+0000. Returns NULL without memory, and the text itself where it has none. */
char *wire_shown(struct text text, struct arena *arena) MUST_CHECK;

#endif
