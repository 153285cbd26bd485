#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "server/api/ollama/error.h"
#include "server/api/openai/error.h"
#include "server/api/routes.h"
#include "server/api/web_files.h"
#include "server/http/exchange.h"
#include "server/server.h"

/* The page loads scripts, styles and data from its own origin alone, turns no text into markup
 * (Trusted Types without a policy), and is shown in no other page. */
static const char policy[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n";

static bool serves_page(struct exchange *x)
{
    return exchange_server(x)->has_page && !exchange_is_admin(x);
}

/* A browser gets the page. Other programs get what Ollama's clients look for. */
static void web_root_serve(struct exchange *x)
{
    static const char probe[] = "Ollama is running";

    if (serves_page(x) && exchange_wants_html(x))
        exchange_reply_file(x, &web_files[0].file, policy);
    else
        exchange_reply(x, 200, "text/plain; charset=utf-8", probe, sizeof(probe) - 1);
}

static void web_file_serve(struct exchange *x)
{
    const char *name = exchange_path(x) + strlen("/web/");
    struct error err;

    for (size_t i = 0; i < web_n_files && serves_page(x); i++) {
        if (strcmp(web_files[i].name, name) != 0)
            continue;
        exchange_reply_file(x, &web_files[i].file, policy);
        return;
    }
    (void)error_set(&err, STATUS_NOT_FOUND, "there is no '%.80s'", exchange_path(x));
    exchange_fail(x, &err);
}

enum { LOOKS = METHOD_GET | METHOD_HEAD };

static const struct route rows[] = {
    {"/", .methods = LOOKS, .always = true, .serve = web_root_serve, .api = &ollama_api,
     .access = ACCESS_OPEN},
    {"/web/", true, LOOKS, .always = true, .serve = web_file_serve, .api = &openai_api,
     .access = ACCESS_OPEN},
};
const struct route_table api_web_routes = {rows, sizeof(rows) / sizeof(rows[0])};
