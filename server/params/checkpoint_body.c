#include "server/params/checkpoint_body.h"

#include <string.h>

#include "agents/params/params.h"
#include "server/params/bounds.h"

enum { CHECKPOINT_MAX_MOMENTS = 2 };

enum status checkpoint_body_write(struct buf *out, const struct checkpoint_body *b,
                                  struct error *err)
{
    struct body_writer w = {.out = out};

    body_put_bytes(&w, b->config, b->config_size);
    body_put_u64(&w, b->n);
    body_put_u32(&w, b->n_moments);
    body_put_u64(&w, b->version);
    body_put_bytes(&w, b->sha256, sizeof(b->sha256));
    body_put_u64(&w, b->counters.rounds);
    body_put_u64(&w, b->counters.partial);
    body_put_u64(&w, b->counters.aborted);
    body_put_u64(&w, b->counters.duplicates);
    body_put_u64(&w, b->counters.dropped);
    body_put_u32(&w, b->n_clients);
    for (uint32_t i = 0; i < b->n_clients; i++) {
        body_put_text(&w, b->clients[i].id);
        body_put_u64(&w, b->clients[i].last_step);
        body_put_u64(&w, b->clients[i].last_version);
    }
    body_put_u32(&w, b->n_steps);
    for (uint32_t i = 0; i < b->n_steps; i++)
        body_put_u64(&w, b->steps[i]);
    return body_written(&w, err);
}

static void checkpoint_take_exactly(struct body_reader *r, uint8_t *out, size_t size_bytes)
{
    size_t len;
    const void *bytes = body_take_bytes(r, &len);

    r->is_bad = r->is_bad || len != size_bytes;
    if (!r->is_bad)
        memcpy(out, bytes, size_bytes);
}

enum status checkpoint_body_read(struct checkpoint_body *out, struct body_reader *r,
                                 struct error *err)
{
    struct checkpoint_client *clients;
    uint64_t *steps;

    *out = (struct checkpoint_body){0};
    out->config = body_take_bytes(r, &out->config_size);
    out->n = body_take_u64(r);
    out->n_moments = body_take_up_to(r, CHECKPOINT_MAX_MOMENTS);
    out->version = body_take_u64(r);
    checkpoint_take_exactly(r, out->sha256, sizeof(out->sha256));
    out->counters.rounds = body_take_u64(r);
    out->counters.partial = body_take_u64(r);
    out->counters.aborted = body_take_u64(r);
    out->counters.duplicates = body_take_u64(r);
    out->counters.dropped = body_take_u64(r);
    out->n_clients = body_take_up_to(r, PARAMS_MAX_CONTRIBUTORS);
    clients = body_take_array(r, out->n_clients, sizeof(clients[0]), 24);
    for (uint32_t i = 0; clients != NULL && i < out->n_clients; i++) {
        clients[i].id = body_take_text(r);
        clients[i].last_step = body_take_u64(r);
        clients[i].last_version = body_take_u64(r);
    }
    out->clients = clients;
    if (r->version < 2)
        return body_end(r, err);
    out->n_steps = body_take_up_to(r, PARAMS_MAX_TENSORS);
    steps = body_take_array(r, out->n_steps, sizeof(steps[0]), 8);
    for (uint32_t i = 0; steps != NULL && i < out->n_steps; i++)
        steps[i] = body_take_u64(r);
    out->steps = steps;
    return body_end(r, err);
}
