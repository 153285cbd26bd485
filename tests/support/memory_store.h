/* A journal's store in memory, for tests of what is kept as things: it outlives the journal, as a
 * disk does. It is the journal's thread's, but between two runs of the loop. */
#ifndef TESTS_SUPPORT_MEMORY_STORE_H
#define TESTS_SUPPORT_MEMORY_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "server/journal/journal.h"

enum { KEPT_MAX = 256, KEPT_NAME_MAX = 128, KEPT_BODY_MAX = 1024 };

struct memory_store {
    struct journal_store base;
    size_t n;
    struct kept {
        char name[KEPT_NAME_MAX];
        char body[KEPT_BODY_MAX];
        size_t size_bytes;
        bool is_large;           /* the body is that of memory_store_enlarge */
    } kept[KEPT_MAX];            /* [n] in the order of writing */
    bool is_elsewhere;           /* another process has the things */
    bool is_failing;             /* nothing can be read */
    bool is_full;                /* nothing can be written */
    bool is_dead;                /* the process is killed: what it writes does not come */
    unsigned n_failing, n_by_id; /* of reads by id: how many fail, how many there were */
    unsigned n_closed;           /* conversations */
};

extern struct memory_store store;
extern const struct journal_store_type memory_type;

/* Opens a journal with the store. max_waiting_bytes as of struct journal_config. */
struct journal *memory_store_open(uv_loop_t *loop, size_t max_waiting_bytes);
/* Runs the loop until what was appended is in the store, or was refused. */
void memory_store_settle(struct journal *j, uv_loop_t *loop);
/* Has a text of n_bytes 'x' in place of another one in the thing that was written last and whose
 * name begins with a kind; one thing at a time is so large. */
void memory_store_enlarge(char kind, const char *text, size_t n_bytes);
/* Stops the journal, and closes the loop. */
void memory_store_close(struct journal *j, uv_loop_t *loop);

#endif
