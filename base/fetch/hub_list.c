#include "base/fetch/hub_list.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fetch/file_hash.h"
#include "base/fetch/hub_cache.h"
#include "base/fetch/hub_files.h"
#include "base/fetch/hub_path.h"
#include "base/fetch/model_name.h"

enum { TOKEN_MAX_BYTES = 1000 };

/* The token without what is around it: a file's line end, which a variable may have, too. NULL:
 * there is none. */
static char *token_in(const char *text)
{
    size_t len;

    text += strspn(text, " \r\n\t");
    for (len = strlen(text); len > 0 && strchr(" \r\n\t", text[len - 1]) != NULL; len--)
        ;
    return len == 0 ? NULL : hub_path("%.*s", (int)len, text);
}

static char *hub_token(void)
{
    char text[TOKEN_MAX_BYTES + 1] = "", *path;
    const char *given = hub_variable("HF_TOKEN");
    FILE *file;

    if (given == NULL)
        given = hub_variable("HUGGING_FACE_HUB_TOKEN");
    if (given != NULL)
        return token_in(given);
    path = hub_home("HF_TOKEN_PATH", "token"); /* where the hub's programs keep it */
    file = path == NULL ? NULL : fopen(path, "re");
    if (file != NULL) {
        (void)!fread(text, 1, TOKEN_MAX_BYTES, file);
        (void)fclose(file); /* only read */
    }
    free(path);
    return token_in(text);
}

static bool is_token(const char *text)
{
    for (const char *at = text; *at != '\0'; at++)
        if (*at <= ' ' || *at > '~')
            return false;
    return strlen(text) <= TOKEN_MAX_BYTES;
}

enum status hub_list_access(char **ret_endpoint, char **ret_token, struct error *err)
{
    const char *given = hub_variable("HF_ENDPOINT");
    size_t len;
    char *token;

    if (given == NULL)
        given = "https://huggingface.co";
    len = strlen(given);
    while (len > 0 && given[len - 1] == '/')
        len--;
    if ((strncasecmp(given, "https://", 8) != 0 && strncasecmp(given, "http://", 7) != 0) ||
        strpbrk(given, " ?#@") != NULL)
        return error_set(err, STATUS_INVALID, "HF_ENDPOINT is to be http(s)://HOST, not '%.100s'",
                         given);
    token = hub_token();
    if (token != NULL && !is_token(token)) {
        free(token);
        return error_set(err, STATUS_INVALID, "HF_TOKEN has characters that no token has");
    }
    *ret_endpoint = hub_path("%.*s", (int)len, given);
    *ret_token = token;
    return STATUS_OK;
}

char *hub_list_url(const char *endpoint, const struct model_name *name)
{
    return hub_path("%s/api/models/%s/%s/revision/main?blobs=true", endpoint, name->owner,
                    name->repo);
}

char *hub_list_file_url(const char *endpoint, const struct model_name *name, const char *commit,
                        const char *file)
{
    char *escaped = xalloc(3 * strlen(file) + 1), *url;
    size_t n = 0;

    for (const char *at = file; *at != '\0'; at++) {
        if ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
            (*at >= '0' && *at <= '9') || strchr("-._~/", *at) != NULL)
            escaped[n++] = *at;
        else
            n += (size_t)snprintf(escaped + n, 4, "%%%02X", (unsigned char)*at);
    }
    escaped[n] = '\0';
    url = hub_path("%s/%s/%s/resolve/%s/%s", endpoint, name->owner, name->repo, commit, escaped);
    free(escaped);
    return url;
}

static void read_file(struct hub_files *out, const json_t *sibling)
{
    const char *name = json_string_value(json_object_get(sibling, "rfilename"));
    const json_t *lfs = json_object_get(sibling, "lfs");
    const char *etag = json_string_value(json_object_get(lfs, "sha256"));
    const json_t *size = json_object_get(etag != NULL ? lfs : sibling, "size");
    struct hub_file *file = name == NULL ? NULL : hub_files_add(out, name);

    if (file == NULL)
        return;
    if (etag == NULL)
        etag = json_string_value(json_object_get(sibling, "blobId"));
    if (etag != NULL && file_hash_is_one(etag) && json_is_integer(size) &&
        json_integer_value(size) >= 0) {
        (void)snprintf(file->etag, sizeof(file->etag), "%s", etag);
        file->size_bytes = (uint64_t)json_integer_value(size);
    }
}

enum status hub_list_read(char commit[41], struct hub_files *out, const char *json, size_t len,
                          struct error *err)
{
    json_t *list = len == 0 ? NULL : json_loadb(json, len, 0, NULL);
    const char *sha = json_string_value(json_object_get(list, "sha"));
    const json_t *siblings = json_object_get(list, "siblings"), *sibling;
    enum status rc = STATUS_OK;
    size_t i;

    if (sha == NULL || strlen(sha) != HUB_COMMIT_CHARS || !file_hash_is_one(sha) ||
        !json_is_array(siblings)) {
        rc = error_set(err, STATUS_DATA_LOSS,
                       "the answer is no list of a repository; does HF_ENDPOINT name a hub?");
    } else if (json_array_size(siblings) > HUB_MAX_FILES) {
        rc = error_set(err, STATUS_DATA_LOSS,
                       "the repository has %zu files, more than %d: fetch those of the model "
                       "otherwise",
                       json_array_size(siblings), HUB_MAX_FILES);
    } else {
        (void)snprintf(commit, HUB_COMMIT_CHARS + 1, "%s", sha);
        json_array_foreach(siblings, i, sibling)
        {
            read_file(out, sibling);
        }
    }
    json_decref(list);
    return rc;
}
