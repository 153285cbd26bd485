/* A keeper keeps things of principals in the journal: parameter sets, keys of Store, tables of
 * Replay. The journal keeps each thing as a whole, by checkpoints. A checkpoint consists of parts,
 * and then of one record that completes the checkpoint and replaces the thing's checkpoint before.
 * A change of a thing is followed by a checkpoint after the interval of struct keeping. At most one
 * checkpoint that nobody asked for is written at a time. All functions are called on the loop. */
#ifndef SERVER_JOURNAL_KEEPER_H
#define SERVER_JOURNAL_KEEPER_H

#include "server/journal/body_bytes.h"
#include "server/journal/journal.h"

enum { KEEPER_PART_BYTES = 1 << 20, KEEPER_BODY_BYTES = 1 << 20 };

/* The kinds of things. The numbers are stored. */
enum keeper_kind {
    KEEPER_PARAMS = 0, /* a parameter set, in tables of an older form: see struct keeper_type */
    KEEPER_KEY = 1,    /* a key of Store */
    KEEPER_TABLE = 2,  /* a table of Replay */
    /* 3 is reserved for adapters of models. */
    KEEPER_ROOM = 6, /* a room, a member or an entry of one: server/room/keeping.c */
    /* A person or a task of the chat service: server/service/keeping.c. */
    KEEPER_SERVICE = JOURNAL_KIND_SERVICE,
};

struct access_sharing;
struct alarm;
struct env;
struct keeper;
struct keeper_attempt;
struct keeper_restore;
struct principal;

/* The keeper's part of a thing: a member of the thing's struct, zeroed before kept_init. While the
 * thing has a change that no checkpoint has, kept_changed puts the part into the keeper's list
 * changed, and kept_settle into the list asked. When the part is due, the keeper begins an attempt,
 * which writes the checkpoint; a change in the meantime leads to a further checkpoint. */
struct kept_thing {
    struct link link; /* in one of the keeper's lists */
    bool is_asked;    /* kept_settle asked for a checkpoint */
    uint64_t due_us;
    uint8_t next_id[JOURNAL_ID_BYTES]; /* the id of the next checkpoint, if has_id */
    bool has_id;
    struct list waits;              /* of struct kept_wait, for the next checkpoint */
    struct keeper_attempt *attempt; /* the checkpoint that is being written; NULL: there is none */
};

/* A wait for a checkpoint, in the caller's memory. done is called once, on the loop. err says why
 * the checkpoint failed. */
struct kept_wait {
    struct link link;
    void (*done)(struct kept_wait *w, const struct error *err);
};

/* What the keeper knows of a kind of things. */
struct keeper_type {
    enum keeper_kind kind;
    uint32_t version;      /* the newest version of the kind's bodies and parts */
    size_t max_body_bytes; /* the most bytes of a body; KEEPER_BODY_BYTES if that is enough */
    const char *noun;      /* what messages and log lines call a thing */
    /* begin and made of this kind take time: each is over when the thing calls kept_go_on, once,
     * later. A thing calls nothing after kept_deinit. */
    bool is_slow;
    /* Only kept_begin begins checkpoints of this kind. A checkpoint that failed is not repeated. */
    bool is_untimed;
    void (*name)(const struct kept_thing *k, const char **ret_principal, const char **ret_name);
    /* The thing's version for log lines. NULL: things of this kind have no version. */
    uint64_t (*version_of)(const struct kept_thing *k);
    /* The calls for a checkpoint: begin; part, until part appends nothing; body, right after that;
     * ended, also if the checkpoint failed. about_bytes is the size that a part should have. */
    enum status (*begin)(struct kept_thing *k, struct error *err);
    void (*part)(struct kept_thing *k, struct body_writer *w, size_t about_bytes);
    void (*body)(struct kept_thing *k, struct body_writer *w);
    void (*ended)(struct kept_thing *k);
    /* The calls that make a thing again from its checkpoint: make, with the body, which stays valid
     * until made or drop; take, for each part; made. If one of these fails, drop comes instead of
     * the rest. */
    enum status (*make)(struct keeper *kp, struct kept_thing **out, const struct principal *owner,
                        const char *name, struct body_reader *body, struct error *err);
    enum status (*take)(struct kept_thing *k, struct body_reader *part, struct error *err);
    enum status (*made)(struct kept_thing *k, struct error *err);
    void (*drop)(struct kept_thing *k);
    /* For KEEPER_PARAMS alone, whose tables are of an older form: bodies and parts have no sums,
     * parts have no version, and records have neither a name nor a number of parts, so that make is
     * given the name "". bytes takes the place of part: it returns the next part, borrowed until
     * the next call, and NULL behind the last part. n_parts is called after make. */
    const void *(*bytes)(struct kept_thing *k, size_t *ret_len);
    uint32_t (*n_parts)(const struct kept_thing *k);
};

/* Where and when things are kept. */
struct keeping {
    struct journal *journal; /* NULL: nothing is kept */
    bool is_placed;          /* what the journal has is read only once keeper_arrive is called */
    void (*on_ready)(void *self); /* called when keeper_ready returns OK, or reading failed; NULL */
    void *ready_self;
    uint64_t interval_us; /* the time from a change to its checkpoint */
    size_t part_bytes;    /* about how many bytes a part has; 0: KEEPER_PART_BYTES */
    /* Finds the principal with this name; NULL: there is none. */
    const struct principal *(*find_owner)(void *self, const char *name);
    void *find_self;
    struct alarm *alarm;         /* rings keeper_tick */
    void (*on_idle)(void *self); /* called after keeper_is_idle returned false */
    void *idle_self;
};

struct keeper {
    const struct keeper_type *type;
    void *self; /* the registry that has the things */
    const struct env *env;
    struct keeping keeping;
    struct list asked, changed;     /* of struct kept_thing; the thing that is due first is first */
    size_t n_attempts;              /* how many checkpoints are being written */
    struct keeper_restore *restore; /* NULL: everything that the journal has was read */
    /* No checkpoint that nobody asked for begins before this time, so that such checkpoints take at
     * most a tenth of the time. */
    uint64_t rest_until_us;
    bool is_ending;
};

void keeper_init(struct keeper *kp, const struct keeper_type *type, void *self,
                 const struct env *env);
/* Keeps things from now on, and makes the things again that the journal has. keeper_ready returns
 * UNAVAILABLE until all of these are made. */
void keeper_start(struct keeper *kp, const struct keeping *keeping);
/* Of a keeper that is_placed. keeper_arrive: the things are here now, and the keeper makes again
 * those that the journal has. keeper_leave: another daemon has them now; the caller then deletes
 * all of them from memory, and only keeper_arrive may follow. */
void keeper_arrive(struct keeper *kp);
void keeper_leave(struct keeper *kp);
enum status keeper_ready(const struct keeper *kp, struct error *err) MUST_CHECK;
void keeper_tick(void *keeper);
/* Begins the end: things do not change any more, and what is being read is dropped. Returns whether
 * every checkpoint that can be written is written. If not, they are being written, and on_idle
 * follows. */
bool keeper_is_idle(struct keeper *kp);

void kept_init(struct kept_thing *k);
void kept_changed(struct keeper *kp, struct kept_thing *k);
/* Asks for a checkpoint of the thing as it is now. The checkpoint begins as soon as it can: behind
 * the thing's checkpoint that is being written, and behind checkpoints that were due before.
 * PRECONDITION without a journal. */
enum status kept_settle(struct keeper *kp, struct kept_thing *k, struct kept_wait *w,
                        struct error *err) MUST_CHECK;
/* Begins a checkpoint now, beside the checkpoints of other things. There must be a journal, and no
 * checkpoint of this thing may be in progress. If the checkpoint cannot begin, w->done is called
 * inside. */
void kept_begin(struct keeper *kp, struct kept_thing *k, struct kept_wait *w);
/* Says that begin or made of a thing that is_slow is over, and with err whether it failed. */
void kept_go_on(struct keeper *kp, struct kept_thing *k, const struct error *err);
/* Ends a wait: w->done is not called. Does nothing if w does not wait. */
void kept_leave(struct kept_wait *w);
/* Has the journal forget the thing, which is deleted. UNAVAILABLE; then the journal still has the
 * thing. */
enum status kept_forget(struct keeper *kp, struct kept_thing *k, struct error *err) MUST_CHECK;
/* Takes the thing, which leaves memory, out of the keeper. A checkpoint in progress is given up,
 * and waits end with why. */
void kept_deinit(struct keeper *kp, struct kept_thing *k, const struct error *why);

/* Writes into a body, and reads from a body, with whom a thing is shared. What is read lies in the
 * reader's arena. */
void kept_put_sharing(struct body_writer *w, const struct access_sharing *sharing);
void kept_take_sharing(struct access_sharing *out, struct body_reader *r);

#endif
