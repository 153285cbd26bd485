/* The registry of the kinds of agents. */
#include <assert.h>
#include <string.h>

#include "agents/agent.h"
#include "agents/kinds_list.h"
#include "compute/gguf/gguf.h"

#define DECLARE(kind) extern const struct agent_type kind##_agent;
#define ROW(kind) &kind##_agent,

KINDS(DECLARE)

static const struct agent_type *const types[] = {KINDS(ROW)};

const struct agent_type *agent_type_at(size_t i)
{
    return i < sizeof(types) / sizeof(types[0]) ? types[i] : NULL;
}

static bool agent_type_serves(const struct agent_type *t, const char *architecture, size_t len)
{
    if (t->has_own_files && len == strlen(t->name) && memcmp(architecture, t->name, len) == 0)
        return true;
    return t->serves != NULL && t->serves(architecture, len);
}

enum status agent_kind_of_file(const char **out, const char *path, struct error *err)
{
    const char *architecture = "";
    struct gguf *g;
    struct error ignored; /* the key may be missing: then opening the file reports the error */
    size_t len = 0;
    enum status rc;

    if (path == NULL) {
        *out = "echo";
        return STATUS_OK;
    }
    rc = gguf_open(&g, path, err);
    if (rc != STATUS_OK)
        return rc;
    (void)gguf_get_text(g, "general.architecture", &architecture, &len, &ignored);
    *out = "lm";
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (agent_type_serves(types[i], architecture, len))
            *out = types[i]->name;
    gguf_close(g);
    return STATUS_OK;
}

static enum status agent_no_such_type(const char *name, struct error *err)
{
    char names[120] = "";
    size_t len = 0;
    const struct agent_type *type;

    for (size_t i = 0; (type = agent_type_at(i)) != NULL; i++) {
        size_t more = strlen(type->name);

        assert(len + 2 + more < sizeof(names));
        if (i > 0) {
            memcpy(names + len, ", ", 2);
            len += 2;
        }
        memcpy(names + len, type->name, more + 1);
        len += more;
    }
    return error_set(err, STATUS_NOT_FOUND,
                     "there is no kind of agent '%.40s', it must be one of: %s", name, names);
}

static const struct agent_type *agent_find_type(const char *name)
{
    const struct agent_type *type;

    for (size_t i = 0; (type = agent_type_at(i)) != NULL; i++)
        if (strcmp(type->name, name) == 0)
            return type;
    return NULL;
}

enum status agent_open(struct agent **out, const char *type, const struct agent_config *config,
                       struct error *err)
{
    const struct agent_type *found;

    if (type == NULL) {
        enum status rc = agent_kind_of_file(&type, config->path, err);

        if (rc != STATUS_OK)
            return rc;
    }
    found = agent_find_type(type);
    if (found == NULL)
        return agent_no_such_type(type, err);
    return agent_open_type(out, found, config, err);
}
