/* The id of an event of a stream: the position after it, from which a later request may continue.
 * Its text is GENERATION.TURN.INDEX[,INDEX…] with one index for each choice. */
#ifndef SERVER_CONVERSATION_EVENT_ID_H
#define SERVER_CONVERSATION_EVENT_ID_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { EVENT_ID_MAX_INDEXES = 128, EVENT_ID_MAX_BYTES = 4096 };

struct event_id {
    uint32_t generation, turn;
    uint64_t indexes[EVENT_ID_MAX_INDEXES]; /* [n_indexes] */
    size_t n_indexes;
};

/* Reads an id. INVALID, with the field Last-Event-ID, where the text is none. */
enum status event_id_parse(struct event_id *out, const char *text, size_t len,
                           struct error *err) MUST_CHECK;

#endif
