/* Ages say how long stored conversations have been idle. They do not trust the clock: a clock that
 * is wrong when the machine starts must not make conversations old. Between two successive records
 * of earlier processes at most a bounded time counts, however far apart the records' times are. The
 * time between the newest of these records and the start of this process does not count. The time
 * that this process has run counts. The functions may be called on any thread. */
#ifndef SERVER_CONVERSATION_AGES_H
#define SERVER_CONVERSATION_AGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct last_record {
    uint64_t seq, unix_ms; /* seq is the record's place in the order of writing */
};

/* The last record of each conversation that an earlier process wrote. */
struct ages {
    struct last_record *last; /* [n] in room for cap */
    size_t n, cap;
};

void ages_init(struct ages *a);
void ages_deinit(struct ages *a);

enum status ages_add(struct ages *a, uint64_t seq, uint64_t unix_ms, struct error *err) MUST_CHECK;

/* Returns the greatest seq of a record that is at least age_ms old when this process has run for
 * up_ms; 0: there is none. Sorts the records. */
uint64_t ages_find(struct ages *a, uint64_t age_ms, uint64_t up_ms);

#endif
