/* What a remote agent's clone can be built anew from. All of it is shared by forks, and counted. */
#ifndef AGENTS_REMOTE_TRANSCRIPT_H
#define AGENTS_REMOTE_TRANSCRIPT_H

#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"

/* A system prompt, or a saved state. */
struct remote_blob {
    size_t n_refs;
    uint32_t turn;  /* of a state: the turns that it holds */
    uint32_t epoch; /* likewise: of the agent's version */
    size_t size_bytes;
    char data[]; /* [size_bytes], and a NUL behind */
};

enum status remote_blob_make(struct remote_blob **out, const void *data, size_t size_bytes,
                             struct error *err) MUST_CHECK;
struct remote_blob *remote_blob_ref(struct remote_blob *b); /* NULL is fine */
void remote_blob_unref(struct remote_blob *b);              /* NULL is fine */

/* A turn: its messages, its reply, and all turns before it. */
struct remote_turn {
    size_t n_refs;
    struct remote_turn *before; /* NULL: the first */
    uint32_t number;
    size_t n_messages;
    size_t size_bytes;  /* of the texts of its messages */
    size_t total_bytes; /* and of those of all turns before it, with their replies */
    struct buf reply;
    struct message messages[]; /* [n_messages] their texts lie behind them */
};

/* Copies the messages. before is shared. */
enum status remote_turn_make(struct remote_turn **out, struct remote_turn *before,
                             const struct message *messages, size_t n, size_t reply_limit_bytes,
                             struct error *err) MUST_CHECK;
struct remote_turn *remote_turn_ref(struct remote_turn *t); /* NULL is fine */
void remote_turn_unref(struct remote_turn *t);              /* NULL is fine */

#endif
