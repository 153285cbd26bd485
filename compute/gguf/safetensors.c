/* A folder as transformers saves it, read as a GGUF file: config.json and the tokenizer's files
 * become keys, the tensors of *.safetensors get GGUF's names. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/real.h"
#include "base/shard_name.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/hf_parts.h"
#include "compute/gguf/parts.h"

enum { FILES_MAX = 512, SMALL_MAX_BYTES = 128 << 20, NAME_MAX_BYTES = 255 };

#define INDEX_NAME "model.safetensors.index.json"

static const char ending[] = ".safetensors", single[] = "model.safetensors",
                  index_name[] = INDEX_NAME;

/* While a folder is read. */
struct hf_folder {
    char *path; /* without a slash at its end */
    struct gguf *g;
    struct hf_model model;
    json_t *config, *generation_config, *tokenizer, *tokenizer_config, *index;
    json_t *pooling, *score; /* of sentence-transformers */
    json_t *template_json;   /* of an older processor */
    char *template_text;     /* NULL: none */
    size_t template_len;
    size_t n_tensors; /* of the files read so far */
    struct hf_tensors heads[FILES_MAX];
    size_t n_heads;             /* of the weights' files; the last n_heads of g's files */
    size_t parts_room, n_parts; /* of g's own_parts, all and those in use */
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

    if (len >= sizeof(ending) && strcmp(path + len - (sizeof(ending) - 1), ending) == 0)
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
        return error_set(
            err, STATUS_INVALID,
            "a weights file that is not named %s cannot be read alone: give the model's folder",
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
    struct gguf *file = xalloc(sizeof(*file));
    enum status rc;

    file->path = path_in(f, name);
    file->fd = -1;
    if (f->g->n_others == FILES_MAX) {
        gguf_close(file);
        return error_set(err, STATUS_UNIMPLEMENTED, "more than %d files", FILES_MAX);
    }
    rc = gguf_file_open(file, err);
    if (rc == STATUS_OK)
        rc = gguf_refuse_pointer(file, err);
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

/* The same of a file that is no part of the model, nor of its hash. */
static enum status read_aside(struct hf_folder *f, const char *name, char **ret, size_t *ret_len,
                              struct error *err)
{
    const size_t n_others = f->g->n_others;
    enum status rc = read_small(f, name, ret, ret_len, err);

    while (f->g->n_others > n_others)
        gguf_close(f->g->others[--f->g->n_others]);
    return rc;
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

/* A folder without config.json: some are known by another file. */
static enum status refuse_folder(const struct hf_folder *f, struct error *err)
{
    static const struct {
        const char *name, *what;
    } others[] = {
        {"adapter_config.json", "an adapter (LoRA), which is not read here: merge it with its "
                                "model, or take a model that it is merged into"},
        {"model_index.json", "a model of diffusers, which makes images"},
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char *path = path_in(f, others[i].name);
        const bool is_there = access(path, F_OK) == 0;

        free(path);
        if (is_there)
            return error_set(err, STATUS_INVALID, "the folder has %s", others[i].what);
    }
    return error_set(err, STATUS_NOT_FOUND,
                     "the folder holds no model: it has no config.json (a model is a .gguf "
                     "file, or a folder with config.json, tokenizer.json and *.safetensors)");
}

static enum status read_texts(struct hf_folder *f, struct error *err)
{
    enum status rc = read_json(f, "config.json", &f->config, err);

    if (rc == STATUS_NOT_FOUND)
        return refuse_folder(f, err);
    if (rc == STATUS_OK)
        rc = read_json(f, "tokenizer.json", &f->tokenizer, err);
    if (rc == STATUS_OK)
        rc = read_optional(f, "tokenizer_config.json", &f->tokenizer_config, err);
    if (rc == STATUS_OK)
        rc = read_optional(f, "generation_config.json", &f->generation_config, err);
    if (rc == STATUS_OK)
        rc = read_optional(f, index_name, &f->index, err);
    if (rc == STATUS_OK)
        rc = read_optional(f, "1_Pooling/config.json", &f->pooling, err);
    if (rc == STATUS_OK)
        rc = read_optional(f, "1_LogitScore/config.json", &f->score, err);
    if (rc != STATUS_OK)
        return rc;
    rc = read_small(f, "chat_template.jinja", &f->template_text, &f->template_len, err);
    if (rc == STATUS_NOT_FOUND && json_object_get(f->tokenizer_config, "chat_template") == NULL)
        return read_optional(f, "chat_template.json", &f->template_json, err);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

/* What a model that ranks is asked with. */
static enum status write_ranker(struct hf_folder *f, struct hf_keys *keys, struct error *err)
{
    json_t *sentence = NULL;
    char *card = NULL;
    size_t len = 0;
    enum status rc;

    if (!f->model.is_ranker || f->model.family->encoder_layers != NULL)
        return STATUS_OK;
    rc = read_optional(f, "sentence_bert_config.json", &sentence, err);
    if (rc != STATUS_OK)
        return rc;
    hf_ranker_write_template(keys, sentence);
    json_decref(sentence);
    rc = read_aside(f, "README.md", &card, &len, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    hf_ranker_write(&f->model, keys, f->config, base_name(f->path), card == NULL ? "" : card);
    free(card);
    return STATUS_OK;
}

/* Makes g's keys. */
static enum status make_keys(struct hf_folder *f, struct error *err)
{
    const struct hf_texts texts = {f->tokenizer,         f->tokenizer_config, f->config,
                                   f->generation_config, f->template_json,    f->template_text,
                                   f->template_len};
    const char *name = base_name(f->path);
    struct gguf *g = f->g;
    struct hf_keys keys;
    size_t len = 0;
    enum status rc;

    hf_keys_init(&keys);
    hf_key_text(&keys, "general.name", name, strlen(name));
    rc = hf_config_read(&f->model, &keys, f->config, f->score != NULL ? f->score : f->pooling, err);
    if (rc != STATUS_OK)
        (void)error_prefix(err, "config.json");
    else if ((rc = write_ranker(f, &keys, err)) == STATUS_OK &&
             (rc = hf_tokenizer_read(&keys, &texts, err)) != STATUS_OK)
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

    if (rc == STATUS_NOT_FOUND && f->index == NULL)
        return error_set(
            err, STATUS_NOT_FOUND,
            "%s is missing: it has the model's weights. Those in several files need " INDEX_NAME
            ", which is missing, too",
            name);
    if (rc == STATUS_NOT_FOUND)
        return error_set(err, STATUS_NOT_FOUND, "%s is missing: it has the model's weights", name);
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
            strlen(name) < sizeof(ending))
            return error_set(err, STATUS_DATA_LOSS, "%s: tensor '%.80s' has no file's name",
                             index_name, tensor);
        if (has_file(f, name))
            continue;
        rc = open_weights_file(f, name, err);
        if (rc != STATUS_OK)
            return rc;
    }
    if (json_object_size(map) != f->n_tensors)
        return error_set(err, STATUS_DATA_LOSS, "%s: names %zu tensors, but its files have %zu",
                         index_name, json_object_size(map), f->n_tensors);
    return STATUS_OK;
}

/* Adds a tensor of n parts, of which nothing is found yet. */
static enum status add_parts(struct hf_folder *f, struct named_tensor *t, size_t n,
                             struct error *err)
{
    if (n > f->parts_room - f->n_parts)
        return error_set(err, STATUS_DATA_LOSS, "tensor '%s' does not have all of %zu experts",
                         t->name, n);
    t->tensor.parts = f->g->own_parts + f->n_parts;
    f->n_parts += n;
    t->tensor.n_rows *= n;
    t->tensor.size_bytes *= n;
    return gguf_tensors_add(f->g, t, err);
}

/* The tensor of that name, which is in g. */
static struct tensor *folder_tensor(const struct hf_folder *f, const struct named_tensor *t)
{
    return &f->g->tensors[*gguf_tensor_slot(f->g, t->name, t->name_len) - 1].tensor;
}

static struct tensor_part *folder_part(const struct hf_folder *f, const struct tensor *t, size_t i)
{
    return &f->g->own_parts[(size_t)(t->parts - f->g->own_parts) + i];
}

static bool has_part(const struct tensor *t, size_t i)
{
    return t->form == TENSOR_PARTS && i < t->n_rows / t->n_part_rows;
}

/* Notes where part i of n of a tensor lies. */
static enum status place_part(struct hf_folder *f, struct named_tensor *t, size_t i, size_t n,
                              struct error *err)
{
    const struct tensor one = t->tensor, *all;
    enum status rc =
        *gguf_tensor_slot(f->g, t->name, t->name_len) == 0 ? add_parts(f, t, n, err) : STATUS_OK;

    if (rc != STATUS_OK)
        return rc;
    all = folder_tensor(f, t);
    if (!has_part(all, i) || all->type != one.type || all->n_cols != one.n_cols ||
        all->n_part_rows != one.n_part_rows || all->source != one.source)
        return error_set(err, STATUS_UNIMPLEMENTED, "tensor '%s' has experts of different shapes",
                         t->name);
    if (folder_part(f, all, i)->file != NULL)
        return error_set(err, STATUS_DATA_LOSS, "tensor '%s' has expert %zu twice", t->name, i);
    folder_part(f, all, i)->file = one.file;
    folder_part(f, all, i)->at = one.file_at;
    return STATUS_OK;
}

static enum status check_parts(const struct hf_folder *f, struct error *err)
{
    for (size_t i = 0; i < f->g->n_tensors; i++) {
        const struct tensor *t = &f->g->tensors[i].tensor;

        for (size_t e = 0; t->form == TENSOR_PARTS && e < t->n_rows / t->n_part_rows; e++) {
            if (t->parts[e].file == NULL)
                return error_set(err, STATUS_DATA_LOSS, "tensor '%s' has no expert %zu", t->name,
                                 e);
            if (t->source != SOURCE_AS_IS && t->parts[e].scale_file == NULL)
                return error_set(err, STATUS_DATA_LOSS, "tensor '%s' has no scales", t->name);
        }
    }
    return STATUS_OK;
}

/* Where the scales of FP8 lie: one for each block, or one for all. */
static enum status place_scale(struct hf_folder *f, struct tensor *t, const struct hf_tensor *from,
                               size_t expert, const struct gguf *file, struct error *err)
{
    const struct hf_model *m = &f->model;
    const uint64_t n_from = from->size_bytes / (from->is_bytes ? 1 : dtype_block_bytes(from->type));
    struct tensor_part *part = folder_part(f, t, expert);
    uint64_t n = 1;

    t->scale_type = from->type;
    t->scale_rows = t->n_part_rows;
    t->scale_cols = t->n_cols;
    if (t->source == SOURCE_MXFP4) {
        n = t->n_rows * t->row_step * (t->n_cols / 32);
    } else if (n_from != 1 && m->block_rows != 0) {
        t->scale_rows = m->block_rows;
        t->scale_cols = m->block_cols;
        n = (t->n_part_rows + m->block_rows - 1) / m->block_rows *
            ((t->n_cols + m->block_cols - 1) / m->block_cols);
    }
    if (from->is_fp8 || from->is_bytes != (t->source == SOURCE_MXFP4) || n_from != n)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "has %llu scales, which does not match quantization_config's "
                         "weight_block_size",
                         (unsigned long long)n_from);
    part->scale_file = file;
    part->scale_at = from->begin;
    return STATUS_OK;
}

/* The same of all experts of a slab, the i-th tensor of n that it holds: each has whole blocks. */
static enum status place_slab_scales(struct hf_folder *f, struct tensor *t,
                                     const struct hf_tensor *from, size_t i, size_t n,
                                     const struct gguf *file, struct error *err)
{
    const struct hf_model *m = &f->model;
    const size_t rows = m->block_rows, cols = m->block_cols, n_experts = t->n_rows / t->n_part_rows;
    const size_t size = from->is_bytes ? 1 : dtype_block_bytes(from->type);
    const uint64_t n_down = rows > 0 ? (n * t->n_part_rows + rows - 1) / rows : 0;
    const uint64_t n_right = cols > 0 ? (t->n_cols + cols - 1) / cols : 0;

    if (from->is_fp8 || from->is_bytes || n_down == 0 || (n > 1 && t->n_part_rows % rows != 0) ||
        from->size_bytes / size != n_experts * n_down * n_right)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "has scales of experts that are not for whole blocks of "
                         "quantization_config's weight_block_size");
    t->scale_type = from->type;
    t->scale_rows = rows;
    t->scale_cols = cols;
    for (size_t e = 0; e < n_experts; e++) {
        struct tensor_part *part = folder_part(f, t, e);

        part->scale_file = file;
        part->scale_at = from->begin + (e * n_down + i * (n_down / n)) * n_right * size;
    }
    return STATUS_OK;
}

/* Scales of a tensor that is placed. */
static enum status place_scales(struct hf_folder *f, struct named_tensor *t,
                                const struct hf_tensor *from, const struct hf_place *place,
                                const struct gguf *file, struct error *err)
{
    const size_t expert = place->expert == HF_NO_EXPERT ? 0 : (size_t)place->expert;

    for (size_t i = 0; i < hf_merged_n(place->kind); i++) {
        struct tensor *of;
        enum status rc;

        hf_merged_name(t, place->kind, i);
        if (*gguf_tensor_slot(f->g, t->name, t->name_len) == 0)
            return error_set(err, STATUS_DATA_LOSS, "has the scales of '%s', which is absent",
                             t->name);
        of = folder_tensor(f, t);
        if (!has_part(of, expert) || of->source == SOURCE_AS_IS)
            return error_set(err, STATUS_DATA_LOSS, "has scales of '%s', which needs none",
                             t->name);
        rc = hf_merged_is_slab(place->kind)
                 ? place_slab_scales(f, of, from, i, hf_merged_n(place->kind), file, err)
                 : place_scale(f, of, from, expert, file, err);
        if (rc != STATUS_OK)
            return rc;
    }
    return STATUS_OK;
}

/* The parts of the i-th tensor of those that one of the file holds. */
static enum status place_heads(struct hf_folder *f, const struct named_tensor *t,
                               const struct hf_tensor *from, enum hf_kind kind, size_t i,
                               struct error *err)
{
    const size_t n = hf_merged_n_parts(kind, &f->model, from, i);
    const size_t row_bytes =
        from->is_fp8 ? t->tensor.n_cols : dtype_row_bytes(t->tensor.type, t->tensor.n_cols);
    enum status rc = STATUS_OK;

    for (size_t part = 0; part < n && rc == STATUS_OK; part++) {
        struct named_tensor one = *t;

        one.tensor.size_bytes =
            one.tensor.n_rows * dtype_row_bytes(one.tensor.type, one.tensor.n_cols);
        one.tensor.file_at += hf_merged_part_row(kind, &f->model, from, i, part) * row_bytes;
        rc = place_part(f, &one, part, n, err);
    }
    return rc;
}

static enum status place_merged(struct hf_folder *f, const struct named_tensor *t,
                                const struct hf_tensor *from, enum hf_kind kind, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < hf_merged_n(kind) && rc == STATUS_OK; i++) {
        struct named_tensor one = *t;

        rc = hf_merged_form(&one, kind, &f->model, from, i, err);
        if (rc == STATUS_OK && hf_merged_n_parts(kind, &f->model, from, i) > 0)
            rc = place_heads(f, &one, from, kind, i, err);
        else if (rc == STATUS_OK)
            rc = hf_merged_is_blocks(kind) ? place_part(f, &one, 0, 1, err)
                                           : gguf_tensors_add(f->g, &one, err);
    }
    return rc;
}

static enum status place_tensor(struct hf_folder *f, struct named_tensor *t,
                                const struct hf_tensor *from, const struct hf_place *place,
                                struct error *err)
{
    if (place->kind != HF_PLAIN)
        return place_merged(f, t, from, place->kind, err);
    if (from->n_dims == 0 || from->n_dims > 2 || from->is_bytes)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "has %zu dimensions or a type that is not supported for it", from->n_dims);
    if (place->expert != HF_NO_EXPERT)
        return place_part(f, t, (size_t)place->expert, f->model.n_experts, err);
    if (t->tensor.form == TENSOR_PARTS)
        return place_part(f, t, 0, 1, err);
    return gguf_tensors_add(f->g, t, err);
}

/* As a matrix, or a vector, as far as its dimensions say; numbers of FP8 become floats. */
static struct named_tensor tensor_from(const struct hf_tensor *from, const struct gguf *file)
{
    struct named_tensor t = {
        .tensor = {.type = from->is_fp8 ? DTYPE_F32 : from->type,
                   .n_rows = from->n_dims < 2 ? 1 : from->dims[0],
                   .n_cols = from->n_dims == 0 ? 1 : from->dims[from->n_dims - 1],
                   .size_bytes = from->size_bytes * (from->is_fp8 ? sizeof(float) : 1),
                   .file = file,
                   .file_at = from->begin,
                   .source = from->is_fp8 ? SOURCE_FP8 : SOURCE_AS_IS},
    };

    return t;
}

/* Places a file's tensors, or scales of tensors that are placed. */
static enum status name_tensors(struct hf_folder *f, const struct hf_tensors *head,
                                const struct gguf *file, bool scales, struct error *err)
{
    for (size_t i = 0; i < head->n; i++) {
        const struct hf_tensor *from = &head->list[i];
        struct named_tensor t = tensor_from(from, file);
        struct hf_place place;
        enum status rc = hf_name_tensor(&t, &f->model, from->name, &place, err);

        if (rc == STATUS_OK && !place.is_unused && from->other_type != NULL)
            rc = hf_tensor_refuse_type(from->other_type, err);
        if (rc == STATUS_OK && !place.is_unused && place.is_scale == scales)
            rc = scales ? place_scales(f, &t, from, &place, file, err)
                        : place_tensor(f, &t, from, &place, err);
        if (rc != STATUS_OK) {
            (void)error_prefix(err, "tensor '%.80s'", from->name);
            return error_prefix(err, "%s", base_name(file->path));
        }
    }
    return STATUS_OK;
}

/* Adds a vector of weights that no file holds. */
static enum status add_own(struct hf_folder *f, const char *name, const float *values, size_t n,
                           struct error *err)
{
    struct named_tensor t = {
        .tensor = {.type = DTYPE_F32,
                   .n_rows = 1,
                   .n_cols = n,
                   .data = values,
                   .size_bytes = n * sizeof(*values),
                   .file = f->g},
    };

    t.name_len = (size_t)snprintf(t.name, sizeof(t.name), "%s", name);
    return gguf_tensors_add(f->g, &t, err);
}

/* Llama 3's divisors of rope's frequencies, which GGUF has as a tensor: 1 for short wavelengths,
 * the factor for long ones, between them a blend. */
static void fill_llama3(float *divisors, const struct hf_model *m)
{
    for (size_t i = 0; i < m->n_rotated / 2; i++) {
        double wave = 2 * M_PI * real_pow(m->rope_base, 2.0 * (double)i / (double)m->n_rotated);
        double blend = (m->original / wave - m->low) / (m->high - m->low);

        divisors[i] =
            (float)(wave < m->original / m->high  ? 1
                    : wave > m->original / m->low ? m->factor
                                                  : 1 / ((1 - blend) / m->factor + blend));
    }
}

/* Pairs that stand have a divisor that no position reaches. */
static void fill_standing(float *divisors, const struct hf_model *m)
{
    for (size_t i = 0; i < m->n_rotated / 2; i++)
        divisors[i] = i < m->n_turning ? 1.0f : 1e30f;
}

static void fill_listed(float *divisors, const json_t *list)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one) divisors[i] = (float)json_number_value(one);
}

/* Divisors of rope's frequencies, which GGUF has as tensors. */
static enum status make_rope(struct hf_folder *f, struct error *err)
{
    const struct hf_model *m = &f->model;
    const size_t n = m->n_rotated / 2;
    float *divisors;
    enum status rc;

    if (m->factor == 0 && m->long_divisors == NULL && m->n_turning == 0)
        return STATUS_OK;
    divisors = try_alloc(2 * n, sizeof(*divisors));
    if (divisors == NULL)
        return error_no_memory(err, 2 * n * sizeof(*divisors), "rope");
    f->g->own_weights = divisors;
    if (m->long_divisors == NULL) {
        if (m->n_turning > 0)
            fill_standing(divisors, m);
        else
            fill_llama3(divisors, m);
        return add_own(f, "rope_freqs.weight", divisors, n, err);
    }
    fill_listed(divisors, m->long_divisors);
    fill_listed(divisors + n, m->short_divisors);
    rc = add_own(f, "rope_factors_long.weight", divisors, n, err);
    return rc == STATUS_OK ? add_own(f, "rope_factors_short.weight", divisors + n, n, err) : rc;
}

/* Experts in FP8 that are in one tensor, of a gate and of an up. */
static size_t n_slab_parts(const struct hf_folder *f)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n_heads; i++)
        for (size_t k = 0; k < f->heads[i].n; k++)
            if (f->heads[i].list[k].is_fp8 && f->heads[i].list[k].n_dims == 3)
                n += 2 * f->heads[i].list[k].dims[0];
    return n;
}

/* --- what sentence-transformers puts behind a model --- */

static enum status place_dense(struct hf_folder *f, const struct hf_tensors *head,
                               const struct gguf *file, size_t i, struct error *err)
{
    const struct hf_tensor *from = &head->list[0];
    struct named_tensor t;

    if (head->n != 1 || strcmp(from->name, "linear.weight") != 0 || from->n_dims != 2 ||
        from->other_type != NULL || from->is_fp8 || from->is_bytes)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%zu tensors; only a matrix of floats 'linear.weight' is supported",
                         head->n);
    t = tensor_from(from, file);
    t.name_len = (size_t)snprintf(t.name, sizeof(t.name), "dense_%zu.weight", i);
    return gguf_tensors_add(f->g, &t, err);
}

/* A product of the embedding, which the folder has as its module i; it may be missing. */
static enum status open_dense(struct hf_folder *f, size_t i, struct error *err)
{
    static const char end[] = "Identity";
    char name[NAME_MAX_BYTES];
    json_t *config = NULL;
    struct hf_tensors head = {0};
    struct gguf *file;
    enum status rc;

    (void)snprintf(name, sizeof(name), "%zu_Dense/config.json", i);
    rc = read_optional(f, name, &config, err);
    if (rc == STATUS_OK && config != NULL) {
        const char *activation = hf_json_text(config, "activation_function");
        const size_t len = strlen(activation);

        if (len < sizeof(end) - 1 || strcmp(activation + len - (sizeof(end) - 1), end) != 0)
            rc = error_set(err, STATUS_UNIMPLEMENTED,
                           "%s: key 'activation_function' is '%.60s'; only Identity is supported",
                           name, activation);
        (void)snprintf(name, sizeof(name), "%zu_Dense/%s", i, single);
        if (rc == STATUS_OK && (rc = take_file(f, name, &file, err)) == STATUS_OK &&
            ((rc = hf_tensors_open(&head, file, err)) != STATUS_OK ||
             (rc = place_dense(f, &head, file, i, err)) != STATUS_OK))
            (void)error_prefix(err, "%s", name);
    }
    hf_tensors_close(&head);
    json_decref(config);
    return rc;
}

static bool is_known_dense(const char *path)
{
    return strcmp(path, "2_Dense") == 0 || strcmp(path, "3_Dense") == 0;
}

/* The list of modules, a JSON array; NULL if there is none. */
static enum status read_modules(struct hf_folder *f, json_t **ret, struct error *err)
{
    char *bytes = NULL;
    size_t len = 0;
    json_error_t wrong;
    enum status rc = read_aside(f, "modules.json", &bytes, &len, err);

    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    *ret = json_loadb(bytes, len, 0, &wrong);
    free(bytes);
    if (*ret == NULL)
        return error_set(err, STATUS_DATA_LOSS, "modules.json: not valid JSON at line %d: %.80s",
                         wrong.line, wrong.text);
    return STATUS_OK;
}

/* Refuses a folder without a product that its list of modules names: its embeddings would be other
 * numbers. Called after open_dense. */
static enum status check_modules(struct hf_folder *f, struct error *err)
{
    static const char type_end[] = ".Dense";
    json_t *modules = NULL, *module;
    char name[NAME_MAX_BYTES];
    size_t i, n;
    enum status rc = read_modules(f, &modules, err);

    json_array_foreach(modules, i, module)
    {
        const char *type = hf_json_text(module, "type"), *path = hf_json_text(module, "path");
        const size_t len = strlen(type);

        if (rc != STATUS_OK || len < sizeof(type_end) - 1 ||
            strcmp(type + len - (sizeof(type_end) - 1), type_end) != 0)
            continue;
        n = (size_t)snprintf(name, sizeof(name), "dense_%.1s.weight", path);
        if (!is_known_dense(path))
            rc = error_set(err, STATUS_UNIMPLEMENTED,
                           "modules.json has a Dense module '%.80s'; only 2_Dense and 3_Dense are "
                           "supported",
                           path);
        else if (*gguf_tensor_slot(f->g, name, n) == 0)
            rc = error_set(err, STATUS_NOT_FOUND,
                           "%.7s/config.json is missing: modules.json names this module", path);
    }
    json_decref(modules);
    return rc;
}

/* --- a head that scores --- */

/* The head whose rows are those of the tokens that stand for yes and for no. */
static enum status add_score_rows(struct hf_folder *f, const struct tensor *head, struct error *err)
{
    static const char *const ids[] = {"true_token_id", "false_token_id"};
    struct tensor_part *parts = f->g->own_parts + f->n_parts;
    struct named_tensor t = {.tensor = *head};
    const size_t row_bytes = dtype_row_bytes(head->type, head->n_cols);
    size_t n = 0;

    if (head->form != TENSOR_PLAIN)
        return error_set(err, STATUS_UNIMPLEMENTED, "'%s' has a type that is not supported for it",
                         head->name);
    for (size_t i = 0; i < 2; i++) {
        uint64_t id = 0;
        enum status rc = hf_json_u64(f->score, ids[i], &id, err);

        if (rc == STATUS_NOT_FOUND && i > 0) /* the score is that of the first alone */
            break;
        if (rc != STATUS_OK)
            return rc;
        if (id >= head->n_rows)
            return error_set(err, STATUS_DATA_LOSS, "key '%s' is %llu, but there are %zu tokens",
                             ids[i], (unsigned long long)id, head->n_rows);
        parts[n++] = (struct tensor_part){.file = head->file, .at = head->file_at + id * row_bytes};
    }
    f->n_parts += n;
    t.tensor.form = TENSOR_PARTS;
    t.tensor.parts = parts;
    t.tensor.n_part_rows = 1;
    t.tensor.n_rows = n;
    t.tensor.size_bytes = n * row_bytes;
    t.name_len = (size_t)snprintf(t.name, sizeof(t.name), "cls.output.weight");
    return gguf_tensors_add(f->g, &t, err);
}

static const struct tensor *placed_tensor(const struct hf_folder *f, const char *name)
{
    const uint32_t slot = *gguf_tensor_slot(f->g, name, strlen(name));

    return slot == 0 ? NULL : &f->g->tensors[slot - 1].tensor;
}

/* Whether it was saved without what it is for, and so without a head. */
static bool is_bare(const struct hf_folder *f)
{
    static const char alone[] = "embed_tokens.weight",
                      nested[] = "language_model.embed_tokens.weight";

    for (size_t i = 0; i < f->n_heads; i++)
        for (size_t k = 0; k < f->heads[i].n; k++)
            if (strcmp(f->heads[i].list[k].name, alone) == 0 ||
                strcmp(f->heads[i].list[k].name, nested) == 0)
                return true;
    return false;
}

/* A head that a file has is the model's, whatever config.json says of it; else it is the
 * embeddings. */
static enum status check_head(const struct hf_folder *f, struct error *err)
{
    const struct hf_model *m = &f->model;

    if (m->family->encoder_layers != NULL || placed_tensor(f, "output.weight") != NULL)
        return STATUS_OK;
    if (!m->is_tied && (f->pooling != NULL || is_bare(f))) /* nobody asks for its replies */
        return STATUS_OK;
    if (!m->is_tied)
        return error_set(err, STATUS_DATA_LOSS,
                         "tensor 'lm_head.weight' is missing, and key 'tie_word_embeddings' is not "
                         "true");
    if (m->factors[HF_FACTOR_EMBEDDING] != m->factors[HF_FACTOR_HEAD])
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "keys 'embedding_multiplier' and 'lm_head_multiplier' differ, which is "
                         "not supported without a tensor 'lm_head.weight'");
    return STATUS_OK;
}

/* The head of a model that ranks: one score, or by the logits of two tokens. */
static enum status make_score(struct hf_folder *f, struct error *err)
{
    const struct tensor *head = placed_tensor(f, "cls.output.weight");

    if (f->score == NULL && f->model.is_ranker && head != NULL && head->n_rows > 1)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "its head has %zu classes; a model that ranks has one score",
                         head->n_rows);
    if (f->score == NULL)
        return STATUS_OK;
    head = placed_tensor(f, "output.weight");
    if (head == NULL)
        head = placed_tensor(f, "token_embd.weight");
    if (head == NULL)
        return error_set(err, STATUS_DATA_LOSS, "tensor 'token_embd.weight' is missing");
    return add_score_rows(f, head, err) == STATUS_OK
               ? STATUS_OK
               : error_prefix(err, "1_LogitScore/config.json");
}

static enum status make_tensors(struct hf_folder *f, struct error *err)
{
    struct gguf *g = f->g;
    enum status rc = f->index != NULL ? open_indexed(f, err) : open_weights_file(f, single, err);

    if (rc != STATUS_OK)
        return rc;
    gguf_tensors_clear(g);
    /* a tensor is at most a gate and an up, or one of a layer's heads of state, or of all experts
     */
    f->parts_room = 2 * f->n_tensors + 3 + n_slab_parts(f) +
                    2 * f->model.n_layers * (f->model.n_key_heads + f->model.n_state_heads);
    g->own_parts = try_alloc(f->parts_room, sizeof(*g->own_parts));
    if (g->own_parts == NULL)
        return error_no_memory(err, f->parts_room * sizeof(*g->own_parts), "its experts");
    rc = gguf_tensors_reserve(g, 2 * f->n_tensors + 5, err);
    for (size_t i = 0; i < 2 * f->n_heads && rc == STATUS_OK; i++) {
        const size_t file = i % f->n_heads;

        rc = name_tensors(f, &f->heads[file], g->others[g->n_others - f->n_heads + file],
                          i >= f->n_heads, err);
    }
    for (size_t i = 2; i <= 3 && rc == STATUS_OK; i++)
        rc = open_dense(f, i, err);
    if (rc == STATUS_OK)
        rc = check_modules(f, err);
    if (rc == STATUS_OK)
        rc = check_head(f, err);
    if (rc == STATUS_OK)
        rc = make_score(f, err);
    if (rc == STATUS_OK)
        rc = check_parts(f, err);
    return rc == STATUS_OK ? make_rope(f, err) : rc;
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
    json_decref(f->pooling);
    json_decref(f->score);
    json_decref(f->template_json);
    free(f->template_text);
    free(f->path);
    gguf_close(f->g);
    free(f);
}

enum status gguf_open_safetensors(struct gguf **out, const char *path, struct error *err)
{
    struct hf_folder *f = xalloc(sizeof(*f));
    enum status rc;

    f->g = xalloc(sizeof(*f->g));
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
