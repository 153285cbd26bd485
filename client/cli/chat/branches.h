/* The tree of conversations that were forked from one another. */
#ifndef CLIENT_CLI_CHAT_BRANCHES_H
#define CLIENT_CLI_CHAT_BRANCHES_H

#include <stdbool.h>
#include <stddef.h>

#include "client/cli/chat/listing.h"

struct branch {
    char id[LISTING_ID_CHARS], parent[LISTING_ID_CHARS];
    uint32_t turns;
    uint64_t idle_ms, opened_ms;
    size_t depth; /* 0: the root */
};

/* The tree that a conversation is in, among the newest LISTING_LOOKED_AT: a parent stands before
 * its forks, and older ones before younger ones. The caller frees *out. */
enum parley_status branches_get(struct branch **out, size_t *ret_n, struct parley_channel *channel,
                                const char *conversation, struct parley_error *err);

#endif
