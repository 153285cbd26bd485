/* A GGUF file is chosen by the end of its name, or of its folder's name. Projectors and importance
 * matrices are GGUF files, too, but no models, and are left out. */
#include "base/fetch/hub_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/shard_name.h"

static const char gguf[] = ".gguf", safetensors[] = ".safetensors", usual[] = "Q4_K_M";

enum { LISTED_MAX_BYTES = 120 };

/* --- the list --- */

static bool is_safe(const char *name)
{
    if (name[0] == '\0' || name[0] == '/' || strlen(name) > 1000)
        return false;
    for (const char *step = name; step != NULL; step = strchr(step, '/')) {
        step += *step == '/';
        if (*step == '\0' || *step == '/' || (step[0] == '.' && step[1] == '.') ||
            (step[0] == '.' && (step[1] == '/' || step[1] == '\0')))
            return false;
    }
    for (; *name != '\0'; name++)
        if ((unsigned char)*name < ' ' || *name == '\\')
            return false;
    return true;
}

struct hub_file *hub_files_add(struct hub_files *f, const char *name)
{
    if (!is_safe(name))
        return NULL;
    if (f->n == f->room) {
        f->room = f->room == 0 ? 32 : 2 * f->room;
        f->all = xrealloc(f->all, f->room * sizeof(f->all[0]));
    }
    f->all[f->n] = (struct hub_file){.name = xstrdup(name)};
    return &f->all[f->n++];
}

void hub_files_deinit(struct hub_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->all[i].name);
    free(f->all);
    *f = (struct hub_files){0};
}

struct hub_file *hub_files_find(const struct hub_files *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->all[i].name, name) == 0)
            return &f->all[i];
    return NULL;
}

/* --- names --- */

static bool ends(const char *text, size_t len, const char *ending)
{
    size_t n = strlen(ending);

    return len >= n && strncasecmp(text + len - n, ending, n) == 0;
}

static const char *hub_base_name(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash == NULL ? name : slash + 1;
}

/* A GGUF file that is a model, or a split model's first. */
static bool is_candidate(const char *name)
{
    const char *base = hub_base_name(name);
    struct shard_name shard;

    if (!ends(base, strlen(base), gguf) || strcasestr(base, "mmproj") != NULL ||
        strcasestr(base, "imatrix") != NULL)
        return false;
    return !shard_name_parse(&shard, name, gguf) || shard.number == 1;
}

/* The length of a name without "-00001-of-00003" and ".gguf". */
static size_t stem_len(const char *name)
{
    struct shard_name shard;

    return shard_name_parse(&shard, name, gguf) ? shard.prefix_len : strlen(name) - strlen(gguf);
}

/* Whether text is part, or ends in it behind a mark. */
static bool ends_in_part(const char *text, size_t len, const char *part)
{
    size_t n = strlen(part);

    return ends(text, len, part) && (len == n || strchr("-._", text[len - n - 1]) != NULL);
}

static bool is_of_part(const char *name, const char *part)
{
    const char *base = hub_base_name(name), *folder = base > name ? base - 1 : name;

    while (folder > name && folder[-1] != '/')
        folder--;
    return ends_in_part(base, stem_len(name) - (size_t)(base - name), part) ||
           (base > name && ends_in_part(folder, (size_t)(base - 1 - folder), part));
}

/* --- the choice --- */

/* Of several that end in the part, the shortest: "x-Q4_K_M" rather than "x-mini-Q4_K_M". */
static struct hub_file *hub_files_find_part(const struct hub_files *f, const char *part,
                                            size_t *ret_n)
{
    struct hub_file *found = NULL;

    *ret_n = 0;
    for (size_t i = 0; i < f->n; i++) {
        struct hub_file *file = &f->all[i];

        if (!is_candidate(file->name) || (part != NULL && !is_of_part(file->name, part)))
            continue;
        ++*ret_n;
        if (found == NULL || strlen(file->name) < strlen(found->name) ||
            (strlen(file->name) == strlen(found->name) && strcmp(file->name, found->name) < 0))
            found = file;
    }
    return found;
}

static enum status none_of_part(const struct hub_files *f, const char *part, struct error *err)
{
    char names[LISTED_MAX_BYTES] = "";
    size_t len = 0, n_more = 0;

    for (size_t i = 0; i < f->n; i++) {
        const char *base = hub_base_name(f->all[i].name);

        if (!is_candidate(f->all[i].name))
            continue;
        if (len + strlen(base) + 3 < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len > 0 ? ", " : "",
                                    base);
        else
            n_more++;
    }
    if (len == 0 && n_more == 0)
        return error_set(err, STATUS_NOT_FOUND, "there is no GGUF file");
    return error_set(err, STATUS_NOT_FOUND, "%s%.40s; there are: %s%s",
                     part[0] == '\0' ? "choose a file by :PART, there is no " : "there is no ",
                     part[0] == '\0' ? usual : part, names, n_more > 0 ? ", …" : "");
}

static enum status choose_shards(struct hub_files *f, struct hub_file *first, struct error *err)
{
    char other[1200];
    struct shard_name shard;

    first->is_chosen = true;
    if (!shard_name_parse(&shard, first->name, gguf))
        return STATUS_OK;
    for (unsigned number = 2; number <= shard.n; number++) {
        struct hub_file *file;

        (void)snprintf(other, sizeof(other), "%.*s-%05u-of-%05u%s", (int)shard.prefix_len,
                       first->name, number, shard.n, gguf);
        file = hub_files_find(f, other);
        if (file == NULL)
            return error_set(err, STATUS_NOT_FOUND, "file %u of %u of the model is missing: %.100s",
                             number, shard.n, other);
        file->is_chosen = true;
    }
    return STATUS_OK;
}

/* A module of sentence-transformers that changes the embedding: N_Dense, N a digit. */
static bool is_of_dense(const char *name)
{
    return name[0] >= '0' && name[0] <= '9' &&
           (strcmp(name + 1, "_Dense/config.json") == 0 ||
            strcmp(name + 1, "_Dense/model.safetensors") == 0);
}

/* What the folder's reader may want beside the weights. */
static bool is_beside_weights(const char *name)
{
    size_t len = strlen(name);

    if (strcmp(name, "1_Pooling/config.json") == 0 ||
        strcmp(name, "1_LogitScore/config.json") == 0 || is_of_dense(name))
        return true;
    return strchr(name, '/') == NULL &&
           (ends(name, len, ".json") || ends(name, len, ".jinja") || ends(name, len, ".model") ||
            strcmp(name, "merges.txt") == 0 || strcmp(name, "vocab.txt") == 0);
}

static bool is_weights(const char *name)
{
    return strncmp(name, "model", 5) == 0 && strchr(name, '/') == NULL &&
           ends(name, strlen(name), safetensors);
}

static enum status choose_folder(struct hub_files *f, struct error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++) {
        f->all[i].is_chosen = is_weights(f->all[i].name) || is_beside_weights(f->all[i].name);
        n += is_weights(f->all[i].name);
    }
    if (n == 0 || hub_files_find(f, "config.json") == NULL)
        return error_set(err, STATUS_NOT_FOUND,
                         "there is neither a GGUF file nor config.json with model.safetensors");
    return STATUS_OK;
}

enum status hub_files_choose(struct hub_files *f, const char *part, const char **ret_main,
                             struct error *err)
{
    struct hub_file *file;
    size_t n;

    for (size_t i = 0; i < f->n; i++)
        f->all[i].is_chosen = false;
    file = hub_files_find_part(f, NULL, &n);
    if (strcmp(part, "safetensors") == 0 || (part[0] == '\0' && n == 0)) {
        *ret_main = "";
        return choose_folder(f, err);
    }
    if (ends(part, strlen(part), gguf))
        file = hub_files_find(f, part);
    else if (part[0] != '\0' || n > 1)
        file = hub_files_find_part(f, part[0] != '\0' ? part : usual, &n);
    if (file == NULL)
        return none_of_part(f, part, err);
    *ret_main = file->name;
    return choose_shards(f, file, err);
}
