#include "agents/constraint/guard_parts.h"

#include <stdio.h>
#include <string.h>

#include "agents/constraint/guard.h"

enum {
    MAX_PATH = 80,         /* bytes of a path in an error */
    COMPARED_FOR_WORK = 4, /* values */
};

/* The end of the path, from a name on, where it is longer than a message has room for; the end of
 * the last name where that is, too. */
static const char *path_end(const struct guard *g, const char **ret_mark)
{
    const char *end, *slash;

    *ret_mark = "";
    if (g->path.len <= MAX_PATH)
        return g->path.data;
    *ret_mark = "...";
    end = g->path.data + g->path.len - MAX_PATH;
    slash = strchr(end, '/');
    while (slash == NULL && ((unsigned char)*end & 0xC0) == 0x80) /* inside of a character */
        end++;
    return slash != NULL ? slash : end;
}

void *guard_fail(struct guard *g, const char *keyword, const char *why)
{
    const char *mark, *path = path_end(g, &mark);

    (void)error_because(g->err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                        "the schema at %s%s: '%.40s' %s", mark, path, keyword, why);
    return NULL;
}

void *guard_no_memory(struct guard *g)
{
    (void)error_no_memory(g->err, GUARD_MAX_BYTES, "a schema");
    return NULL;
}

bool guard_leave_out(struct guard *g, const char *keyword, const char *why)
{
    /* names that a pattern allows would be names of the rest */
    if (g->strict || (g->is_trial && strcmp(keyword, "patternProperties") == 0))
        return guard_fail(g, keyword, why) != NULL;
    if (g->left_out->len > 0 && buf_append_text(g->left_out, ", ") != STATUS_OK)
        return true; /* the list is full; the names in it are enough */
    (void)!buf_printf(g->left_out, "%s %s", g->path.data, keyword);
    return true;
}

void guard_take_back(struct guard *g, size_t len)
{
    if (len < g->left_out->len) { /* else it may have no data */
        g->left_out->len = len;
        g->left_out->data[len] = '\0';
    }
}

json_t *guard_never(struct guard *g, const char *keyword, const char *why)
{
    const char *mark, *path = path_end(g, &mark);

    (void)snprintf(g->never, sizeof(g->never), "the schema at %s%s: '%.40s' %s", mark, path,
                   keyword, why);
    return json_false();
}

size_t guard_path_push(struct guard *g, const char *name)
{
    size_t len = g->path.len;

    /* a full path only makes messages shorter */
    if (buf_append_text(&g->path, "/") == STATUS_OK)
        (void)!buf_append_text(&g->path, name);
    return len;
}

void guard_path_pop(struct guard *g, size_t len)
{
    g->path.len = len;
    g->path.data[len] = '\0';
}

bool guard_count(struct guard *g, const char *keyword, size_t n)
{
    g->n_nodes += n;
    return g->n_nodes <= GUARD_MAX_NODES ||
           guard_fail(g, keyword,
                      strcmp(keyword, "schemas") == 0
                          ? "are too many"
                          : "has too many values, with all other schemas and values") != NULL;
}

bool guard_compares(struct guard *g, size_t n, size_t n_others)
{
    const size_t work = n * n_others / COMPARED_FOR_WORK;

    if (g->work < work)
        return false;
    g->work -= work;
    return true;
}

json_t *guard_walk_at(struct guard *g, const json_t *schema, const char *keyword, const char *name)
{
    size_t outer = guard_path_push(g, keyword);
    json_t *out;

    if (name != NULL)
        (void)guard_path_push(g, name);
    out = g->walk(g, schema);
    guard_path_pop(g, outer);
    return out;
}
