/* Data from a worker that is attached to a server (the task attached:NAME): an agent whose turns
 * are the data. A conversation with it is one pass, or a part of one. Its system prompt is JSON
 * with "fold", "argument" and "from", the number of episodes to skip. Each reply is the next whole
 * episodes, as JSON lines; an empty reply is the end.
 *
 * A conversation whose system prompt has "evaluate" instead of "from" judges replies. Its first
 * turn, "begin", is answered with {"parley.evaluate": true} by a task that computes metrics of its
 * own. Each further message has JSON lines with "act", "labels" and "reply", and each reply has a
 * JSON object of metrics for each of these lines. */
#ifndef WORLDS_VERBS_ATTACHED_DATA_H
#define WORLDS_VERBS_ATTACHED_DATA_H

#include "client/cli/connection.h"
#include "worlds/teachers/config.h"

/* Returns the data of the server at connection, which must outlive the result. */
struct attached_data attached_data_of(const struct connection_options *connection);

#endif
