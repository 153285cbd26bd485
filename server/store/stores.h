/* A key-value store with versions: a new version is accepted only if the caller names the version
 * before it, and the newest versions of a key are kept. Values never change, so calls that send
 * them share them. Loop. */
#ifndef SERVER_STORE_STORES_H
#define SERVER_STORE_STORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"
#include "server/access/shared_names.h"
#include "server/journal/keeper.h"

enum {
    STORE_MAX_KEYS = 65536,
    STORE_MAX_TYPE_BYTES = 128, /* of a content type */
    STORE_MAX_HISTORY = 1023,
    STORE_USUAL_HISTORY = 1,
};

struct env;
struct principal;

struct stores {
    struct shared_limit bytes; /* of all values, also of those that are being pushed or sent */
    struct shared_names keys;
    struct keeper keeper;
};

/* A version. Its bytes are filled by the one that made it, before it is pushed. */
struct store_value {
    struct link link; /* of its key */
    struct stores *stores;
    uint32_t owner; /* of its key: a principal */
    size_t n_refs;
    int64_t version;
    uint32_t crc; /* crc32c of the bytes */
    char content_type[STORE_MAX_TYPE_BYTES + 1];
    size_t size_bytes;
    unsigned char bytes[]; /* [size_bytes] */
};

struct store_key {
    struct shared_name name;
    struct stores *stores;
    struct list versions; /* of struct store_value, the newest first */
    size_t n_versions, held_bytes;
    size_t history, max_bytes; /* 0: no bound of its own */
    struct list subscribers;
    struct kept_thing kept;
    struct store_snapshot *snapshot; /* of its checkpoint; NULL: none is written */
    struct store_value *unfinished;  /* of a checkpoint that is read; NULL: none */
    size_t n_filled;                 /* bytes of it */
};

/* A call that is told of new versions, and of the key's end, which ends the subscription. */
struct store_subscriber {
    struct link link;
    void (*pushed)(struct store_subscriber *u);
    void (*closing)(struct store_subscriber *u, const struct error *why);
};

/* What store_key_configure changes; NULL: stays. */
struct store_settings {
    const uint64_t *history, *max_bytes;
    const struct access_sharing *sharing;
};

void stores_init(struct stores *s, const struct env *env, size_t max_bytes);
/* No value is referenced, and nobody subscribes. */
void stores_deinit(void *stores);
/* Writes what is due of the keys that are kept. */
void stores_tick(void *stores);

/* UNAVAILABLE while the keys that are kept are read; so too those below. */
enum status stores_ready(const struct stores *s, struct error *err) MUST_CHECK;
/* The key of this name that is who's own, or "OWNER/KEY" of another that shares it. NOT_FOUND;
 * DENIED for one that is shared without the right. */
enum status stores_find(struct store_key **out, const struct stores *s, const struct principal *who,
                        enum access_right right, const char *name, struct error *err) MUST_CHECK;
/* Makes who's own key where it is not there; owner is kept. INVALID for a name that cannot be one;
 * EXHAUSTED. */
enum status stores_get(struct store_key **out, struct stores *s, const struct principal *who,
                       const char *name, struct error *err) MUST_CHECK;
/* Of a key by its name's link. */
struct store_key *store_key_at(const struct link *l);

/* All of it or nothing. Versions beyond the new bounds are forgotten. INVALID names the field. */
enum status store_key_configure(struct store_key *k, const struct store_settings *settings,
                                struct error *err) MUST_CHECK;
/* A restart does not find it. UNAVAILABLE: it does. Before store_key_delete. */
enum status store_key_forget(struct store_key *k, struct error *err) MUST_CHECK;
/* Tells the subscribers why, and frees the key; values that are being sent stay until then. */
void store_key_delete(struct store_key *k, const struct error *why);

/* For a key of this owner, with one reference. EXHAUSTED where all values together, or the owner's,
 * would take too much. is_new: it was not there before a restart. content_type is at most
 * STORE_MAX_TYPE_BYTES long. */
enum status store_value_make(struct store_value **out, struct stores *s, uint32_t owner,
                             bool is_new, int64_t version, size_t size_bytes,
                             const char *content_type, struct error *err) MUST_CHECK;
struct store_value *store_value_ref(struct store_value *v);
void store_value_unref(struct store_value *v); /* NULL is fine */

/* NULL: there is none. */
struct store_value *store_key_newest(const struct store_key *k);
struct store_value *store_key_version(const struct store_key *k, int64_t version);
/* Whether a version behind prev (NULL: behind none) would be taken now. */
bool store_key_takes(const struct store_key *k, int64_t version, const int64_t *prev);
/* Checks that again and takes v's reference if it is so; *ret_accepted says whether. The oldest
 * versions that are too many are forgotten. RANGE where the value alone is above the key's
 * bound. */
enum status store_key_push(struct store_key *k, struct store_value *v, const int64_t *prev,
                           bool *ret_accepted, struct error *err) MUST_CHECK;

/* For this folder: the same of a key that is kept, or is_new; EXISTS. */
enum status stores_add(struct store_key **out, struct stores *s, const struct principal *who,
                       const char *name, bool is_new, struct error *err) MUST_CHECK;
/* For this folder: takes v's reference, as the newest version. */
void store_key_put(struct store_key *k, struct store_value *v);
/* For this folder: what is being written, and what is half read, is given up. */
void store_key_drop_parts(struct store_key *k);
extern const struct keeper_type stores_keeper;

void store_key_subscribe(struct store_key *k, struct store_subscriber *u);
void store_key_unsubscribe(struct store_subscriber *u); /* also after closing */

#endif
