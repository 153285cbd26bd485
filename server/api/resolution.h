/* Resolves a request of any HTTP API: parses its JSON, finds its model and the conversation that
 * its header names. */
#ifndef SERVER_API_RESOLUTION_H
#define SERVER_API_RESOLUTION_H

#include <jansson.h>

#include "server/api/request.h"

struct conversation;
struct conversation_id;
struct exchange;
struct generation_plan;
struct model;

typedef enum status (*resolution_begin_fn)(struct exchange *x, const json_t *body,
                                           struct error *err);

/* Parses the body and calls begin to answer it; an error of either is the answer. Under --memory it
 * first waits for the model to be loaded. */
void resolution_serve(struct exchange *x, resolution_begin_fn begin);
/* The same for a request that goes on from a conversation, by its id or name: begin is called once
 * that is in memory too, as by resolution_recall. */
void resolution_serve_from(struct exchange *x, const char *id, resolution_begin_fn begin);

/* Calls serve once the conversation of this id or name is in memory, if the principal has it and it
 * may be in the journal alone; "": there is none. id is copied. A failure is the answer. */
void resolution_recall(struct exchange *x, const char *id, void (*serve)(struct exchange *x));

/* "" is the default, NAME:latest is NAME. STATUS_NOT_FOUND names the served models; field "model".
 * The model is loaded. */
enum status resolution_find_model(struct model **out, struct exchange *x, const char *name,
                                  struct error *err) MUST_CHECK;

/* Answers r as the plan says, which has the renderer and its state: joins the reply of the
 * request's key, or finds r's model, and the conversation that the header names, and starts. */
enum status resolution_generate(struct exchange *x, struct generation_plan *plan, struct request *r,
                                struct error *err) MUST_CHECK;

/* The answer bears this conversation's id. */
enum status resolution_answer_with(struct exchange *x, const struct conversation_id *id,
                                   struct error *err) MUST_CHECK;

#endif
