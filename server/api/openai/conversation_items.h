/* A conversation's turns as OpenAI's items: each message of a request is one, or one for its text
 * and one for each call; so is each part of a reply. An item's id names the turn, and its place in
 * it; a turn's name is never given again, so neither is an item's. */
#ifndef SERVER_API_OPENAI_CONVERSATION_ITEMS_H
#define SERVER_API_OPENAI_CONVERSATION_ITEMS_H

#include "agents/message_extras.h"
#include "base/json_writer.h"
#include "server/conversation/conversation.h"

enum { ITEM_ID_MAX = 96 };

struct conversation_item {
    char id[ITEM_ID_MAX];
    size_t message; /* of the turn's request; SIZE_MAX: of its reply */
    const struct message *said;
    struct message_extras extras; /* of the message */
    size_t call;                  /* of the message's calls; SIZE_MAX: its text, or its result */
    struct text reply;            /* of its reply: the item as JSON */
};

/* The items of one turn, in the arena. */
struct turn_items {
    const struct completed_turn *turn;
    struct conversation_item *items; /* [n] */
    size_t n;
};

enum status turn_items_read(struct turn_items *out, const struct conversation *c,
                            const struct completed_turn *t, struct arena *arena,
                            struct error *err) MUST_CHECK;
/* Finds the turn's items, and which of them has this id. NOT_FOUND. */
enum status turn_items_find(struct turn_items *out, size_t *ret_at, const struct conversation *c,
                            const char *id, struct arena *arena, struct error *err) MUST_CHECK;

void conversation_item_write(const struct conversation_item *item, struct json_writer *w);

#endif
