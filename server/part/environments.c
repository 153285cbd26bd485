/* Vectors of environments, and the rollouts of policies in them. */
#include "server/config/config.h"
#include "server/environment/vectors.h"
#include "server/part.h"
#include "server/rollout/rollout.h"

static void rollouts_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct rollouts *all = self;

    rollouts_init(all);
    all->on_idle = host->go_on;
    all->idle_arg = host;
}

const struct part rollouts_part = {
    .size_bytes = sizeof(struct rollouts),
    .init = rollouts_part_init,
    .end = rollouts_end,
    .is_idle = rollouts_are_idle,
};

static void vectors_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct vectors_config config = {
        .env = host->env,
        .silence_us = host->config->attach_timeout_ms * 1000,
        .is_allowed = true, /* whoever may not attach does not get so far */
        .alarm = alarm,
    };

    vectors_init(self, &config);
}

const struct part vectors_part = {
    .size_bytes = sizeof(struct vectors),
    .init = vectors_part_init,
    .tick = vectors_tick,
    .end = vectors_end,
    .deinit = vectors_deinit,
};
