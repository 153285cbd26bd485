/* The rates of principals (requests and tokens a minute) hold for all daemons together that share a
 * journal. Each daemon has a slice of what is left, tells several times a second what it has used,
 * and gets another slice. A request that the slice is too small for, while enough is left, is
 * refused, and told to come again when the next slice is there. Loop. */
#ifndef SERVER_CLUSTER_SHARED_QUOTAS_H
#define SERVER_CLUSTER_SHARED_QUOTAS_H

#include "server/access/access.h"
#include "server/journal/journal.h"

struct access_quota;
struct alarm;
struct env;
struct quota_rate;
struct quota_told;

struct shared_quotas {
    const struct env *env;
    struct journal *journal; /* NULL: nothing is shared */
    const struct access *access;
    struct alarm *alarm; /* rings shared_quotas_tick */
    struct journal_wait wait;
    uint64_t all_us; /* when all rates were told last, not only those that are used */
    bool is_all;
    /* What is being told. */
    struct journal_rate *rows; /* [n_rows] */
    struct quota_rate **rates; /* [n_rows] */
    struct quota_told *told;   /* [n_rows] */
    size_t n_rows, room;
};

/* Begins to share. journal is shared; access may be NULL: there are no quotas. */
void shared_quotas_start(struct shared_quotas *q, struct journal *journal,
                         const struct access *access);
void shared_quotas_tick(void *quotas);
void shared_quotas_deinit(void *quotas);

#endif
