/* The connection of a verb to a server: the options that say where the server is, and the wait
 * until the server is ready. */
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
    double wait_s;                   /* how long to wait until the server is ready */
    bool is_json;
    bool may_lack_health; /* a server without a health service is ready once it answers */
};

/* The rows of --server, --wait, --json, --key-file, --tls, --ca, --cert and --tls-key. */
extern const struct option_row connection_rows[];
/* Returns the defaults: the server of PARLEY_SERVER, else 127.0.0.1:8001, and a wait of 5 s. */
struct connection_options connection_defaults(void);

/* Reads the key from the file of --key-file, else from PARLEY_API_KEY; NULL: there is no key. The
 * caller frees the key. False: the file cannot be read, and an error was printed. */
bool connection_read_key(char **out, const struct connection_options *options) MUST_CHECK;

/* Waits until the server is ready, and prints a remark if that takes long. The caller calls
 * parley_channel_close. NULL: the server was not ready in time, or there was a Ctrl-C and
 * interrupts are caught; an error was printed, and *ret_code, which may be NULL, is EXIT_MISUSE if
 * the options are at fault, else EXIT_FAILED. */
struct parley_channel *connection_open(const struct connection_options *options,
                                       enum exit_code *ret_code);

/* Returns how long --wait says that a lost connection is looked for. */
uint32_t connection_patience_ms(const struct connection_options *options);

/* Is a whole verb that has the connection's options alone: reads the options, connects, and calls
 * act. */
typedef enum exit_code (*connection_fn)(struct parley_channel *channel, bool is_json);
enum exit_code connection_run(const struct verb *verb, int argc, char **argv, connection_fn act);

/* Makes a unary call with messages. The caller frees *out by protobuf_c_message_free_unpacked.
 * timeout_ms 0: CONNECTION_TIMEOUT_MS. */
enum { CONNECTION_TIMEOUT_MS = 30 * 1000 };
enum parley_status connection_call(ProtobufCMessage **out, struct parley_channel *channel,
                                   const char *method, const ProtobufCMessage *request,
                                   const ProtobufCMessageDescriptor *response, uint32_t timeout_ms,
                                   struct parley_error *err);

/* Prints why a call failed, and what to do if that is known. The function returns EXIT_FAILED. */
enum exit_code connection_complain(const struct parley_error *err);

#endif
