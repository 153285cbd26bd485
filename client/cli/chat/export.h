/* Conversations as JSON lines, from one server to another: a line for each conversation, then one
 * for each of its turns, then one for each of its stored records, if it has any. The lines are
 * parley.v1's Conversation and TranscriptTurn with their fields' names, and "type", which says what
 * a line is: "conversation", "turn" or "record". A record is the member "record", in protobuf's
 * JSON mapping. */
#ifndef CLIENT_CLI_CHAT_EXPORT_H
#define CLIENT_CLI_CHAT_EXPORT_H

#include <jansson.h>
#include <stdbool.h>

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

/* Turns for a call of Import, as JSON in protobuf's mapping: as many as a server takes at once,
 * which is a number of bytes and of fields. */
struct import_batch {
    json_t *turns; /* an array; owned */
    size_t n_bytes, n_fields;
};

struct import_batch import_batch_make(void);
/* False: the others are to be sent first. An empty one takes each turn. */
bool import_batch_add(struct import_batch *b, json_t *turn);
/* Sends the turns to the conversation, which then has *ret_turns turns, and empties the batch. */
enum status import_batch_send(struct import_batch *b, struct parley_channel *channel,
                              const char *conversation, size_t *ret_turns,
                              struct error *err) MUST_CHECK;
void import_batch_deinit(struct import_batch *b);

#endif
