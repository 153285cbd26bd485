#include "server/access/sharing.h"

#include <string.h>

#include "base/arena.h"
#include "server/access/access.h"
#include "server/access/keys_file.h"

static enum status copy_names(const char *const **out, const char *const *names, size_t n,
                              const char *field, struct arena *arena, struct error *err)
{
    const char **copies;

    if (n > ACCESS_MAX_SHARED)
        return error_field(err, field, "has %zu names, at most %d may be", n, ACCESS_MAX_SHARED);
    if (n == 0)
        return STATUS_OK;
    copies = arena_alloc(arena, n, sizeof(*copies));
    if (copies == NULL)
        return error_no_memory(err, n * sizeof(*copies), "the names of principals");
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        char *copy;

        if (!keys_file_is_name(names[i]))
            return error_field(err, field, "has '%.80s', which is no principal's name", names[i]);
        copy = arena_alloc(arena, len + 1, 1);
        if (copy == NULL)
            return error_no_memory(err, len + 1, "the names of principals");
        copies[i] = memcpy(copy, names[i], len + 1);
    }
    *out = copies;
    return STATUS_OK;
}

enum status access_sharing_copy(struct access_sharing *out, const struct access_sharing *from,
                                struct arena *arena, struct error *err)
{
    struct access_sharing s = *from;
    enum status rc;

    rc = copy_names(&s.readers, from->readers, from->n_readers, "access.readers", arena, err);
    if (rc == STATUS_OK)
        rc = copy_names(&s.writers, from->writers, from->n_writers, "access.writers", arena, err);
    if (rc == STATUS_OK)
        *out = s;
    return rc;
}

static bool has_name(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

bool access_sharing_allows(const struct access_sharing *s, const struct principal *who,
                           enum access_right right)
{
    return (right != ACCESS_OWN && has_name(s->writers, s->n_writers, who->name)) ||
           (right == ACCESS_READ && has_name(s->readers, s->n_readers, who->name));
}
