/* Items of an input that name an item of an earlier response. Loop. */
#ifndef SERVER_API_OPENAI_REFERENCES_H
#define SERVER_API_OPENAI_REFERENCES_H

#include <jansson.h>

#include "base/status.h"

struct exchange;

/* Puts the items themselves in the place of the body's item_references. Where the request goes on
 * from a response or in a conversation, references name what is there already, and are taken out.
 * NOT_FOUND: there is no such item, or the item is not kept. */
enum status references_resolve(const struct exchange *x, const json_t *body,
                               struct error *err) MUST_CHECK;

#endif
