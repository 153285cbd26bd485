/* Loads shared objects. Before it is loaded, the file's owner and permissions are checked; then the
 * three tables are looked up and checked entry by entry, so that no later call needs to. */
#include "agents/plugin/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/name.h"

enum {
    PLUGIN_MAX_ROWS = 4096,
    PLUGIN_NAME_MAX = 63,
    PLUGIN_VERSION_MAX = 64,
    PLUGIN_MAX_NUMBERS = 65536,
};

/* Of someone who could change parleyd itself. */
static bool plugin_is_trusted(const struct stat *st)
{
    return st->st_uid == 0 || st->st_uid == geteuid();
}

static enum status plugin_check_file(const char *path, struct error *err)
{
    char folder[PATH_MAX];
    struct stat st;
    char *slash;

    if (stat(path, &st) != 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_DENIED, "%s",
                         strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(err, STATUS_DENIED, "it is not a regular file");
    if (!plugin_is_trusted(&st))
        return error_set(err, STATUS_DENIED, "it belongs to user %u; root or user %u must own it",
                         (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & S_IWOTH) != 0)
        return error_set(err, STATUS_DENIED, "every user may write to it: remove this permission");
    memcpy(folder, path, strlen(path) + 1); /* a realpath */
    slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    if (stat(folder, &st) != 0)
        return error_set(err, STATUS_DENIED, "its folder: %s", strerror(errno));
    if ((st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0)
        return error_set(err, STATUS_DENIED,
                         "every user may replace it: remove the permission to write to its folder");
    return STATUS_OK;
}

/* --- what the object has --- */

static bool plugin_is_name(const char *name, size_t max)
{
    return name != NULL && name_is_valid(name, strnlen(name, max + 1), max, NAME_MARKS);
}

/* The name of an entry that must be there and is not; NULL: none. */
static const char *plugin_missing_entry(const struct parley_agent *a)
{
    const struct {
        const char *name;
        bool is_there;
    } entries[] = {
        {"open", a->open != NULL},
        {"close", a->close != NULL},
        {"create", a->create != NULL},
        {"fork", a->fork != NULL},
        {"free", a->free != NULL},
        {"observe", a->observe != NULL},
        {"batch_act", a->batch_act != NULL},
        {"save", a->save != NULL || a->restore == NULL},
        {"restore", a->restore != NULL || a->save == NULL},
    };

    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (!entries[i].is_there)
            return entries[i].name;
    return NULL;
}

static enum status plugin_check_agent(const struct parley_agent *a, struct error *err)
{
    const uint32_t known = PARLEY_AGENT_DETERMINISTIC | PARLEY_AGENT_LIGHT;
    const char *missing;

    if (a->abi != PARLEY_AGENT_ABI)
        return error_set(err, STATUS_PRECONDITION, "it has ABI %u, but this parleyd needs %d",
                         a->abi, PARLEY_AGENT_ABI);
    /* A newer struct has more members, which this program does not use. */
    if (a->size_bytes < offsetof(struct parley_agent, chat_template)) /* which came later */
        return error_set(err, STATUS_PRECONDITION,
                         "its parley_agent has %u bytes, it must have %zu: build it with "
                         "parley_agent.h of this parleyd",
                         a->size_bytes, offsetof(struct parley_agent, chat_template));
    missing = plugin_missing_entry(a);
    if (missing != NULL)
        return error_set(err, STATUS_PRECONDITION, "its parley_agent has no %s", missing);
    if (!plugin_is_name(a->name, PLUGIN_NAME_MAX))
        return error_set(err, STATUS_PRECONDITION, "the name in its parley_agent is not valid");
    if (!plugin_is_name(a->version, PLUGIN_VERSION_MAX))
        return error_set(err, STATUS_PRECONDITION, "the version in its parley_agent is not valid");
    if ((a->flags & ~known) != 0)
        return error_set(err, STATUS_PRECONDITION, "its parley_agent has unknown flags, 0x%x",
                         a->flags & ~known);
    if (a->max_rows > PLUGIN_MAX_ROWS)
        return error_set(err, STATUS_PRECONDITION,
                         "its parley_agent asks for steps of %u rows, it may ask for at most %d",
                         a->max_rows, PLUGIN_MAX_ROWS);
    return STATUS_OK;
}

static enum status plugin_check_spaces(const struct parley_environment *e, struct error *err)
{
    if (e->n_observations == 0 || e->n_observations > PLUGIN_MAX_NUMBERS)
        return error_set(
            err, STATUS_PRECONDITION,
            "its parley_environment has observations of %u numbers, they must have 1 to %d",
            e->n_observations, PLUGIN_MAX_NUMBERS);
    if ((e->n_actions == 0) == (e->n_action_numbers == 0))
        return error_set(err, STATUS_PRECONDITION,
                         "its parley_environment has %u actions and actions of %u numbers, exactly "
                         "one of the two must be 0",
                         e->n_actions, e->n_action_numbers);
    if (e->n_actions == 1 || e->n_actions > PLUGIN_MAX_NUMBERS ||
        e->n_action_numbers > PLUGIN_MAX_NUMBERS)
        return error_set(err, STATUS_PRECONDITION,
                         "its parley_environment has %u actions, it must have 2 to %d choices or 1 "
                         "to %d numbers",
                         e->n_actions != 0 ? e->n_actions : e->n_action_numbers, PLUGIN_MAX_NUMBERS,
                         PLUGIN_MAX_NUMBERS);
    return STATUS_OK;
}

static enum status plugin_check_environment(const struct parley_environment *e, struct error *err)
{
    const struct {
        const char *name;
        bool is_there;
    } entries[] = {{"make", e->make != NULL},
                   {"free", e->free != NULL},
                   {"reset", e->reset != NULL},
                   {"step", e->step != NULL}};

    if (e->abi != PARLEY_ENVIRONMENT_ABI)
        return error_set(err, STATUS_PRECONDITION,
                         "its environment has ABI %u, but this parleyd needs %d", e->abi,
                         PARLEY_ENVIRONMENT_ABI);
    if (e->size_bytes < sizeof(*e))
        return error_set(err, STATUS_PRECONDITION,
                         "its parley_environment has %u bytes, it must have %zu: build it with "
                         "parley_environment.h of this parleyd",
                         e->size_bytes, sizeof(*e));
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (!entries[i].is_there)
            return error_set(err, STATUS_PRECONDITION, "its parley_environment has no %s",
                             entries[i].name);
    if (!plugin_is_name(e->name, PLUGIN_NAME_MAX))
        return error_set(err, STATUS_PRECONDITION,
                         "the name in its parley_environment is not valid");
    return plugin_check_spaces(e, err);
}

static enum status plugin_check_teacher(const struct parley_teacher *t, struct error *err)
{
    if (t->abi != PARLEY_TEACHER_ABI)
        return error_set(err, STATUS_PRECONDITION,
                         "its teacher has ABI %u, but this parley needs %d", t->abi,
                         PARLEY_TEACHER_ABI);
    if (t->size_bytes < sizeof(*t))
        return error_set(err, STATUS_PRECONDITION,
                         "its parley_teacher has %u bytes, it must have %zu: build it with "
                         "parley_teacher.h of this parley",
                         t->size_bytes, sizeof(*t));
    if (t->open == NULL || t->next == NULL || t->close == NULL)
        return error_set(err, STATUS_PRECONDITION, "its parley_teacher has no %s",
                         t->open == NULL   ? "open"
                         : t->next == NULL ? "next"
                                           : "close");
    return STATUS_OK;
}

/* What dlerror says begins with the file, which our line names already. */
static enum status plugin_fail_load(const char *path, struct error *err)
{
    const char *why = dlerror();
    size_t len = strlen(path);

    if (strncmp(why, path, len) == 0 && why[len] == ':')
        why += len + 1 + (why[len + 1] == ' ');
    return error_set(err, STATUS_PRECONDITION, "it cannot be loaded: %.160s", why);
}

enum status plugin_library_open(struct plugin_library *out, const char *path, struct error *err)
{
    struct plugin_library l = {.handle = NULL};
    char whole[PATH_MAX]; /* a name without a slash would be looked for in other folders */
    enum status rc;

    if (realpath(path, whole) == NULL) {
        rc = error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_DENIED, "%s",
                       strerror(errno));
        goto out;
    }
    rc = plugin_check_file(whole, err);
    if (rc != STATUS_OK)
        goto out;
    l.handle = dlopen(whole, RTLD_NOW | RTLD_LOCAL);
    if (l.handle == NULL) {
        rc = plugin_fail_load(whole, err);
        goto out;
    }
    l.agent = dlsym(l.handle, "parley_agent");
    l.environment = dlsym(l.handle, "parley_environment");
    l.teacher = dlsym(l.handle, "parley_teacher");
    if (l.agent == NULL && l.environment == NULL && l.teacher == NULL)
        rc = error_set(err, STATUS_PRECONDITION,
                       "it defines no parley_agent, parley_environment or parley_teacher");
    if (rc == STATUS_OK && l.agent != NULL)
        rc = plugin_check_agent(l.agent, err);
    if (rc == STATUS_OK && l.environment != NULL)
        rc = plugin_check_environment(l.environment, err);
    if (rc == STATUS_OK && l.teacher != NULL)
        rc = plugin_check_teacher(l.teacher, err);
    if (rc != STATUS_OK)
        goto out;
    *out = l;
    l.handle = NULL; /* given away */
out:
    plugin_library_close(&l);
    return rc == STATUS_OK ? rc : error_prefix(err, "plug-in %.120s", path);
}

void plugin_library_close(struct plugin_library *l)
{
    if (l->handle != NULL)
        (void)dlclose(l->handle); /* a failure cannot be handled */
    l->handle = NULL;
}
