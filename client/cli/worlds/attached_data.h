/* Data that a worker gives which is attached to a server (the task attached:NAME): an agent whose
 * turns are the data. A conversation with it is one pass, or a part of one; its system prompt is
 * JSON with "fold", "argument" and "from", the episodes to leave out; each reply is the next
 * episodes, whole, as JSON lines, and an empty one says that there are no more. */
#ifndef CLIENT_CLI_WORLDS_ATTACHED_DATA_H
#define CLIENT_CLI_WORLDS_ATTACHED_DATA_H

#include "client/cli/connection.h"
#include "worlds/teachers/config.h"

/* The server's; connection outlives it. */
struct attached_data attached_data_of(const struct connection_options *connection);

#endif
