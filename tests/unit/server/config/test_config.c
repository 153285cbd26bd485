#include "server/config/config.h"
#include "server/config/documents.h"
#include "server/config/options.h"

#include "tests/unit/base/suite.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ARGS = 50 };

/* Splits line at spaces; the words live until the next call. */
static enum status parse_in(struct config *c, const char *line, char *const *environment,
                            struct error *err)
{
    static char text[512];
    char *argv[MAX_ARGS] = {(char *)"parleyd"};
    char *rest;
    int argc = 1;

    ck_assert_uint_lt(strlen(line), sizeof(text));
    memcpy(text, line, strlen(line) + 1);
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        ck_assert_int_lt(argc, MAX_ARGS);
        argv[argc++] = word;
    }
    return config_parse(c, argc, argv, environment, err);
}

static enum status parse(struct config *c, const char *line, struct error *err)
{
    return parse_in(c, line, NULL, err);
}

/* Parses line with "@" for a file that holds yaml; the words live until the next call. */
static enum status parse_all(struct config *c, const char *line, const char *yaml,
                             char *const *environment, struct error *err)
{
    char path[] = "/tmp/parley-test-config-XXXXXX";
    char text[512];
    const char *at = strchr(line, '@');
    int fd = mkstemp(path);
    enum status rc;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, yaml, strlen(yaml)), (ssize_t)strlen(yaml));
    ck_assert_int_eq(close(fd), 0);
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - line), line, path, at + 1);
    rc = parse_in(c, text, environment, err);
    ck_assert_int_eq(unlink(path), 0);
    /* The error begins with the file's name. */
    if (rc != STATUS_OK && environment == NULL)
        ck_assert_msg(strncmp(err->text, path, strlen(path)) == 0, "%s", err->text);
    return rc;
}

static enum status parse_with(struct config *c, const char *line, const char *yaml,
                              struct error *err)
{
    return parse_all(c, line, yaml, NULL, err);
}

/* Without flags the defaults hold. */
START_TEST(test_defaults)
{
    struct config c;
    struct error err;

    ck_assert_int_eq(parse(&c, "", &err), STATUS_OK);
    ck_assert_uint_eq(c.n_listen, 1);
    ck_assert_str_eq(c.listen[0], "127.0.0.1:8001");
    ck_assert_uint_eq(c.n_models, 0);
    ck_assert_uint_eq(c.drain_timeout_ms, 30000);
    ck_assert_int_eq(c.log_level, LOG_INFO);
    ck_assert(!c.check && !c.help && !c.version);
}
END_TEST

/* Each flag, with its value as the next argument or after an equals sign; sizes and times with
 * units. */
START_TEST(test_flags)
{
    struct config c;
    struct error err;

    ck_assert_int_eq(
        parse(&c,
              "--model a=/x/a.gguf --model=b.2=b.gguf --listen 127.0.0.1:0 --listen=unix:/tmp/s "
              "--backend ref --threads 3 --kv-bytes 2G --kv-host-bytes 3G --kv q8 --prefix-cache "
              "off --max-itl-ms 50 "
              "--max-conversations 10 --max-queue=20 --speculate=off "
              "--max-message-bytes 64K --ttl 90m --max-sessions 30 "
              "--http-origin * --cors-origin=https://a.example --cors-origin ollama "
              "--session-ttl 2s --params-bytes 3M --drain-timeout 500ms --log-level warn --check",
              &err),
        STATUS_OK);
    ck_assert_uint_eq(c.n_models, 2);
    ck_assert_str_eq(c.models[0].name, "a");
    ck_assert_str_eq(c.models[0].path, "/x/a.gguf");
    ck_assert_str_eq(c.models[1].name, "b.2");
    ck_assert_str_eq(c.models[1].path, "b.gguf");
    ck_assert_uint_eq(c.n_listen, 2);
    ck_assert_str_eq(c.listen[1], "unix:/tmp/s");
    ck_assert_uint_eq(c.n_http_origins, 3);
    ck_assert_str_eq(c.http_origins[1], "https://a.example");
    ck_assert_str_eq(c.http_origins[2], "ollama");
    ck_assert_str_eq(c.options.backend, "ref");
    ck_assert_uint_eq(c.options.n_threads, 3);
    ck_assert_uint_eq(c.options.kv_bytes, (size_t)2 << 30);
    ck_assert_uint_eq(c.options.kv_host_bytes, (size_t)3 << 30);
    ck_assert_int_eq(c.options.kv_type, KV_Q8);
    ck_assert(c.options.no_prefix_cache);
    ck_assert_int_eq(c.options.speculate, SPECULATE_OFF);
    ck_assert_uint_eq(c.options.max_itl_us, 50000);
    ck_assert_uint_eq(c.max_conversations, 10);
    ck_assert_uint_eq(c.options.max_waiting, 20);
    ck_assert_uint_eq(c.max_message_bytes, 64 << 10);
    ck_assert_uint_eq(c.ttl_ms, 90 * 60 * 1000);
    ck_assert_uint_eq(c.max_sessions, 30);
    ck_assert_uint_eq(c.session_ttl_ms, 2000);
    ck_assert_uint_eq(c.params_bytes, 3 << 20);
    ck_assert_uint_eq(c.drain_timeout_ms, 500);
    ck_assert_int_eq(c.log_level, LOG_WARN);
    ck_assert(c.check);
    ck_assert_int_eq(parse(&c, "--drain-timeout 0 --version", &err), STATUS_OK);
    ck_assert_uint_eq(c.drain_timeout_ms, 0);
    ck_assert(c.version);
    ck_assert_int_eq(parse(&c, "-h", &err), STATUS_OK);
    ck_assert(c.help);
}
END_TEST

/* Every wrong use is refused with an error that names it. */
static const struct {
    const char *line, *says;
} wrong[] = {
    {"--nope", "--nope"},
    {"model", "model"},
    {"--modelx a=a.gguf", "--modelx"},
    {"--check=1", "--check=1"},
    {"--fast-math", "--fast-math: has no effect with backend cpu"},
    {"--backend ref --fast-math", "--fast-math: has no effect with backend ref"},
    {"--backend cuda --fast-math=maybe", "--fast-math: takes on or off"},
    {"--kv-byte 1G", "there is no option '--kv-byte', did you mean '--kv-bytes'?"},
    {"--kv_bytes=1G", "did you mean '--kv-bytes'?"},
    {"-m a.gguf", "there is no option '-m': a model is FILE.gguf alone"},
    {"--port=8080", "there is no option '--port': --http HOST:PORT"},
    {"--parallel", "there is no option '--parallel': all conversations"},
    {"--listen", "--listen needs a value"},
    {"--model a", "NAME=PATH"},
    {"--model =a.gguf", "NAME=PATH"},
    {"--model a=", "NAME=PATH"},
    {"--model a/b=a.gguf", "a/b"},
    {"--model echo=a.gguf", "echo"},
    {"--model a=a.gguf --model a=b.gguf", "given twice"},
    {"--model a=a.bin", "a.bin"},
    {"serve", "not 'serve'"},
    {"a.gguf x/a.gguf",
     "a model is called 'a' already; give x/a.gguf another name by --model NAME=PATH"},
    {"hf:only", "'hf:only' is no name of the hub: hf:OWNER/REPO"},
    {"hf:../x", "is no name of the hub"},
    {"hf:a--b/c", "is no name of the hub"},
    {"hf:a/b:../c.gguf", "is no name of the hub"},
    {"--model a=hf:o/r/s", "--model: 'hf:o/r/s' is no name of the hub"},
    {"ollama:", "'ollama:' is no name of Ollama"},
    {"ollama:a/b/c/d", "is no name of Ollama"},
    {"ollama:a:..", "is no name of Ollama"},
    {"--backend abacus", "abacus"},
    {"--threads 0", "--threads"},
    {"--threads -1", "--threads"},
    {"--threads 1e3", "unit"},
    {"--threads 99999999", "too much"},
    {"--kv-bytes 99999999999999999999", "too much"},
    {"--kv-bytes 18446744073709551615G", "too much"},
    {"--ttl 3d", "unit"},
    {"--sequence-idle 0s", "above 0"},
    {"--model-dir=", "empty"},
    {"--log-level loud", "--log-level: "},
    {"--http-origin a.example", "--http-origin: 'a.example' is not an origin"},
    {"--listen nowhere", "--listen: nowhere: "},
    {"--config", "--config needs a value"},
    {"--config /dev/null --config=/dev/null", "--config: is given twice"},
    {"--config /nowhere/parleyd.yaml", "/nowhere/parleyd.yaml: cannot be read: No such file"},
    {"--config /", "/: cannot be read: Is a directory"},
};

START_TEST(test_wrong_use)
{
    struct config c;
    struct error err;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(parse(&c, wrong[i].line, &err), STATUS_INVALID);
        ck_assert_msg(strstr(err.text, wrong[i].says) != NULL, "'%s' said: %s", wrong[i].line,
                      err.text);
    }
}
END_TEST

/* A path alone is a model, named after it; names of other stores are kept where nothing has them.
 */
START_TEST(test_paths_alone)
{
    struct config c;
    struct error err;

    ck_assert_int_eq(setenv("HF_HUB_CACHE", "/nowhere", 1), 0);
    ck_assert_int_eq(setenv("OLLAMA_MODELS", "/nowhere", 1), 0);
    ck_assert_int_eq(parse(&c,
                           "/x/a.gguf --threads 2 b-00001-of-00002.gguf --model c.gguf "
                           "x=hf:o/r:Q8_0 hf:o/r2-GGUF ollama:q:1b --model=y=ollama:q",
                           &err),
                     STATUS_OK);
    ck_assert_uint_eq(c.n_models, 7);
    ck_assert_str_eq(c.models[0].name, "a");
    ck_assert_str_eq(c.models[0].path, "/x/a.gguf");
    ck_assert_str_eq(c.models[1].name, "b");
    ck_assert_str_eq(c.models[2].name, "c");
    ck_assert_str_eq(c.models[3].name, "x");
    ck_assert_str_eq(c.models[3].path, "hf:o/r:Q8_0");
    ck_assert_str_eq(c.models[4].name, "r2");
    ck_assert_str_eq(c.models[5].name, "q-1b");
    ck_assert_str_eq(c.models[6].name, "y");
    ck_assert_uint_eq(c.options.n_threads, 2);
    ck_assert_int_eq(config_check_files(&c, &err), STATUS_NOT_FOUND);
    config_deinit(&c);
}
END_TEST

/* A folder of models serves all that are in it, in the order of their names, and nothing else. */
START_TEST(test_folders)
{
    static const char *const files[] = {"b.gguf",
                                        "a-00001-of-00002.gguf",
                                        "a-00002-of-00002.gguf",
                                        "mmproj-a.gguf",
                                        "note.txt",
                                        "folder/config.json",
                                        "empty/x",
                                        ".hidden.gguf"};
    char root[] = "/tmp/parley-test-config-XXXXXX", path[512];
    struct config c;
    struct error err;

    ck_assert_ptr_nonnull(mkdtemp(root));
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const char *slash = strchr(files[i], '/');

        (void)snprintf(path, sizeof(path), "%s/%.*s", root,
                       slash == NULL ? 0 : (int)(slash - files[i]), files[i]);
        (void)mkdir(path, 0700);
        (void)snprintf(path, sizeof(path), "%s/%s", root, files[i]);
        ck_assert_int_ge(close(creat(path, 0600)), 0);
    }
    ck_assert_int_eq(parse(&c, root, &err), STATUS_OK);
    ck_assert_uint_eq(c.n_models, 3);
    ck_assert_str_eq(c.models[0].name, "a");
    ck_assert_str_eq(c.models[1].name, "b");
    ck_assert_str_eq(c.models[2].name, "folder");
    ck_assert_int_eq(config_check_files(&c, &err), STATUS_OK);
    config_deinit(&c);
    (void)snprintf(path, sizeof(path), "%s/folder/", root);
    ck_assert_int_eq(parse(&c, path, &err), STATUS_OK);
    ck_assert_uint_eq(c.n_models, 1);
    ck_assert_str_eq(c.models[0].name, "folder");
    config_deinit(&c);
    (void)snprintf(path, sizeof(path), "%s/empty", root);
    ck_assert_int_eq(parse(&c, path, &err), STATUS_NOT_FOUND);
    ck_assert(strstr(err.text, "holds no model: no .gguf file, and no folder with") != NULL);
    (void)snprintf(path, sizeof(path), "rm -rf %s", root);
    ck_assert_int_eq(system(path), 0);
}
END_TEST

/* Fast math needs a backend that has it. */
START_TEST(test_fast_math)
{
    struct config c;
    struct error err;

    ck_assert_int_eq(parse(&c, "--backend cuda", &err), STATUS_OK);
    ck_assert(!c.options.fast_math);
    config_deinit(&c);
    ck_assert_int_eq(parse(&c, "--fast-math --backend cuda", &err), STATUS_OK);
    ck_assert(c.options.fast_math);
    config_deinit(&c);
    ck_assert_int_eq(parse_with(&c, "--config @", "backend: cuda\nfast_math: on\n", &err),
                     STATUS_OK);
    ck_assert(c.options.fast_math);
    config_deinit(&c);
    ck_assert_int_eq(parse_with(&c, "--config @", "fast_math: on\n", &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "fast_math: has no effect with backend cpu"));
    ck_assert_int_eq(
        parse_with(&c, "--config @ --backend ref", "backend: cuda\nfast_math: on\n", &err),
        STATUS_INVALID);
    ck_assert_int_eq(parse_with(&c, "--config @", "fast_math: maybe\n", &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "on or off"));
}
END_TEST

static const char all_keys[] = "# all that there is\n"
                               "models:\n"
                               "  - name: a\n"
                               "    path: /x/a.gguf\n"
                               "  - {name: b.2, path: b=c.gguf}\n"
                               "listen: ['127.0.0.1:0', 'unix:/tmp/s']\n"
                               "cors_origin: ['null', 'https://a.example']\n"
                               "backend: ref\n"
                               "fast_math: off\n"
                               "threads: 3\n"
                               "kv_bytes: 2G\n"
                               "kv_host_bytes: off\n"
                               "kv: q8\n"
                               "prefix_cache: off\n"
                               "speculate: off\n"
                               "max_itl_ms: 50\n"
                               "max_conversations: 10\n"
                               "max_queue: \"20\"\n"
                               "max_message_bytes: 64K\n"
                               "ttl: 90m\n"
                               "model_dir: /x\n"
                               "sequence_idle: 3s\n"
                               "max_sessions: 30\n"
                               "session_ttl: 2s\n"
                               "params_bytes: 3M\n"
                               "drain_timeout: 500ms\n"
                               "log_level: warn\n";

/* A file has the same settings as the flags, with the same values. */
START_TEST(test_file)
{
    struct config c;
    struct error err;

    ck_assert_msg(parse_with(&c, "--check --config @", all_keys, &err) == STATUS_OK, "%s",
                  err.text);
    ck_assert_uint_eq(c.n_models, 2);
    ck_assert_str_eq(c.models[0].name, "a");
    ck_assert_str_eq(c.models[0].path, "/x/a.gguf");
    ck_assert_str_eq(c.models[1].name, "b.2");
    ck_assert_str_eq(c.models[1].path, "b=c.gguf");
    ck_assert_uint_eq(c.n_listen, 2);
    ck_assert_str_eq(c.listen[0], "127.0.0.1:0");
    ck_assert_str_eq(c.listen[1], "unix:/tmp/s");
    ck_assert_uint_eq(c.n_http_origins, 2);
    ck_assert_str_eq(c.http_origins[0], "null");
    ck_assert_str_eq(c.options.backend, "ref");
    ck_assert_uint_eq(c.options.n_threads, 3);
    ck_assert_uint_eq(c.options.kv_host_bytes, 0);
    ck_assert_uint_eq(c.options.kv_bytes, (size_t)2 << 30);
    ck_assert_int_eq(c.options.kv_type, KV_Q8);
    ck_assert(c.options.no_prefix_cache);
    ck_assert_int_eq(c.options.speculate, SPECULATE_OFF);
    ck_assert_uint_eq(c.options.max_itl_us, 50000);
    ck_assert_uint_eq(c.max_conversations, 10);
    ck_assert_uint_eq(c.options.max_waiting, 20);
    ck_assert_uint_eq(c.max_message_bytes, 64 << 10);
    ck_assert_str_eq(c.model_dir, "/x");
    ck_assert_uint_eq(c.sequence_idle_ms, 3000);
    ck_assert_uint_eq(c.ttl_ms, 90 * 60 * 1000);
    ck_assert_uint_eq(c.max_sessions, 30);
    ck_assert_uint_eq(c.session_ttl_ms, 2000);
    ck_assert_uint_eq(c.params_bytes, 3 << 20);
    ck_assert_uint_eq(c.drain_timeout_ms, 500);
    ck_assert_int_eq(c.log_level, LOG_WARN);
    ck_assert(c.check);
    config_deinit(&c);
}
END_TEST

/* An empty file, or an empty list, leaves the defaults. */
START_TEST(test_empty_file)
{
    static const char *const texts[] = {"", "# nothing\n", "{}\n", "models: []\nlisten: []\n"};
    struct config c;
    struct error err;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        ck_assert_int_eq(parse_with(&c, "--config=@", texts[i], &err), STATUS_OK);
        ck_assert_uint_eq(c.n_models, 0);
        ck_assert_uint_eq(c.n_listen, 1);
        ck_assert_str_eq(c.listen[0], "127.0.0.1:8001");
        ck_assert_uint_eq(c.drain_timeout_ms, 30000);
        config_deinit(&c);
    }
}
END_TEST

/* A flag overrides the file, on whichever side of --config it stands. A list is replaced as a
 * whole, and may repeat the file's names; all else stays as in the file. */
START_TEST(test_flags_override)
{
    struct config c;
    struct error err;

    ck_assert_msg(parse_with(&c,
                             "--model a=z.gguf --kv-bytes 1M --prefix-cache on --speculate on "
                             "--config @ --listen [::1]:7 "
                             "--backend cpu --log-level error",
                             all_keys, &err) == STATUS_OK,
                  "%s", err.text);
    ck_assert_uint_eq(c.n_models, 1);
    ck_assert_str_eq(c.models[0].name, "a");
    ck_assert_str_eq(c.models[0].path, "z.gguf");
    ck_assert_uint_eq(c.n_listen, 1);
    ck_assert_str_eq(c.listen[0], "[::1]:7");
    ck_assert_str_eq(c.options.backend, "cpu");
    ck_assert_uint_eq(c.options.kv_bytes, 1 << 20);
    ck_assert(!c.options.no_prefix_cache);
    ck_assert_int_eq(c.options.speculate, SPECULATE_ON);
    ck_assert_int_eq(c.log_level, LOG_ERROR);
    ck_assert_uint_eq(c.options.n_threads, 3);
    ck_assert_uint_eq(c.ttl_ms, 90 * 60 * 1000);
    config_deinit(&c);
    /* One list alone. */
    ck_assert_int_eq(parse_with(&c, "--config @ --model c=c.gguf --model d=d.gguf", all_keys, &err),
                     STATUS_OK);
    ck_assert_uint_eq(c.n_models, 2);
    ck_assert_str_eq(c.models[0].name, "c");
    ck_assert_uint_eq(c.n_listen, 2);
    config_deinit(&c);
}
END_TEST

/* An error in a file is one line that names the key, or the place. */
static const struct {
    const char *yaml, *says;
} wrong_files[] = {
    {"kv-bytes: 1G\n", ":1: there is no key 'kv-bytes', did you mean 'kv_bytes'?"},
    {"threads: 2\nNope: 1\n", ":2: there is no key 'Nope', see parleyd --print-config"},
    {"config: x.yaml\n", ":1: there is no key 'config'"},
    {"models:\n  - {name: a, path: a.gguf, size: 1}\n", ":2: models: takes a text, or name and"},
    {"models:\n  - name: a\n", ":2: models: takes a text, or both name and path"},
    {"models:\n  - {name: a, name: b, path: a.gguf}\n", ":2: models: takes"},
    {"models:\n  - a\n", ":2: models: takes NAME=PATH, or the path"},
    {"models:\n  - hf:x\n", ":2: models: 'hf:x' is no name of the hub"},
    {"models: [[a]]\n", ":1: models: takes a text"},
    {"listen: {name: a, path: b}\n", ":1: listen: must be a text, not name and path"},
    {"backend: [cpu]\n", ":1: backend: must be one value, not a list"},
    {"backend: {a: b}\n", ":1: backend: takes a text"},
    {"[a]: b\n", ":1: the file takes keys that are texts"},
    {"threads: \"1\\0\"\n", ":1: threads: takes a text"},
    {"ttl: 1s\nttl: 2s\n", ":2: ttl is given twice"},
    {"just words\n", ":1: the file takes KEY: VALUE"},
    {"- threads\n", ":1: the file takes KEY: VALUE"},
    {"threads: 1\n---\nthreads: 2\n", ":2: a second document"},
    {"threads: : 1\n", ":1: no YAML: mapping values"},
    {"\tthreads: 1\n", ":1: no YAML: "},
    {"listen: ['127.0.0.1:1'\n", ":2: no YAML: "},
    {"ttl: \xff\n", ": no YAML: "},
    {"ttl: *a\n", ": no YAML: "},
    {"# a comment\n\nlisten:\n  - nowhere\n", ":4: listen: nowhere: "},
    {"models: [{name: a/b, path: a.gguf}]\n", ": models: 'a/b' is not a name"},
    {"models: [{name: a=b, path: a.gguf}]\n", ": models: 'a=b' is not a name"},
    {"models: [{name: '', path: a.gguf}]\n", ": models: a name has"},
    {"models: [{name: a, path: ''}]\n", ": models: '' is no .gguf file, nor a folder"},
    {"models: [{name: a, path: a.gguf}, {name: a, path: b.gguf}]\n",
     ": models: 'a' is given twice"},
    {"listen: [nowhere]\n", ": listen: nowhere: "},
    {"http_origin: [nowhere]\n", ": http_origin: 'nowhere' is not an origin"},
    {"backend: abacus\n", ": backend: there is no 'abacus'"},
    {"backend:\n", ": backend: there is no ''"},
    {"threads: 0\n", ": threads: must be above 0"},
    {"kv_bytes: 2T\n", ": kv_bytes: '2T' has no unit that is known: K, M, G"},
    {"kv: f8\n", ": kv: is 'f8', it must be f16, q8 or f32"},
    {"prefix_cache: maybe\n", ": prefix_cache: takes on or off, not 'maybe'"},
    {"speculate: maybe\n", ": speculate: takes on, off or auto, not 'maybe'"},
    {"max_itl_ms: 0\n", ": max_itl_ms: must be above 0"},
    {"max_conversations: many\n", ": max_conversations: 'many' is not a number"},
    {"max_queue: 99999999999\n", ": max_queue: '99999999999' is too much, it must be at most "},
    {"max_message_bytes: 2G\n", ": max_message_bytes: "},
    {"ttl: 3d\n", ": ttl: '3d'"},
    {"drain_timeout: -1\n", ": drain_timeout: "},
    {"log_level: loud\n", ": log_level: "},
};

START_TEST(test_wrong_files)
{
    struct config c;
    struct error err;

    for (size_t i = 0; i < sizeof(wrong_files) / sizeof(wrong_files[0]); i++) {
        ck_assert_int_eq(parse_with(&c, "--config @", wrong_files[i].yaml, &err), STATUS_INVALID);
        ck_assert_msg(strstr(err.text, wrong_files[i].says) != NULL, "'%s' said: %s",
                      wrong_files[i].yaml, err.text);
        ck_assert_ptr_null(strchr(err.text, '\n'));
    }
}
END_TEST

/* A wrong flag is refused with a good file, too; a file with too many entries is refused. */
START_TEST(test_bounds_with_file)
{
    char yaml[2048] = "listen: [";
    size_t len = strlen(yaml);
    struct config c;
    struct error err;

    for (int i = 0; i <= CONFIG_MAX_LISTEN; i++)
        len += (size_t)snprintf(yaml + len, sizeof(yaml) - len, "'127.0.0.1:%d', ", i);
    (void)snprintf(yaml + len, sizeof(yaml) - len, "]\n");
    ck_assert_int_eq(parse_with(&c, "--config @", yaml, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, ": listen: at most 16"));
    ck_assert_int_eq(parse(&c, "--config /dev/null --threads 0", &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "--threads: must be above 0");
}
END_TEST

/* The error of a missing model file says how to get it. */
START_TEST(test_missing_file)
{
    struct config c;
    struct error err;

    ck_assert_int_eq(parse(&c, "--model tiny=/nowhere/tiny.gguf", &err), STATUS_OK);
    ck_assert_int_eq(config_check_files(&c, &err), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "./run model"));
    ck_assert_ptr_nonnull(strstr(err.text, "--model tiny="));
    ck_assert_int_eq(parse(&c, "", &err), STATUS_OK);
    ck_assert_int_eq(config_check_files(&c, &err), STATUS_OK);
}
END_TEST

/* Of three sources the flag is first, then the environment, then the file; each alone does. */
START_TEST(test_precedence)
{
    char ttl[] = "PARLEY_TTL=2s", kv[] = "PARLEY_KV_BYTES=2M",
         none[] = "PARLEY_THREADS=", fast[] = "PARLEY_PREFIX_CACHE=false";
    char *const environment[] = {ttl, kv, none, fast, NULL};
    struct config c;
    struct error err;

    ck_assert_msg(parse_all(&c, "--config @ --ttl 1s",
                            "ttl: 3s\nkv_bytes: 3M\nthreads: 3\nmax_queue: 3\n", environment,
                            &err) == STATUS_OK,
                  "%s", err.text);
    ck_assert_uint_eq(c.ttl_ms, 1000);
    ck_assert_uint_eq(c.options.kv_bytes, 2 << 20);
    ck_assert_uint_eq(c.options.n_threads, 3);
    ck_assert_uint_eq(c.options.max_waiting, 3);
    ck_assert(c.options.no_prefix_cache);
    config_deinit(&c);
}
END_TEST

/* A list of the environment has commas; it replaces the file's, and the flags' replaces it. */
START_TEST(test_lists_by_precedence)
{
    char listen[] = "PARLEY_LISTEN=127.0.0.1:2,unix:/tmp/two", models[] = "PARLEY_MODELS=b=b.gguf",
         origin[] = "PARLEY_HTTP_ORIGIN=https://b.example";
    char *const environment[] = {listen, models, origin, NULL};
    struct config c;
    struct error err;

    ck_assert_int_eq(parse_all(&c, "--config @ --http-origin null", all_keys, environment, &err),
                     STATUS_OK);
    ck_assert_uint_eq(c.n_listen, 2);
    ck_assert_str_eq(c.listen[1], "unix:/tmp/two");
    ck_assert_uint_eq(c.n_models, 1);
    ck_assert_str_eq(c.models[0].name, "b");
    ck_assert_uint_eq(c.n_http_origins, 1);
    ck_assert_str_eq(c.http_origins[0], "null");
    config_deinit(&c);
}
END_TEST

/* The variable of --config names the file, where no flag does; an error names the variable. */
START_TEST(test_environment)
{
    char file[] = "PARLEY_CONFIG=/nowhere/a.yaml", ttl[] = "PARLEY_TTL=soon",
         math[] = "PARLEY_FAST_MATH=yes", listen[] = "PARLEY_LISTEN=nowhere";
    char *const files[] = {file, NULL}, *const wrong_one[] = {ttl, NULL},
                *const together[] = {math, NULL}, *const entries[] = {listen, NULL};
    struct config c;
    struct error err;

    ck_assert_int_eq(parse_in(&c, "", files, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/a.yaml: cannot be read"));
    ck_assert_int_eq(parse_in(&c, "--config /dev/null", files, &err), STATUS_OK);
    config_deinit(&c);
    ck_assert_int_eq(parse_in(&c, "--ttl 1s", wrong_one, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "PARLEY_TTL: 'soon' is not a number");
    ck_assert_int_eq(parse_in(&c, "", together, &err), STATUS_INVALID);
    ck_assert_ptr_eq(strstr(err.text, "PARLEY_FAST_MATH: has no effect"), err.text);
    ck_assert_int_eq(parse_in(&c, "", entries, &err), STATUS_INVALID);
    ck_assert_ptr_eq(strstr(err.text, "PARLEY_LISTEN: nowhere: "), err.text);
}
END_TEST

/* A scalar is a list of one; true and false, yes and no are on and off. */
START_TEST(test_forgiving)
{
    struct config c;
    struct error err;

    ck_assert_msg(parse_with(&c, "--config @",
                             "listen: 127.0.0.1:9\nmodels: a=a.gguf\nhttp_origin: '*'\n"
                             "prefix_cache: false\nspeculate: true\nfast_math: no\nhttp: false\n",
                             &err) == STATUS_OK,
                  "%s", err.text);
    ck_assert_uint_eq(c.n_listen, 1);
    ck_assert_str_eq(c.listen[0], "127.0.0.1:9");
    ck_assert_str_eq(c.models[0].path, "a.gguf");
    ck_assert_uint_eq(c.n_http_origins, 1);
    ck_assert(c.options.no_prefix_cache);
    ck_assert_int_eq(c.options.speculate, SPECULATE_ON);
    ck_assert(!c.options.fast_math);
    ck_assert_ptr_null(c.http);
    ck_assert(c.is_http_given);
    config_deinit(&c);
    ck_assert_int_eq(parse_with(&c, "--config @", "models: {name: a, path: a.gguf}\n", &err),
                     STATUS_OK);
    ck_assert_uint_eq(c.n_models, 1);
    config_deinit(&c);
}
END_TEST

static char *written(void (*write)(FILE *out))
{
    char *text;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    write(out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

/* --help and the manual name every flag, with its default; the example every key. */
START_TEST(test_documents)
{
    char *help = written(document_help), *manual = written(document_manual),
         *example = written(document_example);

    for (size_t i = 0; i < config_n_options; i++) {
        const struct config_option *o = &config_options[i];
        char text[160];

        (void)snprintf(text, sizeof(text), "\n  %s", o->flag);
        ck_assert_msg(strstr(help, text) != NULL, "%s", text);
        (void)snprintf(text, sizeof(text), "\n#%s:", o->key);
        if (o->key != NULL && !o->is_not_in_file)
            ck_assert_msg(strstr(example, text) != NULL, "%s", text);
        ck_assert_int_eq(o->help[strlen(o->help) - 1] == '.', 0);
    }
    ck_assert_ptr_nonnull(strstr(help, "(20s)"));
    ck_assert_ptr_nonnull(strstr(manual, "\\fB\\-\\-http\\-timeout\\fR \\fITIME\\fR"));
    ck_assert_ptr_nonnull(strstr(manual, "Default: 20s."));
    for (const char *line = help; *line != '\0'; line += strcspn(line, "\n") + 1)
        ck_assert_uint_le(strcspn(line, "\n"), 100);
    free(help);
    free(manual);
    free(example);
}
END_TEST

/* The example changes nothing as it stands, and is accepted when each key is set. */
START_TEST(test_example)
{
    char *example = written(document_example), yaml[16384];
    struct config c;
    struct error err;
    size_t len = 0;

    ck_assert_int_eq(parse_with(&c, "--config @", example, &err), STATUS_OK);
    ck_assert_uint_eq(c.n_models, 0);
    ck_assert_uint_eq(c.digests[0], 0);
    config_deinit(&c);
    for (const char *at = example; *at != '\0'; at++) {
        if (*at == '#' && at[1] != '#' && at[-1] == '\n')
            continue;
        ck_assert_uint_lt(len, sizeof(yaml) - 1);
        yaml[len++] = *at;
    }
    yaml[len] = '\0';
    ck_assert_msg(parse_with(&c, "--config @", yaml, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq(c.n_models, 1);
    ck_assert_uint_eq(c.n_listen, 2);
    config_deinit(&c);
    free(example);
}
END_TEST

/* A default that is told is the one that is set. */
START_TEST(test_initial_values)
{
    struct config c, again;
    struct error err;

    ck_assert_int_eq(parse(&c, "", &err), STATUS_OK);
    for (size_t i = 0; i < config_n_options; i++) {
        const struct config_option *o = &config_options[i];
        char line[160];

        if (o->initial == NULL)
            continue;
        (void)snprintf(line, sizeof(line), "%s %s", o->flag, o->initial);
        ck_assert_int_eq(parse(&again, line, &err), STATUS_OK);
        ck_assert_uint_eq(again.digests[i], c.digests[i]);
        ck_assert_int_eq(again.sources[i].level, CONFIG_FLAG);
        again.digests[i] = c.digests[i];
        again.sources[i] = c.sources[i];
        ck_assert_uint_eq(again.http_timeout_ms, c.http_timeout_ms);
        ck_assert_uint_eq(again.linger_ms, c.linger_ms);
        ck_assert_uint_eq(again.drain_timeout_ms, c.drain_timeout_ms);
        config_deinit(&again);
    }
    config_deinit(&c);
}
END_TEST

SUITE_MAIN("server/config", test_defaults, test_flags, test_wrong_use, test_paths_alone,
           test_folders, test_fast_math, test_file, test_empty_file, test_flags_override,
           test_wrong_files, test_bounds_with_file, test_missing_file, test_precedence,
           test_lists_by_precedence, test_environment, test_forgiving, test_documents, test_example,
           test_initial_values)
