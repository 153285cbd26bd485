#include "server/rpc/queue.h"

void rpc_queue_init(struct rpc_queue *q, void (*on_tick)(struct rpc_queue *q))
{
    owner_thread_init(&q->owner);
    q->on_tick = on_tick;
    list_init(&q->live);
    list_init(&q->spare);
    list_init(&q->back);
    list_init(&q->ready);
    list_init(&q->unwatched);
    list_init(&q->unwatched_old);
    list_init(&q->delayed);
    list_init(&q->delayed_old);
}

void rpc_queue_open_tick(struct rpc_queue *q, uv_loop_t *loop)
{
    (void)uv_timer_init(loop, &q->tick); /* cannot fail */
}

static void on_tick(uv_timer_t *tick)
{
    struct rpc_queue *q = container_of(tick, struct rpc_queue, tick);

    q->on_tick(q);
    list_move(&q->unwatched, &q->unwatched_old);
    list_move(&q->delayed, &q->delayed_old);
    if (list_is_empty(&q->unwatched_old) && list_is_empty(&q->delayed_old))
        (void)uv_timer_stop(tick); /* cannot fail */
}

void rpc_queue_await_tick(struct rpc_queue *q, struct list *list, struct link *link)
{
    list_push(list, link);
    if (!uv_is_active((uv_handle_t *)&q->tick))
        (void)uv_timer_start(&q->tick, on_tick, UNWATCHED_MS, UNWATCHED_MS); /* nor can this */
}

void rpc_queue_take(const struct rpc_queue *q, struct rpc_op *op, bool ok)
{
    rpc_op_take(op, ok);
    if (op->kind == OP_REQUEST && q->access != NULL)
        op->came_us = env_now_us(q->env);
}

void rpc_queue_cache_open(struct rpc_queue *q)
{
    grpc_completion_queue_thread_local_cache_init(q->events);
}

struct rpc_op *rpc_queue_cache_close(struct rpc_queue *q)
{
    struct rpc_op *op;
    void *tag;
    int ok;

    if (!grpc_completion_queue_thread_local_cache_flush(q->events, &tag, &ok))
        return NULL;
    op = tag;
    rpc_queue_take(q, op, ok != 0);
    return op;
}

void rpc_queue_maybe_stopped(struct rpc_queue *q)
{
    if (!q->is_shut_down || q->server == NULL || q->n_requested > 0 || q->n_live > 0)
        return;
    grpc_server_destroy(q->server);
    q->server = NULL;
    grpc_completion_queue_shutdown(q->events);
}
