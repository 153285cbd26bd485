/* OpenAI's response objects: their ids, how they are written, whole and as events. A response's id
 * names its conversation and its turn, which hold all that is kept of it, and says whether the
 * request named the conversation: else that is the response's own. */
#ifndef SERVER_API_OPENAI_RESPONSES_H
#define SERVER_API_OPENAI_RESPONSES_H

#include "server/api/generation.h"
#include "server/api/openai/request.h"
#include "server/api/openai/response_output.h"

enum { RESPONSE_ID_CHARS = 5 + CONVERSATION_ID_CHARS - 1 + 8 + 1 };

/* A response without its reply; the state of its renderer. */
struct response {
    char id[RESPONSE_ID_CHARS];
    const char *previous, *instructions; /* NULL: none */
    const char *conversation;            /* that the request named, its id; NULL: none */
    const char *metadata;                /* JSON; NULL: none */
    bool store;
    const char *tools, *choice;          /* JSON, as the request gave them; NULL: not known */
    bool is_single;                      /* at most one call */
    const char *echo[N_RESPONSE_ECHOES]; /* as in a request; NULL: not known */
    bool gives_thoughts, gives_logprobs;
    const struct error *failure;   /* it failed before its turn began; NULL: it did not */
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

/* Of the turn's number in an id, which is smaller: the request named the conversation. */
#define RESPONSE_TURN_OF_NAMED (UINT32_C(1) << 31)

/* A response's turn. */
struct response_place {
    uint32_t turn;
    bool is_of_named; /* the request named the conversation */
};

/* Finds the conversation and the turn, completed or not, that the id names. NOT_FOUND names the
 * field, unless it is NULL. */
enum status response_find(struct conversation **out, struct response_place *ret_place,
                          const struct exchange *x, const char *id, const char *field,
                          struct error *err) MUST_CHECK;

/* The response of a turn of a conversation, in the arena. */
enum status response_of_turn(struct response **out, const struct conversation *c,
                             const struct response_place *place, struct arena *arena,
                             struct error *err) MUST_CHECK;
/* Writes the items of a turn's reply, as entries of the array that is open. id: of the response,
 * behind "resp_". */
void response_write_items(const char *id, const struct completed_turn *t,
                          const struct reply_format *format, bool gives_thoughts,
                          struct json_writer *w);
uint64_t response_created_s(const struct conversation *c);

/* references.c: puts the items themselves in the place of the body's item_references. Where the
 * request goes on from a response or in a conversation, references name what is there already, and
 * are taken out. STATUS_NOT_FOUND: there is no such item, or it is not kept. */
enum status references_resolve(const struct exchange *x, const json_t *body,
                               struct error *err) MUST_CHECK;

/* What the object of a response is written from. */
struct response_view {
    const struct response *response;
    const struct model *model;
    uint64_t created_s;
    const struct stored_request *request;
    const struct completed_turn *completed; /* NULL: its reply is not complete */
    const struct choice *choice; /* whose reply it is; NULL: log-probabilities are not known */
};

void response_write(const struct response_view *v, const char *name, struct json_writer *w);

#endif
