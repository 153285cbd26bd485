/* parley keys: a new key, and its line for parleyd's file of keys. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/env.h"
#include "base/name.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "client/cli/verbs.h"

enum { KEY_RANDOM_BYTES = 32, KEY_CHARS = 3 + 2 * KEY_RANDOM_BYTES + 1, NAME_MAX_CHARS = 64 };

struct keys_options {
    const char *principal;
    bool is_admin, is_attach;
    uint32_t weight, requests, tokens, in_flight, conversations; /* 0: the word is left out */
    const char *until;
};

static const struct option_row rows[] = {
    {"principal", "NAME", "the principal that the key is for", OPTION_TEXT,
     offsetof(struct keys_options, principal), 0},
    {"admin", NULL, "give it the role admin", OPTION_FLAG, offsetof(struct keys_options, is_admin),
     0},
    {"attach", NULL, "give it the role attach", OPTION_FLAG,
     offsetof(struct keys_options, is_attach), 0},
    {"weight", "N", "its weight when tokens are shared among principals, 1 to 1000 (1)", OPTION_U32,
     offsetof(struct keys_options, weight), 0},
    {"requests", "N", "quota: requests per minute", OPTION_U32,
     offsetof(struct keys_options, requests), 0},
    {"tokens", "N", "quota: tokens per minute", OPTION_U32, offsetof(struct keys_options, tokens),
     0},
    {"in-flight", "N", "quota: tokens of running turns", OPTION_U32,
     offsetof(struct keys_options, in_flight), 0},
    {"conversations", "N", "quota: open conversations", OPTION_U32,
     offsetof(struct keys_options, conversations), 0},
    {"until", "DATE", "when the key expires: YYYY-MM-DD[THH:MM:SSZ] (never)", OPTION_TEXT,
     offsetof(struct keys_options, until), 0},
    {0},
};

static void print_hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static enum status key_make(char key[KEY_CHARS], uint8_t digest[SHA256_BYTES], struct error *err)
{
    uint8_t random[KEY_RANDOM_BYTES];
    struct sha256 *hash;

    if (sha256_open(&hash, err) != STATUS_OK)
        return err->status;
    env_real.random(env_real.self, random, sizeof(random));
    memcpy(key, "pk-", 3);
    print_hex(random, sizeof(random), key + 3);
    sha256_add(hash, key, strlen(key));
    sha256_take(hash, digest);
    sha256_close(hash);
    return STATUS_OK;
}

static void print_number(const char *word, uint32_t n)
{
    if (n != 0)
        (void)printf(" %s=%u", word, n);
}

/* The key on a line of its own, for a script to take; then the line, which is no secret. */
static void print_key(const struct keys_options *o, const char *key,
                      const uint8_t digest[SHA256_BYTES])
{
    char hex[2 * SHA256_BYTES + 1];

    print_hex(digest, SHA256_BYTES, hex);
    (void)printf("%s\n", key); /* main reports a failure of stdout */
    if (isatty(STDOUT_FILENO) != 0)
        (void)fprintf(stderr, "the key is printed once; its line for 'parleyd --keys FILE' is:\n");
    (void)printf("%s %s%s%s", o->principal, hex, o->is_admin ? " admin" : "",
                 o->is_attach ? " attach" : "");
    print_number("weight", o->weight);
    print_number("requests", o->requests);
    print_number("tokens", o->tokens);
    print_number("in-flight", o->in_flight);
    print_number("conversations", o->conversations);
    if (o->until != NULL)
        (void)printf(" until=%s", o->until);
    (void)printf("\n");
}

enum exit_code keys_run(const struct verb *verb, int argc, char **argv)
{
    struct keys_options o = {0};
    const struct option_group groups[] = {{rows, &o, NULL}};
    uint8_t digest[SHA256_BYTES];
    char key[KEY_CHARS];
    enum exit_code code;
    struct error err;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 1, 1, &first, &code))
        return code;
    if (strcmp(argv[first], "new") != 0)
        return options_misuse(verb, "there is no command '%s', the only one is 'new'", argv[first]);
    if (o.principal == NULL)
        return options_misuse(verb, "--principal NAME is missing: whom the key is for");
    if (!name_is_valid(o.principal, strlen(o.principal), NAME_MAX_CHARS,
                       NAME_MARKS "@")) /* as parleyd reads it */
        return options_misuse(verb,
                              "--principal must have 1 to %d letters, digits, '.', '_', '@' and "
                              "'-', not '%s'",
                              NAME_MAX_CHARS, o.principal);
    if (key_make(key, digest, &err) != STATUS_OK) {
        console_error("%s", err.text);
        return EXIT_FAILED;
    }
    print_key(&o, key, digest);
    return EXIT_DONE;
}
