/* Reads a line's words from left to right: the principal, the hash, then settings in any order.
 * Each wrong word has an error with the line's number and without the word. */
#include "server/access/keys_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/name.h"
#include "base/number.h"
#include "server/access/role.h"

enum { LINE_MAX_BYTES = 384, WORDS_MAX = 10, HEX_CHARS = 2 * SHA256_BYTES };

bool keys_file_is_name(const char *name)
{
    return name_is_valid(name, strlen(name), PRINCIPAL_NAME_MAX, NAME_MARKS "@");
}

static bool keys_take_name(struct keys_line *k, const char *word)
{
    if (!keys_file_is_name(word))
        return false;
    memcpy(k->principal, word, strlen(word) + 1);
    return true;
}

static bool keys_take_digest(struct keys_line *k, const char *word)
{
    static const char digits[] = "0123456789abcdef";

    if (strlen(word) != HEX_CHARS || strspn(word, digits) != HEX_CHARS)
        return false;
    for (size_t i = 0; i < SHA256_BYTES; i++)
        k->digest[i] = (uint8_t)((strchr(digits, word[2 * i]) - digits) << 4 |
                                 (strchr(digits, word[2 * i + 1]) - digits));
    return true;
}

/* Whether the text is the form with digits for each 0. */
static bool has_form(const char *text, const char *form)
{
    for (; *form != '\0'; form++, text++) {
        if (*form == '0' ? *text < '0' || *text > '9' : *text != *form)
            return false;
    }
    return *text == '\0';
}

static bool keys_take_time(struct keys_line *k, const char *text)
{
    struct tm t = {0}, same;
    time_t at;

    if (!has_form(text, "0000-00-00") && !has_form(text, "0000-00-00T00:00:00Z"))
        return false;
    (void)sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
                 &t.tm_min, &t.tm_sec); /* a date has three numbers: midnight */
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    same = t;
    at = timegm(&t);
    if (at <= 0 || same.tm_mon != t.tm_mon || same.tm_mday != t.tm_mday ||
        same.tm_hour != t.tm_hour || same.tm_min != t.tm_min || same.tm_sec != t.tm_sec)
        return false; /* no such day or hour */
    k->until_s = (uint64_t)at;
    return true;
}

static bool take_number(unsigned *out, const char *text, unsigned max)
{
    uint64_t n;

    if (!number_read(&n, text, max) || n == 0)
        return false;
    *out = (unsigned)n;
    return true;
}

static bool keys_take_rest(struct keys_line *k, const char *word)
{
    const struct {
        const char *name;
        unsigned *out, max;
    } numbers[] = {
        {"weight", &k->weight, PRINCIPAL_WEIGHT_MAX},
        {"requests", &k->quota.requests_per_minute, QUOTA_LIMIT_MAX},
        {"tokens", &k->quota.tokens_per_minute, QUOTA_LIMIT_MAX},
        {"in-flight", &k->quota.tokens_in_flight, QUOTA_LIMIT_MAX},
        {"conversations", &k->quota.conversations, QUOTA_LIMIT_MAX},
    };

    if (strcmp(word, "admin") == 0) {
        k->roles |= ACCESS_ROLE_ADMIN;
        return true;
    }
    if (strcmp(word, "attach") == 0) {
        k->roles |= ACCESS_ROLE_ATTACH;
        return true;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t len = strlen(numbers[i].name);

        if (strncmp(word, numbers[i].name, len) == 0 && word[len] == '=')
            return take_number(numbers[i].out, word + len + 1, numbers[i].max);
    }
    return strncmp(word, "until=", 6) == 0 && keys_take_time(k, word + 6);
}

/* Cuts text at blanks; WORDS_MAX + 1 where there are too many. */
static size_t cut(char *words[WORDS_MAX], char *text)
{
    size_t n = 0;
    char *next = NULL;

    text[strcspn(text, "#")] = '\0';
    for (char *w = strtok_r(text, " \t\r", &next); w != NULL; w = strtok_r(NULL, " \t\r", &next)) {
        if (n == WORDS_MAX)
            return n + 1;
        words[n++] = w;
    }
    return n;
}

/* *ret_has: the line has a key. */
static enum status keys_parse_line(struct keys_line *out, bool *ret_has, char *text,
                                   struct error *err)
{
    char *words[WORDS_MAX];
    size_t n = cut(words, text);

    *out = (struct keys_line){.weight = 1};
    *ret_has = n > 0;
    if (n == 0)
        return STATUS_OK;
    if (n < 2 || n > WORDS_MAX)
        return error_set(err, STATUS_INVALID,
                         "has not the form PRINCIPAL SHA256 [admin] [attach] [weight=N] "
                         "[until=DATE] [requests=N] [tokens=N] [in-flight=N] [conversations=N]");
    if (!keys_take_name(out, words[0]))
        return error_set(err, STATUS_INVALID,
                         "a principal's name has 1 to %d letters, digits, '.', '_', '@' and '-'",
                         PRINCIPAL_NAME_MAX);
    if (!keys_take_digest(out, words[1]))
        return error_set(
            err, STATUS_INVALID,
            "a key's SHA-256 has %d lower-case hex digits: 'parley keys new' makes one", HEX_CHARS);
    for (size_t i = 2; i < n; i++) {
        if (!keys_take_rest(out, words[i]))
            return error_set(err, STATUS_INVALID,
                             "word %zu is none of admin, attach, weight=1 to %d, "
                             "until=YYYY-MM-DD[THH:MM:SSZ], and "
                             "requests=, tokens=, in-flight= and conversations=1 to %d",
                             i + 1, PRINCIPAL_WEIGHT_MAX, QUOTA_LIMIT_MAX);
    }
    return STATUS_OK;
}

static bool is_twice(const struct keys_line *keys, size_t n, const struct keys_line *k)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(keys[i].digest, k->digest, SHA256_BYTES) == 0)
            return true;
    }
    return false;
}

/* Parses one line of len bytes, and appends its key to keys[*n]. */
static enum status keys_add_line(struct keys_line *keys, size_t *n, const char *line, size_t len,
                                 struct error *err)
{
    char text[LINE_MAX_BYTES + 1];
    struct keys_line k;
    bool has_key;

    if (len > LINE_MAX_BYTES || memchr(line, '\0', len) != NULL)
        return error_set(err, STATUS_INVALID, "is no text of at most %d bytes", LINE_MAX_BYTES);
    memcpy(text, line, len);
    text[len] = '\0';
    if (keys_parse_line(&k, &has_key, text, err) != STATUS_OK)
        return err->status;
    if (!has_key)
        return STATUS_OK;
    if (*n == KEYS_FILE_MAX_KEYS)
        return error_set(err, STATUS_INVALID, "is one too many: at most %d keys are taken",
                         KEYS_FILE_MAX_KEYS);
    if (is_twice(keys, *n, &k))
        return error_set(err, STATUS_INVALID, "has a key that a line before it has");
    keys[(*n)++] = k;
    return STATUS_OK;
}

static size_t count_lines(const char *text, size_t len)
{
    size_t n = 1;

    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n < KEYS_FILE_MAX_KEYS ? n : KEYS_FILE_MAX_KEYS;
}

enum status keys_file_parse(struct keys_line **out, size_t *ret_n, const char *text, size_t len,
                            struct error *err)
{
    struct keys_line *keys = try_alloc(count_lines(text, len), sizeof(*keys));
    size_t n = 0, number = 1;

    if (keys == NULL)
        return error_no_memory(err, len, "the keys");
    for (const char *at = text, *end = text + len; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));

        stop = stop == NULL ? end : stop;
        if (keys_add_line(keys, &n, at, (size_t)(stop - at), err) != STATUS_OK) {
            free(keys);
            return error_prefix(err, "line %zu", number);
        }
        at = stop + 1;
    }
    *out = keys;
    *ret_n = n;
    return STATUS_OK;
}

static enum status check_mode(int fd, struct error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_set(err, STATUS_INVALID, "is no file");
    if ((st.st_mode & (S_IRWXO | S_IWGRP)) != 0)
        return error_set(err, STATUS_INVALID,
                         "has the mode %03o: others must not read it, nor its group write it "
                         "('chmod 640')",
                         (unsigned)(st.st_mode & 0777));
    return STATUS_OK;
}

static enum status keys_read_whole(char *text, size_t *ret_len, int fd, struct error *err)
{
    size_t len = 0;
    ssize_t n;

    do {
        n = read(fd, text + len, KEYS_FILE_MAX_BYTES + 1 - len);
        len += n > 0 ? (size_t)n : 0;
    } while (n > 0 || (n < 0 && errno == EINTR));
    if (n < 0)
        return error_set(err, STATUS_NOT_FOUND, "%s", strerror(errno));
    if (len > KEYS_FILE_MAX_BYTES)
        return error_set(err, STATUS_INVALID, "has more than %d bytes", KEYS_FILE_MAX_BYTES);
    *ret_len = len;
    return STATUS_OK;
}

enum status keys_file_read(struct keys_line **out, size_t *ret_n, const char *path,
                           struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = NULL;
    enum status rc;
    size_t len = 0;

    if (fd < 0) {
        (void)error_set(err, STATUS_NOT_FOUND, "%s", strerror(errno));
        return error_prefix(err, "%s", path);
    }
    rc = check_mode(fd, err);
    if (rc == STATUS_OK && (text = try_alloc(1, KEYS_FILE_MAX_BYTES + 1)) == NULL)
        rc = error_no_memory(err, KEYS_FILE_MAX_BYTES + 1, "the keys");
    if (rc == STATUS_OK)
        rc = keys_read_whole(text, &len, fd, err);
    if (rc == STATUS_OK)
        rc = keys_file_parse(out, ret_n, text, len, err);
    free(text);
    (void)close(fd); /* nothing was written */
    return rc == STATUS_OK ? rc : error_prefix(err, "%s", path);
}
