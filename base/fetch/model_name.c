#include "base/fetch/model_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/name.h"
#include "base/shard_name.h"

static const char hub[] = "hf:", ollama[] = "ollama:";

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool model_name_is_one(const char *text)
{
    return begins(text, hub) || begins(text, ollama);
}

/* A word is the name of a file, too: so none begins with a dot. */
static bool take_model_word(char out[MODEL_NAME_WORD_MAX + 1], const char *text, size_t len)
{
    if (!name_is_valid(text, len, MODEL_NAME_WORD_MAX, NAME_MARKS) || text[0] == '.')
        return false;
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

/* A quantization or tag, or a file's path within a repository: no step leads out of the folder. */
static bool is_model_part(const char *text)
{
    size_t len = strlen(text);

    return name_is_valid(text, len, MODEL_NAME_PART_MAX, NAME_MARKS "/ +=,()[]") &&
           text[0] != '.' && text[0] != '/' && strstr(text, "/.") == NULL &&
           strstr(text, "//") == NULL && text[len - 1] != '/';
}

static enum status hub_parse(struct model_name *out, const char *text, struct error *err)
{
    const char *name = begins(text, hub) ? text + strlen(hub) : "";
    const char *slash = strchr(name, '/'), *colon = strchr(name, ':');
    const char *end = colon != NULL ? colon : name + strlen(name);

    /* The hub allows neither, and its cache joins owner and repository by "--". */
    if (slash == NULL || slash > end ||
        !take_model_word(out->owner, name, (size_t)(slash - name)) ||
        !take_model_word(out->repo, slash + 1, (size_t)(end - slash - 1)) ||
        strstr(out->owner, "--") != NULL || strstr(out->repo, "--") != NULL ||
        strstr(out->repo, "..") != NULL || (colon != NULL && !is_model_part(colon + 1)))
        return error_set(err, STATUS_INVALID,
                         "'%.100s' is no name of the hub: hf:OWNER/REPO, or hf:OWNER/REPO:Q4_K_M",
                         text);
    out->kind = MODEL_NAME_HUB;
    (void)snprintf(out->part, sizeof(out->part), "%s", colon != NULL ? colon + 1 : "");
    return STATUS_OK;
}

static enum status ollama_parse(struct model_name *out, const char *text, struct error *err)
{
    const char *rest = text + strlen(ollama), *colon = strchr(rest, ':');
    const char *end = colon != NULL ? colon : rest + strlen(rest);
    const char *tag = colon != NULL ? colon + 1 : "latest";
    const char *words[3] = {rest};
    size_t n = 1;

    for (const char *at = rest; at < end && n <= 3; at++)
        if (*at == '/' && n++ < 3)
            words[n - 1] = at + 1;
    (void)snprintf(out->host, sizeof(out->host), "registry.ollama.ai");
    (void)snprintf(out->owner, sizeof(out->owner), "library");
    if (n > 3 ||
        (n == 3 && !take_model_word(out->host, words[0], (size_t)(words[1] - words[0] - 1))) ||
        (n > 1 &&
         !take_model_word(out->owner, words[n - 2], (size_t)(words[n - 1] - words[n - 2] - 1))) ||
        !take_model_word(out->repo, words[n - 1], (size_t)(end - words[n - 1])) ||
        !take_model_word(out->part, tag, strlen(tag)))
        return error_set(err, STATUS_INVALID,
                         "'%.100s' is no name of Ollama: ollama:NAME, or ollama:NAME:TAG", text);
    out->kind = MODEL_NAME_OLLAMA;
    return STATUS_OK;
}

enum status model_name_parse(struct model_name *out, const char *text, struct error *err)
{
    *out = (struct model_name){0};
    return begins(text, ollama) ? ollama_parse(out, text, err) : hub_parse(out, text, err);
}

/* --- the name that is served --- */

static void served_word(char out[MODEL_NAME_SERVED_MAX + 1], const char *text, size_t len)
{
    size_t n = 0;

    while (len > 0 && *text == '.') {
        text++;
        len--;
    }
    for (; n < len && n < MODEL_NAME_SERVED_MAX; n++)
        out[n] = name_is_valid(text + n, 1, 1, NAME_MARKS) ? text[n] : '-';
    out[n] = '\0';
    if (n == 0 || strcmp(out, "echo") == 0) /* which is served always */
        (void)snprintf(out, MODEL_NAME_SERVED_MAX + 1, "model");
}

static size_t without(const char *text, size_t len, const char *ending)
{
    size_t n = strlen(ending);

    return len > n && strncasecmp(text + len - n, ending, n) == 0 ? len - n : len;
}

static void served_path(char out[MODEL_NAME_SERVED_MAX + 1], const char *path)
{
    size_t len = strlen(path), from;
    struct shard_name shard;

    while (len > 1 && path[len - 1] == '/')
        len--;
    for (from = len; from > 0 && path[from - 1] != '/'; from--)
        ;
    if (shard_name_parse(&shard, path, ".gguf") && shard.prefix_len > from)
        len = shard.prefix_len;
    else
        len = from + without(path + from, len - from, ".gguf");
    served_word(out, path + from, len - from);
}

void model_name_served(char out[MODEL_NAME_SERVED_MAX + 1], const char *text)
{
    char both[2 * MODEL_NAME_PART_MAX + 2], *real = NULL;
    struct model_name name;
    struct error ignored;

    if (!model_name_is_one(text)) {
        if (without(text, strlen(text), ".gguf") == strlen(text))
            real = realpath(text, NULL); /* of a folder that is called "." */
        served_path(out, real != NULL ? real : text);
        free(real);
    } else if (model_name_parse(&name, text, &ignored) != STATUS_OK) {
        served_word(out, "", 0);
    } else if (name.kind == MODEL_NAME_OLLAMA && strcmp(name.part, "latest") != 0) {
        (void)snprintf(both, sizeof(both), "%s-%s", name.repo, name.part);
        served_word(out, both, strlen(both));
    } else {
        served_word(out, name.repo, without(name.repo, strlen(name.repo), "-GGUF"));
    }
}
