/* The output of a response whose reply may have thoughts or calls of tools: items in the order in
 * which they come. Other replies are one message, which responses.c writes. */
#ifndef SERVER_API_OPENAI_RESPONSE_OUTPUT_H
#define SERVER_API_OPENAI_RESPONSE_OUTPUT_H

#include "server/api/generation.h"

/* The events of a stream so far. */
struct response_output {
    const char *id;    /* of the response, behind "resp_" */
    uint64_t sequence; /* of the next event */
    bool has_after;    /* the client has the events up to this number */
    uint64_t after;
    size_t event_at; /* where the event begins that is being written */
    uint32_t index;  /* of the open item, or of the next one */
    enum reply_part_kind kind;
    bool is_open, has_id; /* has_id: the next event bears the id of the choice's place */
    uint32_t call;        /* of the open item, where it is a call */
    int call_kind;        /* what it is to the client */
    bool gives_thoughts;  /* reasoning has its text as encrypted_content, too */
    uint32_t n_messages;
    struct buf name, text; /* of the open item */
};

void response_output_init(struct response_output *o, const char *id, uint64_t sequence);
void response_output_deinit(struct response_output *o);

/* Writes the events of the parts that c's parser has. The last has the id of the choice's place:
 * who has only some of them gets all of them again. */
void response_output_parts(struct response_output *o, struct choice *c, struct json_writer *w);
/* After the last part: closes what is open. A reply without items gets an empty message. */
void response_output_end(struct response_output *o, struct choice *c, const char *status,
                         struct json_writer *w);
/* The items of a complete reply, as entries of the array that is open. */
void response_output_whole(const char *id, const struct completed_turn *t,
                           const struct reply_parser_config *config, const char *status,
                           bool gives_thoughts, struct json_writer *w);

#endif
