/* The real model on CUDA's kernels, on fibres: the first tokens of a known reply, and the logits of
 * each, bit for bit those of the cpu. PARLEY_MODEL names the file; the default is in
 * build/model. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/backends.h"
#include "compute/cuda/module.h"
#include "compute/model/transformer.h"
#include "tests/cuda_host/fibres.h"

#define MODEL_FILE "SmolLM2-135M-Instruct.Q4_1.gguf"

enum {
    LINE = 4, /* from 0: a short prompt, whose first reply tokens have clear margins */
    N_TOKENS = 4,
    MAX_PROMPT = 64,
    N_PAGES = (MAX_PROMPT + N_TOKENS + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS,
};

extern const struct cuda_module parley_cuda_module;

/* The line's prompt, then the known reply. */
struct known {
    int32_t ids[MAX_PROMPT + N_TOKENS];
    size_t n_prompt;
};

static bool read_ids(const json_t *array, size_t n, int32_t *out)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(array, i);

        if (!json_is_integer(id))
            return false;
        out[i] = (int32_t)json_integer_value(id);
    }
    return true;
}

static bool read_known(struct known *out)
{
    FILE *in = fopen(GOLDEN_DIR "/greedy.jsonl", "re");
    json_t *line = NULL;
    const json_t *prompt;
    bool ok;

    for (size_t i = 0; in != NULL && i <= LINE; i++) {
        json_decref(line);
        line = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL);
    }
    if (in != NULL)
        (void)fclose(in); /* only read from */
    prompt = json_object_get(line, "prompt_ids");
    out->n_prompt = json_array_size(prompt);
    ok = out->n_prompt > 0 && out->n_prompt <= MAX_PROMPT &&
         read_ids(prompt, out->n_prompt, out->ids) &&
         read_ids(json_object_get(line, "reply_ids"), N_TOKENS, out->ids + out->n_prompt);
    json_decref(line);
    return ok;
}

/* The model on one backend. */
struct side {
    struct backend *backend;
    struct transformer *model;
    float *logits;
};

static enum status side_open(struct side *s, const struct gguf *g, const struct backend_type *type,
                             struct error *err)
{
    const struct backend_config config = {.n_threads = 1};
    const struct transformer_config transformer_config = {
        .max_tokens = MAX_PROMPT, .max_logits = 1, .n_kv_pages = N_PAGES, .kv_type = KV_F16};
    enum status rc = backend_open_type(&s->backend, type, &config, err);

    if (rc == STATUS_OK)
        rc = transformer_open(&s->model, s->backend, g, &transformer_config, err);
    if (rc == STATUS_OK)
        s->logits = calloc(transformer_shape(s->model)->n_vocab, sizeof(*s->logits));
    return rc;
}

static void side_close(struct side *s)
{
    transformer_close(s->model);
    backend_close(s->backend);
    free(s->logits);
}

static enum status step(struct side *s, const int32_t *ids, size_t n_tokens, size_t pos,
                        struct error *err)
{
    static const int32_t pages[N_PAGES] = {3, 0, 4, 1, 2};
    const struct transformer_row row = {.ids = ids,
                                        .n_tokens = n_tokens,
                                        .pos = pos,
                                        .pages = pages,
                                        .n_logits = 1,
                                        .logits = s->logits};

    return transformer_forward(s->model, &row, 1, NULL, 0, err);
}

static int32_t likeliest(const float *logits, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

/* Counts the tokens that differ from the known ones, or whose logits differ from the cpu's. */
static enum status speak(const struct known *known, struct side *cuda, struct side *cpu,
                         int *ret_n_wrong, struct error *err)
{
    const size_t n_vocab = transformer_shape(cpu->model)->n_vocab;
    size_t first = 0;

    *ret_n_wrong = 0;
    for (size_t i = 0; i < N_TOKENS; i++) {
        const size_t end = known->n_prompt + i;
        const uint64_t n_launches = fibres_n_launches();
        enum status rc = step(cuda, known->ids + first, end - first, first, err);
        bool are_same;
        int32_t id;

        if (rc == STATUS_OK)
            rc = step(cpu, known->ids + first, end - first, first, err);
        if (rc != STATUS_OK)
            return rc;
        id = likeliest(cuda->logits, n_vocab);
        are_same = memcmp(cuda->logits, cpu->logits, n_vocab * sizeof(*cpu->logits)) == 0;
        printf("%zu tokens in %u launches: %d, %d is known; logits %s\n", end - first,
               (unsigned)(fibres_n_launches() - n_launches), id, known->ids[end],
               are_same ? "as the cpu's" : "DIFFER");
        *ret_n_wrong += id != known->ids[end] || !are_same;
        first = end;
    }
    return STATUS_OK;
}

static const struct backend_type *cpu_type(void)
{
    const struct backend_type *type;

    for (size_t i = 0; (type = backend_type_at(i)) != NULL; i++)
        if (strcmp(type->name, "cpu") == 0)
            break;
    return type;
}

int main(void)
{
    const char *model = getenv("PARLEY_MODEL");
    struct side cuda = {0}, cpu = {0};
    struct gguf *g = NULL;
    struct known known;
    struct error err;
    int n_wrong = 0;
    enum status rc;

    if (!read_known(&known)) {
        (void)fprintf(stderr, "greedy.jsonl has no such line\n");
        return 1;
    }
    rc = gguf_open(&g, model != NULL && *model != '\0' ? model : MODEL_DIR "/" MODEL_FILE, &err);
    if (rc == STATUS_OK)
        rc = side_open(&cuda, g, parley_cuda_module.type, &err);
    if (rc == STATUS_OK)
        rc = side_open(&cpu, g, cpu_type(), &err);
    if (rc == STATUS_OK)
        rc = speak(&known, &cuda, &cpu, &n_wrong, &err);
    side_close(&cuda);
    side_close(&cpu);
    gguf_close(g);
    if (rc != STATUS_OK)
        (void)fprintf(stderr, "%s%s\n", err.text,
                      rc == STATUS_NOT_FOUND ? " (`./run model` fetches the model)" : "");
    return rc != STATUS_OK || n_wrong > 0;
}
