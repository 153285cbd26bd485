/* Happy path: a lookup finds that another daemon has the conversation, and cluster_pass_on begins
 * the same call there, with a pass that names the principal. That daemon admits it by cluster_admit
 * and answers it as its own; a call with a pass is never passed on again.
 *
 * Failure: a daemon that was killed refuses connections, and the call is UNAVAILABLE. One that is
 * frozen keeps them: cluster_tick ends its calls once it has no lease. Who passed the call on then
 * asks for the conversation itself. */
#include "server/cluster/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "server/access/pass.h"
#include "server/telemetry/metric.h"

_Static_assert((int)PASS_SECRET_BYTES <= (int)JOURNAL_SECRET_BYTES, "the journal's is the secret");

enum { CLUSTER_LOOK_US = 100000, CLUSTER_RETRY_MS = 100 };

struct cluster_call {
    struct link link;
    struct cluster *of;
    struct outgoing_call *out;
    const struct outgoing_handler *handler;
    void *arg;
    uint64_t judged_from; /* the beat whose daemons were read behind the call's beginning */
    char to[JOURNAL_DAEMON_CHARS];
};

enum status cluster_open(struct cluster *c, struct uv_loop_s *loop, struct journal *journal,
                         const struct outgoing_config *config, struct error *err)
{
    if (outgoing_start(&c->outgoing, loop, config, err) != STATUS_OK)
        return err->status;
    c->journal = journal;
    return STATUS_OK;
}

void cluster_join(struct cluster *c, const char *address)
{
    if (c->journal == NULL)
        return;
    journal_set_address(c->journal, address);
    journal_set_sweeping(c->journal, true);
}

void cluster_drain(void *cluster)
{
    struct cluster *c = cluster;

    if (c->journal == NULL || c->is_draining)
        return;
    c->is_draining = true;
    journal_set_address(c->journal, "");
    journal_set_sweeping(c->journal, false);
}

bool cluster_can_pass_on(const struct cluster *c)
{
    return c != NULL && c->outgoing != NULL && !c->is_stopping;
}

/* Those that cannot be reached are passed over. */
const struct journal_peer *cluster_peer(const struct cluster *c, size_t i)
{
    const struct journal_peer *peer;

    for (size_t at = 0; (peer = journal_other(c->journal, at)) != NULL; at++)
        if (peer->address[0] != '\0' && i-- == 0)
            return peer;
    return NULL;
}

size_t cluster_n_peers(const struct cluster *c)
{
    size_t n = 0;

    while (cluster_peer(c, n) != NULL)
        n++;
    return n;
}

void cluster_watch(struct cluster *c, struct cluster_watcher *w, void (*look)(void *arg), void *arg)
{
    w->look = look;
    w->arg = arg;
    list_push(&c->watchers, &w->link);
    alarm_by(c->alarm, env_now_us(c->env) + CLUSTER_LOOK_US);
}

void cluster_unwatch(struct cluster_watcher *w)
{
    if (link_is_on(&w->link))
        list_remove(&w->link);
}

bool cluster_has_refused(const struct error *err, bool is_unsent)
{
    return is_unsent || (err->status == STATUS_ABORTED && err->reason == REASON_SERVER_DRAINING);
}

bool cluster_has_lost(const struct error *err)
{
    return err->status == STATUS_UNAVAILABLE &&
           (err->reason == REASON_NONE || err->reason == REASON_SERVER_DRAINING);
}

/* --- calls --- */

static void cluster_call_free(struct cluster_call *call)
{
    list_remove(&call->link);
    free(call);
}

static void on_cluster_message(void *arg, struct call_bytes *bytes)
{
    struct cluster_call *call = arg;

    call->handler->message(call->arg, bytes);
}

static void on_cluster_sent(void *arg)
{
    struct cluster_call *call = arg;

    if (call->handler->sent != NULL)
        call->handler->sent(call->arg);
}

static void on_cluster_end(void *arg, const struct error *err, bool is_unsent)
{
    struct cluster_call *call = arg;
    const struct outgoing_handler *handler = call->handler;
    void *handler_arg = call->arg;
    const struct error why = *err;

    call->of->figures.n_unreached += why.status == STATUS_UNAVAILABLE;
    cluster_call_free(call);
    handler->end(handler_arg, &why, is_unsent);
}

struct cluster_call *cluster_pass_on(struct cluster *c, const struct cluster_call_start *start,
                                     const struct outgoing_handler *handler, void *arg)
{
    static const struct outgoing_handler ours = {
        .message = on_cluster_message, .sent = on_cluster_sent, .end = on_cluster_end};
    char pass[PASS_CHARS];
    const struct outgoing_start out = {.address = start->to->address,
                                       .method = start->method,
                                       .header = PASS_HEADER,
                                       .value = pass,
                                       .deadline_us = start->deadline_us,
                                       .now_us = env_now_us(c->env),
                                       .pieces = start->pieces,
                                       .n_pieces = start->n_pieces};
    struct cluster_call *call;

    if (!cluster_can_pass_on(c) ||
        !pass_write(pass, journal_secret(c->journal), journal_self(c->journal), start->to->id,
                    start->principal))
        return NULL;
    call = xalloc(sizeof(*call));
    call->of = c;
    call->handler = handler;
    call->arg = arg;
    call->judged_from = journal_n_beats(c->journal) + 2; /* the next may have begun already */
    memcpy(call->to, start->to->id, sizeof(call->to));
    list_push(&c->calls, &call->link);
    c->figures.n_passed_on++;
    call->out = outgoing_begin(c->outgoing, &out, &ours, call);
    alarm_by(c->alarm, env_now_us(c->env) + CLUSTER_LOOK_US);
    return call;
}

void cluster_call_read(struct cluster_call *call)
{
    outgoing_read(call->out);
}

void cluster_call_send(struct cluster_call *call, const struct call_piece *pieces, size_t n_pieces)
{
    outgoing_send(call->out, pieces, n_pieces);
}

void cluster_call_half_close(struct cluster_call *call)
{
    outgoing_half_close(call->out);
}

void cluster_call_cancel(struct cluster_call *call)
{
    outgoing_cancel(call->out);
    cluster_call_free(call);
}

static void cluster_call_give_up(struct cluster_call *call, const struct error *err)
{
    outgoing_cancel(call->out);
    on_cluster_end(call, err, false);
}

void cluster_tick(void *cluster)
{
    struct cluster *c = cluster;
    struct link *at, *next;
    struct error err;

    (void)error_set(&err, STATUS_UNAVAILABLE, "the parleyd that had the conversation has ended");
    err.retry_after_ms = CLUSTER_RETRY_MS;
    for (at = list_first(&c->calls); at != NULL; at = next) {
        struct cluster_call *call = container_of(at, struct cluster_call, link);

        next = list_next(&c->calls, at);
        if (journal_n_beats(c->journal) >= call->judged_from &&
            !journal_has_other(c->journal, call->to))
            cluster_call_give_up(call, &err);
    }
    for (at = list_first(&c->watchers); at != NULL; at = next) {
        struct cluster_watcher *w = container_of(at, struct cluster_watcher, link);

        next = list_next(&c->watchers, at);
        w->look(w->arg);
    }
    if (!list_is_empty(&c->calls) || !list_is_empty(&c->watchers))
        alarm_set(c->alarm, env_now_us(c->env) + CLUSTER_LOOK_US);
}

/* --- calls of others --- */

enum status cluster_admit(void *cluster, const char *pass, size_t len, enum access_level level,
                          const struct access_key **out, struct error *err)
{
    struct cluster *c = cluster;
    char principal[PASS_PRINCIPAL_CHARS];
    enum status rc =
        pass_read(principal, pass, len, journal_secret(c->journal), journal_self(c->journal), err);

    c->figures.n_taken++;
    if (rc == STATUS_OK && c->is_draining)
        rc = error_because(err, STATUS_ABORTED, REASON_SERVER_DRAINING, NULL,
                           "the parleyd that has the conversation is shutting down");
    if (rc == STATUS_OK)
        rc = access_admit_as(out, c->access, level, principal, err);
    c->figures.n_refused += rc != STATUS_OK;
    return rc;
}

/* --- life --- */

static void on_outgoing_stopped(void *arg)
{
    struct cluster *c = arg;

    c->outgoing = NULL;
    c->stopped(c->stopped_arg);
}

bool cluster_stop(struct cluster *c, void (*stopped)(void *arg), void *arg)
{
    struct error err;
    struct link *at;

    if (c->outgoing == NULL)
        return true;
    if (c->is_stopping)
        return false;
    c->is_stopping = true;
    c->stopped = stopped;
    c->stopped_arg = arg;
    (void)error_draining(&err);
    while ((at = list_first(&c->calls)) != NULL)
        cluster_call_give_up(container_of(at, struct cluster_call, link), &err);
    outgoing_stop(c->outgoing, on_outgoing_stopped, c);
    return false;
}

void cluster_metrics(const struct cluster *c, struct buf *out)
{
    static const struct metric_row rows[] = {
        METRIC("counter", "parley_cluster_passed_on_total",
               "Calls for a conversation that another daemon has, which that daemon answers.",
               cluster_figures, n_passed_on),
        METRIC("counter", "parley_cluster_unreached_total",
               "Of those, calls whose daemon could not be reached, or ended.", cluster_figures,
               n_unreached),
        METRIC("counter", "parley_cluster_taken_total",
               "Calls that other daemons passed on to this one.", cluster_figures, n_taken),
        METRIC("counter", "parley_cluster_refused_total",
               "Of those, calls without a valid pass, or while this daemon stops.", cluster_figures,
               n_refused),
    };

    if (c == NULL || c->journal == NULL)
        return;
    METRIC_ROWS(out, rows, &c->figures);
    metric_one(out, "parley_cluster_daemons", "gauge",
               "Daemons that share the journal and live, this one included.",
               (double)(1 + journal_n_others(c->journal)));
}
