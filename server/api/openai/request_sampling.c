#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "server/api/openai/request.h"
#include "server/json/fields.h"
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

enum status request_sampling(struct sampling_overrides *out, const json_t *body,
                             const char *max_field, struct arena *arena, struct error *err)
{
    const json_t *named = field(body, max_field);
    struct sampling_overrides p = {0};
    /* 0 would mean no bound, so it is refused, or the caller (of completions) takes care of it. */
    const int64_t min = strcmp(max_field, "max_tokens") == 0 ? 0 : 1;
    int64_t ignored;

    if (field_whole(&ignored, NULL, body, "max_tokens", min, UINT32_MAX, err) != STATUS_OK ||
        field_whole(&ignored, NULL, body, max_field, min, UINT32_MAX, err) != STATUS_OK ||
        sampling_json_set_all(&p, body, arena, err) != STATUS_OK ||
        request_sampling_take_biases(&p, body, arena, err) != STATUS_OK)
        return err->status;
    if (named != NULL && sampling_json_set(&p, "max_tokens", named, arena, err) != STATUS_OK)
        return err->status;
    *out = p;
    return STATUS_OK;
}
