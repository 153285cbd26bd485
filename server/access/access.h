/* Who may call. A principal owns conversations, sessions and parameter sets; it has one or several
 * keys, each of which is a caller's proof that it is the principal. Principals and keys live as
 * long as the daemon, so pointers to them stay valid across a reload. Loop. */
#ifndef SERVER_ACCESS_ACCESS_H
#define SERVER_ACCESS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "server/access/role.h"

struct access;
struct access_key;
struct env;
struct access_quota;

/* Ids are small numbers, never used twice while the daemon runs. */
struct principal {
    uint32_t id;      /* 0: the one there is without keys */
    unsigned roles;   /* of enum access_role */
    unsigned weight;  /* of its share of the scheduled tokens; at least 1 */
    const char *name; /* "": the one there is without keys */
};

/* What a method or a route asks of its caller. */
enum access_level {
    ACCESS_KEY,    /* a valid key */
    ACCESS_OPEN,   /* nothing: health */
    ACCESS_ADMIN,  /* a valid key of a principal with the role admin */
    ACCESS_ATTACH, /* the same with the role attach */
};

/* What a caller has sent; NULL: nothing. Borrowed. */
struct access_proof {
    const char *authorization; /* [authorization_len] "Bearer KEY" */
    size_t authorization_len;
    const char *api_key; /* [api_key_len]; used where authorization is no bearer's */
    size_t api_key_len;
};

struct access_config {
    const char *path; /* of the keys; kept */
    const struct env *env;
    uint64_t (*unix_s)(void); /* the wall clock */
};

/* Reads the keys. Errors as of keys_file_read. */
enum status access_open(struct access **out, const struct access_config *config,
                        struct error *err) MUST_CHECK;
void access_close(struct access *a); /* NULL is fine; no key of it is in use */

/* Reads the file again; on failure all stays as it was. A key that the file has no more is revoked,
 * and so is one that belongs to another principal now. */
enum status access_reload(struct access *a, struct error *err) MUST_CHECK;
/* The same in two parts: prepare reads the file, commit or discard follows. */
enum status access_prepare(struct access *a, struct error *err) MUST_CHECK;
void access_commit(struct access *a);
void access_discard(struct access *a);

/* What the last commit changed. */
struct access_changes {
    size_t n_added, n_revoked; /* keys */
    size_t n_altered;          /* keys that end at another time, principals with other rights */
};
struct access_changes access_changed(const struct access *a);

/* Whose call it is. a NULL: no keys are configured, and everybody is the one principal, with all
 * roles. STATUS_UNAUTHENTICATED: the key is missing or invalid; DENIED: the role is missing. */
enum status access_admit(const struct access_key **out, const struct access *a,
                         enum access_level level, const struct access_proof *proof,
                         struct error *err) MUST_CHECK;

/* Of a principal's id; 1 for one that there is not. */
unsigned access_weight(const struct access *a, uint32_t principal);

/* The principal of this name; NULL: there is none. a NULL: everybody is "". */
const struct principal *access_principal(const struct access *a, const char *name);
/* Of a principal's id; "" for the one there is without keys, and for one that there is not. */
const char *access_name(const struct access *a, uint32_t principal);
/* Of a principal's id, as long as the daemon; NULL for one that there is not, and without keys. */
struct access_quota *access_quota_of(const struct access *a, uint32_t principal);
/* How often quotas of a kind (enum quota_kind) have refused, of all principals together. */
uint64_t access_n_refused(const struct access *a, unsigned kind);
/* NULL where the key's principal has none. */
const struct access_quota *access_key_quota(const struct access_key *key);

const struct principal *access_key_principal(const struct access_key *key);
/* The key was taken back, or has expired, since it was admitted. */
bool access_key_is_revoked(const struct access *a, const struct access_key *key);

#endif
