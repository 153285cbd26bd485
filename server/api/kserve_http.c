/* KServe v2 over HTTP is not served: its clients are told so in the form of its errors. */
#include "server/api/ollama/error.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"

static void kserve_http_serve(struct exchange *x)
{
    struct error err;

    (void)error_set(
        &err, STATUS_UNIMPLEMENTED,
        "%.80s is not served: KServe v2 is served over gRPC alone, to tritonclient.grpc",
        exchange_path(x));
    exchange_fail_as(x, 501, &err);
}

#define ANSWERS .methods = METHOD_GET | METHOD_POST, .serve = kserve_http_serve, .api = &ollama_api

static const struct route rows[] = {
    {"/v2", ANSWERS},
    {"/v2/", true, ANSWERS},
};
const struct route_table api_kserve_http_routes = {rows, sizeof(rows) / sizeof(rows[0])};
