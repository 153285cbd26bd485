/* A key is looked up by its hash: first in a table under a random key, then the whole hash is
 * compared in constant time. So the time of a refusal reveals nothing about existing keys. */
#include "server/access/access.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/list.h"
#include "server/access/keys_file.h"
#include "server/access/quota.h"

struct access_principal {
    struct link link;
    struct principal base;
    struct access_quota quota;
    struct quota_limits next_limits; /* while the keys are added */
    bool has_key, had_key;           /* in the file as last read; before */
    struct principal base_before;    /* likewise */
    struct quota_limits limits_before;
    char name[PRINCIPAL_NAME_MAX + 1];
};

struct access_key {
    struct link link; /* of all keys, the revoked ones too: calls may have them */
    struct hash_node by_digest;
    const struct principal *principal;
    const struct access_quota *quota; /* its principal's */
    uint8_t digest[SHA256_BYTES];
    uint64_t until_s; /* 0: none */
    bool is_current;  /* in the file as last read; then in by_digest */
    bool was_current; /* before the last commit, and then with this end */
    uint64_t until_s_before;
};

struct access {
    struct access_config config;
    struct hash by_digest;
    struct list keys, principals;
    uint32_t n_principals;
    struct sha256 *sha256;
    struct keys_line *next; /* [n_next], owned: of a reload between its two parts */
    size_t n_next;
};

static const struct principal anyone = {.id = 0, .roles = ~0u, .weight = 1, .name = ""};
static const struct principal stranger = {.id = UINT32_MAX, .weight = 1, .name = ""};
static const struct access_key key_of_anyone = {.principal = &anyone, .is_current = true};
static const struct access_key key_of_stranger = {.principal = &stranger, .is_current = true};

/* --- the tables --- */

static uint64_t access_hash(const struct access *a, const uint8_t digest[SHA256_BYTES])
{
    return hash_bytes(&a->by_digest, 0, digest, SHA256_BYTES);
}

static struct access_key *access_find(const struct access *a, const uint8_t digest[SHA256_BYTES])
{
    struct hash_node *node = hash_first(&a->by_digest, access_hash(a, digest));

    for (; node != NULL; node = hash_next(node)) {
        struct access_key *key = container_of(node, struct access_key, by_digest);

        if (secret_is(key->digest, digest, SHA256_BYTES))
            return key;
    }
    return NULL;
}

static struct access_principal *access_find_principal(const struct access *a, const char *name)
{
    for (struct link *at = list_first(&a->principals); at != NULL;
         at = list_next(&a->principals, at)) {
        struct access_principal *p = container_of(at, struct access_principal, link);

        if (strcmp(p->name, name) == 0)
            return p;
    }
    return NULL;
}

static struct access_principal *access_add_principal(struct access *a, const char *name)
{
    struct access_principal *p = access_find_principal(a, name);

    if (p != NULL)
        return p;
    p = xalloc(sizeof(*p));
    memcpy(p->name, name, strlen(name) + 1);
    p->base.id = ++a->n_principals;
    p->base.name = p->name;
    p->base.weight = 1;
    list_push(&a->principals, &p->link);
    return p;
}

static uint32_t max_limit(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void access_widen(struct quota_limits *to, const struct quota_limits *by)
{
    to->requests_per_minute = max_limit(to->requests_per_minute, by->requests_per_minute);
    to->tokens_per_minute = max_limit(to->tokens_per_minute, by->tokens_per_minute);
    to->tokens_in_flight = max_limit(to->tokens_in_flight, by->tokens_in_flight);
    to->conversations = max_limit(to->conversations, by->conversations);
}

/* A key that was there before, with the same principal, stays the same. */
static void access_add(struct access *a, const struct keys_line *line)
{
    struct access_principal *p = access_add_principal(a, line->principal);
    struct access_key *key = NULL;

    p->has_key = true;
    p->base.roles |= line->roles;
    if (line->weight > p->base.weight)
        p->base.weight = line->weight;
    access_widen(&p->next_limits, &line->quota);
    for (struct link *at = list_first(&a->keys); at != NULL && key == NULL;
         at = list_next(&a->keys, at)) {
        struct access_key *old = container_of(at, struct access_key, link);

        if (old->principal == &p->base && memcmp(old->digest, line->digest, SHA256_BYTES) == 0)
            key = old;
    }
    if (key == NULL) {
        key = xalloc(sizeof(*key));
        memcpy(key->digest, line->digest, SHA256_BYTES);
        key->principal = &p->base;
        key->quota = &p->quota;
        list_push(&a->keys, &key->link);
    }
    key->until_s = line->until_s;
    key->is_current = true;
    hash_add(&a->by_digest, &key->by_digest, access_hash(a, key->digest));
}

static void access_revoke_all(struct access *a)
{
    for (struct link *at = list_first(&a->keys); at != NULL; at = list_next(&a->keys, at)) {
        struct access_key *key = container_of(at, struct access_key, link);

        if (key->is_current)
            hash_remove(&a->by_digest, &key->by_digest);
        key->was_current = key->is_current;
        key->until_s_before = key->until_s;
        key->is_current = false;
    }
    for (struct link *at = list_first(&a->principals); at != NULL;
         at = list_next(&a->principals, at)) {
        struct access_principal *p = container_of(at, struct access_principal, link);

        p->limits_before = p->next_limits;
        p->base_before = p->base;
        p->had_key = p->has_key;
        p->has_key = false;
        p->next_limits = (struct quota_limits){0};
        p->base.roles = 0;
        p->base.weight = 1;
    }
}

static struct access_principal *access_get(const struct access *a, uint32_t id)
{
    for (struct link *at = list_first(&a->principals); at != NULL;
         at = list_next(&a->principals, at)) {
        struct access_principal *p = container_of(at, struct access_principal, link);

        if (p->base.id == id)
            return p;
    }
    return NULL;
}

unsigned access_weight(const struct access *a, uint32_t principal)
{
    const struct access_principal *p = access_get(a, principal);

    return p == NULL ? 1 : p->base.weight;
}

struct access_quota *access_quota_of(const struct access *a, uint32_t principal)
{
    struct access_principal *p = a == NULL ? NULL : access_get(a, principal);

    return p == NULL ? NULL : &p->quota;
}

uint64_t access_n_refused(const struct access *a, unsigned kind)
{
    uint64_t n = 0;

    for (struct link *at = list_first(&a->principals); at != NULL;
         at = list_next(&a->principals, at))
        n += container_of(at, struct access_principal, link)->quota.n_refused[kind];
    return n;
}

void access_each_quota(const struct access *a,
                       void (*each)(void *arg, const char *principal, struct access_quota *quota),
                       void *arg)
{
    if (a == NULL)
        return;
    for (struct link *at = list_first(&a->principals); at != NULL;
         at = list_next(&a->principals, at)) {
        struct access_principal *p = container_of(at, struct access_principal, link);

        if (p->has_key)
            each(arg, p->base.name, &p->quota);
    }
}

const struct access_quota *access_key_quota(const struct access_key *key)
{
    return key->quota != NULL && quota_is_limited(key->quota) ? key->quota : NULL;
}

const struct principal *access_principal(const struct access *a, const char *name)
{
    const struct access_principal *p = a == NULL ? NULL : access_find_principal(a, name);

    if (a == NULL)
        return *name == '\0' ? &anyone : NULL;
    return p == NULL ? NULL : &p->base;
}

const char *access_name(const struct access *a, uint32_t principal)
{
    for (struct link *at = list_first(&a->principals); at != NULL;
         at = list_next(&a->principals, at)) {
        const struct access_principal *p = container_of(at, struct access_principal, link);

        if (p->base.id == principal)
            return p->base.name;
    }
    return "";
}

enum status access_prepare(struct access *a, struct error *err)
{
    access_discard(a);
    return keys_file_read(&a->next, &a->n_next, a->config.path, err);
}

void access_discard(struct access *a)
{
    free(a->next);
    a->next = NULL;
    a->n_next = 0;
}

void access_commit(struct access *a)
{
    access_revoke_all(a);
    for (size_t i = 0; i < a->n_next; i++)
        access_add(a, &a->next[i]);
    for (struct link *at = list_first(&a->principals); at != NULL;
         at = list_next(&a->principals, at)) {
        struct access_principal *p = container_of(at, struct access_principal, link);

        quota_configure(&p->quota, &p->next_limits, env_now_us(a->config.env));
    }
    access_discard(a);
}

static bool principal_is_altered(const struct access_principal *p)
{
    return p->base.roles != p->base_before.roles || p->base.weight != p->base_before.weight ||
           memcmp(&p->next_limits, &p->limits_before, sizeof(p->next_limits)) != 0;
}

struct access_changes access_changed(const struct access *a)
{
    struct access_changes changes = {0};

    for (struct link *at = list_first(&a->keys); at != NULL; at = list_next(&a->keys, at)) {
        const struct access_key *key = container_of(at, struct access_key, link);

        changes.n_added += key->is_current && !key->was_current;
        changes.n_revoked += !key->is_current && key->was_current;
        changes.n_altered +=
            key->is_current && key->was_current && key->until_s != key->until_s_before;
    }
    for (struct link *at = list_first(&a->principals); at != NULL;
         at = list_next(&a->principals, at)) {
        const struct access_principal *p = container_of(at, struct access_principal, link);

        changes.n_altered += p->has_key && p->had_key && principal_is_altered(p);
    }
    return changes;
}

enum status access_reload(struct access *a, struct error *err)
{
    enum status rc = access_prepare(a, err);

    if (rc == STATUS_OK)
        access_commit(a);
    return rc;
}

enum status access_open(struct access **out, const struct access_config *config, struct error *err)
{
    struct access *a = xalloc(sizeof(*a));
    enum status rc;

    a->config = *config;
    hash_init(&a->by_digest, config->env);
    list_init(&a->keys);
    list_init(&a->principals);
    rc = sha256_open(&a->sha256, err);
    if (rc == STATUS_OK)
        rc = access_reload(a, err);
    if (rc != STATUS_OK) {
        access_close(a);
        return rc;
    }
    *out = a;
    return STATUS_OK;
}

void access_close(struct access *a)
{
    struct link *link;

    if (a == NULL)
        return;
    access_revoke_all(a);
    while ((link = list_pop(&a->keys)) != NULL)
        free(container_of(link, struct access_key, link));
    while ((link = list_pop(&a->principals)) != NULL)
        free(container_of(link, struct access_principal, link));
    access_discard(a);
    hash_deinit(&a->by_digest);
    if (a->sha256 != NULL)
        sha256_close(a->sha256);
    free(a);
}

/* --- callers --- */

/* *ret_len is 0 where there is no key. */
static const char *proof_key(const struct access_proof *p, size_t *ret_len)
{
    static const char bearer[] = "bearer ";
    size_t before = sizeof(bearer) - 1;
    const char *at = p->authorization;

    *ret_len = p->api_key == NULL ? 0 : p->api_key_len;
    if (at == NULL || p->authorization_len < before || strncasecmp(at, bearer, before) != 0)
        return p->api_key;
    while (before < p->authorization_len && at[before] == ' ')
        before++;
    *ret_len = p->authorization_len - before;
    return at + before;
}

static bool access_key_is_valid(const struct access *a, const struct access_key *key)
{
    return key->is_current && (key->until_s == 0 || a->config.unix_s() < key->until_s);
}

static enum status access_look_up(const struct access_key **out, const struct access *a,
                                  const struct access_proof *proof, struct error *err)
{
    uint8_t digest[SHA256_BYTES];
    const struct access_key *key;
    const char *text;
    size_t len;

    text = proof_key(proof, &len);
    if (len == 0)
        return error_because(err, STATUS_UNAUTHENTICATED, REASON_KEY_MISSING, NULL,
                             "a key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    sha256_add(a->sha256, text, len);
    sha256_take(a->sha256, digest);
    key = access_find(a, digest);
    if (key == NULL || !access_key_is_valid(a, key)) /* which of them is not told */
        return error_because(err, STATUS_UNAUTHENTICATED, REASON_KEY_INVALID, NULL,
                             "the key is not valid");
    *out = key;
    return STATUS_OK;
}

static enum status access_check_role(const struct access_key **out, const struct access_key *key,
                                     enum access_level level, struct error *err)
{
    if (level == ACCESS_ADMIN && (key->principal->roles & ACCESS_ROLE_ADMIN) == 0)
        return error_because(err, STATUS_DENIED, REASON_ROLE_MISSING, NULL,
                             "this needs a key with the role admin");
    if (level == ACCESS_ATTACH && (key->principal->roles & ACCESS_ROLE_ATTACH) == 0)
        return error_because(err, STATUS_DENIED, REASON_ROLE_MISSING, NULL,
                             "this needs a key with the role attach");
    *out = key;
    return STATUS_OK;
}

enum status access_admit(const struct access_key **out, const struct access *a,
                         enum access_level level, const struct access_proof *proof,
                         struct error *err)
{
    const struct access_key *key = a == NULL ? &key_of_anyone : &key_of_stranger;

    if (a != NULL && level != ACCESS_OPEN && access_look_up(&key, a, proof, err) != STATUS_OK)
        return err->status;
    return access_check_role(out, key, level, err);
}

enum status access_admit_as(const struct access_key **out, const struct access *a,
                            enum access_level level, const char *principal, struct error *err)
{
    const struct access_key *found = a == NULL && principal[0] == '\0' ? &key_of_anyone : NULL;

    for (struct link *at = a == NULL ? NULL : list_first(&a->keys); at != NULL && found == NULL;
         at = list_next(&a->keys, at)) {
        const struct access_key *key = container_of(at, struct access_key, link);

        if (strcmp(key->principal->name, principal) == 0 && access_key_is_valid(a, key))
            found = key;
    }
    if (found == NULL)
        return error_because(err, STATUS_UNAUTHENTICATED, REASON_KEY_INVALID, NULL,
                             "the parleyd that has the conversation has no key of '%.80s': all "
                             "need the same --keys",
                             principal);
    return access_check_role(out, found, level, err);
}

const struct principal *access_key_principal(const struct access_key *key)
{
    return key->principal;
}

bool access_key_is_revoked(const struct access *a, const struct access_key *key)
{
    return a != NULL && key != &key_of_stranger && !access_key_is_valid(a, key);
}
