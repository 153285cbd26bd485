/* Conversations as JSON lines, from one server to another: a line for each conversation, then one
 * for each of its turns, then one for each of its stored records, if it has any. The lines are
 * parley.v1's Conversation and TranscriptTurn with their fields' names, and "type", which says what
 * a line is: "conversation", "turn" or "record". A record is the member "record", in protobuf's
 * JSON mapping. */
#ifndef CLIENT_CLI_CHAT_EXPORT_H
#define CLIENT_CLI_CHAT_EXPORT_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "base/status.h"
#include "cli/options/verb.h"
#include "client/lib/parley.h"

enum parley_status export_one(struct parley_channel *channel, const char *conversation,
                              struct parley_error *err);
/* All that the caller has, of the model only unless that is NULL; newest first. One that cannot be
 * exported is an error, and the others follow; one that is closed meanwhile is a remark. */
enum exit_code export_all(struct parley_channel *channel, const char *model);

/* Opens what the lines of stdin say, and prints a line for each: its id, the one it had, and how
 * many turns were added. What an earlier import of the same conversation has made is found again,
 * and only what it lacks is added. */
enum exit_code import_run(struct parley_channel *channel);

/* A call whose request is made of JSON in protobuf's mapping. The caller frees *out by
 * protobuf_c_message_free_unpacked. */
enum { IMPORT_CALL_BYTES = 1 << 20 }; /* of the turns of one call of Import, about */
enum status import_call(ProtobufCMessage **out, struct parley_channel *channel, const char *method,
                        const ProtobufCMessageDescriptor *request, const json_t *json,
                        const ProtobufCMessageDescriptor *response, struct error *err) MUST_CHECK;

#endif
