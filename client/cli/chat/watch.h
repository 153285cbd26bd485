/* Prints the events of conversations as they come. */
#ifndef CLIENT_CLI_CHAT_WATCH_H
#define CLIENT_CLI_CHAT_WATCH_H

#include <stdbool.h>

#include "client/lib/parley.h"

/* Prints an event a line until the server ends the stream, or stdout is closed: then PARLEY_OK. The
 * conversations that there are at the beginning are printed as JSON only. A watch that broke is
 * begun again, for some seconds. conversation: NULL for all. */
enum parley_status watch_run(struct parley_channel *channel, const char *conversation, bool is_json,
                             struct parley_error *err);

#endif
