/* Converts between the wire's messages of replay tables and the domain's. */
#ifndef SERVER_API_PARLEY_REPLAY_WIRE_H
#define SERVER_API_PARLEY_REPLAY_WIRE_H

#include "parley/v1/replay.pb-c.h"
#include "server/replay/table.h"

/* Columns are in the arena. INVALID names the field. */
enum status replay_wire_config(struct table_config *out, const Parley__V1__ReplayConfig *from,
                               struct arena *arena, struct error *err) MUST_CHECK;
/* Borrows t. The name is not set. */
enum status replay_wire_info(Parley__V1__ReplayTableInfo *out, const struct table *t,
                             struct arena *arena, struct error *err) MUST_CHECK;

/* Checks that a chunk's columns are the table's. *views [n_columns] are in the arena, and point
 * into the message. */
enum status replay_wire_chunk(const struct tensor_view **views, size_t *ret_n_steps,
                              const Parley__V1__ReplayChunk *from, const struct table *t,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* The messages of a batch, which lie in the arena, with the steps of its items. RANGE where these
 * have more bytes than a message takes. */
enum status replay_wire_batch(Parley__V1__ReplayBatch **out, const struct table *t,
                              const struct table_draw *draws, size_t n, struct arena *arena,
                              struct error *err) MUST_CHECK;

#endif
