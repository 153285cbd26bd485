/* Who may call. A principal owns conversations, sessions and parameter sets; it has one or several
 * keys, each of which is a caller's proof that it is the principal. Principals and keys live as
 * long as the daemon, so pointers to them stay valid across a reload. All functions are called on
 * the loop. */
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
    uint32_t id;      /* 0: the only principal, if there are no keys */
    unsigned roles;   /* of enum access_role */
    unsigned weight;  /* of the principal's share of the scheduled tokens; at least 1 */
    const char *name; /* "": the only principal, if there are no keys */
};

/* What a method or a route asks of its caller. */
enum access_level {
    ACCESS_KEY,    /* a valid key */
    ACCESS_OPEN,   /* nothing: health */
    ACCESS_ADMIN,  /* a valid key of a principal with the role admin */
    ACCESS_ATTACH, /* the same with the role attach */
};

/* What a caller has sent, borrowed. A member that was not sent is NULL. */
struct access_proof {
    const char *authorization; /* [authorization_len] "Bearer KEY" */
    size_t authorization_len;
    const char *api_key; /* [api_key_len]; used if authorization is no bearer's */
    size_t api_key_len;
};

struct access_config {
    const char *path; /* of the file of keys; borrowed */
    const struct env *env;
    uint64_t (*unix_s)(void); /* the wall clock */
};

/* Reads the keys. Fails as keys_file_read does. */
enum status access_open(struct access **out, const struct access_config *config,
                        struct error *err) MUST_CHECK;
/* Frees a, of which no key may be in use. NULL is fine. */
void access_close(struct access *a);

/* Reads the file again. On failure nothing has changed. A key that the file does not have any more
 * is revoked, and so is a key that belongs to another principal now. */
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

/* Finds the key of a call. If a is NULL, no keys are configured, and everybody is the only
 * principal, with all roles. UNAUTHENTICATED if the key is missing or not valid; DENIED if the role
 * is missing. */
enum status access_admit(const struct access_key **out, const struct access *a,
                         enum access_level level, const struct access_proof *proof,
                         struct error *err) MUST_CHECK;

/* The same for a call that another daemon has admitted as the principal of this name: finds one of
 * the principal's keys. UNAUTHENTICATED if the principal has no valid key here. */
enum status access_admit_as(const struct access_key **out, const struct access *a,
                            enum access_level level, const char *principal,
                            struct error *err) MUST_CHECK;

/* Returns the weight of a principal's id; 1 if there is no such principal. */
unsigned access_weight(const struct access *a, uint32_t principal);

/* Returns the principal of this name; NULL: there is none. If a is NULL, the only principal is "".
 */
const struct principal *access_principal(const struct access *a, const char *name);
/* Returns the name of a principal's id; "" if there are no keys, or no such principal. */
const char *access_name(const struct access *a, uint32_t principal);
/* Returns the quota of a principal's id, valid as long as the daemon; NULL if there are no keys, or
 * no such principal. */
struct access_quota *access_quota_of(const struct access *a, uint32_t principal);
/* Calls each for every principal with a key, and its quota. a may be NULL. */
void access_each_quota(const struct access *a,
                       void (*each)(void *arg, const char *principal, struct access_quota *quota),
                       void *arg);
/* Returns how often quotas of a kind (enum quota_kind) have refused, for all principals together.
 */
uint64_t access_n_refused(const struct access *a, unsigned kind);
/* Returns the quota of the key's principal; NULL: it has none. */
const struct access_quota *access_key_quota(const struct access_key *key);

const struct principal *access_key_principal(const struct access_key *key);
/* Returns whether the key was revoked, or has expired, since it was admitted. */
bool access_key_is_revoked(const struct access *a, const struct access_key *key);

#endif
