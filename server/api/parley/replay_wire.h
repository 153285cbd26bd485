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

/* What the steps of the drawn items take. RANGE where that is more than a message may. */
enum status replay_wire_batch_bytes(size_t *out, const struct table *t,
                                    const struct table_draw *draws, size_t n,
                                    struct error *err) MUST_CHECK;
/* The message of a batch, which lies in the arena; the steps of its items are copied to data, of
 * so many bytes. */
enum status replay_wire_batch(Parley__V1__ReplayBatch **out, const struct table *t,
                              const struct table_draw *draws, size_t n, unsigned char *data,
                              struct arena *arena, struct error *err) MUST_CHECK;

#endif
