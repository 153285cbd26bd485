/* Conversations, and what finds, keeps and forgets them. */
#include "server/conversation/conversations.h"

#include <assert.h>
#include <stdio.h>

#include "agents/agent.h"
#include "server/access/access.h"
#include "server/config/config.h"
#include "server/conversation/keeping.h"
#include "server/conversation/keyed_replies.h"
#include "server/conversation/names.h"
#include "server/conversation/orphans.h"
#include "server/conversation/retention.h"
#include "server/part.h"
#include "server/server.h"

static bool conversations_part_find_principal(void *host, const char *name, uint32_t *out)
{
    const struct principal *p = part_find_principal(host, name);

    if (p != NULL)
        *out = p->id;
    return p != NULL;
}

static void conversations_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    static char binding[64]; /* what computes */
    const struct agent_options *options = &host->config->options;
    const struct keeping_config keeping = {
        .journal = host->journal,
        .models = host->server->models,
        .binding = binding,
        .is_inexact = options->fast_math,
        .principal_name = part_principal_name,
        .find_principal = conversations_part_find_principal,
        .orphan = orphans_take,
        .self = host,
    };

    (void)snprintf(binding, sizeof(binding), "engine=%d backend=%.8s kv=%d", AGENT_ENGINE_REVISION,
                   options->backend == NULL ? "cpu" : options->backend,
                   (int)options->kv_type); /* it fits */
    conversations_keep(self, &keeping);
}

static void conversations_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct conversations *all = self;
    const struct config *c = host->config;
    struct conversations_config config = {
        .max_conversations = c->max_conversations,
        .ttl_ms = c->ttl_ms,
        .linger_us = c->linger_ms * 1000,
        .unload_us = c->unload_idle_ms * 1000,
        .unload_bytes = c->unload_bytes,
        .unix_ms = part_unix_ms(),
        .env = host->env,
        .quota_of = part_quota,
        .quota_arg = host,
        .alarm = alarm,
    };

    conversations_init(all, &config);
    conversations_part_keep(all, host, alarm); /* without a journal, as long as there is none */
    all->on_idle = host->go_on;
    all->idle_arg = host;
    models_add_user(host->server->models, &all->user);
}

static void conversations_part_configure(void *self, const struct config *to)
{
    struct conversations *all = self;

    conversations_configure(all, to->max_conversations, to->ttl_ms, to->linger_ms * 1000);
    conversations_configure_unload(all, to->unload_idle_ms * 1000, to->unload_bytes);
}

static bool conversations_part_is_idle(const void *self)
{
    return ((const struct conversations *)self)->n_live == 0;
}

static bool conversations_part_stop(void *self)
{
    struct conversations *all = self;

    conversations_close_all(all, NULL, "the server is shutting down");
    assert(all->n_closing == 0);
    orphans_leave(all);
    return true;
}

const struct part conversations_part = {
    .size_bytes = sizeof(struct conversations),
    .init = conversations_part_init,
    .keep = conversations_part_keep,
    .configure = conversations_part_configure,
    .tick = conversations_tick,
    .drain = conversations_drain,
    .end = conversations_cancel_all,
    .is_idle = conversations_part_is_idle,
    .stop = conversations_part_stop,
    .deinit = conversations_deinit,
};

static void names_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    conversation_names_init(self, host->server->conversations, host->env);
}

const struct part names_part = {
    .size_bytes = sizeof(struct conversation_names),
    .init = names_part_init,
    .deinit = conversation_names_deinit,
};

static void keyed_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct keyed_replies_config config = {
        .linger_us = host->config->linger_ms * 1000,
        .conversations = host->server->conversations,
        .env = host->env,
        .alarm = alarm,
    };

    keyed_replies_init(self, &config);
}

static void keyed_part_configure(void *self, const struct config *to)
{
    ((struct keyed_replies *)self)->config.linger_us = to->linger_ms * 1000;
}

const struct part keyed_part = {
    .size_bytes = sizeof(struct keyed_replies),
    .init = keyed_part_init,
    .configure = keyed_part_configure,
    .tick = keyed_replies_tick,
    .drain = keyed_replies_drain,
    .deinit = keyed_replies_deinit,
};

static void retention_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct retention_config config = {.alarm = alarm};

    retention_init(self, host->server->conversations, &config);
}

static void retention_part_configure(void *self, const struct config *to)
{
    retention_configure(self, to->retain_age_ms, to->retain_bytes);
}

static void retention_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    retention_part_configure(self, host->config);
}

static bool retention_part_stop(void *self)
{
    retention_stop(self);
    return true;
}

const struct part retention_part = {
    .size_bytes = sizeof(struct retention),
    .init = retention_part_init,
    .keep = retention_part_keep,
    .configure = retention_part_configure,
    .tick = retention_tick,
    .stop = retention_part_stop,
};
