/* The messages of a conversation, as the server keeps them, printed for a person or for programs.
 */
#ifndef CLIENT_CLI_CHAT_TRANSCRIPT_H
#define CLIENT_CLI_CHAT_TRANSCRIPT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "client/lib/parley.h"
#include "parley/v1/conversations.pb-c.h"

/* Fetches all pages of the transcript. The caller frees *out by
 * parley__v1__conversation__free_unpacked(*out, NULL). */
enum parley_status transcript_get(Parley__V1__Conversation **out, struct parley_channel *channel,
                                  const char *conversation, bool with_text,
                                  struct parley_error *err);

/* "role: text" with an empty line after each. False when a write failed. */
bool transcript_write(const Parley__V1__Conversation *c, FILE *out);
/* {"turn":…,"role":…,"text":…} a line; the system prompt is of turn 0. */
bool transcript_write_json(const Parley__V1__Conversation *c, FILE *out);

/* Into a new file: JSON lines where the name ends in .json or .jsonl, else for a person. */
enum status transcript_save(const Parley__V1__Conversation *c, const char *path,
                            struct error *err) MUST_CHECK;

#endif
