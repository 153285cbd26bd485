#include "server/part_list.h"

#include <stdlib.h>

#include "base/alloc.h"

#define SERVER_PART_DECLARE(name, type) extern const struct part name##_part;
SERVER_PARTS(SERVER_PART_DECLARE)

#define SERVER_PART_TABLE(name, type) [PART_##name] = &name##_part,
static const struct part *const tables[N_PARTS] = {SERVER_PARTS(SERVER_PART_TABLE)};

/* NULL: the part has none. */
static struct alarm *part_list_alarm(struct part_list *list, size_t i)
{
    return tables[i]->tick == NULL ? NULL : &list->rows[i].alarm.alarm;
}

void part_list_init(struct part_list *list, struct part_host *host)
{
    *list = (struct part_list){0};
    for (size_t i = 0; i < N_PARTS; i++)
        list->rows[i].self = xalloc(tables[i]->size_bytes);
#define SERVER_PART_POINTER(name, type) host->server->name = list->rows[PART_##name].self;
    SERVER_PARTS(SERVER_PART_POINTER)
    for (size_t i = 0; i < N_PARTS; i++) {
        if (tables[i]->tick != NULL)
            loop_alarm_open(&list->rows[i].alarm, host->loop, host->env, tables[i]->tick,
                            list->rows[i].self);
        tables[i]->init(list->rows[i].self, host, part_list_alarm(list, i));
    }
}

void part_list_keep(struct part_list *list, struct part_host *host)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (tables[i]->keep != NULL)
            tables[i]->keep(list->rows[i].self, host, part_list_alarm(list, i));
}

void part_list_configure(struct part_list *list, const struct config *to)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (tables[i]->configure != NULL)
            tables[i]->configure(list->rows[i].self, to);
}

void part_list_drain(struct part_list *list)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (tables[i]->drain != NULL)
            tables[i]->drain(list->rows[i].self);
}

void part_list_end(struct part_list *list)
{
    part_list_drain(list);
    for (size_t i = 0; i < N_PARTS; i++)
        if (tables[i]->end != NULL)
            tables[i]->end(list->rows[i].self);
}

bool part_list_are_idle(const struct part_list *list)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (tables[i]->is_idle != NULL && !tables[i]->is_idle(list->rows[i].self))
            return false;
    return true;
}

bool part_list_stop(struct part_list *list)
{
    for (size_t i = N_PARTS; i-- > 0;) {
        if (!list->rows[i].has_stopped && tables[i]->stop != NULL &&
            !tables[i]->stop(list->rows[i].self))
            return false;
        list->rows[i].has_stopped = true;
    }
    return true;
}

bool part_list_are_kept(struct part_list *list)
{
    bool are_kept = true;

    for (size_t i = 0; i < N_PARTS; i++) /* each begins to write */
        if (tables[i]->is_kept != NULL)
            are_kept = tables[i]->is_kept(list->rows[i].self) && are_kept;
    return are_kept;
}

void part_list_close(struct part_list *list)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (tables[i]->tick != NULL)
            loop_alarm_close(&list->rows[i].alarm);
}

void part_list_deinit(struct part_list *list)
{
    for (size_t i = N_PARTS; i-- > 0;)
        if (tables[i]->deinit != NULL)
            tables[i]->deinit(list->rows[i].self);
    for (size_t i = 0; i < N_PARTS; i++)
        free(list->rows[i].self);
}
