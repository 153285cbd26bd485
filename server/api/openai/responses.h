/* OpenAI's response objects: their ids, how they are written, whole and as events. A response's id
 * names its conversation and its turn, which hold all that is kept of it. */
#ifndef SERVER_API_OPENAI_RESPONSES_H
#define SERVER_API_OPENAI_RESPONSES_H

#include "server/api/generation.h"
#include "server/api/openai/response_output.h"

enum { RESPONSE_ID_CHARS = 5 + CONVERSATION_ID_CHARS - 1 + 8 + 1 };

/* A response without its reply; the state of its renderer. */
struct response {
    char id[RESPONSE_ID_CHARS];
    const char *previous, *instructions; /* NULL: none */
    const char *metadata;                /* JSON; NULL: none */
    bool store;
    const char *tools, *choice;    /* JSON, as the request gave them; NULL: not known */
    bool is_single;                /* at most one call */
    struct response_output output; /* of a reply in parts */
    bool has_after;                /* the client has the events up to this number */
    uint64_t after;
};

extern const struct response_renderer response_renderer;

/* The id of the conversation that a response's id names; "" where it is none. */
struct response_conversation {
    char text[CONVERSATION_ID_CHARS];
};
struct response_conversation response_conversation_of(const char *id);

/* Finds the conversation and the turn, completed or not, that the id names. NOT_FOUND names the
 * field, unless it is NULL. */
enum status response_find(struct conversation **out, uint32_t *ret_turn, const struct exchange *x,
                          const char *id, const char *field, struct error *err) MUST_CHECK;

/* The response of a turn of a conversation, in the arena. */
enum status response_of_turn(struct response **out, const struct conversation *c, uint32_t turn,
                             struct arena *arena, struct error *err) MUST_CHECK;
uint64_t response_created_s(const struct conversation *c);

/* What the object of a response is written from. */
struct response_view {
    const struct response *response;
    const struct model *model;
    uint64_t created_s;
    const struct stored_request *request;
    const struct completed_turn *completed; /* NULL: its reply is not complete */
};

void response_write(const struct response_view *v, const char *name, struct json_writer *w);

#endif
