/* Keeping a conversation means writing it to the journal: its opening, the acceptance and the end
 * of each turn, rewinds, updates, and its closing. Nothing is written of a conversation that is not
 * kept. A conversation changes in memory first and is written then. If the journal fails, the
 * conversation leaves memory, and is read from the journal when it is next asked for. All functions
 * are called on the loop. */
#ifndef SERVER_CONVERSATION_KEEPING_H
#define SERVER_CONVERSATION_KEEPING_H

#include "server/conversation/conversations.h"
#include "server/journal/journal.h"

/* Sets the journal to which conversations are written that are opened from now on. What config
 * points to is borrowed. */
void conversations_keep(struct conversations *all, const struct keeping_config *config);

/* Begins to keep a conversation that was just opened or forked, under a name (NULL: without a
 * name). Does nothing if there is no journal, or if the conversation is a fork of one that is not
 * kept. UNAVAILABLE if the journal refused the record; then the conversation has left memory. */
enum status keeping_begin(struct conversation *c, const char *name, struct error *err) MUST_CHECK;

/* Write that a conversation was updated, or rewound. UNAVAILABLE; then the conversation has left
 * memory. */
enum status keeping_update(struct conversation *c, struct error *err) MUST_CHECK;
enum status keeping_rewind(struct conversation *c, struct error *err) MUST_CHECK;
/* Writes a completed turn that was not computed here but imported, with its trace. UNAVAILABLE;
 * then the conversation has left memory. */
enum status keeping_import(struct conversation *c, const struct completed_turn *t,
                           const void *trace, size_t trace_size, struct error *err) MUST_CHECK;
/* Writes that a turn did not happen which an earlier process accepted and which cannot be run. */
void keeping_withdraw(struct conversation *c, uint32_t number);

/* To be called before conversations are looked for in memory. If the journal's lease is over, all
 * kept ones leave memory, with their turns: another process may have gone on with them. */
void keeping_check_lease(struct conversations *all);

/* Appends to out the text that stands for all that a reply's bits depend on besides the request:
 * the model's version and the daemon's arithmetic. Under two different texts the same request may
 * have replies of different bits. EXHAUSTED. */
enum status keeping_binding(struct buf *out, const struct conversations *all, const struct model *m,
                            struct error *err) MUST_CHECK;
/* Returns the name under which the journal knows a principal. */
const char *keeping_principal(const struct conversations *all, uint32_t principal);

#endif
