/* A bidirectional stream with many items in flight. Each message of the client begins one. Items
 * write in the order in which they were notified, the first until it has nothing more. While
 * max_items are in flight the stream is not read. It ends when no item is left and the client has
 * half-closed or the server drains. Loop. */
#ifndef SERVER_CALL_MULTIPLEX_H
#define SERVER_CALL_MULTIPLEX_H

#include "base/hash.h"
#include "base/list.h"
#include "server/call/call.h"

struct multiplex;

/* The first member of every kind of item. */
struct multiplex_item {
    struct link link, in_ready;
    struct hash_node by_tag;
    uint64_t tag;
    struct multiplex *stream;
    bool is_tagged, has_left;
};

enum multiplex_written {
    WROTE_NOTHING, /* no message now: called again once the item is notified */
    WROTE_ONE,
    WROTE_LAST, /* and the item ends */
};

struct multiplex_type {
    size_t item_size, max_items;
    const char *item_name; /* "a turn": for the error when memory is short */
    /* A message has come for the item, which is zeroed but for its base. The item reports an error
     * in the message itself. arena as in struct call_handler's message. */
    void (*begin)(struct multiplex_item *item, const ProtobufCMessage *message,
                  struct arena *arena);
    /* Writes the item's next message by multiplex_write. */
    enum multiplex_written (*write)(struct multiplex_item *item);
    /* The item ends: why as in struct call_handler's on_close, OK after its last message. */
    void (*end)(struct multiplex_item *item, enum status why);
};

/* Starts a call of this kind. */
void multiplex_start(struct call *call, const struct multiplex_type *type);

/* The item has a message; repeated notifications are harmless. */
void multiplex_notify(struct multiplex_item *item);
/* has_more: the item itself has another message ready. */
void multiplex_write(struct multiplex_item *item, const ProtobufCMessage *message, bool has_more);
struct call *multiplex_call(const struct multiplex_item *item);

/* Only in begin: the message was no item's beginning, and the item ends when begin returns, by end,
 * without a message. */
void multiplex_leave(struct multiplex_item *item);
/* The stream's item that has the tag, NULL if there is none. item is any item of the stream. */
struct multiplex_item *multiplex_find(const struct multiplex_item *item, uint64_t tag);
/* Gives the item a tag that no item of the stream has, until it ends. */
void multiplex_tag(struct multiplex_item *item, uint64_t tag);

#endif
