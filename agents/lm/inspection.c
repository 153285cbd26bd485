/* Reads the keys and the list of tensors of a file, and computes from these what the model needs:
 * memory, pages, and whether this build runs it. No tensor is read. */
#include "agents/lm/inspection.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/agent.h"
#include "agents/lm/chat/template.h"
#include "agents/lm/jinja/jinja.h"
#include "agents/lm/tokenizer/vocab.h"
#include "base/cgroup.h"
#include "base/env.h"
#include "compute/encoder/shape.h"
#include "compute/gguf/gguf.h"
#include "compute/model/read_shape.h"

enum { KEY_SIZE = 160, HEADS_MAX = 4096 };

/* The names of general.file_type, by its number. */
static const char *const mixes[] = {
    [0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
    [8] = "Q5_0",     [9] = "Q5_1",     [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
    [13] = "Q3_K_L",  [14] = "Q4_K_S",  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
    [18] = "Q6_K",    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
    [23] = "IQ3_XXS", [24] = "IQ1_S",   [25] = "IQ4_NL", [26] = "IQ3_S",  [27] = "IQ3_M",
    [28] = "IQ2_S",   [29] = "IQ2_M",   [30] = "IQ4_XS", [31] = "IQ1_M",  [32] = "BF16",
    [36] = "TQ1_0",   [37] = "TQ2_0",   [38] = "MXFP4",
};

static bool is_served_as(const struct lm_inspection *x, const char *kind)
{
    return strcmp(x->kind, kind) == 0;
}

/* A key that the file lacks, or has as another type, leaves "". */
static void inspect_text(char out[INSPECTION_TEXT_SIZE], const struct gguf *g, const char *key)
{
    const char *text = "";
    size_t len = 0;
    struct error ignored;

    (void)gguf_get_text(g, key, &text, &len, &ignored);
    (void)snprintf(out, INSPECTION_TEXT_SIZE, "%.*s",
                   (int)(len < INSPECTION_TEXT_SIZE ? len : INSPECTION_TEXT_SIZE), text);
}

static const char *key_of(char key[KEY_SIZE], const struct lm_inspection *x, const char *name)
{
    (void)snprintf(key, KEY_SIZE, "%s.%s", x->architecture, name);
    return key;
}

/* The number under a key of the architecture, otherwise where it is absent. */
static uint64_t inspect_number(const struct lm_inspection *x, const char *name, uint64_t otherwise)
{
    char key[KEY_SIZE];
    uint64_t value;
    struct error ignored;

    return gguf_get_u64(x->file, key_of(key, x, name), &value, &ignored) == STATUS_OK ? value
                                                                                      : otherwise;
}

static struct inspection_kind *kind_of(struct lm_inspection *x, const char *type)
{
    for (size_t i = 0; i < x->n_kinds; i++)
        if (x->kinds[i].type == type)
            return &x->kinds[i];
    assert(x->n_kinds < INSPECTION_KINDS_MAX);
    x->kinds[x->n_kinds].type = type;
    return &x->kinds[x->n_kinds++];
}

static int inspection_by_bytes(const void *a, const void *b)
{
    const struct inspection_kind *x = a, *y = b;

    return (x->size_bytes < y->size_bytes) - (x->size_bytes > y->size_bytes);
}

static void count_tensors(struct lm_inspection *x)
{
    x->n_tensors = gguf_n_tensors(x->file);
    for (size_t i = 0; i < x->n_tensors; i++) {
        const struct tensor *t = gguf_tensor_at(x->file, i);
        struct inspection_kind *k = kind_of(x, dtype_name(t->type));
        uint64_t n_values = (uint64_t)t->n_rows * t->n_cols;

        k->n_tensors++;
        k->n_values += n_values;
        k->size_bytes += t->size_bytes;
        x->n_parameters += n_values;
        x->weight_bytes += t->size_bytes;
    }
    qsort(x->kinds, x->n_kinds, sizeof(x->kinds[0]), inspection_by_bytes);
}

static void name_mix(struct lm_inspection *x)
{
    uint64_t number;
    struct error ignored;
    const char *name = x->n_kinds > 0 ? x->kinds[0].type : "";

    if (gguf_get_u64(x->file, "general.file_type", &number, &ignored) == STATUS_OK &&
        number < sizeof(mixes) / sizeof(mixes[0]) && mixes[number] != NULL)
        name = mixes[number];
    (void)snprintf(x->mix, sizeof(x->mix), "%s", name);
}

/* The key/value heads of all layers together: the key may hold one number for each layer. */
static uint64_t all_kv_heads(const struct lm_inspection *x)
{
    char key[KEY_SIZE];
    uint64_t sum = 0;
    int64_t heads;
    struct error ignored;

    (void)key_of(key, x, "attention.head_count_kv");
    for (uint64_t i = 0; i < x->n_layers; i++)
        if (gguf_array_i64(x->file, key, i, &heads, &ignored) != STATUS_OK || heads < 0 ||
            heads > HEADS_MAX)
            return x->n_layers * x->n_kv_heads;
        else
            sum += (uint64_t)heads;
    return sum;
}

static void measure_kv(struct lm_inspection *x)
{
    uint64_t n_heads = all_kv_heads(x);
    uint64_t value_dim = inspect_number(x, "attention.value_length", x->head_dim);

    for (int type = 0; type < INSPECTION_N_KV_TYPES; type++)
        if (n_heads > 0 && x->head_dim > 0 && value_dim > 0)
            x->kv_token_bytes[type] = n_heads * (kv_head_bytes((enum kv_type)type, x->head_dim) +
                                                 kv_head_bytes((enum kv_type)type, value_dim));
}

/* Sizes beyond these are no model's: a product of them could overflow. */
static uint64_t sane(uint64_t v, uint64_t most)
{
    return v <= most ? v : 0;
}

static void read_sizes(struct lm_inspection *x)
{
    const struct tensor *embed;
    struct error ignored;

    x->n_layers = sane(inspect_number(x, "block_count", 0), 1 << 12);
    x->width = sane(inspect_number(x, "embedding_length", 0), 1 << 20);
    x->n_heads = sane(inspect_number(x, "attention.head_count", 0), HEADS_MAX);
    x->n_kv_heads = sane(inspect_number(x, "attention.head_count_kv", x->n_heads), HEADS_MAX);
    x->context = sane(inspect_number(x, "context_length", 0), 1 << 30);
    x->head_dim =
        sane(inspect_number(x, "attention.key_length", x->n_heads == 0 ? 0 : x->width / x->n_heads),
             1 << 20);
    if (gguf_tensor(x->file, "token_embd.weight", &embed, &ignored) == STATUS_OK)
        x->n_vocab = embed->n_rows;
    if (is_served_as(x, "lm"))
        measure_kv(x);
}

static uint64_t machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t limit = cgroup_memory_bytes(""), all = (uint64_t)pages * (uint64_t)page_bytes;

    return pages <= 0 || page_bytes <= 0 || limit < all ? limit : all;
}

/* A model whose template is absent or cannot be run loads, for raw prompts. */
static enum status name_template(struct lm_inspection *x, const struct vocab *vocab,
                                 struct error *err)
{
    struct chat_template *template = NULL;
    struct jinja *whole = NULL;
    enum status rc = chat_template_open(&template, x->file, vocab, err);

    if (rc == STATUS_OK)
        (void)snprintf(x->template_name, sizeof(x->template_name), "%s",
                       chat_template_name(template));
    chat_template_close(template);
    if (rc != STATUS_UNIMPLEMENTED || x->template_text == NULL)
        return rc == STATUS_UNIMPLEMENTED ? STATUS_OK : rc;
    if (jinja_open(&whole, x->template_text, x->template_len, &x->template_why) == STATUS_OK)
        (void)snprintf(x->template_name, sizeof(x->template_name), "jinja");
    jinja_close(whole);
    return x->template_why.status == STATUS_EXHAUSTED ? STATUS_EXHAUSTED : STATUS_OK;
}

/* Bytes of a token as pages hold it: layers may be unlike, which the keys alone do not say. */
static void take_page_sizes(struct lm_inspection *x, const struct transformer_shape *shape)
{
    for (int type = 0; type < INSPECTION_N_KV_TYPES; type++)
        x->kv_token_bytes[type] =
            transformer_kv_page_bytes(shape, (enum kv_type)type) / KV_PAGE_TOKENS;
    x->memory_bytes = x->weight_bytes + x->context * x->kv_token_bytes[KV_F16];
}

static enum status check_model_shape(struct lm_inspection *x, struct error *err)
{
    struct encoder_shape of_encoder;
    struct transformer_shape shape;

    if (is_served_as(x, "encoder"))
        return encoder_read_shape(&of_encoder, x->file, err);
    if (transformer_read_shape(&shape, x->file, err) != STATUS_OK)
        return err->status;
    take_page_sizes(x, &shape);
    return STATUS_OK;
}

/* As the daemon opens it. */
static enum status check_opens(struct lm_inspection *x, struct error *err)
{
    const struct agent_config config = {
        .name = x->kind, .path = gguf_path(x->file), .options.backend = "cpu", .env = &env_real};
    struct agent *agent;
    enum status rc = agent_open(&agent, x->kind, &config, err);

    if (rc == STATUS_OK)
        agent_unref(agent);
    else
        x->fault = load_fault_of(MODEL_WEIGHTS, err);
    return rc;
}

/* Whether the daemon would load it, by what it checks before it takes memory for weights. */
static enum status check_loads(struct lm_inspection *x, struct error *err)
{
    struct vocab *vocab = NULL;
    enum model_part part = MODEL_CONFIG;
    enum status rc;

    if (!is_served_as(x, "lm") && !is_served_as(x, "encoder"))
        return check_opens(x, err);
    rc = check_model_shape(x, err);
    if (rc == STATUS_OK) {
        part = MODEL_TOKENIZER;
        rc = vocab_open(&vocab, x->file, err);
    }
    if (rc == STATUS_OK && is_served_as(x, "lm")) {
        part = MODEL_TEMPLATE;
        rc = name_template(x, vocab, err);
    }
    if (rc == STATUS_OK && x->weight_bytes > x->machine_bytes) {
        part = MODEL_MEMORY;
        rc = error_set(err, STATUS_EXHAUSTED,
                       "its weights take %" PRIu64 " MiB, but this machine has only %" PRIu64
                       " MiB of memory",
                       x->weight_bytes >> 20, x->machine_bytes >> 20);
    }
    if (rc != STATUS_OK)
        x->fault = load_fault_of(part, err);
    vocab_close(vocab);
    return rc;
}

enum status lm_inspect(struct lm_inspection *out, const char *path, struct error *err)
{
    struct lm_inspection x = {0};
    struct error ignored;
    enum status rc = agent_kind_of_file(&x.kind, path, err);

    if (rc == STATUS_OK)
        rc = gguf_open(&x.file, path, err);
    if (rc != STATUS_OK)
        return rc;
    x.n_files = gguf_n_files(x.file);
    x.size_bytes = gguf_size_bytes(x.file);
    inspect_text(x.architecture, x.file, "general.architecture");
    inspect_text(x.title, x.file, "general.name");
    inspect_text(x.tokenizer, x.file, "tokenizer.ggml.model");
    inspect_text(x.pre_tokenizer, x.file, "tokenizer.ggml.pre");
    (void)gguf_get_text(x.file, "tokenizer.chat_template", &x.template_text, &x.template_len,
                        &ignored);
    count_tensors(&x);
    name_mix(&x);
    read_sizes(&x);
    x.memory_bytes = x.weight_bytes + x.context * x.kv_token_bytes[KV_F16];
    x.machine_bytes = machine_memory();
    if (check_loads(&x, &x.why) == STATUS_OK)
        x.why = (struct error){.status = STATUS_OK}; /* absent keys have left their errors in it */
    *out = x;
    return STATUS_OK;
}

void lm_inspection_deinit(struct lm_inspection *x)
{
    gguf_close(x->file);
    x->file = NULL;
}
