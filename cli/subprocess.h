/* Processes that a verb starts beside itself: a parleyd, environment workers, trainers. They die
 * with the process that started them. */
#ifndef CLI_SUBPROCESS_H
#define CLI_SUBPROCESS_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/status.h"

struct subprocess {
    pid_t pid; /* 0: none */
    int fd;    /* its output on the stream that is read; -1: none */
    char line[16384];
    size_t n_line; /* bytes read and not yet handed out */
};

enum subprocess_reads { SUBPROCESS_READS_STDOUT, SUBPROCESS_READS_STDERR };

/* argv[0] is a path, or a name for PATH. The other of stdout and stderr is inherited. */
enum status subprocess_start(struct subprocess *out, char *const *argv, enum subprocess_reads reads,
                             struct error *err) MUST_CHECK;

/* The next line, without its newline; longer lines are cut. STATUS_DEADLINE after timeout_ms,
 * STATUS_UNAVAILABLE at the end of its output. */
enum status subprocess_line(struct subprocess *p, char *line, size_t size, uint32_t timeout_ms,
                            struct error *err) MUST_CHECK;

/* Waits for its end; any end but an exit with 0 is STATUS_ABORTED. usage may be
 * NULL. */
enum status subprocess_wait(struct subprocess *p, struct rusage *usage,
                            struct error *err) MUST_CHECK;

/* SIGTERM, then SIGKILL after five seconds, then waits. A zeroed one is fine. */
void subprocess_stop(struct subprocess *p, struct rusage *usage);

/* The running program's own path, and that of a program beside it. */
enum { PROGRAM_PATH_MAX = 4096 };
enum status program_path(char out[PROGRAM_PATH_MAX], const char *name,
                         struct error *err) MUST_CHECK;

/* A parleyd on a free port of 127.0.0.1; the program is the one beside this program, else the one
 * on PATH. flags: [n_flags], further arguments. address is for parley_channel_open. */
struct served {
    struct subprocess subprocess;
    char address[64];
};

enum status served_start(struct served *out, const char *const *flags, size_t n_flags,
                         struct error *err) MUST_CHECK;
void served_stop(struct served *s, struct rusage *usage);

#endif
