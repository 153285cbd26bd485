#include "base/fetch/find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

#define COMMIT "0123456789012345678901234567890123456789"
#define SHA "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static char root[] = "/tmp/parley-find-XXXXXX";

/* Writes a file below root, and its folders. */
static void put(const char *name, const char *text)
{
    char path[1024];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        (void)mkdir(path, 0700);
    }
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    (void)fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

static void set(const char *variable, const char *below)
{
    char path[1024];

    (void)snprintf(path, sizeof(path), "%s/%s", root, below);
    ck_assert_int_eq(setenv(variable, path, 1), 0);
}

/* Finds name, whose path below root is this; says: NULL, or what the error says. */
static void finds(const char *name, const char *path, const char *says)
{
    char expected[1024], *found = NULL;
    struct error err;
    enum status rc = fetch_find(&found, name, &err);

    if (says != NULL) {
        ck_assert_msg(rc != STATUS_OK && strstr(err.text, says) != NULL, "%s: %s", name,
                      rc == STATUS_OK ? found : err.text);
        free(found);
        return;
    }
    ck_assert_msg(rc == STATUS_OK, "%s: %s", name, err.text);
    (void)snprintf(expected, sizeof(expected), "%s/%s", root, path);
    ck_assert_str_eq(found, expected);
    free(found);
}

static void begin(void)
{
    memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(root));
    (void)unsetenv("HF_HUB_CACHE");
    (void)unsetenv("HF_HOME");
    (void)unsetenv("XDG_CACHE_HOME");
    (void)unsetenv("OLLAMA_MODELS");
    set("HOME", "home");
}

static void end(void)
{
    char command[64];

    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

/* A path is itself. */
START_TEST(paths_are_left)
{
    char *found;
    struct error err;

    ck_assert_int_eq(fetch_find(&found, "x/y.gguf", &err), STATUS_OK);
    ck_assert_str_eq(found, "x/y.gguf");
    free(found);
}
END_TEST

/* The hub's cache is where its own programs have it, and the model of refs/main is read. */
START_TEST(the_cache_of_the_hub_is_read)
{
    static const char *const caches[][2] = {{"HOME", "home/.cache/huggingface/hub"},
                                            {"XDG_CACHE_HOME", "xdg/huggingface/hub"},
                                            {"HF_HOME", "hf/hub"},
                                            {"HF_HUB_CACHE", "cache"}};
    static const char *const values[] = {"home", "xdg", "hf", "cache"};
    char name[512], path[512];

    begin();
    for (size_t i = 0; i < 4; i++) {
        set(caches[i][0], values[i]);
        finds("hf:o/r", NULL,
              "hf:o/r in the hub's cache: nothing of it is there; 'parley pull' fetches it");
        (void)snprintf(name, sizeof(name), "%s/models--o--r/refs/main", caches[i][1]);
        put(name, i == 1 ? COMMIT "\n" : COMMIT);
        (void)snprintf(path, sizeof(path), "%s/models--o--r/snapshots/" COMMIT "/a/m-Q8_0.gguf",
                       caches[i][1]);
        put(path, "");
        finds("hf:o/r", path, NULL);
        finds("hf:o/r:Q8_0", path, NULL);
        finds("hf:o/r:Q4_0", NULL, "there is no Q4_0; there are: m-Q8_0.gguf");
    }
    put("cache/models--o--r/refs/main", "main");
    finds("hf:o/r", NULL, "nothing of it is there");
    (void)unsetenv("HF_HUB_CACHE");
    (void)unsetenv("HF_HOME");
    (void)unsetenv("XDG_CACHE_HOME");
    (void)unsetenv("HOME");
    finds("hf:o/r", NULL, "set HF_HUB_CACHE to a folder");
    end();
}
END_TEST

/* A folder is found whole, or the missing file is named; a link that leads nowhere is no file. */
START_TEST(incomplete_models_are_not_found)
{
    static const char at[] = "cache/models--o--r/snapshots/" COMMIT;
    char name[512];

    begin();
    set("HF_HUB_CACHE", "cache");
    put("cache/models--o--r/refs/main", COMMIT);
    (void)snprintf(name, sizeof(name), "%s/config.json", at);
    put(name, "{}");
    (void)snprintf(name, sizeof(name), "%s/model-00001-of-00002.safetensors", at);
    put(name, "");
    (void)snprintf(name, sizeof(name), "%s/model.safetensors.index.json", at);
    put(name, "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", "
              "\"b\": \"model-00002-of-00002.safetensors\", \"c\": 1}}");
    finds("hf:o/r", NULL, "model-00002-of-00002.safetensors is missing");
    (void)snprintf(name, sizeof(name), "%s/%s/model-00002-of-00002.safetensors", root, at);
    ck_assert_int_eq(symlink("../../blobs/none", name), 0);
    finds("hf:o/r", NULL, "model-00002-of-00002.safetensors is missing");
    ck_assert_int_eq(unlink(name), 0);
    put(name + strlen(root) + 1, "");
    finds("hf:o/r", at, NULL);
    (void)snprintf(name, sizeof(name), "%s/model.safetensors.index.json", at);
    put(name, "[");
    finds("hf:o/r", at, NULL); /* the folder's reader says what is wrong */
    end();
}
END_TEST

/* A link to the folder that it is in adds no further names of a file. */
START_TEST(folders_are_listed_once)
{
    static const char at[] = "cache/models--o--r/snapshots/" COMMIT;
    char name[512];

    begin();
    set("HF_HUB_CACHE", "cache");
    put("cache/models--o--r/refs/main", COMMIT);
    (void)snprintf(name, sizeof(name), "%s/x/m-Q8_0.gguf", at);
    put(name, "");
    (void)snprintf(name, sizeof(name), "%s/%s/x/again", root, at);
    ck_assert_int_eq(symlink(".", name), 0);
    (void)snprintf(name, sizeof(name), "%s/%s/x/up", root, at);
    ck_assert_int_eq(symlink("..", name), 0);
    (void)snprintf(name, sizeof(name), "%s/%s/more", root, at);
    ck_assert_int_eq(symlink("../../elsewhere", name), 0);
    put("cache/models--o--r/elsewhere/m-Q4_0.gguf", "");
    (void)snprintf(name, sizeof(name), "%s/more/m-Q4_0.gguf", at);
    finds("hf:o/r:Q4_0", name, NULL); /* a link to another folder is followed */
    (void)snprintf(name, sizeof(name), "%s/%s/more", root, at);
    ck_assert_int_eq(unlink(name), 0);
    finds("hf:o/r:Q4_0", NULL, "there is no Q4_0; there are: m-Q8_0.gguf; ");
    end();
}
END_TEST

static const char manifest[] =
    "{\"schemaVersion\": 2, \"layers\": ["
    "{\"mediaType\": \"application/vnd.ollama.image.template\", \"digest\": \"sha256:1\"}, "
    "{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:" SHA "\"}]}";

/* Ollama's store is where it says, the user's, or its service's. */
START_TEST(the_store_of_ollama_is_read)
{
    begin();
    finds("ollama:m", NULL, "ollama:m:latest is not in Ollama's store: there is no ");
    put("home/.ollama/models/manifests/registry.ollama.ai/library/m/latest", manifest);
    finds("ollama:m", NULL, "its blob cannot be read: ");
    put("home/.ollama/models/blobs/sha256-" SHA, "GGUF");
    finds("ollama:m", "home/.ollama/models/blobs/sha256-" SHA, NULL);
    finds("ollama:m:latest", "home/.ollama/models/blobs/sha256-" SHA, NULL);
    finds("ollama:m:1b", NULL, "ollama:m:1b is not in Ollama's store");
    set("OLLAMA_MODELS", "store");
    finds("ollama:m", NULL, "is not in Ollama's store");
    put("store/manifests/hf.co/o/r/Q8_0", manifest);
    put("store/blobs/sha256-" SHA, "GGUF");
    finds("ollama:hf.co/o/r:Q8_0", "store/blobs/sha256-" SHA, NULL);
    end();
}
END_TEST

/* A manifest that is none, or of a model that is not one GGUF file, is refused by name. */
START_TEST(wrong_manifests_are_refused)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "is no manifest"},
        {"{", "is no manifest"},
        {"{}", "its manifest names no weights on this machine"},
        {"{\"layers\": 1}", "names no weights"},
        {"{\"layers\": [1, {}, {\"mediaType\": 1}, {\"mediaType\": \"x\"}]}", "names no weights"},
        {"{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\"}]}",
         "has a digest that is no sha256"},
        {"{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\", "
         "\"digest\": \"sha256:../../x\"}]}",
         "has a digest that is no sha256"},
        {"{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.adapter\"}]}",
         "the model is not one GGUF file: it has a layer 'adapter'"},
        {"{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.tensor; name=x\"}]}",
         "it has a layer 'tensor"},
        {"{\"layers\": ["
         "{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:" SHA "\"},"
         "{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:" SHA "\"}"
         "]}",
         "it has a layer 'model'"},
    };

    begin();
    set("OLLAMA_MODELS", "store");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        put("store/manifests/registry.ollama.ai/library/m/latest", rows[i].text);
        finds("ollama:m", NULL, rows[i].says);
    }
    put("store/manifests/registry.ollama.ai/library/d/latest/x", "");
    finds("ollama:d", NULL, "is no manifest"); /* a folder */
    end();
}
END_TEST

SUITE_MAIN("base/fetch/find", paths_are_left, the_cache_of_the_hub_is_read,
           incomplete_models_are_not_found, folders_are_listed_once, the_store_of_ollama_is_read,
           wrong_manifests_are_refused)
