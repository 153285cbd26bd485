/* What policies act in: KServe's sequences, sessions, and the trainers that lease these. */
#include "server/act/session.h"

#include "server/act/trainer.h"
#include "server/api/kserve/sequences.h"
#include "server/config/config.h"
#include "server/part.h"
#include "server/server.h"

enum { SESSION_TTL_MS = 10 * 60 * 1000 };

static void sequences_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct sequences *all = self;
    const struct sequences_config config = {
        .idle_ms = host->config->sequence_idle_ms,
        .env = host->env,
        .conversations = host->server->conversations,
        .sessions = host->server->sessions,
        .alarm = alarm,
    };

    sequences_init(all, &config);
    models_add_user(host->server->models, &all->user);
}

static void sequences_part_end(void *self)
{
    sequences_retire(self, NULL);
}

const struct part sequences_part = {
    .size_bytes = sizeof(struct sequences),
    .init = sequences_part_init,
    .tick = sequences_tick,
    .end = sequences_part_end,
    .deinit = sequences_deinit,
};

static void sessions_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct sessions *all = self;
    const struct config *c = host->config;
    const struct sessions_config config = {
        .max_sessions = c->max_sessions,
        .ttl_ms = (c->session_ttl_ms != 0 ? c->session_ttl_ms : SESSION_TTL_MS) +
                  c->sequence_idle_ms, /* sequences expire before sessions */
        .env = host->env,
        .alarm = alarm,
        .quota_of = part_quota,
        .quota_arg = host,
        .on_idle = host->go_on,
        .idle_arg = host,
    };

    sessions_init(all, &config);
    models_add_user(host->server->models, &all->user);
}

static void sessions_part_configure(void *self, const struct config *to)
{
    sessions_configure(self, to->max_sessions);
}

static void sessions_part_end(void *self)
{
    sessions_close_all(self, NULL);
}

static bool sessions_part_is_idle(const void *self)
{
    return ((const struct sessions *)self)->n_asking == 0;
}

const struct part sessions_part = {
    .size_bytes = sizeof(struct sessions),
    .init = sessions_part_init,
    .configure = sessions_part_configure,
    .tick = sessions_tick,
    .drain = sessions_drain,
    .end = sessions_part_end,
    .is_idle = sessions_part_is_idle,
    .deinit = sessions_deinit,
};

static void trainers_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct trainers *all = self;

    trainers_init(all, host->server->sessions, host->loop);
    all->on_idle = host->go_on;
    all->idle_arg = host;
    models_add_user(host->server->models, &all->user);
}

const struct part trainers_part = {
    .size_bytes = sizeof(struct trainers),
    .init = trainers_part_init,
    .is_idle = trainers_are_idle,
};
