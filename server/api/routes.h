/* Every route that the daemon's HTTP port serves. Each table is defined with its handlers and
 * listed here. */
#ifndef SERVER_API_ROUTES_H
#define SERVER_API_ROUTES_H

#include "server/http/route.h"

/* clang-format off */
#define ROUTES(TABLE) \
    TABLE(chat_routes) \
    TABLE(completions_routes) \
    TABLE(responses_routes) \
    TABLE(responses_stored_routes) \
    TABLE(embeddings_routes) \
    TABLE(score_routes) \
    TABLE(operations_routes) \
    TABLE(anthropic_routes) \
    TABLE(ollama_chat_routes) \
    TABLE(ollama_embed_routes) \
    TABLE(ollama_models_routes)
/* clang-format on */

#define ROUTES_DECLARE(table) extern const struct route_table table;
ROUTES(ROUTES_DECLARE)

/* A request without a route gets OpenAI's error body. Static. */
extern const struct routes routes_all;

#endif
