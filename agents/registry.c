/* The kinds of agents there are: the one place that names them. */
#include <string.h>

#include "agents/agent.h"
#include "compute/gguf.h"

extern const struct agent_type echo_agent, lm_agent, policy_agent;

static const struct agent_type *const types[] = {&echo_agent, &lm_agent, &policy_agent};

const struct agent_type *agent_type_at(size_t i)
{
    return i < sizeof types / sizeof types[0] ? types[i] : NULL;
}

enum status agent_kind_of_file(const char **out, const char *path, struct error *err)
{
    const char *architecture = "";
    struct gguf *g;
    struct error ignored; /* of a file that does not say: the kind that is opened will */
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
    *out = len == strlen("policy") && memcmp(architecture, "policy", len) == 0 ? "policy" : "lm";
    gguf_close(g);
    return STATUS_OK;
}
