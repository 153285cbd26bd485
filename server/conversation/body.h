/* The bodies of the journal's records, as bytes: numbers are in little endian, and a text's length
 * stands before the text. Reading checks everything, and returns DATA_LOSS for a body that is not
 * correct. What is read borrows the bytes, and has its arrays in the arena. */
#ifndef SERVER_CONVERSATION_BODY_H
#define SERVER_CONVERSATION_BODY_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/checksum.h"
#include "base/digest.h"
#include "server/conversation/completed_turn.h"
#include "server/conversation/options.h"

struct pair;

/* The body of JOURNAL_OPEN and JOURNAL_UPDATE: what a conversation is. */
struct body_terms {
    const char *model, *version; /* NUL-ended */
    uint64_t seed;
    uint64_t ttl_ms; /* the idle time that the client asked for; 0: none */
    struct limits limits;
    const char *system;
    size_t system_len;
    const struct sampling_overrides *overrides; /* may be NULL */
    const struct pair *metadata;                /* [n_metadata] */
    size_t n_metadata;
    bool has_digest; /* digest is that of the request that opened the conversation */
    struct digest digest;
    uint32_t opened_turns; /* how many turns the conversation began with */
};

enum status body_write_terms(struct buf *out, const struct body_terms *t,
                             struct error *err) MUST_CHECK;
enum status body_read_terms(struct body_terms *out, const void *body, size_t size_bytes,
                            struct arena *arena, struct error *err) MUST_CHECK;

/* The body of JOURNAL_ACCEPT and, without sampling, of JOURNAL_OBSERVE: the request as it came, and
 * all else that the reply's bits depend on. */
struct body_accept {
    struct turn_request request;
    const struct sampling *sampling; /* all parameters; NULL: the turn asks for no reply */
    const char *binding;             /* NUL-ended: see keeping_binding */
    /* The revisions of the process that accepted the turn (agents/agent.h). 0: unknown. */
    uint32_t engine_revision, compiler_revision;
    struct turn_origin origin; /* generation 0: the record's conversation and generation */
};

/* origin may be NULL: see struct body_accept. */
enum status body_write_accept(struct buf *out, const struct stored_request *request,
                              const struct sampling *sampling, const char *binding,
                              const struct turn_origin *origin, struct error *err) MUST_CHECK;
enum status body_read_accept(struct body_accept *out, const void *body, size_t size_bytes,
                             struct arena *arena, struct error *err) MUST_CHECK;

/* The body of JOURNAL_FINISH. reply has what completed_turn_open takes. */
struct body_finish {
    struct reply reply;
    struct timings timings;
    const void *trace;
    size_t trace_size;
};

enum status body_write_finish(struct buf *out, const struct completed_turn *t, const void *trace,
                              size_t trace_size, struct error *err) MUST_CHECK;
enum status body_read_finish(struct body_finish *out, const void *body, size_t size_bytes,
                             struct arena *arena, struct error *err) MUST_CHECK;

/* The body of the key of a turn that was accepted under a key: the keyed reply of which the turn is
 * a part. */
struct body_key {
    uint8_t conversation[16];     /* the id of the turn's conversation */
    uint8_t digest[SHA256_BYTES]; /* of the request */
    uint32_t n_turns;             /* how many turns the reply has */
    bool is_ephemeral;
    uint64_t created_s;
    const char *id, *model, *version; /* NUL-ended */
    const char *instructions;         /* NULL: none */
};

enum status body_write_key(struct buf *out, const struct body_key *k, struct error *err) MUST_CHECK;
enum status body_read_key(struct body_key *out, const void *body, size_t size_bytes,
                          struct arena *arena, struct error *err) MUST_CHECK;

#endif
