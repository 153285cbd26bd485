/* A recall restores a conversation from the journal. The agent takes in the stored replies without
 * computing them again. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_RECALL_H
#define SERVER_CONVERSATION_RECALL_H

#include "server/conversation/body.h"
#include "server/conversation/conversation.h"
#include "server/journal/store.h"

/* Opens the found conversation of the principal. While the conversation's model is not ready, a
 * stand-in takes the model's place. DATA_LOSS if a record is not correct. */
enum status conversation_recall(struct conversation **out, struct conversations *all,
                                uint32_t principal, const struct journal_found *found,
                                struct error *err) MUST_CHECK;

/* A recall that goes record by record, for verification.c. given takes the place of the
 * conversation's model, and keeps the recorded ids where its vocabulary has them for the same text;
 * NULL: as conversation_recall. The caller adds or releases the conversation
 * that recall_conversation returns, which has no clone before the first record. */
struct recall;
enum status recall_open(struct recall **out, struct conversations *all, uint32_t principal,
                        struct model *given, struct error *err) MUST_CHECK;
void recall_close(struct recall *r); /* NULL is fine */
/* From now on the conversation has this system prompt in place of the recorded one; borrowed. */
void recall_set_system(struct recall *r, struct text system);
struct conversation *recall_conversation(const struct recall *r);
/* The acceptance of the turn that has not ended; NULL: there is none. */
const struct journal_event *recall_accepted(const struct recall *r);
/* The text of keeping_binding for what computes now; valid behind the first record. */
const char *recall_binding(const struct recall *r);
/* Applies the next record, which stays until recall_close. Records that are no part of the
 * conversation any more are left out. No turn is in flight. */
enum status recall_event(struct recall *r, const struct journal_event *e,
                         struct error *err) MUST_CHECK;
/* Drops the turns after to_turn; no turn is in flight. */
enum status recall_cut(struct recall *r, uint32_t to_turn, struct error *err) MUST_CHECK;

/* Has the clone observe the turn and take in the turn's reply. For import.c. */
enum status recall_turn(struct turn_host *h, const struct stored_request *request,
                        const struct body_finish *finish, struct error *err) MUST_CHECK;
/* Replaces the trace of a turn that another model computed, since that model's token ids mean
 * nothing to this one. For an agent with tokens the new trace has this model's ids of the reply's
 * text, in the arena. Agents without tokens have traces that fit every model, for instance the text
 * itself; such a trace stays. */
enum status recall_retrace(struct body_finish *finish, const struct agent *a, struct arena *arena,
                           struct error *err) MUST_CHECK;

#endif
