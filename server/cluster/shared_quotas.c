/* Happy path: a tick tells the rates that were used or wanted since the one before, and every
 * second all of them, so that a daemon that uses nothing gives back what others could use.
 *
 * Failure: what could not be told is told with the next tick. Until then the daemon goes on with
 * what is left of its slices. */
#include "server/cluster/shared_quotas.h"

#include <stdlib.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "server/access/quota.h"

enum { SHARED_QUOTAS_TICK_US = 200000, SHARED_QUOTAS_ALL_US = 1000000 };

static void shared_quotas_arm(struct shared_quotas *q)
{
    alarm_set(q->alarm, env_now_us(q->env) + SHARED_QUOTAS_TICK_US);
}

void shared_quotas_start(struct shared_quotas *q, struct journal *journal,
                         const struct access *access)
{
    if (access == NULL)
        return;
    q->journal = journal;
    q->access = access;
    shared_quotas_tick(q);
}

void shared_quotas_deinit(void *quotas)
{
    struct shared_quotas *q = quotas;

    journal_leave(&q->wait);
    free(q->rows);
    free(q->rates);
    free(q->told);
}

static void on_shared_quotas_lent(void *arg, const struct journal_rate *rows, size_t n,
                                  const struct error *err)
{
    struct shared_quotas *q = arg;
    const uint64_t now_us = env_now_us(q->env);

    for (size_t i = 0; i < n; i++)
        if (err->status == STATUS_OK)
            quota_rate_give(q->rates[i], now_us, rows[i].used, rows[i].slice);
        else
            quota_rate_untake(q->rates[i], &q->told[i]);
}

static void shared_quotas_add(struct shared_quotas *q, const char *principal,
                              struct quota_rate *rate, uint32_t kind)
{
    if (rate->limit == 0 ||
        (!q->is_all && rate->is_shared && rate->spent == 0 && rate->wanted == 0))
        return;
    if (q->n_rows == q->room) {
        q->room = q->room == 0 ? 16 : 2 * q->room;
        q->rows = xrealloc(q->rows, q->room * sizeof(q->rows[0]));
        q->rates = xrealloc(q->rates, q->room * sizeof(q->rates[0]));
        q->told = xrealloc(q->told, q->room * sizeof(q->told[0]));
    }
    q->rates[q->n_rows] = rate;
    q->told[q->n_rows] = quota_rate_take(rate);
    q->rows[q->n_rows] = (struct journal_rate){.principal = principal,
                                               .kind = kind,
                                               .limit = rate->limit,
                                               .spent = q->told[q->n_rows].spent,
                                               .wanted = q->told[q->n_rows].wanted};
    q->n_rows++;
}

static void shared_quotas_each(void *arg, const char *principal, struct access_quota *quota)
{
    shared_quotas_add(arg, principal, &quota->requests, QUOTA_REQUESTS);
    shared_quotas_add(arg, principal, &quota->tokens, QUOTA_TOKENS);
}

void shared_quotas_tick(void *quotas)
{
    struct shared_quotas *q = quotas;
    const uint64_t now_us = env_now_us(q->env);

    if (q->journal == NULL)
        return;
    shared_quotas_arm(q);
    if (q->wait.item != NULL)
        return;
    q->is_all = q->all_us == 0 || now_us - q->all_us >= SHARED_QUOTAS_ALL_US;
    q->all_us = q->is_all ? now_us : q->all_us;
    q->n_rows = 0;
    access_each_quota(q->access, shared_quotas_each, q);
    if (q->n_rows > 0)
        journal_lend(q->journal, &q->wait, q->rows, q->n_rows, on_shared_quotas_lent, q);
}
