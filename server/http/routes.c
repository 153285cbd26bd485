#include "server/http/routes.h"

#include <stddef.h>
#include <string.h>

static const struct route routes[] = {
    {"/v1/chat/completions", .methods = METHOD_POST, .serve = chat_serve},
    {"/v1/completions", .methods = METHOD_POST, .serve = completions_serve},
    {"/v1/responses", .methods = METHOD_POST, .serve = responses_serve},
    {"/v1/models", .methods = METHOD_GET | METHOD_HEAD, .serve = models_serve},
    {"/v1/models/", true, METHOD_GET | METHOD_HEAD, .serve = model_serve},
    {"/tokenize", .methods = METHOD_POST, .serve = tokenize_serve},
    {"/detokenize", .methods = METHOD_POST, .serve = detokenize_serve},
    {"/health", .methods = METHOD_GET | METHOD_HEAD, .always = true, .serve = health_serve},
    {"/metrics", .methods = METHOD_GET | METHOD_HEAD, .always = true, .serve = metrics_serve},
};

const char routes_list[] = "/v1/chat/completions, /v1/completions, /v1/responses, /v1/models, "
                           "/tokenize, /detokenize, /health, /metrics";

const struct route *routes_find(const char *path)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        const struct route *r = &routes[i];
        size_t len = strlen(r->path);

        if (r->is_prefix ? strncmp(path, r->path, len) == 0 && path[len] != '\0'
                         : strcmp(path, r->path) == 0)
            return r;
    }
    return NULL;
}

const char *route_methods(const struct route *r)
{
    return r->methods == METHOD_POST ? "POST" : "GET, HEAD";
}
