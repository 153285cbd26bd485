/* A bidirectional stream with many items in flight. Each message of the client begins an item.
 * Items write in the order in which they were notified; an item writes until it has nothing more.
 * While max_items are in flight the stream is not read. The stream ends when no item is left and
 * the client has half-closed or the server drains. All functions are called on the loop. */
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
    WROTE_NOTHING, /* the item has no message now: write is called again once it is notified */
    WROTE_ONE,
    WROTE_LAST, /* the item wrote a message and ends */
};

struct multiplex_type {
    size_t item_size, max_items;
    const char *item_name; /* "a turn": for the error when memory is short */
    /* Begins an item, which is zeroed but for its base, with the message that has come for it. The
     * item reports an error by a message of its own. arena is that of struct call_handler's
     * message.
     */
    void (*begin)(struct multiplex_item *item, const ProtobufCMessage *message,
                  struct arena *arena);
    /* Writes the item's next message by multiplex_write. */
    enum multiplex_written (*write)(struct multiplex_item *item);
    /* Ends an item. why is that of struct call_handler's on_close, and OK after the item's last
     * message. */
    void (*end)(struct multiplex_item *item, enum status why);
};

/* Starts a call of this kind. */
void multiplex_start(struct call *call, const struct multiplex_type *type);

/* Tells that the item has a message. Repeated notifications change nothing. */
void multiplex_notify(struct multiplex_item *item);
/* Writes a message of the item. has_more says that the item has another message ready. */
void multiplex_write(struct multiplex_item *item, const ProtobufCMessage *message, bool has_more);
struct call *multiplex_call(const struct multiplex_item *item);

/* For begin alone: the message began no item. When begin returns, end is called, and no message is
 * written. */
void multiplex_leave(struct multiplex_item *item);
/* Returns the item with the tag on the stream of item; NULL: there is none. */
struct multiplex_item *multiplex_find(const struct multiplex_item *item, uint64_t tag);
/* Gives the item a tag that no item of the stream has, until it ends. */
void multiplex_tag(struct multiplex_item *item, uint64_t tag);

#endif
