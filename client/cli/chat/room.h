/* parley chat --room: writing to people in a room, at the keyboard or over a pipe. */
#ifndef CLIENT_CLI_CHAT_ROOM_H
#define CLIENT_CLI_CHAT_ROOM_H

#include <stdint.h>

#include "cli/options/verb.h"
#include "client/lib/parley.h"

/* Enters the room and stays until the person leaves. name: "" lets the server make one up. A lost
 * connection is made again for patience_ms. Interrupts are caught. */
enum exit_code room_run(struct parley_channel *channel, const char *room, const char *name,
                        uint32_t patience_ms);

#endif
