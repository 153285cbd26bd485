#include "client/cli/connection.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "client/cli/output/console.h"
#include "client/cli/output/interrupt.h"

enum {
    QUIET_MS = 500, /* a shorter wait prints no remark */
    SLICE_MS = 250, /* a Ctrl-C during the wait is noticed within this time */
    MAX_WAIT_S = 24 * 3600,
};

const struct option_row connection_rows[] = {
    {"server", "HOST:PORT", "where parleyd is (PARLEY_SERVER, else 127.0.0.1:8001); or unix:/PATH",
     OPTION_TEXT, offsetof(struct connection_options, server), 0},
    {"wait", "SECONDS", "how long to wait for it to be ready (5)", OPTION_DOUBLE,
     offsetof(struct connection_options, wait_s), 0},
    {"json", NULL, "print JSON objects, one a line", OPTION_FLAG,
     offsetof(struct connection_options, is_json), 0},
    {0},
};

struct connection_options connection_defaults(void)
{
    const char *server = getenv("PARLEY_SERVER");

    return (struct connection_options){
        .server = server == NULL || *server == '\0' ? "127.0.0.1:8001" : server,
        .wait_s = 5.0,
    };
}

/* Waits in slices, so that a Ctrl-C can end the wait and the remark can be printed during it. */
static enum parley_status wait_ready(struct parley_channel *channel, const char *server,
                                     uint64_t wait_ms, struct parley_error *err)
{
    uint64_t start_ms = env_now_ms(&env_real), waited_ms = 0;
    enum parley_status rc;

    do {
        uint64_t left_ms = wait_ms - waited_ms;

        rc = parley_channel_wait(channel, (uint32_t)(left_ms < SLICE_MS ? left_ms : SLICE_MS), err);
        waited_ms = env_now_ms(&env_real) - start_ms;
        if (rc != PARLEY_OK && waited_ms >= QUIET_MS && waited_ms < wait_ms)
            console_progress("waiting for the server at %s …", server);
    } while (rc != PARLEY_OK && waited_ms < wait_ms && interrupt_sleep(0));
    console_clear();
    return rc;
}

struct parley_channel *connection_open(const struct connection_options *options)
{
    double wait_s = fmin(fmax(options->wait_s, 0.0), MAX_WAIT_S);
    struct parley_channel *channel = parley_channel_open(options->server);
    struct parley_error err = {0};

    if (channel == NULL) {
        console_error("no memory for a connection to %s", options->server);
        return NULL;
    }
    if (wait_ready(channel, options->server, (uint64_t)(wait_s * 1e3), &err) != PARLEY_OK) {
        console_error("no server is ready at %s (waited %.1f s); start one by './run chat' or "
                      "'parleyd', or say by --server where one is",
                      options->server, wait_s);
        parley_channel_close(channel);
        return NULL;
    }
    return channel;
}

enum parley_status connection_call(ProtobufCMessage **out, struct parley_channel *channel,
                                   const char *method, const ProtobufCMessage *request,
                                   const ProtobufCMessageDescriptor *response, uint32_t timeout_ms,
                                   struct parley_error *err)
{
    size_t len = protobuf_c_message_get_packed_size(request), answer_len = 0;
    uint8_t *bytes = xalloc(len + 1);
    void *answer = NULL;
    enum parley_status rc;

    (void)protobuf_c_message_pack(request, bytes);
    rc = parley_unary(channel, method, bytes, len,
                      timeout_ms == 0 ? CONNECTION_TIMEOUT_MS : timeout_ms, &answer, &answer_len,
                      err);
    free(bytes);
    if (rc != PARLEY_OK)
        return rc;
    *out = protobuf_c_message_unpack(response, NULL, answer_len, answer);
    free(answer);
    if (*out == NULL) {
        *err = (struct parley_error){.status = PARLEY_INTERNAL};
        (void)snprintf(err->text, sizeof err->text, "%s answered with what is no %s", method,
                       response->name);
        return PARLEY_INTERNAL;
    }
    return PARLEY_OK;
}

enum exit_code connection_complain(const struct parley_error *err)
{
    console_error("%s [%s]", *err->text == '\0' ? "the call failed" : err->text,
                  parley_status_name(err->status));
    return EXIT_FAILED;
}

enum exit_code connection_run(const struct verb *verb, int argc, char **argv, connection_fn act)
{
    struct connection_options connection = connection_defaults();
    const struct option_group groups[] = {{connection_rows, &connection, NULL}};
    struct parley_channel *channel;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 0, 0, &first, &code))
        return code;
    channel = connection_open(&connection);
    if (channel == NULL)
        return EXIT_FAILED;
    code = act(channel, connection.is_json);
    parley_channel_close(channel);
    return code;
}
