#include "server/conversation/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/conversation/sampling.h"

enum status conversation_options_open(struct conversation_options **out, const char *system,
                                      size_t system_len, const struct sampling_overrides *overrides,
                                      const struct limits *limits, uint64_t ttl_ms,
                                      struct error *err)
{
    struct conversation_options *o = try_alloc(1, sizeof(*o) + system_len + 1);
    enum status rc;

    if (o == NULL)
        return error_no_memory(err, system_len, "the system prompt");
    rc = sampling_overrides_copy(&o->overrides, overrides, err);
    if (rc != STATUS_OK) {
        free(o);
        return rc;
    }
    o->n_refs = 1;
    o->limits = *limits;
    o->ttl_ms = ttl_ms;
    o->system = o->own;
    o->system_len = system_len;
    if (system_len > 0)
        memcpy(o->own, system, system_len);
    *out = o;
    return STATUS_OK;
}

enum status conversation_options_change(struct conversation_options **out,
                                        struct conversation_options *from,
                                        const struct sampling_overrides *overrides, uint64_t ttl_ms,
                                        struct error *err)
{
    struct conversation_options *o = NULL;
    enum status rc;

    rc = conversation_options_open(&o, NULL, 0, overrides, &from->limits, ttl_ms, err);
    if (rc != STATUS_OK)
        return rc;
    /* Not from itself: then a chain would grow with each change. */
    o->origin = conversation_options_ref(from->origin == NULL ? from : from->origin);
    o->system = from->system;
    o->system_len = from->system_len;
    *out = o;
    return STATUS_OK;
}

struct conversation_options *conversation_options_ref(struct conversation_options *o)
{
    o->n_refs++;
    return o;
}

void conversation_options_unref(struct conversation_options *o)
{
    if (o == NULL || --o->n_refs > 0)
        return;
    conversation_options_unref(o->origin); /* has no origin itself */
    free(o->overrides);
    free(o);
}
