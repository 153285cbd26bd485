#include "server/params/contributors.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/params/bounds.h"

void contributor_forget(struct params_set *set, struct contributor *t)
{
    list_remove(&t->link);
    set->n_contributors--;
    clone_close(&t->client->base);
    free(t);
}

static void contributor_forget_oldest(struct params_set *set)
{
    struct link *l = list_last(&set->contributors);

    while (l != &set->contributors.head) {
        struct contributor *t = container_of(l, struct contributor, link);

        if (t->client->base.flow.head == NULL) {
            contributor_forget(set, t);
            return;
        }
        l = l->prev;
    }
}

struct contributor *contributor_find(struct params_set *set, const char *client)
{
    for (struct link *l = list_first(&set->contributors); l != NULL;
         l = list_next(&set->contributors, l)) {
        struct contributor *t = container_of(l, struct contributor, link);

        if (strcmp(t->client->id, client) == 0) {
            list_remove(&t->link);
            list_push_front(&set->contributors, &t->link);
            return t;
        }
    }
    return NULL;
}

enum status contributor_meet(struct contributor **out, struct params_set *set, const char *client,
                             struct error *err)
{
    struct contributor *t = contributor_find(set, client);
    enum status rc = STATUS_OK;

    if (t != NULL) {
        *out = t;
        return STATUS_OK;
    }
    t = try_alloc(1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a client");
    rc = params_client_open(&t->client, set->model->agent, client, err);
    if (rc != STATUS_OK) {
        free(t);
        return rc;
    }
    if (set->n_contributors == PARAMS_MAX_CONTRIBUTORS)
        contributor_forget_oldest(set);
    list_push_front(&set->contributors, &t->link);
    set->n_contributors++;
    *out = t;
    return STATUS_OK;
}

enum status contributors_remember(struct params_set *set, const char *client, uint64_t step,
                                  uint64_t version, struct error *err)
{
    struct contributor *t;
    enum status rc = contributor_meet(&t, set, client, err);

    if (rc != STATUS_OK)
        return rc;
    t->client->has_step = true;
    t->client->last_step = step;
    t->client->last_version = version;
    return STATUS_OK;
}

enum status contributors_remembered(struct checkpoint_body *out, const struct params_set *set,
                                    struct error *err)
{
    struct checkpoint_client *clients = try_alloc(set->n_contributors + 1, sizeof(clients[0]));

    if (clients == NULL)
        return error_no_memory(err, set->n_contributors * sizeof(clients[0]), "the clients");
    out->clients = clients;
    for (struct link *l = list_first(&set->contributors); l != NULL;
         l = list_next(&set->contributors, l)) {
        const struct params_client *c = container_of(l, struct contributor, link)->client;

        if (c->has_step)
            clients[out->n_clients++] =
                (struct checkpoint_client){c->id, c->last_step, c->last_version};
    }
    return STATUS_OK;
}
