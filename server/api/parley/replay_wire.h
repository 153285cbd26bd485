/* Converts between the wire's messages of replay tables and the domain's. */
#ifndef SERVER_API_PARLEY_REPLAY_WIRE_H
#define SERVER_API_PARLEY_REPLAY_WIRE_H

#include "parley/v1/replay.pb-c.h"
#include "server/replay/table.h"

/* Reads a table's configuration. Its columns lie in the arena. INVALID names the field. */
enum status replay_wire_config(struct table_config *out, const Parley__V1__ReplayConfig *from,
                               struct arena *arena, struct error *err) MUST_CHECK;
/* Describes a table, which the message borrows. The name is left to the caller. */
enum status replay_wire_info(Parley__V1__ReplayTableInfo *out, const struct table *t,
                             struct arena *arena, struct error *err) MUST_CHECK;

/* Reads a chunk of steps, and checks that its columns are the table's. *views [n_columns] lies in
 * the arena; the views point into the message. */
enum status replay_wire_chunk(const struct tensor_view **views, size_t *ret_n_steps,
                              const Parley__V1__ReplayChunk *from, const struct table *t,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* Returns in *out how many bytes the steps of the drawn items have. RANGE where that is more than
 * one message may have. */
enum status replay_wire_batch_bytes(size_t *out, const struct table *t,
                                    const struct table_draw *draws, size_t n,
                                    struct error *err) MUST_CHECK;
/* Makes the message of a batch, in the arena. The steps of its items are copied to data, which has
 * as many bytes as replay_wire_batch_bytes has said. */
enum status replay_wire_batch(Parley__V1__ReplayBatch **out, const struct table *t,
                              const struct table_draw *draws, size_t n, unsigned char *data,
                              struct arena *arena, struct error *err) MUST_CHECK;

#endif
