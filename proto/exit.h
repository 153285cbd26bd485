/* Keeps OpenSSL usable while a process ends. */
#ifndef PROTO_EXIT_H
#define PROTO_EXIT_H

#include <stdbool.h>

/* Has OpenSSL keep its locks and tables until the process is gone. By itself OpenSSL frees them in
 * exit(), when threads of gRPC may still end a TLS handshake; they then take a lock that is NULL.
 * Call this before anything else uses OpenSSL; returns false if OpenSSL cannot be initialised. Any
 * thread. */
bool exit_keeps_openssl(void);

#endif
