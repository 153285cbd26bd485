#include "server/http/route.h"

#include <stdio.h>
#include <string.h>

static bool is_among(const struct route *r, unsigned levels)
{
    return (levels & 1u << r->access) != 0 && !(r->is_for_users && levels == ROUTES_ADMIN);
}

static bool is_match(const struct route *r, const char *path)
{
    size_t len = strlen(r->path);

    return r->is_prefix ? strncmp(path, r->path, len) == 0 && path[len] != '\0'
                        : strcmp(path, r->path) == 0;
}

const struct route *route_find(struct route *made, const struct routes *all, unsigned levels,
                               const char *path)
{
    for (size_t i = 0; i < all->n_tables; i++)
        for (size_t k = 0; k < all->tables[i]->n; k++)
            if (is_among(&all->tables[i]->rows[k], levels) &&
                is_match(&all->tables[i]->rows[k], path))
                return &all->tables[i]->rows[k];
    if (all->make != NULL && all->make(made, path) && is_among(made, levels))
        return made;
    return NULL;
}

void route_list(char *out, size_t size, const struct routes *all, unsigned levels)
{
    size_t len = 0;

    out[0] = '\0';
    for (size_t i = 0; i < all->n_tables; i++) {
        for (size_t k = 0; k < all->tables[i]->n; k++) {
            const struct route *r = &all->tables[i]->rows[k];

            if (is_among(r, levels) && !r->is_prefix &&
                len + strlen(r->path) + sizeof(", ") <= size)
                len +=
                    (size_t)snprintf(out + len, size - len, "%s%s", len > 0 ? ", " : "", r->path);
        }
    }
}

const char *route_methods(const struct route *r)
{
    switch (r->methods) {
    case METHOD_POST:
        return "POST";
    case METHOD_DELETE:
        return "DELETE";
    case METHOD_GET | METHOD_HEAD | METHOD_POST:
        return "GET, HEAD, POST";
    case METHOD_GET | METHOD_HEAD | METHOD_DELETE:
        return "GET, HEAD, DELETE";
    case METHOD_GET | METHOD_HEAD | METHOD_POST | METHOD_DELETE:
        return "GET, HEAD, POST, DELETE";
    default:
        return "GET, HEAD";
    }
}
