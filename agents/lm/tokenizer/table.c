#include "agents/lm/tokenizer/table.h"

#include <string.h>

const char *vocab_token_bytes(const struct vocab *v, int32_t id, size_t *ret_len)
{
    *ret_len = v->starts[id + 1] - v->starts[id];
    return v->bytes + v->starts[id];
}

int32_t *vocab_slot(const struct vocab *v, const char *bytes, size_t len)
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
    size_t i;

    for (size_t k = 0; k < len; k++)
        hash = (hash ^ (unsigned char)bytes[k]) * 0x100000001B3u;
    for (i = (size_t)(hash ^ hash >> 32) & v->lookup_mask; v->lookup[i] != 0;
         i = (i + 1) & v->lookup_mask) {
        size_t token_len;
        const char *token = vocab_token_bytes(v, v->lookup[i] - 1, &token_len);

        if (token_len == len && memcmp(token, bytes, len) == 0)
            break;
    }
    return &v->lookup[i];
}

int32_t vocab_find(const struct vocab *v, const char *bytes, size_t len)
{
    return *vocab_slot(v, bytes, len) - 1;
}

enum status vocab_append_ids(struct buf *out, const int32_t *ids, size_t n, struct error *err)
{
    if (buf_append(out, ids, n * sizeof(*ids)) == STATUS_OK)
        return STATUS_OK;
    if (!out->is_full)
        return error_no_memory(err, n * sizeof(*ids), "tokens");
    return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                         "the text has more than %zu tokens", out->limit_bytes / sizeof(*ids));
}

int32_t vocab_find_control(const struct vocab *v, const char *text)
{
    size_t text_len = strlen(text);

    for (size_t i = 0; i < v->n; i++) {
        size_t len;
        const char *bytes;

        if (v->types[i] != TOKEN_CONTROL && v->types[i] != TOKEN_UNKNOWN)
            continue;
        bytes = vocab_token_bytes(v, (int32_t)i, &len);
        if (len == text_len && memcmp(bytes, text, len) == 0)
            return (int32_t)i;
    }
    return -1;
}
