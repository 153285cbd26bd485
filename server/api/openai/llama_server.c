/* Paths of llama-server's own API, which programs ask for beside OpenAI's: each says what serves
 * the same here. */
#include <string.h>

#include "server/api/openai/error.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"

static const struct {
    const char *path, *instead;
} llama_server_paths[] = {
    {"/lora-adapters", "no adapters are loaded"},
    {"/props", "/v1/models and /api/show describe a model"},
    {"/slots", "there are no slots: 'parley conversations' lists conversations"},
};

static void llama_server_serve(struct exchange *x)
{
    const char *instead = "";
    struct error err;

    for (size_t i = 0; i < sizeof(llama_server_paths) / sizeof(llama_server_paths[0]); i++)
        if (strcmp(exchange_path(x), llama_server_paths[i].path) == 0)
            instead = llama_server_paths[i].instead;
    (void)error_set(&err, STATUS_UNIMPLEMENTED, "%s is not served: %s", exchange_path(x), instead);
    exchange_fail_as(x, 501, &err);
}

#define ANSWERS .methods = METHOD_GET | METHOD_POST, .serve = llama_server_serve, .api = &openai_api

static const struct route rows[] = {
    {"/lora-adapters", ANSWERS},
    {"/props", ANSWERS},
    {"/slots", ANSWERS},
};
const struct route_table openai_llama_server_routes = {rows, sizeof(rows) / sizeof(rows[0])};
