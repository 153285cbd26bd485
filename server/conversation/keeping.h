/* What conversations keep in the journal, and when: the opening, the acceptance of a turn, its end,
 * a rewind, an update, the closing. Of conversations that are not kept nothing is written. What a
 * conversation has in memory goes ahead of the journal; if the journal fails, the conversation
 * leaves memory and is read again when it is next wanted. Loop. */
#ifndef SERVER_CONVERSATION_KEEPING_H
#define SERVER_CONVERSATION_KEEPING_H

#include "server/conversation/conversation.h"
#include "server/journal/journal.h"

/* Conversations that are opened from now on may be kept. Borrows what config has. */
void conversations_keep(struct conversations *all, const struct keeping_config *config);

/* c, which was just opened or forked, is kept from now on, if there is a journal, under this name
 * (NULL: none). A fork of one that is not kept is not kept. UNAVAILABLE: it is not open any more.
 */
enum status keeping_begin(struct conversation *c, const char *name, struct error *err) MUST_CHECK;

/* The conversation was updated or rewound. UNAVAILABLE: it has left memory. */
enum status keeping_update(struct conversation *c, struct error *err) MUST_CHECK;
enum status keeping_rewind(struct conversation *c, struct error *err) MUST_CHECK;
/* A completed turn of another origin was added. UNAVAILABLE: it has left memory. */
enum status keeping_import(struct conversation *c, const struct completed_turn *t,
                           const void *trace, size_t trace_size, struct error *err) MUST_CHECK;
/* It is found no more. */
void keeping_close(struct conversation *c);
/* The same of one that has left memory. */
void keeping_forget(struct conversations *all, const struct conversation_id *id);
/* The turn that an earlier process accepted cannot be run. */
void keeping_withdraw(struct conversation *c, uint32_t number);

/* What computes, as a text: replies of two that differ may have other bits. */
enum status keeping_binding(struct buf *out, const struct conversations *all, const struct model *m,
                            struct error *err) MUST_CHECK;
const char *keeping_principal(const struct conversations *all, uint32_t principal);

#endif
