/* The stored records of a conversation, as a server sends them and as an export has them. Functions
 * are called on one thread. */
#ifndef CLIENT_CLI_PROOF_RECORDS_H
#define CLIENT_CLI_PROOF_RECORDS_H

#include <jansson.h>

#include "base/status.h"
#include "client/lib/parley.h"
#include "parley/v1/conversations.pb-c.h"

struct records {
    Parley__V1__ConversationRecord **all; /* [n] owned */
    size_t n, cap;
};

void records_deinit(struct records *r); /* r may be zeroed */
/* Takes m. */
void records_add(struct records *r, Parley__V1__ConversationRecord *m);

/* Fetches the records of a conversation. PARLEY_FAILED_PRECONDITION where it is not stored; then,
 * as after any failure, there are none. */
enum parley_status records_get(struct records *out, struct parley_channel *channel,
                               const char *conversation, struct parley_error *err);

/* The number of complete turns behind the last record. */
uint32_t records_n_turns(const struct records *r);
/* Whether the record ends a turn, and is part of the conversation. */
bool record_ends_turn(const Parley__V1__ConversationRecord *m);

/* A line of an export, which has no type yet. NULL without memory. */
json_t *record_line(const Parley__V1__ConversationRecord *m);
/* Reads such a line; the caller frees *out by parley__v1__conversation_record__free_unpacked. */
enum status record_read(Parley__V1__ConversationRecord **out, const json_t *line,
                        struct error *err) MUST_CHECK;

#endif
