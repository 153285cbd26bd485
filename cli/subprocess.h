/* Processes that a verb starts: a parleyd, environment workers, trainers. The kernel ends each of
 * them with the process that started it. */
#ifndef CLI_SUBPROCESS_H
#define CLI_SUBPROCESS_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/status.h"

struct subprocess {
    pid_t pid; /* 0: there is no process */
    int fd;    /* what the process prints on the stream that is read; -1: none */
    char line[16384];
    size_t n_line; /* bytes read and not yet handed out */
};

enum subprocess_reads { SUBPROCESS_READS_STDOUT, SUBPROCESS_READS_STDERR };

/* Starts a program; argv[0] is its path, or its name in PATH. The process inherits that stream of
 * stdout and stderr which is not read. */
enum status subprocess_start(struct subprocess *out, char *const *argv, enum subprocess_reads reads,
                             struct error *err) MUST_CHECK;

/* Reads the next line, without its newline; a line longer than size is cut. STATUS_DEADLINE: there
 * was no line within timeout_ms. STATUS_UNAVAILABLE: the process prints no more. */
enum status subprocess_line(struct subprocess *p, char *line, size_t size, uint32_t timeout_ms,
                            struct error *err) MUST_CHECK;

/* Waits for the end of the process. STATUS_ABORTED: the process ended, but not by an exit with 0.
 * usage may be NULL. */
enum status subprocess_wait(struct subprocess *p, struct rusage *usage,
                            struct error *err) MUST_CHECK;

/* Ends the process by SIGTERM, after five seconds by SIGKILL, and waits for its end. A zeroed
 * struct is allowed. */
void subprocess_stop(struct subprocess *p, struct rusage *usage);

/* Writes the path of the program `name` beside the running program, or `name` itself if there is no
 * such program. name NULL: writes the path of the running program. */
enum { PROGRAM_PATH_MAX = 4096 };
enum status program_path(char out[PROGRAM_PATH_MAX], const char *name,
                         struct error *err) MUST_CHECK;

/* A parleyd on a free port of 127.0.0.1; address is for parley_channel_open. The program is the
 * parleyd beside the running program, else the parleyd in PATH. flags: [n_flags] further
 * arguments. */
struct served {
    struct subprocess subprocess;
    char address[64];
};

enum status served_start(struct served *out, const char *const *flags, size_t n_flags,
                         struct error *err) MUST_CHECK;
void served_stop(struct served *s, struct rusage *usage);

#endif
