/* The part of an id of OpenAI's API that names a turn: of a response's, behind "resp_", and of an
 * item's. It is 32 hexadecimal digits of the conversation and 8 of the turn's number, whose highest
 * bit says that the request named the conversation. A generation above the first follows as "g" and
 * hexadecimal digits. So a place is never given to a second turn, whatever is rewound. */
#ifndef SERVER_API_OPENAI_TURN_PLACE_H
#define SERVER_API_OPENAI_TURN_PLACE_H

#include <stdbool.h>

#include "server/conversation/conversation.h"

enum { TURN_PLACE_CHARS = CONVERSATION_ID_CHARS + 8 + 9 };

struct turn_place {
    struct turn_origin origin;
    uint32_t turn;
    bool is_of_named; /* the request named the conversation: else that is the response's own */
};

void turn_place_format(const struct turn_place *p, char out[TURN_PLACE_CHARS]);
/* Reads a place at the beginning of text, as turn_place_format spells it. Returns what follows it;
 * NULL: text begins with no place. */
const char *turn_place_read(struct turn_place *out, const char *text);

/* Returns the completed turn of c, or of an ancestor that c shares it with, that has the place;
 * NULL: c has no such turn. */
struct completed_turn *turn_place_find(const struct turn_place *p, const struct conversation *c);

#endif
