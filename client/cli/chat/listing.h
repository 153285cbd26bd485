/* The conversations that the server has, and which of them a person means. */
#ifndef CLIENT_CLI_CHAT_LISTING_H
#define CLIENT_CLI_CHAT_LISTING_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/parley.h"
#include "parley/v1/conversations.pb-c.h"

/* Called for each conversation; false ends the list. */
typedef bool (*listing_fn)(void *arg, const Parley__V1__Conversation *c);

/* Calls each for the caller's conversations, newest first, without transcripts; at most limit (0:
 * all), and of the model only, unless that is NULL. *ret_total (may be NULL): how many there are.
 */
enum parley_status listing_each(struct parley_channel *channel, const char *model, uint32_t limit,
                                listing_fn each, void *arg, uint32_t *ret_total,
                                struct parley_error *err);

enum { LISTING_ID_CHARS = 33 };

/* The id of the conversation that text names: by its id, its name, or the beginning of an id, of at
 * least LISTING_PREFIX_MIN digits, that no other one of the newest LISTING_LOOKED_AT has. What is
 * an id already is not looked up. */
enum { LISTING_PREFIX_MIN = 4, LISTING_LOOKED_AT = 10000 };
enum parley_status listing_resolve(char out[LISTING_ID_CHARS], struct parley_channel *channel,
                                   const char *text, struct parley_error *err);

#endif
