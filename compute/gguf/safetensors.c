/* A folder as transformers saves it, read as a GGUF file: config.json and the tokenizer's files
 * become keys, the tensors of *.safetensors get GGUF's names. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/shard_name.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/hf_parts.h"
#include "compute/gguf/parts.h"

enum { FILES_MAX = 512, SMALL_MAX_BYTES = 128 << 20, NAME_MAX_BYTES = 255 };

static const char ending[] = ".safetensors", single[] = "model.safetensors",
                  index_name[] = "model.safetensors.index.json";

/* While a folder is read. */
struct hf_folder {
    char *path; /* without a slash at its end */
    struct gguf *g;
    struct hf_model model;
    json_t *config, *generation_config, *tokenizer, *tokenizer_config, *index;
    char *template_text; /* NULL: none */
    size_t template_len;
    size_t n_tensors; /* of the files read so far */
    struct hf_tensors heads[FILES_MAX];
    size_t n_heads; /* of the weights' files; the last n_heads of g's files */
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

bool gguf_is_safetensors(const char *path)
{
    size_t len = strlen(path);
    struct stat st;

    if (len >= sizeof ending && strcmp(path + len - (sizeof ending - 1), ending) == 0)
        return true;
    if (strcmp(base_name(path), index_name) == 0)
        return true;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The folder of a path that is one, or names a file of one. */
static enum status folder_of(char **out, const char *path, struct error *err)
{
    struct stat st;
    struct shard_name shard;
    const char *name = base_name(path);
    char *folder;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        folder = xstrdup(path);
        while (strlen(folder) > 1 && folder[strlen(folder) - 1] == '/')
            folder[strlen(folder) - 1] = '\0';
        *out = folder;
        return STATUS_OK;
    }
    if (strcmp(name, single) != 0 && strcmp(name, index_name) != 0 &&
        (strncmp(name, "model-", 6) != 0 || !shard_name_parse(&shard, name, ending)))
        return error_set(err, STATUS_INVALID,
                         "weights of another name than %s are read as part of no model; name the "
                         "folder of one",
                         single);
    folder = name == path ? xstrdup(".") : xstrdup(path);
    if (name != path)
        folder[name - path - 1] = '\0';
    *out = folder;
    return STATUS_OK;
}

static char *path_in(const struct hf_folder *f, const char *name)
{
    size_t room = strlen(f->path) + strlen(name) + 2;
    char *path = xalloc(room);

    (void)snprintf(path, room, "%s/%s", f->path, name);
    return path;
}

/* Opens a file of the folder as one of the model's. */
static enum status take_file(struct hf_folder *f, const char *name, struct gguf **ret,
                             struct error *err)
{
    struct gguf *file = xalloc(sizeof *file);
    enum status rc;

    file->path = path_in(f, name);
    file->fd = -1;
    if (f->g->n_others == FILES_MAX) {
        gguf_close(file);
        return error_set(err, STATUS_UNIMPLEMENTED, "more than %d files", FILES_MAX);
    }
    rc = gguf_file_open(file, err);
    if (rc != STATUS_OK) {
        gguf_close(file);
        return error_prefix(err, "%s", name);
    }
    gguf_file_trim(file); /* what is read of it has memory of its own */
    f->g->others[f->g->n_others++] = file;
    *ret = file;
    return STATUS_OK;
}

/* The whole of a file, for the caller to free. NOT_FOUND: there is none. */
static enum status read_small(struct hf_folder *f, const char *name, char **ret, size_t *ret_len,
                              struct error *err)
{
    struct gguf *file;
    char *bytes;
    enum status rc = take_file(f, name, &file, err);

    if (rc != STATUS_OK)
        return rc;
    if (file->size_bytes > SMALL_MAX_BYTES)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s: %zu bytes, more than %d", name,
                         file->size_bytes, SMALL_MAX_BYTES);
    bytes = try_alloc(file->size_bytes + 1, 1);
    if (bytes == NULL)
        return error_no_memory(err, file->size_bytes, name);
    rc = gguf_copy(file, 0, file->size_bytes, bytes, err);
    if (rc != STATUS_OK) {
        free(bytes);
        return error_prefix(err, "%s", name);
    }
    *ret = bytes;
    *ret_len = file->size_bytes;
    return STATUS_OK;
}

static enum status read_json(struct hf_folder *f, const char *name, json_t **ret, struct error *err)
{
    char *bytes = NULL;
    size_t len = 0;
    enum status rc = read_small(f, name, &bytes, &len, err);

    if (rc != STATUS_OK)
        return rc;
    rc = hf_json_parse(ret, bytes, len, err);
    free(bytes);
    return rc == STATUS_OK ? rc : error_prefix(err, "%s", name);
}

/* A file that may be missing. */
static enum status read_optional(struct hf_folder *f, const char *name, json_t **ret,
                                 struct error *err)
{
    enum status rc = read_json(f, name, ret, err);

    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

static enum status read_texts(struct hf_folder *f, struct error *err)
{
    enum status rc = read_json(f, "config.json", &f->config, err);

    if (rc == STATUS_OK)
        rc = read_json(f, "tokenizer.json", &f->tokenizer, err);
    if (rc == STATUS_OK)
        rc = read_optional(f, "tokenizer_config.json", &f->tokenizer_config, err);
    if (rc == STATUS_OK)
        rc = read_optional(f, "generation_config.json", &f->generation_config, err);
    if (rc == STATUS_OK)
        rc = read_optional(f, index_name, &f->index, err);
    if (rc != STATUS_OK)
        return rc;
    rc = read_small(f, "chat_template.jinja", &f->template_text, &f->template_len, err);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

/* Makes g's keys. */
static enum status make_keys(struct hf_folder *f, struct error *err)
{
    const struct hf_texts texts = {f->tokenizer,         f->tokenizer_config, f->config,
                                   f->generation_config, f->template_text,    f->template_len};
    const char *name = base_name(f->path);
    struct gguf *g = f->g;
    struct hf_keys keys;
    size_t len = 0;
    enum status rc;

    hf_keys_init(&keys);
    hf_key_text(&keys, "general.name", name, strlen(name));
    rc = hf_config_read(&f->model, &keys, f->config, err);
    if (rc != STATUS_OK)
        (void)error_prefix(err, "config.json");
    else if ((rc = hf_tokenizer_read(&keys, &texts, err)) != STATUS_OK)
        (void)error_prefix(err, "tokenizer.json");
    if (rc == STATUS_OK)
        rc = hf_keys_take(&keys, &g->own_bytes, &len, err);
    hf_keys_deinit(&keys);
    if (rc != STATUS_OK)
        return rc;
    g->data = g->own_bytes;
    g->n_read = g->size_bytes = len;
    return gguf_read(g, err);
}

/* --- weights --- */

static enum status open_weights_file(struct hf_folder *f, const char *name, struct error *err)
{
    struct gguf *file;
    enum status rc = take_file(f, name, &file, err);

    if (rc == STATUS_NOT_FOUND)
        return error_set(err, STATUS_NOT_FOUND, "%s: missing: the model's weights are in it", name);
    if (rc != STATUS_OK)
        return rc;
    rc = hf_tensors_open(&f->heads[f->n_heads], file, err);
    if (rc != STATUS_OK)
        return error_prefix(err, "%s", name);
    f->n_tensors += f->heads[f->n_heads++].n;
    return STATUS_OK;
}

static bool has_file(const struct hf_folder *f, const char *name)
{
    for (size_t i = 0; i < f->g->n_others; i++)
        if (strcmp(base_name(f->g->others[i]->path), name) == 0)
            return true;
    return false;
}

/* Opens each file of the index once. */
static enum status open_indexed(struct hf_folder *f, struct error *err)
{
    json_t *map = json_object_get(f->index, "weight_map"), *file;
    const char *tensor;

    if (json_object_size(map) == 0)
        return error_set(err, STATUS_DATA_LOSS, "%s: has no weight_map", index_name);
    json_object_foreach(map, tensor, file)
    {
        const char *name = json_string_value(file);
        enum status rc;

        if (name == NULL || strchr(name, '/') != NULL || strlen(name) > NAME_MAX_BYTES ||
            strlen(name) < sizeof ending)
            return error_set(err, STATUS_DATA_LOSS, "%s: tensor '%.80s' has no file's name",
                             index_name, tensor);
        if (has_file(f, name))
            continue;
        rc = open_weights_file(f, name, err);
        if (rc != STATUS_OK)
            return rc;
    }
    if (json_object_size(map) != f->n_tensors)
        return error_set(err, STATUS_DATA_LOSS, "%s: names %zu tensors, its files hold %zu",
                         index_name, json_object_size(map), f->n_tensors);
    return STATUS_OK;
}

static enum status name_tensors(struct hf_folder *f, const struct hf_tensors *head,
                                const struct gguf *file, struct error *err)
{
    for (size_t i = 0; i < head->n; i++) {
        const struct hf_tensor *from = &head->list[i];
        struct named_tensor t = {
            .tensor = {.type = from->type,
                       .n_rows = from->n_dims == 1 ? 1 : from->dims[0],
                       .n_cols = from->dims[from->n_dims - 1],
                       .size_bytes = from->size_bytes,
                       .file = file,
                       .file_at = from->begin},
        };
        bool is_unused;
        enum status rc = hf_name_tensor(&t, &f->model, from->name, &is_unused, err);

        if (rc == STATUS_OK && !is_unused)
            rc = gguf_tensors_add(f->g, &t, err);
        if (rc != STATUS_OK)
            return error_prefix(err, "%s", base_name(file->path));
    }
    return STATUS_OK;
}

/* Llama 3's divisors of rope's frequencies, which GGUF has as a tensor: 1 for short wavelengths,
 * the factor for long ones, between them a blend. */
static enum status make_rope(struct hf_folder *f, struct error *err)
{
    const struct hf_model *m = &f->model;
    const size_t n = m->head_dim / 2;
    float *divisors = try_alloc(n, sizeof *divisors);
    struct named_tensor t = {.name = "rope_freqs.weight"};

    if (divisors == NULL)
        return error_no_memory(err, n * sizeof *divisors, "rope");
    f->g->own_weights = divisors;
    for (size_t i = 0; i < n; i++) {
        double wave = 2 * M_PI * pow(m->rope_base, 2.0 * (double)i / (double)m->head_dim);
        double blend = (m->original / wave - m->low) / (m->high - m->low);

        divisors[i] =
            (float)(wave < m->original / m->high  ? 1
                    : wave > m->original / m->low ? m->factor
                                                  : 1 / ((1 - blend) / m->factor + blend));
    }
    t.name_len = strlen(t.name);
    t.tensor = (struct tensor){.type = DTYPE_F32,
                               .n_rows = 1,
                               .n_cols = n,
                               .data = divisors,
                               .size_bytes = n * sizeof *divisors,
                               .file = f->g};
    return gguf_tensors_add(f->g, &t, err);
}

static enum status make_tensors(struct hf_folder *f, struct error *err)
{
    struct gguf *g = f->g;
    enum status rc = f->index != NULL ? open_indexed(f, err) : open_weights_file(f, single, err);

    if (rc != STATUS_OK)
        return rc;
    gguf_tensors_clear(g);
    rc = gguf_tensors_reserve(g, f->n_tensors + 1, err);
    for (size_t i = 0; i < f->n_heads && rc == STATUS_OK; i++)
        rc = name_tensors(f, &f->heads[i], g->others[g->n_others - f->n_heads + i], err);
    if (rc == STATUS_OK && f->model.factor != 0)
        rc = make_rope(f, err);
    return rc;
}

static void close_folder(struct hf_folder *f)
{
    for (size_t i = 0; i < f->n_heads; i++)
        hf_tensors_close(&f->heads[i]);
    json_decref(f->config);
    json_decref(f->generation_config);
    json_decref(f->tokenizer);
    json_decref(f->tokenizer_config);
    json_decref(f->index);
    free(f->template_text);
    free(f->path);
    gguf_close(f->g);
    free(f);
}

enum status gguf_open_safetensors(struct gguf **out, const char *path, struct error *err)
{
    struct hf_folder *f = xalloc(sizeof *f);
    enum status rc;

    f->g = xalloc(sizeof *f->g);
    f->g->path = xstrdup(path);
    f->g->fd = -1;
    f->g->others = xalloc(FILES_MAX * sizeof(struct gguf *));
    rc = folder_of(&f->path, path, err);
    if (rc == STATUS_OK)
        rc = read_texts(f, err);
    if (rc == STATUS_OK)
        rc = make_keys(f, err);
    if (rc == STATUS_OK)
        rc = make_tensors(f, err);
    if (rc == STATUS_OK) {
        *out = f->g;
        f->g = NULL; /* given away */
    } else {
        (void)error_prefix(err, "%s", gguf_shown_path(path));
    }
    close_folder(f);
    return rc;
}
