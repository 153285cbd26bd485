/* The addresses of servers, and the causes for which a server is not reached, each in one sentence.
 * The Python package has the same sentences (client/python/parley/reach.py); a test compares them.
 * Any thread. */
#ifndef CLIENT_LIB_REACH_H
#define CLIENT_LIB_REACH_H

#include <stdbool.h>

#include "client/lib/parley.h"

enum { REACH_ADDRESS_SIZE = 256 };

/* Writes the address as gRPC takes it: a host without a port gets 8001, the port of parleyd; an
 * IPv6 address without brackets gets them. If the address is malformed or too long, the function
 * returns false, *out is the address, cut to its size, and *err says what is wrong, with status
 * INVALID_ARGUMENT and reason ADDRESS_MALFORMED. */
bool reach_address(char out[REACH_ADDRESS_SIZE], const char *address, struct parley_error *err);

/* Explains the failure of a call to which no server has answered. err->text is gRPC's text; it
 * becomes one sentence about the address. err->reason becomes the cause; CONNECTION_LOST if the
 * text names none that prevents a connection: words that are not known stand behind the sentence,
 * as "(gRPC: no healthy upstream)" of a proxy. err->status stays. */
void reach_explain(struct parley_error *err, const char *address, bool is_tls);
/* The same for a call that ended by its deadline, without a word from anybody. */
void reach_explain_silence(struct parley_error *err, const char *address);

/* Returns whether a key can be sent: printable ASCII without spaces. */
bool reach_is_key(const char *key);

/* Returns what is wrong with a text that should have such a block of PEM ("CERTIFICATE",
 * "PRIVATE KEY"), to stand behind its name; NULL: nothing. */
const char *reach_pem_fault(const char *text, const char *block);

/* Returns whether a failure's reason is one of these causes: no server has answered. */
bool reach_is_cause(const struct parley_error *err);

/* Returns whether the cause stays until the caller changes something: waiting does not help. */
bool reach_is_final(const struct parley_error *err);

#endif
