/* The tables of Replay by their names and owners, and the ceiling of their bytes. What a table
 * keeps is written and read by its keeper (keeping.c). */
#include "server/replay/replays.h"

#include <assert.h>

#include "base/alarm.h"
#include "base/env.h"
#include "server/access/access.h"

static const struct limit_kind kind_of_replay_tables = {"tables of Replay", NULL, "table"};
static const struct limit_kind kind_of_replay_bytes = {"bytes of tables of Replay",
                                                       "--replay-bytes", "max_bytes"};

static uint64_t replays_draw(const struct replays *r)
{
    uint64_t drawn = 0;

    while (drawn == 0)
        r->config.env->random(r->config.env->self, &drawn, sizeof(drawn));
    return drawn;
}

void replays_init(struct replays *r, const struct replays_config *config)
{
    *r = (struct replays){.config = *config};
    shared_names_init(&r->tables, "table", &kind_of_replay_tables, REPLAY_MAX_TABLES, config->env);
    shared_limit_init(&r->bytes, &kind_of_replay_bytes, config->max_bytes);
    keeper_init(&r->keeper, config->keeping, r, config->env);
}

static struct table *name_table(struct shared_name *n)
{
    return container_of(n, struct table, name);
}

struct table *replays_at(const struct link *l)
{
    return name_table(container_of(l, struct shared_name, link));
}

void replays_leave(void *replays, const struct error *why)
{
    struct replays *r = replays;
    struct link *l;

    while ((l = list_first(&r->tables.all)) != NULL)
        replays_delete(r, replays_at(l), why);
}

void replays_deinit(void *replays)
{
    struct replays *r = replays;
    struct error why;

    (void)error_draining(&why);
    replays_leave(r, &why);
    shared_names_deinit(&r->tables);
    shared_limit_deinit(&r->bytes);
}

enum status replays_add(struct table **out, struct replays *r, const struct principal *owner,
                        const char *name, const struct table_config *config,
                        const struct access_sharing *sharing, bool is_new, struct error *err)
{
    struct table_config own = *config;
    struct table *t;

    if (config->max_bytes > r->bytes.max)
        return error_field(err, "max_bytes", "is %zu, all tables together may have %zu",
                           config->max_bytes, r->config.max_bytes);
    if (is_new && config->max_bytes > shared_limit_part(&r->bytes, owner->id))
        return error_field(err, "max_bytes",
                           "is %zu, the tables of a principal may have half of --replay-bytes, "
                           "which is %zu",
                           config->max_bytes, r->config.max_bytes / 2);
    if (own.seed == 0)
        own.seed = replays_draw(r);
    if (table_open(&t, &own, replays_draw(r), err) != STATUS_OK)
        return err->status;
    if (shared_names_add(&r->tables, &t->name, owner, name, is_new, err) != STATUS_OK) {
        table_close(t);
        return err->status;
    }
    t->keeper = &r->keeper;
    if (shared_limit_check(&r->bytes, is_new ? owner->id : 0, config->max_bytes, err) !=
        STATUS_OK) {
        shared_names_remove(&r->tables, &t->name);
        table_close(t);
        return err->status;
    }
    shared_limit_hold(&r->bytes, owner->id, config->max_bytes);
    if (shared_name_share(&t->name, sharing, err) != STATUS_OK) {
        const struct error why = *err;

        replays_delete(r, t, &why);
        return why.status;
    }
    *out = t;
    return STATUS_OK;
}

enum status replays_ready(const struct replays *r, struct error *err)
{
    return keeper_ready(&r->keeper, err);
}

enum status replays_make(struct table **out, struct replays *r, const struct principal *owner,
                         const char *name, const struct table_config *config,
                         const struct access_sharing *sharing, struct error *err)
{
    if (replays_ready(r, err) != STATUS_OK ||
        replays_add(out, r, owner, name, config, sharing, true, err) != STATUS_OK)
        return err->status;
    kept_changed(&r->keeper, &(*out)->kept);
    return STATUS_OK;
}

enum status replays_forget(struct replays *r, struct table *t, struct error *err)
{
    return kept_forget(&r->keeper, &t->kept, err);
}

enum status replays_find(struct table **out, const struct replays *r, const struct principal *who,
                         enum access_right right, const char *name, struct error *err)
{
    struct shared_name *n;

    if (replays_ready(r, err) != STATUS_OK ||
        shared_names_find(&n, &r->tables, who, right, name, err) != STATUS_OK)
        return err->status;
    *out = name_table(n);
    return STATUS_OK;
}

void replays_clear(struct replays *r, struct table *t)
{
    table_clear(t, replays_draw(r));
}

void replays_delete(struct replays *r, struct table *t, const struct error *why)
{
    struct link *l;

    while ((l = list_pop(&t->users)) != NULL) {
        struct table_user *u = container_of(l, struct table_user, link);

        u->closing(u, why);
    }
    kept_deinit(&r->keeper, &t->kept, why);
    shared_limit_give(&r->bytes, t->name.owner->id, t->config.max_bytes);
    shared_names_remove(&r->tables, &t->name);
    table_restore_free(t);
    table_close(t);
}

/* --- deadlines --- */

void replays_wait(struct replays *r, struct table *t, struct table_wait *w, uint32_t timeout_ms,
                  future_then_fn then, void *arg)
{
    w->deadline_us = timeout_ms == 0 ? 0 : env_now_us(r->config.env) + (uint64_t)timeout_ms * 1000;
    table_wait(t, w, then, arg);
    alarm_by(r->config.alarm, w->deadline_us);
}

/* Moves those of from that are due to due; the others' first deadline goes to *next_us. */
static void replays_take_due(struct list *from, uint64_t now_us, struct list *due,
                             uint64_t *next_us)
{
    struct link *l, *next;

    for (l = list_first(from); l != NULL; l = next) {
        struct table_wait *w = container_of(l, struct table_wait, link);

        next = list_next(from, l);
        if (w->deadline_us == 0)
            continue;
        if (w->deadline_us <= now_us) {
            list_remove(l);
            list_push(due, l);
        } else if (*next_us == 0 || w->deadline_us < *next_us) {
            *next_us = w->deadline_us;
        }
    }
}

void replays_tick(void *replays)
{
    struct replays *r = replays;
    const uint64_t now_us = env_now_us(r->config.env);
    uint64_t next_us = 0;
    struct list due;
    struct link *l;
    struct error err;

    list_init(&due);
    for (l = list_first(&r->tables.all); l != NULL; l = list_next(&r->tables.all, l)) {
        replays_take_due(&replays_at(l)->inserters, now_us, &due, &next_us);
        replays_take_due(&replays_at(l)->samplers, now_us, &due, &next_us);
    }
    alarm_by(r->config.alarm, next_us);
    (void)error_set(&err, STATUS_DEADLINE, "the table's limiter did not allow it in time");
    while ((l = list_first(&due)) != NULL)
        table_wait_end(container_of(l, struct table_wait, link), &err);
    keeper_tick(&r->keeper);
}
