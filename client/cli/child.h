/* Processes that a verb starts beside itself: a parleyd of its own, observers, trainers. They die
 * with the process that started them. */
#ifndef CLIENT_CLI_CHILD_H
#define CLIENT_CLI_CHILD_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/status.h"

struct child {
    pid_t pid; /* 0: none */
    int fd;    /* what it prints on the stream that is read; -1: none */
    char line[16384];
    size_t n_line; /* bytes read and not yet handed out */
};

enum child_reads { CHILD_READS_STDOUT, CHILD_READS_STDERR };

/* argv[0] is a path, or a name for PATH. The other of stdout and stderr stays ours. */
enum status child_start(struct child *out, char *const *argv, enum child_reads reads,
                        struct error *err) MUST_CHECK;

/* The next line, without its end; longer ones are cut. STATUS_DEADLINE after timeout_ms,
 * STATUS_UNAVAILABLE when it prints no more. */
enum status child_line(struct child *c, char *line, size_t size, uint32_t timeout_ms,
                       struct error *err) MUST_CHECK;

/* Waits for its end; a child that did not end by itself with 0 is STATUS_ABORTED. usage may be
 * NULL. */
enum status child_wait(struct child *c, struct rusage *usage, struct error *err) MUST_CHECK;

/* SIGTERM, then SIGKILL after five seconds, then waits. A child that is none is fine. */
void child_stop(struct child *c, struct rusage *usage);

/* The running program's own path, and that of a program beside it. */
enum { CHILD_PATH_MAX = 4096 };
enum status child_path(char out[CHILD_PATH_MAX], const char *name, struct error *err) MUST_CHECK;

/* A parleyd on a free port of 127.0.0.1, the one that lies beside this program or else on PATH.
 * flags: [n_flags], further arguments. address is for parley_channel_open. */
struct served {
    struct child child;
    char address[64];
};

enum status served_start(struct served *out, const char *const *flags, size_t n_flags,
                         struct error *err) MUST_CHECK;
void served_stop(struct served *s, struct rusage *usage);

#endif
