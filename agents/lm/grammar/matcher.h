/* Where a reply stands in its constraint: which tokens may come next, and which must. One a turn;
 * the loop opens and closes it, steps use it. It follows chosen tokens alone, never draft tokens,
 * so nothing is taken back. */
#ifndef AGENTS_LM_GRAMMAR_MATCHER_H
#define AGENTS_LM_GRAMMAR_MATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/lm/grammar/grammars.h"
#include "base/arena.h"
#include "base/status.h"

struct matcher;

/* Takes the reference to g, also on failure. Its buffers are the arena's. */
enum status matcher_open(struct matcher **out, struct grammar *g, struct arena *arena,
                         struct error *err) MUST_CHECK;
void matcher_close(struct matcher *m); /* NULL is fine */

/* A bit for each token that may come next [(tokens of the model + 31) / 32], valid until the next
 * call. Within text that the constraint forces that is its canonical token alone. n_left: tokens
 * that the reply may still have, the end token too; SIZE_MAX: any number. Under a schema, a reply
 * that has repeated itself for long, or for whose end there is hardly room, goes the shortest way
 * to its end. INTERNAL if no token may come. */
enum status matcher_mask(struct matcher *m, size_t n_left, const uint32_t **out,
                         struct error *err) MUST_CHECK;

/* At the reply's beginning: how few tokens it can have, the end token too; 0 where that is not
 * known.
 */
enum status matcher_least(struct matcher *m, size_t *out, struct error *err) MUST_CHECK;

/* Of the token *id that was chosen by that mask, with the same n_left: where no room would be left
 * for the reply's end behind it, *id becomes the first token of the shortest way there, an end
 * token where the reply may end at once. */
enum status matcher_settle(struct matcher *m, size_t n_left, int32_t *id,
                           struct error *err) MUST_CHECK;

/* The token that must come next, -1 if there is a choice. The last token of a forced text is not
 * forced: what follows the text may be part of it. */
int32_t matcher_forced(const struct matcher *m);

/* The token was chosen. */
enum status matcher_accept(struct matcher *m, int32_t id, struct error *err) MUST_CHECK;

#endif
