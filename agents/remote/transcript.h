/* What a remote agent's clone can be built anew from: its system prompt, its turns and a saved
 * state. All of these count references, since forks share them. Loop. */
#ifndef AGENTS_REMOTE_TRANSCRIPT_H
#define AGENTS_REMOTE_TRANSCRIPT_H

#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"

/* Bytes that never change: a system prompt, or a saved state. */
struct remote_blob {
    size_t n_refs;
    uint32_t turn;  /* of a state: how many turns it holds */
    uint32_t epoch; /* of a state: the agent's epoch when it was saved */
    size_t size_bytes;
    char data[]; /* [size_bytes], and a NUL behind */
};

/* Makes a blob with one reference and a copy of data. EXHAUSTED. */
enum status remote_blob_make(struct remote_blob **out, const void *data, size_t size_bytes,
                             struct error *err) MUST_CHECK;
struct remote_blob *remote_blob_ref(struct remote_blob *b); /* b may be NULL, and so the result */
void remote_blob_unref(struct remote_blob *b);              /* b may be NULL */

/* A turn, which holds a reference to the turn before it, so a clone's last turn is its transcript.
 * A row makes it when the turn is observed; its reply grows until the turn is kept. After that the
 * turn never changes. */
struct remote_turn {
    size_t n_refs;
    struct remote_turn *before; /* NULL: this is the first turn */
    uint32_t number;            /* from 1 */
    size_t n_messages;
    size_t size_bytes;         /* texts of the messages, each with a NUL */
    size_t total_bytes;        /* texts of these and of all turns before, with their replies */
    struct buf reply;          /* UTF-8, the part that is known so far */
    struct message messages[]; /* [n_messages]; their texts lie behind them */
};

/* Makes the turn after `before` (NULL: the first turn) with one reference, copies of the messages
 * and an empty reply of at most reply_limit_bytes. Takes a reference to before. EXHAUSTED. */
enum status remote_turn_make(struct remote_turn **out, struct remote_turn *before,
                             const struct message *messages, size_t n, size_t reply_limit_bytes,
                             struct error *err) MUST_CHECK;
struct remote_turn *remote_turn_ref(struct remote_turn *t); /* t may be NULL, and so the result */
void remote_turn_unref(struct remote_turn *t);              /* t may be NULL */

#endif
