/* A stream both ways on which many items are under way at once. Each message of the client begins
 * one; what they have to say is written in the order in which they were woken, the first until it
 * has nothing more. The stream is read no further while max_items are under way, and ends when none
 * is left and the client has half-closed or the server drains. Loop. */
#ifndef SERVER_MULTIPLEX_H
#define SERVER_MULTIPLEX_H

#include "server/daemon.h"

struct multiplex;

/* The first member of every kind of item. */
struct multiplex_item {
    struct link link, in_ready;
    struct multiplex *stream;
};

enum multiplex_written {
    WROTE_NOTHING, /* there was nothing to say: it is asked again once it is woken */
    WROTE_ONE,
    WROTE_LAST, /* and the item goes */
};

struct multiplex_type {
    size_t item_size, max_items;
    const char *item_name; /* "a turn": for when memory is short */
    /* A message has come for the item, which is zeroed but for its base. What is wrong with it is
     * the item's to say. arena as in struct call_handler's message. */
    void (*begin)(struct multiplex_item *item, const ProtobufCMessage *message,
                  struct arena *arena);
    /* Writes the item's next message by multiplex_write. */
    enum multiplex_written (*write)(struct multiplex_item *item);
    /* The item goes: why as in struct call_handler's gone, OK after its last message. */
    void (*end)(struct multiplex_item *item, enum status why);
};

/* The start of such a call. */
void multiplex_start(struct call *call, struct daemon *daemon, const struct multiplex_type *type);

/* The item has something to say; may be called when it is woken already. */
void multiplex_wake(struct multiplex_item *item);
/* has_more: the item itself has another message ready. */
void multiplex_write(struct multiplex_item *item, const ProtobufCMessage *message, bool has_more);
struct call *multiplex_call(const struct multiplex_item *item);

#endif
