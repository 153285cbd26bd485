/* A manifest is JSON: a list of layers, each with the type of its content and the sha256 that names
 * its blob. One layer is the GGUF file. Templates, parameters and licences are not read: a GGUF
 * file has its own template. */
#include "base/fetch/ollama_store.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fetch/model_name.h"

enum { MANIFEST_MAX_BYTES = 1 << 20, DIGEST_CHARS = 64, PATH_SIZE = 4096 };

static const char type_prefix[] = "application/vnd.ollama.image.";

/* Reads a manifest; *out is a new reference. NOT_FOUND: there is none. */
static enum status read_manifest(json_t **out, const char *path, struct error *err)
{
    char *text;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? error_set(err, STATUS_NOT_FOUND, "there is no %.120s", path)
                   : error_set(err, STATUS_DENIED, "%.120s: %s", path, strerror(errno));
    text = xalloc(MANIFEST_MAX_BYTES);
    n = read(fd, text, MANIFEST_MAX_BYTES);
    (void)close(fd); /* only read */
    *out = n < 0 || n == MANIFEST_MAX_BYTES ? NULL : json_loadb(text, (size_t)n, 0, NULL);
    free(text);
    if (*out == NULL)
        return error_set(err, STATUS_DATA_LOSS, "%.150s is no manifest", path);
    return STATUS_OK;
}

static bool is_digest(const char *text)
{
    return text != NULL && strlen(text) == 7 + DIGEST_CHARS && strncmp(text, "sha256:", 7) == 0 &&
           strspn(text + 7, "0123456789abcdef") == DIGEST_CHARS;
}

/* The digest of the one layer with the weights. */
static enum status find_weights(const char **out, const json_t *manifest, struct error *err)
{
    const json_t *layers = json_object_get(manifest, "layers"), *layer;
    const char *found = NULL;
    size_t i;

    json_array_foreach(layers, i, layer)
    {
        const char *type = json_string_value(json_object_get(layer, "mediaType"));

        if (type == NULL || strncmp(type, type_prefix, sizeof(type_prefix) - 1) != 0)
            continue;
        type += sizeof(type_prefix) - 1;
        if (strcmp(type, "adapter") == 0 || strncmp(type, "tensor", 6) == 0 ||
            (strcmp(type, "model") == 0 && found != NULL))
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "the model is not one GGUF file: it has a layer '%.40s'", type);
        if (strcmp(type, "model") == 0)
            found = json_string_value(json_object_get(layer, "digest"));
        if (strcmp(type, "model") == 0 && !is_digest(found))
            return error_set(err, STATUS_DATA_LOSS, "its manifest has a digest that is no sha256");
    }
    if (found == NULL)
        return error_set(err, STATUS_NOT_FOUND, "its manifest names no weights on this machine");
    *out = found;
    return STATUS_OK;
}

static enum status ollama_store_find_in(char **out, const char *store,
                                        const struct model_name *name, struct error *err)
{
    char path[PATH_SIZE];
    const char *digest = NULL;
    struct stat st;
    json_t *manifest;
    enum status rc;

    (void)snprintf(path, sizeof(path), "%s/manifests/%s/%s/%s/%s", store, name->host, name->owner,
                   name->repo, name->part);
    rc = read_manifest(&manifest, path, err);
    if (rc != STATUS_OK)
        return rc;
    rc = find_weights(&digest, manifest, err);
    if (rc == STATUS_OK)
        (void)snprintf(path, sizeof(path), "%s/blobs/sha256-%s", store, digest + 7);
    if (rc == STATUS_OK && stat(path, &st) != 0)
        rc = error_set(err, STATUS_DATA_LOSS, "its blob cannot be read: %.120s: %s", path,
                       strerror(errno));
    if (rc == STATUS_OK)
        *out = xstrdup(path);
    json_decref(manifest);
    return rc;
}

static enum status find_in_any(char **out, const struct model_name *name, struct error *err)
{
    const char *given = getenv("OLLAMA_MODELS"), *home = getenv("HOME");
    char own[PATH_SIZE];
    enum status rc = STATUS_NOT_FOUND;

    if (given != NULL && given[0] != '\0')
        return ollama_store_find_in(out, given, name, err);
    (void)snprintf(own, sizeof(own), "%s/.ollama/models", home != NULL ? home : "");
    if (home != NULL)
        rc = ollama_store_find_in(out, own, name, err);
    if (rc == STATUS_NOT_FOUND)
        rc = ollama_store_find_in(out, "/usr/share/ollama/.ollama/models", name, err);
    return rc;
}

enum status ollama_store_find(char **out, const struct model_name *name, struct error *err)
{
    if (find_in_any(out, name, err) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(err, "ollama:%.40s:%.40s%s", name->repo, name->part,
                        err->status == STATUS_NOT_FOUND ? " is not in Ollama's store" : "");
}
