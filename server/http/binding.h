/* What a request is about: its JSON, its model, the conversation that its header names. */
#ifndef SERVER_HTTP_BINDING_H
#define SERVER_HTTP_BINDING_H

#include <jansson.h>

#include "server/http/request.h"

struct conversation;
struct exchange;
struct model;

/* Parses the body and has begin answer it; what either says is wrong is the answer. */
void binding_serve(struct exchange *x,
                   enum status (*begin)(struct exchange *x, const json_t *body, struct error *err));

/* "" is the default. STATUS_NOT_FOUND names those served; field "model". It is loaded. */
enum status binding_model(struct model **out, struct exchange *x, const char *name,
                          struct error *err) MUST_CHECK;

/* The conversation named by X-Conversation-Id, opened if there is none, and in r only those
 * messages that are new to it: where r's messages begin with all that was said in it, those behind.
 * Otherwise all of them; but if they hold a reply then they tell another history, which is
 * STATUS_PRECONDITION. *model is what r names; where r names none, it becomes the conversation's.
 */
enum status binding_conversation(struct conversation **out, struct exchange *x, struct request *r,
                                 struct model **model, struct error *err) MUST_CHECK;

#endif
