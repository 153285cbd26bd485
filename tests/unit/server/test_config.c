#include "server/config.h"

#include "tests/unit/base/suite.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 40 };

/* Splits line at spaces; the words live until the next call. */
static enum status parse(struct config *c, const char *line, struct error *err)
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
    return config_parse(c, argc, argv, err);
}

/* Without flags there are the defaults. */
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

/* Each flag, with its value after it or behind an equals sign; sizes and times with units. */
START_TEST(test_flags)
{
    struct config c;
    struct error err;

    ck_assert_int_eq(
        parse(&c,
              "--model a=/x/a.gguf --model=b.2=b.gguf --listen 127.0.0.1:0 --listen=unix:/tmp/s "
              "--backend ref --threads 3 --kv-bytes 2G --max-conversations 10 --max-queue=20 "
              "--max-message-bytes 64K --ttl 90m --drain-timeout 500ms --log-level warn --check",
              &err),
        STATUS_OK);
    ck_assert_uint_eq(c.n_models, 2);
    ck_assert_str_eq(c.models[0].name, "a");
    ck_assert_str_eq(c.models[0].path, "/x/a.gguf");
    ck_assert_str_eq(c.models[1].name, "b.2");
    ck_assert_str_eq(c.models[1].path, "b.gguf");
    ck_assert_uint_eq(c.n_listen, 2);
    ck_assert_str_eq(c.listen[1], "unix:/tmp/s");
    ck_assert_str_eq(c.backend, "ref");
    ck_assert_uint_eq(c.n_threads, 3);
    ck_assert_uint_eq(c.kv_bytes, (size_t)2 << 30);
    ck_assert_uint_eq(c.max_conversations, 10);
    ck_assert_uint_eq(c.max_queue, 20);
    ck_assert_uint_eq(c.max_message_bytes, 64 << 10);
    ck_assert_uint_eq(c.ttl_ms, 90 * 60 * 1000);
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

/* Every wrong use is refused, and says what it is about. */
static const struct {
    const char *line, *says;
} wrong[] = {
    {"--nope", "--nope"},
    {"model", "model"},
    {"--modelx a=a.gguf", "--modelx"},
    {"--check=1", "--check=1"},
    {"--listen", "--listen needs a value"},
    {"--model a", "NAME=PATH"},
    {"--model =a.gguf", "NAME=PATH"},
    {"--model a=", "NAME=PATH"},
    {"--model a/b=a.gguf", "a/b"},
    {"--model echo=a.gguf", "echo"},
    {"--model a=a.gguf --model a=b.gguf", "given twice"},
    {"--model a=a.bin", "a.bin"},
    {"--backend abacus", "abacus"},
    {"--threads 0", "--threads"},
    {"--threads -1", "--threads"},
    {"--threads 1e3", "unit"},
    {"--threads 99999999", "too much"},
    {"--kv-bytes 99999999999999999999", "--kv-bytes"},
    {"--kv-bytes 18446744073709551615G", "too much"},
    {"--ttl 3d", "unit"},
    {"--log-level loud", "loud"},
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

/* A model file that is not there: how to get it. */
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

/* --help tells of every flag that there is. */
START_TEST(test_usage)
{
    static const char *const names[] = {
        "--model",     "--listen",    "--backend",           "--threads", "--kv-bytes",
        "--max-queue", "--log-level", "--max-conversations", "--ttl",     "--max-message-bytes",
        "--check",     "--version",   "--drain-timeout",     "--help",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_ptr_nonnull(strstr(config_usage, names[i]));
}
END_TEST

SUITE_MAIN("server/config", test_defaults, test_flags, test_wrong_use, test_missing_file,
           test_usage)
