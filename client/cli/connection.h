/* The connection to a server, for the verbs that need one: its address, and waiting until it is
 * ready. */
#ifndef CLIENT_CLI_CONNECTION_H
#define CLIENT_CLI_CONNECTION_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/options/options.h"
#include "client/lib/parley.h"

struct connection_options {
    const char *server;
    const char *key_file; /* the file whose first line is the key; NULL: PARLEY_API_KEY */
    bool is_tls;
    const char *ca, *cert, *tls_key; /* files, PEM; NULL: none */
    double wait_s;                   /* for the server to be ready */
    bool is_json;
    bool may_lack_health; /* a server without gRPC's health service is ready when it says so */
};

/* --server, --wait, --json; --key-file, --tls, --ca, --cert, --tls-key */
extern const struct option_row connection_rows[];
/* The defaults: PARLEY_SERVER, else 127.0.0.1:8001; 5 s. */
struct connection_options connection_defaults(void);

/* Our key: of --key-file, else of PARLEY_API_KEY; NULL where there is none. The caller frees it.
 * False, with an error printed, if the file cannot be read. */
bool connection_read_key(char **out, const struct connection_options *options) MUST_CHECK;

/* Waits until the server is ready, and prints a remark when that takes long. NULL, with an error
 * printed, when it is not ready in time, or after a Ctrl-C if interrupts are caught. The caller
 * calls parley_channel_close. */
struct parley_channel *connection_open(const struct connection_options *options);

/* A complete verb that takes only the connection's options: reads them, connects, acts. */
typedef enum exit_code (*connection_fn)(struct parley_channel *channel, bool is_json);
enum exit_code connection_run(const struct verb *verb, int argc, char **argv, connection_fn act);

/* A unary call with messages. The caller frees *out by protobuf_c_message_free_unpacked. timeout_ms
 * 0: CONNECTION_TIMEOUT_MS. */
enum { CONNECTION_TIMEOUT_MS = 30 * 1000 };
enum parley_status connection_call(ProtobufCMessage **out, struct parley_channel *channel,
                                   const char *method, const ProtobufCMessage *request,
                                   const ProtobufCMessageDescriptor *response, uint32_t timeout_ms,
                                   struct parley_error *err);

/* Prints why a call failed, and a remedy where one is known. */
enum exit_code connection_complain(const struct parley_error *err);

#endif
