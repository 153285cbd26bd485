/* Things of principals that the journal keeps as a whole, each by checkpoints: parts, then the
 * record that all of them are there, which replaces the checkpoint before. One is written at a
 * time, some time after the thing's first change. Loop. */
#ifndef SERVER_JOURNAL_KEEPER_H
#define SERVER_JOURNAL_KEEPER_H

#include "server/journal/body_bytes.h"
#include "server/journal/journal.h"

enum { KEEPER_PART_BYTES = 1 << 20, KEEPER_BODY_BYTES = 1 << 20 };

/* The kinds of things, which are stored. */
enum keeper_kind {
    KEEPER_PARAMS = 0, /* in tables of their own, of an older form: see keeper_type */
    KEEPER_KEY = 1,    /* of Store */
    KEEPER_TABLE = 2,  /* of Replay */
    /* 3 is reserved for adapters of models. */
};

struct access_sharing;
struct alarm;
struct env;
struct keeper;
struct keeper_attempt;
struct keeper_restore;
struct principal;

/* A member of the thing, zeroed. */
struct kept_thing {
    struct link link; /* on while it has changes that no checkpoint has, or is_asked */
    bool is_asked;    /* for, by kept_settle */
    uint64_t due_us;
    uint8_t next_id[JOURNAL_ID_BYTES]; /* of its next checkpoint */
    bool has_id;
    struct list waits;              /* for the next checkpoint */
    struct keeper_attempt *attempt; /* that is being written; NULL: none */
};

/* Someone waits for a checkpoint. done is called once, on the loop, with why it failed. */
struct kept_wait {
    struct link link;
    void (*done)(struct kept_wait *w, const struct error *err);
};

struct keeper_type {
    enum keeper_kind kind;
    uint32_t version;      /* the newest of its bodies and parts */
    size_t max_body_bytes; /* of a body: KEEPER_BODY_BYTES, where that is enough */
    const char *noun;      /* for messages and log lines */
    /* The thing's begin and made are over only when it calls kept_go_on, once, later; but not after
     * kept_deinit. */
    bool is_slow;
    /* Checkpoints begin with kept_begin alone: one that failed is not tried again. */
    bool is_untimed;
    void (*name)(const struct kept_thing *k, const char **ret_principal, const char **ret_name);
    uint64_t (*version_of)(const struct kept_thing *k); /* for log lines; NULL: it has none */
    /* Of a checkpoint: begin; part until it adds nothing; body, at once behind that; ended, also
     * where it failed. */
    enum status (*begin)(struct kept_thing *k, struct error *err);
    void (*part)(struct kept_thing *k, struct body_writer *w, size_t about_bytes);
    void (*body)(struct kept_thing *k, struct body_writer *w);
    void (*ended)(struct kept_thing *k);
    /* Of what is read: make, by the body, which stays until made or drop; take each part; made; or
     * drop, where something failed. */
    enum status (*make)(struct keeper *kp, struct kept_thing **out, const struct principal *owner,
                        const char *name, struct body_reader *body, struct error *err);
    enum status (*take)(struct kept_thing *k, struct body_reader *part, struct error *err);
    enum status (*made)(struct kept_thing *k, struct error *err);
    void (*drop)(struct kept_thing *k);
    /* Of KEEPER_PARAMS alone. Its bodies and parts have no sums, its parts no version, and its
     * records neither a name nor a number of parts: make is given the name "". bytes stands in
     * place of part: the next part, borrowed until the next call; NULL behind the last. */
    const void *(*bytes)(struct kept_thing *k, size_t *ret_len);
    uint32_t (*n_parts)(const struct kept_thing *k); /* of what is read, after make */
};

/* Where things are kept. */
struct keeping {
    struct journal *journal; /* NULL: they are not */
    uint64_t interval_us;    /* from a change to its checkpoint */
    size_t part_bytes;       /* about so many has a part; 0: KEEPER_PART_BYTES */
    /* NULL: there is no such principal. */
    const struct principal *(*find_owner)(void *self, const char *name);
    void *find_self;
    struct alarm *alarm;         /* rings keeper_tick */
    void (*on_idle)(void *self); /* after keeper_is_idle said no */
    void *idle_self;
};

struct keeper {
    const struct keeper_type *type;
    void *self; /* of who has the things */
    const struct env *env;
    struct keeping keeping;
    struct list asked, changed;     /* of struct kept_thing, the first that is due first */
    size_t n_attempts;              /* are being written */
    struct keeper_restore *restore; /* NULL: all is read */
    uint64_t rest_until_us; /* so that those nobody asks for take a tenth of the time at most */
    bool is_ending;
};

void keeper_init(struct keeper *kp, const struct keeper_type *type, void *self,
                 const struct env *env);
/* Keeps things from now on, and makes those that the journal has: until that is done, keeper_ready
 * says UNAVAILABLE. */
void keeper_start(struct keeper *kp, const struct keeping *keeping);
enum status keeper_ready(const struct keeper *kp, struct error *err) MUST_CHECK;
void keeper_tick(void *keeper);
/* Whether all that can be written is; else it is being written, and on_idle follows. For the end:
 * nothing changes any more, and what is being read is dropped. */
bool keeper_is_idle(struct keeper *kp);

void kept_init(struct kept_thing *k);
void kept_changed(struct keeper *kp, struct kept_thing *k);
/* A checkpoint that has what there is now begins as soon as it can: behind the one that is being
 * written, and those that were due before. PRECONDITION without a journal. */
enum status kept_settle(struct keeper *kp, struct kept_thing *k, struct kept_wait *w,
                        struct error *err) MUST_CHECK;
/* A checkpoint begins now, beside those of other things; none of this thing is being written, and
 * there is a journal. done may be called at once, where it cannot begin. */
void kept_begin(struct keeper *kp, struct kept_thing *k, struct kept_wait *w);
/* begin or made of a thing that is_slow is over. */
void kept_go_on(struct keeper *kp, struct kept_thing *k, const struct error *err);
void kept_leave(struct kept_wait *w); /* fine if it does not wait */
/* The thing is deleted, and the journal is to forget it. UNAVAILABLE: it does not. */
enum status kept_forget(struct keeper *kp, struct kept_thing *k, struct error *err) MUST_CHECK;
/* The thing leaves memory: what is being written is given up, and who waits is told why. */
void kept_deinit(struct keeper *kp, struct kept_thing *k, const struct error *why);

/* Whom a thing is shared with, in its body. */
void kept_put_sharing(struct body_writer *w, const struct access_sharing *sharing);
/* In the reader's arena. */
void kept_take_sharing(struct access_sharing *out, struct body_reader *r);

#endif
