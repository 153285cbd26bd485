/* How long stored conversations have been idle, without trusting a clock: one that is set wrong
 * when the machine starts must not make them old. Between two records that were written one after
 * the other by earlier processes a bounded time counts, however far their times lie apart; what
 * lies between the newest of those and this process does not count; this process' own time does.
 * Any thread. */
#ifndef SERVER_CONVERSATION_AGES_H
#define SERVER_CONVERSATION_AGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct last_record {
    uint64_t seq, unix_ms; /* seq: in the order of writing */
};

/* The last records of conversations, of earlier processes. */
struct ages {
    struct last_record *last; /* [n] of room for cap */
    size_t n, cap;
};

void ages_init(struct ages *a);
void ages_deinit(struct ages *a);

enum status ages_add(struct ages *a, uint64_t seq, uint64_t unix_ms, struct error *err) MUST_CHECK;

/* The greatest seq of a record that is at least age_ms old, when this process has run for
 * up_ms; 0: none. Sorts. */
uint64_t ages_find(struct ages *a, uint64_t age_ms, uint64_t up_ms);

#endif
