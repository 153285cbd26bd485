#include "tests/support/lm_driver.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct agent_config drive_config(const char *backend, size_t kv_pages)
{
    /* keys and values, layers, heads, page */
    const size_t page =
        2 * TINY_LAYERS * TINY_KV_HEADS * KV_PAGE_TOKENS * kv_head_bytes(KV_F32, TINY_HEAD_DIM);

    return (struct agent_config){.name = "tiny",
                                 .options.backend = backend,
                                 .options.n_threads = 1,
                                 .options.kv_bytes = kv_pages * page,
                                 .options.kv_type = KV_F32,
                                 .max_step_tokens = 256,
                                 .env = &env_real};
}

enum status drive_open(struct agent **out, const struct tiny_config *tiny,
                       struct agent_config *config, struct error *err)
{
    struct tiny_model model;
    char path[64];
    int fd = memfd_create("tiny.gguf", MFD_CLOEXEC);
    ssize_t written;
    enum status rc;

    assert(fd >= 0);
    tiny_model_init(&model, tiny);
    written = write(fd, model.bytes, model.size_bytes);
    assert(written == (ssize_t)model.size_bytes);
    tiny_model_deinit(&model);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    config->path = path;
    rc = agent_open(out, "lm", config, err);
    config->path = NULL;
    (void)close(fd); /* a memory file: nothing is lost */
    return rc;
}

static enum status drive_observe(struct drive *d, struct clone *c, const struct message *messages,
                                 size_t n_messages, const struct sampling *s,
                                 const struct template_variables *variables, struct error *err)
{
    struct message *own;

    *d = (struct drive){.clone = c};
    arena_init(&d->arena, 16 << 20);
    agent_turn_init(&d->turn, &d->arena, 1 << 20);
    own = arena_alloc(&d->arena, n_messages, sizeof(*own));
    if (own == NULL)
        return error_no_memory(err, n_messages * sizeof(*own), "messages");
    memcpy(own, messages, n_messages * sizeof(*own));
    d->turn.seen =
        (struct observation){.messages = own, .n_messages = n_messages, .sampling = *s, .turn = 1};
    d->turn.seen.variables = *variables;
    return c->agent->type->observe(c, &d->turn, err);
}

enum status drive_begin_messages(struct drive *d, struct clone *c, const struct message *messages,
                                 size_t n_messages, const struct sampling *s, struct error *err)
{
    const struct template_variables nothing = {0};

    return drive_observe(d, c, messages, n_messages, s, &nothing, err);
}

enum status drive_begin_variables(struct drive *d, struct clone *c, const char *text,
                                  const struct sampling *s,
                                  const struct template_variables *variables, struct error *err)
{
    const struct message message = {.role = ROLE_USER, .text = text, .len = strlen(text)};

    return drive_observe(d, c, &message, 1, s, variables, err);
}

enum status drive_begin(struct drive *d, struct clone *c, const char *text,
                        const struct sampling *s, struct error *err)
{
    const struct template_variables nothing = {0};

    return drive_begin_variables(d, c, text, s, &nothing, err);
}

size_t drive_step(struct agent *a, struct drive *const *drives, size_t n, size_t max_grant)
{
    struct row *rows[64];
    size_t n_rows = 0, n_more = 0, budget;
    struct batcher_config config;
    struct error err;

    assert(n <= 64);
    agent_batching(a, &config);
    budget = config.max_cost;
    for (size_t i = 0; i < n; i++) {
        struct row *row = &drives[i]->turn.row;
        size_t cost;

        if (drives[i]->turn.reply.finish != FINISH_NONE || row->outcome == ROW_FAILED)
            continue;
        cost = a->type->cost(a, row);
        row->n_scheduled = cost < max_grant ? cost : max_grant;
        row->n_scheduled = row->n_scheduled < budget ? row->n_scheduled : budget;
        if (row->n_scheduled == 0) {
            n_more++;
            continue;
        }
        budget -= row->n_scheduled;
        if (a->type->reserve(a, row, &err) != STATUS_OK) {
            row->err = err;
            row->outcome = ROW_FAILED;
            continue;
        }
        rows[n_rows++] = row;
    }
    if (n_rows == 0)
        return 0;
    a->type->batch_act(a, rows, n_rows);
    for (size_t i = 0; i < n_rows; i++) {
        a->type->stepped(a, rows[i]);
        n_more += rows[i]->outcome == ROW_MORE;
    }
    return n_more;
}

void drive_run(struct agent *a, struct drive *const *drives, size_t n, size_t max_grant)
{
    while (drive_step(a, drives, n, max_grant) != 0)
        ;
}

void drive_end(struct drive *d, bool is_kept)
{
    if (d->turn.row.turn != NULL) {
        if (is_kept)
            d->clone->agent->type->self_observe(d->clone, &d->turn);
        else
            d->clone->agent->type->drop(d->clone, &d->turn);
    }
    agent_turn_deinit(&d->turn);
    arena_deinit(&d->arena);
}

size_t drive_turn(struct agent *a, struct clone *c, const char *text, const struct sampling *s,
                  size_t max_grant, int32_t *ids, size_t max)
{
    struct drive d;
    struct drive *only = &d;
    struct error err;
    enum status rc;
    size_t n;

    rc = drive_begin(&d, c, text, s, &err);
    assert(rc == STATUS_OK);
    drive_run(a, &only, 1, max_grant);
    assert(d.turn.row.outcome != ROW_FAILED);
    n = d.turn.reply.n_tokens;
    assert(n <= max);
    for (size_t i = 0; i < n; i++)
        ids[i] = d.turn.reply.tokens[i].id;
    drive_end(&d, true);
    return n;
}
