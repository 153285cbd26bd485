/* OpenAI's response object. A response's id names its conversation and its turn, which hold all
 * that is kept of the response, and says whether the request named the conversation: otherwise the
 * conversation is the response's own. Loop. */
#ifndef SERVER_API_OPENAI_RESPONSE_H
#define SERVER_API_OPENAI_RESPONSE_H

#include "server/api/generation.h"
#include "server/api/openai/request.h"
#include "server/api/openai/response_output.h"
#include "server/api/openai/turn_place.h"

enum { RESPONSE_ID_CHARS = 5 + TURN_PLACE_CHARS };

/* Sequence numbers of the events before the text. A delta's number follows from the delta's place,
 * whoever reads the delta and in however many streams. */
enum { SEQUENCE_CREATED, SEQUENCE_IN_PROGRESS, SEQUENCE_ITEM, SEQUENCE_PART };

/* A response without its reply. It is the state of its renderer. */
struct response {
    char id[RESPONSE_ID_CHARS];
    const char *previous, *instructions; /* NULL: none */
    const char *conversation;            /* the id of the one that the request named; NULL: none */
    const char *metadata;                /* JSON; NULL: none */
    bool store;
    const char *tools, *choice;          /* JSON, as the request gave them; NULL: not known */
    bool is_single;                      /* the reply has at most one call */
    const char *echo[N_RESPONSE_ECHOES]; /* as in a request; NULL: not known */
    bool gives_thoughts, gives_logprobs;
    const struct error *failure;   /* why it failed before its turn began; NULL: it did not fail */
    struct response_output output; /* of a reply in parts */
    bool has_after;                /* the client has the events up to the number after */
    uint64_t after;
};

/* The id of the conversation that a response's id names; "" where the response's id is malformed.
 */
struct response_conversation {
    char text[CONVERSATION_ID_CHARS];
};
struct response_conversation response_conversation_of(const char *id);

/* Writes the id of the response that is this turn. */
void response_format_id(char out[RESPONSE_ID_CHARS], const struct turn_place *place);

/* Finds the conversation and the turn, completed or not, that the id names. NOT_FOUND names the
 * field, unless field is NULL. */
enum status response_find(struct conversation **out, struct turn_place *ret_place,
                          const struct exchange *x, const char *id, const char *field,
                          struct error *err) MUST_CHECK;

/* Makes the response of a turn of a conversation, in the arena. request: the turn's; NULL: it is
 * still to come. */
enum status response_of_turn(struct response **out, const struct conversation *c,
                             const struct turn_place *place, const struct stored_request *request,
                             struct arena *arena, struct error *err) MUST_CHECK;
/* Sets the conversation that r's request named. The text of the id lies in the arena. */
enum status response_set_conversation(struct response *r, const struct conversation_id *id,
                                      struct arena *arena, struct error *err) MUST_CHECK;
/* Sets *out to the pairs as a JSON object in the arena, or to NULL where n is 0. */
enum status response_set_metadata(const char **out, const struct pair *pairs, size_t n,
                                  struct arena *arena, struct error *err) MUST_CHECK;
/* Returns when the first response of a conversation was created, in seconds since 1970. */
uint64_t response_created_s(const struct conversation *c);

/* Returns whether the turn ended otherwise than by the model's own end. */
bool response_is_cut_short(const struct completed_turn *t);
/* Returns the "status" of an item of the turn's reply. */
const char *response_item_status(const struct completed_turn *t);

/* Writes the items of a turn's reply, as entries of the array that is open. id is the response's,
 * without "resp_". */
void response_write_items(const char *id, const struct completed_turn *t,
                          const struct reply_format *format, bool gives_thoughts,
                          struct json_writer *w);
/* Writes the one message of a reply that has no parts. text is NULL where the message has no
 * content yet. c is the choice whose log-probabilities are wanted, or NULL. */
void response_write_item(const char *id, struct json_writer *w, const char *name,
                         const char *status, const char *text, size_t len, const struct choice *c);
/* Writes the one part of that message. c is the same. */
void response_write_part(struct json_writer *w, const char *name, const char *text, size_t len,
                         const struct choice *c);
/* Writes the log-probabilities of the piece's tokens, or none. c is the same. */
void response_write_logprobs(struct json_writer *w, const struct choice *c,
                             const struct turn_event *piece);

/* Writes the member "usage" of a turn's reply. */
void response_write_usage(const struct completed_turn *t, const struct model *m,
                          struct json_writer *w);

/* What the object of a response is written from. */
struct response_view {
    const struct response *response;
    const struct model *model;
    uint64_t created_s;
    const struct stored_request *request;
    const struct completed_turn *completed; /* NULL: the reply is not complete */
    const struct choice *choice;            /* whose reply it is; NULL: no log-probabilities */
};

/* Writes the object as a value of this name. */
void response_write(const struct response_view *v, const char *name, struct json_writer *w);

#endif
