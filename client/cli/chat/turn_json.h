/* A turn that has ended as one JSON object, for programs. */
#ifndef CLIENT_CLI_CHAT_TURN_JSON_H
#define CLIENT_CLI_CHAT_TURN_JSON_H

#include <jansson.h>

#include "client/cli/chat/turn.h"

/* The turn was run with keeps_tokens, and is_done. The caller owns the object. */
json_t *turn_json(const struct cli_turn *x, const char *model, const char *version);

#endif
