/* Opens a channel by the options of the connection, and waits until the server says that it is
 * ready. A long wait prints a remark, and a Ctrl-C ends the wait. */
#include "client/cli/connection.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "client/cli/server_hint.h"
#include "client/lib/reach.h"

enum {
    QUIET_MS = 1000, /* a shorter wait prints no remark */
    SLICE_MS = 250,  /* a Ctrl-C during the wait is noticed within this time */
    MAX_WAIT_S = 24 * 3600,
    HINT_SIZE = 4200, /* a path and a few words */
};

const struct option_row connection_rows[] = {
    {"server", "HOST:PORT",
     "the address of parleyd, or unix:/PATH (PARLEY_SERVER, else 127.0.0.1:8001)", OPTION_TEXT,
     offsetof(struct connection_options, server), 0},
    {"wait", "SECONDS", "how long to wait for the server to be ready, or to be back (5)",
     OPTION_DOUBLE_FROM_0, offsetof(struct connection_options, wait_s), 0},
    {"key-file", "FILE", "a file whose first line is the key to call with (PARLEY_API_KEY)",
     OPTION_TEXT, offsetof(struct connection_options, key_file), 0},
    {"tls", NULL, "use TLS; implied by --ca and --cert", OPTION_FLAG,
     offsetof(struct connection_options, is_tls), 0},
    {"ca", "FILE",
     "PEM file with the authorities that sign the server's certificate (the system's)", OPTION_TEXT,
     offsetof(struct connection_options, ca), 0},
    {"cert", "FILE", "PEM file with the client certificate, if the server requires one",
     OPTION_TEXT, offsetof(struct connection_options, cert), 0},
    {"tls-key", "FILE", "PEM file with the client certificate's private key", OPTION_TEXT,
     offsetof(struct connection_options, tls_key), 0},
    {"json", NULL, "print JSON objects, one per line", OPTION_FLAG,
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

enum { SECRET_MAX_BYTES = 1 << 20 };

/* The texts that a channel is opened with; the caller frees them by secrets_free. */
struct connection_secrets {
    char *key, *ca, *cert, *tls_key; /* NULL: none */
};

static void secrets_free(struct connection_secrets *s)
{
    free(s->key);
    free(s->ca);
    free(s->cert);
    free(s->tls_key);
}

/* False, with an error printed, if it cannot be read. */
static bool read_secret(char **out, const char *path)
{
    FILE *file;
    size_t len;

    if (path == NULL)
        return true;
    file = fopen(path, "re");
    if (file == NULL) {
        console_error("%s: %s", path, strerror(errno));
        return false;
    }
    *out = xalloc(SECRET_MAX_BYTES);
    errno = 0;
    len = fread(*out, 1, SECRET_MAX_BYTES - 1, file); /* the rest is zero: it ends the text */
    if (len == 0 && errno != 0)
        console_error("%s: %s", path, strerror(errno));
    else if (len == 0)
        console_error("%s is empty", path);
    (void)fclose(file);
    if (len > 0)
        return true;
    return false;
}

bool connection_read_key(char **out, const struct connection_options *options)
{
    const char *key = getenv("PARLEY_API_KEY");

    *out = NULL;
    if (!read_secret(out, options->key_file))
        return false;
    if (*out == NULL && key != NULL && *key != '\0')
        *out = xstrdup(key);
    if (*out == NULL)
        return true;
    (*out)[strcspn(*out, "\r\n")] = '\0';
    if (reach_is_key(*out))
        return true;
    console_error("the key of %s has a character that no key has, such as a space",
                  options->key_file == NULL ? "PARLEY_API_KEY" : options->key_file);
    free(*out);
    *out = NULL;
    return false;
}

/* As read_secret; the text has such a block of PEM. */
static bool read_pem(char **out, const char *path, const char *block)
{
    const char *fault;

    if (!read_secret(out, path))
        return false;
    fault = *out == NULL ? NULL : reach_pem_fault(*out, block);
    if (fault != NULL)
        console_error("%s %s", path, fault);
    return fault == NULL;
}

static bool read_secrets(struct connection_secrets *out, const struct connection_options *options,
                         enum exit_code *ret_code)
{
    *out = (struct connection_secrets){0};
    if ((options->cert == NULL) != (options->tls_key == NULL)) {
        console_error("--cert and --tls-key must be given together");
        *ret_code = EXIT_MISUSE;
        return false;
    }
    return connection_read_key(&out->key, options) &&
           read_pem(&out->ca, options->ca, "CERTIFICATE") &&
           read_pem(&out->cert, options->cert, "CERTIFICATE") &&
           read_pem(&out->tls_key, options->tls_key, "PRIVATE KEY");
}

static struct parley_channel *open_channel(const struct connection_options *options,
                                           enum exit_code *ret_code)
{
    struct parley_channel *channel = NULL;
    struct connection_secrets s;

    if (read_secrets(&s, options, ret_code)) {
        const struct parley_channel_options with = {
            .address = options->server,
            .key = s.key,
            .is_tls = options->is_tls || s.ca != NULL || s.cert != NULL,
            .ca = s.ca,
            .certificate = s.cert,
            .private_key = s.tls_key,
        };

        channel = parley_channel_open_with(&with);
        if (channel == NULL)
            console_error("no connection to %s: memory is exhausted", options->server);
    }
    secrets_free(&s);
    return channel;
}

/* Waits in slices, so that a Ctrl-C can end the wait and the remark can be printed during it. What
 * a longer wait cannot change ends it at once. */
static enum parley_status wait_ready(struct parley_channel *channel,
                                     const struct connection_options *options, uint64_t wait_ms,
                                     uint64_t *ret_waited_ms, struct parley_error *err)
{
    uint64_t start_ms = env_now_ms(&env_real), waited_ms = 0;
    enum parley_status rc;

    do {
        uint64_t left_ms = wait_ms - waited_ms;

        rc = parley_channel_wait(channel, (uint32_t)(left_ms < SLICE_MS ? left_ms : SLICE_MS), err);
        if (rc == PARLEY_UNIMPLEMENTED && options->may_lack_health)
            rc = PARLEY_OK;
        waited_ms = env_now_ms(&env_real) - start_ms;
        if (rc != PARLEY_OK && waited_ms >= QUIET_MS && waited_ms < wait_ms)
            console_progress("waiting: %s …", err->text);
    } while (rc == PARLEY_DEADLINE_EXCEEDED && waited_ms < wait_ms && interrupt_sleep(0));
    console_clear();
    *ret_waited_ms = waited_ms;
    return rc;
}

uint32_t connection_patience_ms(const struct connection_options *options)
{
    return (uint32_t)(fmin(options->wait_s, MAX_WAIT_S) * 1e3); /* a day at most */
}

static void complain_of_wait(const struct parley_error *err,
                             const struct connection_options *options, uint64_t waited_ms)
{
    char hint[HINT_SIZE];

    if (err->status != PARLEY_DEADLINE_EXCEEDED) {
        console_error("%s", err->text);
        return;
    }
    *hint = '\0';
    if (strcmp(err->reason, "NOTHING_LISTENS") == 0)
        server_hint(hint, sizeof(hint), options->server);
    console_error("%s (waited %.1f s; %s%s--server names another)", err->text,
                  (double)waited_ms / 1e3, hint, *hint == '\0' ? "" : ", ");
}

struct parley_channel *connection_open(const struct connection_options *options,
                                       enum exit_code *ret_code)
{
    const uint32_t wait_ms = connection_patience_ms(options);
    enum exit_code code = EXIT_FAILED;
    struct parley_channel *channel;
    struct parley_error err = {0};
    uint64_t waited_ms;

    channel = open_channel(options, &code);
    if (channel != NULL && wait_ready(channel, options, wait_ms, &waited_ms, &err) != PARLEY_OK) {
        complain_of_wait(&err, options, waited_ms);
        parley_channel_close(channel);
        channel = NULL;
        if (strcmp(err.reason, "ADDRESS_MALFORMED") == 0)
            code = EXIT_MISUSE;
    }
    if (channel != NULL)
        parley_channel_set_patience(channel, wait_ms);
    else if (ret_code != NULL)
        *ret_code = code;
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
        (void)snprintf(err->text, sizeof(err->text), "%s sent an answer that is not a %s", method,
                       response->name);
        return PARLEY_INTERNAL;
    }
    return PARLEY_OK;
}

/* What a person calls a request's field. */
static const struct {
    const char *field, *said;
} fields[] = {{"at_turn", "the turn"},
              {"to_turn", "the turn"},
              {"turn", "the turn"},
              {"conversation", "the conversation"},
              {"messages[0].text", "the message"},
              {"messages", "the message"}};

/* What a person can do, behind the server's sentence. */
static const struct {
    const char *reason, *hint;
} hints[] = {{"KEY_MISSING", "; --key-file FILE or PARLEY_API_KEY gives it"},
             {"CONVERSATION_NOT_FOUND", "; 'parley conversations' lists them"}};

enum exit_code connection_complain(const struct parley_error *err)
{
    const char *text = *err->text == '\0' ? "the call failed" : err->text, *said = "", *hint = "";

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const size_t len = strlen(fields[i].field);

        if (strcmp(err->field, fields[i].field) == 0 && strncmp(text, err->field, len) == 0 &&
            text[len] == ' ') {
            said = fields[i].said;
            text += len;
            break;
        }
    }
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (strcmp(err->reason, hints[i].reason) == 0)
            hint = hints[i].hint;
    console_error("%s%s%s [%s]", said, text, hint, parley_status_name(err->status));
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
    channel = connection_open(&connection, &code);
    if (channel == NULL)
        return code;
    code = act(channel, connection.is_json);
    parley_channel_close(channel);
    return code;
}
