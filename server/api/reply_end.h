/* What a model's chat template writes behind a reply, as token ids. */
#ifndef SERVER_API_REPLY_END_H
#define SERVER_API_REPLY_END_H

#include "server/api/request.h"

struct model;

/* Appends what stands behind any reply that these messages, n, follow, with the start of the next
 * reply if is_replied. m has a vocabulary, and r fits it. INVALID, of no field: the template writes
 * no reply. */
enum status reply_end_render(struct buf *ids, const struct request *r, const struct model *m,
                             const struct message *behind, size_t n, bool is_replied,
                             struct arena *arena, struct error *err) MUST_CHECK;

/* Makes of a prompt whose last message is the beginning of the reply one of ids, in the arena, that
 * ends with this message's text. Others stay. m has been fitted to r. INVALID: m's replies cannot
 * be gone on from. */
enum status request_continue(struct request *r, const struct model *m, struct arena *arena,
                             struct error *err) MUST_CHECK;

#endif
