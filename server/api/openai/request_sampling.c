#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "server/api/openai/request.h"
#include "server/json/fields.h"
#include "server/json/foreign_fields.h"
#include "server/json/sampling.h"

static enum status take_bias(struct logit_bias *out, const char *key, const json_t *value,
                             struct error *err)
{
    uint64_t id;

    if (!number_read(&id, key, INT32_MAX))
        return error_field(err, "logit_bias", "has the key '%.40s', which is not a token's id",
                           key);
    if (!json_is_number(value))
        return error_field(err, "logit_bias", "has for token %d a value that is not a number",
                           (int)id);
    *out = (struct logit_bias){.id = (int32_t)id, .bias = (float)json_number_value(value)};
    return STATUS_OK;
}

static enum status request_sampling_take_biases(struct sampling_overrides *p, const json_t *body,
                                                struct arena *arena, struct error *err)
{
    const json_t *map = NULL;
    struct logit_bias *biases;
    size_t n = 0;
    void *at;

    if (field_object(&map, body, "logit_bias", err) != STATUS_OK)
        return err->status;
    if (map == NULL || json_object_size(map) == 0)
        return STATUS_OK;
    if (json_object_size(map) > SAMPLING_MAX_BIASES)
        return error_field(err, "logit_bias", "has %zu tokens, at most %d are allowed",
                           json_object_size(map), SAMPLING_MAX_BIASES);
    biases = arena_alloc(arena, json_object_size(map), sizeof(biases[0]));
    if (biases == NULL)
        return error_no_memory(err, 0, "the request");
    for (at = json_object_iter((json_t *)map); at != NULL;
         at = json_object_iter_next((json_t *)map, at), n++) {
        if (take_bias(&biases[n], json_object_iter_key(at), json_object_iter_value(at), err) !=
            STATUS_OK)
            return err->status;
    }
    if (logit_biases_sort(biases, n, err) != STATUS_OK)
        return err->status;
    p->values.biases = biases;
    p->values.n_biases = n;
    p->given |= SAMPLING_BIASES;
    return STATUS_OK;
}

/* The most tokens of the reply; -1: no bound. 0 is refused, or the caller (of completions, whose
 * own name is max_tokens) takes care of it. */
static enum status take_bound(struct sampling_overrides *p, const json_t *body, const char *name,
                              const char *own_name, struct error *err)
{
    const int64_t least = strcmp(own_name, "max_tokens") == 0 ? 0 : 1;
    bool is_given = false;
    int64_t n = 0;

    if (field_whole(&n, &is_given, body, name, -1, UINT32_MAX, err) != STATUS_OK)
        return err->status;
    if (!is_given)
        return STATUS_OK;
    if (n < least && n != -1)
        return error_field(err, name, "is %lld, it must be from 1 to %u, or -1 for no bound",
                           (long long)n, UINT32_MAX);
    p->given |= SAMPLING_MAX_TOKENS;
    p->values.max_tokens = n == -1 ? 0 : (uint32_t)n;
    return STATUS_OK;
}

enum status request_sampling(struct sampling_overrides *out, const json_t *body,
                             const char *max_field, struct arena *arena, struct error *err)
{
    struct sampling_overrides p = {0};

    if (sampling_json_set_all(&p, body, arena, err) != STATUS_OK ||
        foreign_fields_take(&p, body, arena, err) != STATUS_OK ||
        take_bound(&p, body, "max_tokens", max_field, err) != STATUS_OK ||
        take_bound(&p, body, max_field, max_field, err) != STATUS_OK ||
        request_sampling_take_biases(&p, body, arena, err) != STATUS_OK)
        return err->status;
    *out = p;
    return STATUS_OK;
}
