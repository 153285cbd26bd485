/* A file that /save has written as JSON lines, as a conversation again. */
#ifndef CLIENT_CLI_CHAT_SAVED_H
#define CLIENT_CLI_CHAT_SAVED_H

#include "base/status.h"
#include "client/lib/parley.h"

/* Opens a conversation with the model (NULL: the server's default) that has the file's system
 * prompt and turns. On failure there is none. */
enum status saved_open(struct parley_opened *out, struct parley_channel *channel, const char *model,
                       const char *path, struct error *err) MUST_CHECK;

#endif
