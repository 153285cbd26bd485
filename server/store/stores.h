/* A key-value store with versions. A new version of a key is accepted only if the caller names the
 * version before it. The newest versions of a key are kept. A value never changes, so the calls
 * that send it share it. All functions are called on the loop. */
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
    STORE_MAX_TYPE_BYTES = 128, /* the name of a content type */
    STORE_MAX_HISTORY = 1023,   /* versions that a key has beside the newest */
    STORE_USUAL_HISTORY = 1,    /* the same, if the client does not say how many */
};

struct env;
struct principal;

struct stores {
    struct shared_limit bytes; /* all values, including those that are being pushed or sent */
    struct shared_names keys;
    struct keeper keeper;
};

/* A value: one version of a key. store_value_make returns it with one reference; the caller fills
 * its bytes and pushes it. A key holds a reference to each of its versions, and a call to each
 * value that it sends, so a value outlives its version if a call is still sending it. */
struct store_value {
    struct link link; /* in its key's versions */
    struct stores *stores;
    uint32_t owner; /* the principal that owns the key */
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
    struct list versions;          /* of struct store_value, the newest first */
    size_t n_versions, held_bytes; /* held_bytes: the cost of all versions */
    size_t history;                /* versions that are kept beside the newest */
    size_t max_bytes;              /* the bound of held_bytes; 0: the key has no bound of its own */
    struct list subscribers;       /* of struct store_subscriber */
    struct kept_thing kept;
    struct store_snapshot *snapshot; /* of the checkpoint that is being written; NULL: none is */
    struct store_value *unfinished; /* the value that is being read from a checkpoint; NULL: none */
    size_t n_filled;                /* bytes of the unfinished value that are read */
};

/* The values of a key whose checkpoint is being written. It holds a reference to each value. */
struct store_snapshot {
    size_t n, at;                 /* how many values there are, and which is written next */
    size_t offset;                /* how many bytes of that value are written */
    struct store_value *values[]; /* [n] */
};

/* A call that subscribes to a key. */
struct store_subscriber {
    struct link link;
    void (*pushed)(struct store_subscriber *u); /* the key has a new version */
    /* The key was deleted because of why, which ends the subscription. */
    void (*closing)(struct store_subscriber *u, const struct error *why);
};

/* The settings that store_key_configure changes. A setting that is NULL stays as it is. */
struct store_settings {
    const uint64_t *history, *max_bytes;
    const struct access_sharing *sharing;
};

/* keeping says how keys are written: &stores_keeper. It is borrowed. */
void stores_init(struct stores *s, const struct keeper_type *keeping, const struct env *env,
                 size_t max_bytes);
/* Deletes all keys from memory because of why, since another daemon has them. */
void stores_leave(void *stores, const struct error *why);
/* Deletes all keys. No call may hold a value or subscribe. */
void stores_deinit(void *stores);
/* Writes the kept keys whose time to be written has come. */
void stores_tick(void *stores);

/* UNAVAILABLE while the stored keys are being read; so do stores_find and stores_get. */
enum status stores_ready(const struct stores *s, struct error *err) MUST_CHECK;
/* Finds a key: name is that of a key of who, or "OWNER/KEY" of another owner who shares it.
 * NOT_FOUND; DENIED if the key is shared without the right. */
enum status stores_find(struct store_key **out, const struct stores *s, const struct principal *who,
                        enum access_right right, const char *name, struct error *err) MUST_CHECK;
/* Finds a key of who, and makes it if it does not exist. who must outlive the key. INVALID if name
 * cannot be a name; EXHAUSTED. */
enum status stores_get(struct store_key **out, struct stores *s, const struct principal *who,
                       const char *name, struct error *err) MUST_CHECK;
/* Returns the key of a link in the list of all names. */
struct store_key *store_key_at(const struct link *l);

/* Changes all settings or, on failure, none. Drops versions beyond the new bounds. INVALID names
 * the setting that is at fault. */
enum status store_key_configure(struct store_key *k, const struct store_settings *settings,
                                struct error *err) MUST_CHECK;
/* Removes a key from the journal; the caller then calls store_key_delete. UNAVAILABLE if the
 * journal could not do so: a restart would find the key again. */
enum status store_key_forget(struct store_key *k, struct error *err) MUST_CHECK;
/* Calls closing of all subscribers of a key with why, and frees the key. Values that calls are
 * sending stay until they are sent. */
void store_key_delete(struct store_key *k, const struct error *why);

/* Makes a value for a key of this owner, with one reference. is_new is false for a value that is
 * read from the journal, which counts against no principal's part. content_type is at most
 * STORE_MAX_TYPE_BYTES long. EXHAUSTED if all values, or the owner's, would take too much; RANGE if
 * the value alone would. */
enum status store_value_make(struct store_value **out, struct stores *s, uint32_t owner,
                             bool is_new, int64_t version, size_t size_bytes,
                             const char *content_type, struct error *err) MUST_CHECK;
struct store_value *store_value_ref(struct store_value *v);
void store_value_unref(struct store_value *v); /* NULL is fine */

/* Return the newest version of a key, and the value of a version; NULL: there is none. The key
 * keeps the reference. */
struct store_value *store_key_newest(const struct store_key *k);
struct store_value *store_key_version(const struct store_key *k, int64_t version);
/* Returns whether a push of this version behind prev (NULL: behind none) would be accepted. */
bool store_key_takes(const struct store_key *k, int64_t version, const int64_t *prev);
/* Pushes a version behind prev. If store_key_takes allows it, takes the caller's reference to v,
 * drops the oldest versions that are too many, and calls pushed of all subscribers. *ret_accepted
 * says whether v was taken. RANGE if v alone is above the key's bound. */
enum status store_key_push(struct store_key *k, struct store_value *v, const int64_t *prev,
                           bool *ret_accepted, struct error *err) MUST_CHECK;

/* For this folder. Makes a key. is_new is false for a key that is read from the journal. EXISTS. */
enum status stores_add(struct store_key **out, struct stores *s, const struct principal *who,
                       const char *name, bool is_new, struct error *err) MUST_CHECK;
/* For this folder. Makes v the newest version, and takes the caller's reference to it. */
void store_key_put(struct store_key *k, struct store_value *v);
/* For this folder. Frees the snapshot of the checkpoint that is written; does nothing if there is
 * none. */
void store_key_drop_snapshot(struct store_key *k);
/* How a key is written to the journal and read again. */
extern const struct keeper_type stores_keeper;

void store_key_subscribe(struct store_key *k, struct store_subscriber *u);
/* Does nothing if closing was called. */
void store_key_unsubscribe(struct store_subscriber *u);

#endif
