/* What the files that convert share. */
#ifndef SERVER_API_PARLEY_WIRE_PARTS_H
#define SERVER_API_PARLEY_WIRE_PARTS_H

#include "parley/v1/conversations.pb-c.h"

#include "base/arena.h"
#include "server/conversation/completed_turn.h"

struct turn_parts;

/* parts: of the conversation's model. STATUS_EXHAUSTED without memory; fills no error. */
enum status wire_transcript_turn(Parley__V1__TranscriptTurn **out, const struct completed_turn *r,
                                 const struct turn_parts *parts, struct arena *arena) MUST_CHECK;

/* A copy, ended by NUL, without the NUL bytes that such a string cannot hold. NULL without memory.
 */
char *wire_copy(const char *text, size_t len, struct arena *arena) MUST_CHECK;

#endif
