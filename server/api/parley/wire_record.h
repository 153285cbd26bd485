/* Converts between the journal's records and parley.v1's messages of them. */
#ifndef SERVER_API_PARLEY_WIRE_RECORD_H
#define SERVER_API_PARLEY_WIRE_RECORD_H

#include "parley/v1/conversations.pb-c.h"

#include "base/arena.h"
#include "server/journal/store.h"

/* Makes the message of a record that a query with wants_chain has found, for a client. owner is the
 * name of the conversation's owner. The message borrows the record. EXHAUSTED without memory. */
enum status wire_record(Parley__V1__ConversationRecord **out, const struct journal_event *e,
                        const char *owner, struct arena *arena, struct error *err) MUST_CHECK;

/* Makes a message that only says what the record's body says. The arena's. */
enum status wire_record_facts(Parley__V1__ConversationRecord **out, const struct journal_event *e,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* The bytes in hexadecimal, lower case, in the arena. NULL without memory. */
char *wire_hex(const uint8_t *bytes, size_t n, struct arena *arena) MUST_CHECK;

/* Appends records that a client sends, [n], each an encoded message, to found. *owner is the owner
 * that the records so far name, in the arena; NULL: none of them does. first is the place of the
 * first one: INVALID names the record by its place, from 0. */
enum status wire_take_records(struct journal_found *found, const char **owner,
                              const ProtobufCBinaryData *records, size_t n, size_t first,
                              struct arena *arena, struct error *err) MUST_CHECK;

#endif
