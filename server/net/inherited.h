/* Listening sockets that the program which started this process has opened already, by systemd's
 * protocol: LISTEN_PID is this process, and the descriptors 3 to 2 + LISTEN_FDS are the sockets.
 * They outlive the process, so a connection is never refused: it waits in the socket's queue for
 * the next process, or for the other one that has the same sockets. Loop. */
#ifndef SERVER_NET_INHERITED_H
#define SERVER_NET_INHERITED_H

#include <stddef.h>
#include <sys/socket.h>

#include "base/status.h"

enum { INHERITED_MAX = 16 };

struct inherited {
    int fds[INHERITED_MAX]; /* [n]; owned; -1: a listener has it */
    size_t n;
};

/* Takes the sockets that the environment names over, and removes its variables, so that no child
 * finds them. Without LISTEN_FDS, or where LISTEN_PID is another process, there are none. INVALID:
 * a descriptor is no listening socket of streams, or there are more than INHERITED_MAX. */
enum status inherited_open(struct inherited *in, struct error *err) MUST_CHECK;
/* Returns the socket that listens at this address, and gives it to the caller; -1: there is none.
 * A socket of [::] that takes IPv4 as well is at 0.0.0.0, too. in may be NULL. */
int inherited_take(struct inherited *in, const struct sockaddr *at, socklen_t len);
/* INVALID, naming its address, if a socket was not taken: nobody would answer there. */
enum status inherited_check(const struct inherited *in, struct error *err) MUST_CHECK;
/* Closes the sockets that were not taken. */
void inherited_close(struct inherited *in);

#endif
