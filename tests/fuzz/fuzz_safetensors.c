/* Any bytes as a .safetensors file, and, where they are JSON, as {"config": …, "tokenizer": …,
 * "tokenizer_config": …, "generation_config": …} of a folder: what is translated is a good GGUF
 * file. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/gguf/hf_parts.h"
#include "tests/fuzz/target.h"

static void read_head(const uint8_t *data, size_t size_bytes)
{
    struct hf_tensors t;
    struct error err;
    uint64_t n, end;

    if (size_bytes < 8)
        return;
    memcpy(&n, data, sizeof(n));
    if (n > size_bytes - 8)
        return;
    if (hf_tensors_parse(&t, (const char *)data + 8, n, size_bytes, &err) != STATUS_OK) {
        assert(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
        return;
    }
    end = 8 + n;
    for (size_t i = 0; i < t.n; i++) {
        assert(t.list[i].begin == end);
        end += t.list[i].size_bytes;
    }
    assert(end == size_bytes);
    hf_tensors_close(&t);
}

/* The names of tensors, by what the config says of the model. */
static void name_all(const struct hf_model *m, const json_t *names)
{
    const json_t *name;
    size_t i;

    json_array_foreach(names, i, name)
    {
        struct named_tensor t = {.tensor = {.n_rows = 8, .n_cols = 8}};
        struct error err;
        struct hf_place place;

        if (json_is_string(name) &&
            hf_name_tensor(&t, m, json_string_value(name), &place, &err) == STATUS_OK)
            assert(place.is_unused || strlen(t.name) == t.name_len);
    }
}

static void translate(const json_t *all)
{
    struct hf_texts texts = {.tokenizer = hf_json_object(all, "tokenizer"),
                             .tokenizer_config = hf_json_object(all, "tokenizer_config"),
                             .config = hf_json_object(all, "config"),
                             .generation_config = hf_json_object(all, "generation_config")};
    struct hf_model model;
    struct hf_keys keys;
    struct gguf *g;
    struct error err;
    void *bytes = NULL;
    size_t len;

    hf_keys_init(&keys);
    if (hf_config_read(&model, &keys, texts.config, NULL, &err) == STATUS_OK) {
        name_all(&model, json_object_get(all, "names"));
        if (hf_tokenizer_read(&keys, &texts, &err) == STATUS_OK &&
            hf_keys_take(&keys, &bytes, &len, &err) == STATUS_OK) {
            if (gguf_open_bytes(&g, bytes, len, "fuzzed", &err) != STATUS_OK)
                abort();
            gguf_close(g);
        }
    }
    hf_keys_deinit(&keys);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct error err;
    json_t *all;

    read_head(data, size_bytes);
    if (hf_json_parse(&all, (const char *)data, size_bytes, &err) == STATUS_OK) {
        translate(all);
        json_decref(all);
    }
    return 0;
}
