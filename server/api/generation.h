/* The replies to one request: each is a conversation and a reader, whose events are written in the
 * format of the request's API. */
#ifndef SERVER_API_GENERATION_H
#define SERVER_API_GENERATION_H

#include "agents/reply/whole_reply.h"
#include "base/json_writer.h"
#include "server/api/request.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"
#include "server/http/exchange.h"

struct generation;
struct keyed_reply;
struct reply_parser;
struct request_key;

struct choice {
    struct generation *generation;
    uint32_t index;
    struct conversation_id conversation;
    bool is_ephemeral; /* the conversation is closed with the reply */
    bool has_begun;    /* the stream of it has begun */
    bool is_done;
    bool was_finished; /* the client has its finish, from an earlier stream */
    bool is_seeking;   /* its turn is computed again, and has not come to its place yet */
    uint64_t place;    /* index of the cursor behind what was written; the finish is one more */
    struct turn_reader reader;
    uint32_t n_prompt, n_cached, n_said;   /* tokens so far */
    uint32_t n_cached_host, n_cached_disk; /* of n_cached, once it is done */
    uint32_t n_thought;                    /* of n_said, once it is done */
    size_t n_chars;                        /* of the text so far, counted over its tokens */
    bool has_echoed;                       /* the stream has the prompt */
    bool has_told_ids;                     /* the client has the prompt's ids */
    enum finish finish;
    struct timings timings; /* once it is done */
    /* Divides the text into parts; NULL: it is text alone, or nothing was read yet. */
    struct reply_parser *parser;
    bool has_parser; /* or it is known that none is needed */
};

/* How an API writes its responses. Written bytes are sent; the generation checks the writer for
 * failures. */
struct response_renderer {
    const char *object;      /* of ids: "chatcmpl" */
    const char *stream_type; /* NULL: server-sent events */
    bool is_by_token;        /* a piece has one token */
    bool has_parts;          /* it renders thoughts and calls of tools, not only text */
    bool has_whole_calls;    /* a call comes at once, not in pieces */
    /* The stream begins; may be NULL. */
    void (*begin)(struct generation *g, struct json_writer *w);
    /* The stream goes on behind this part of c's reply: its tokens from the first on, the length of
     * its text. May be NULL. */
    enum status (*passed)(struct generation *g, struct choice *c, const struct turn_event *part,
                          struct error *err);
    void (*piece)(struct generation *g, struct choice *c, const struct turn_event *event,
                  struct json_writer *w);
    void (*finish)(struct generation *g, struct choice *c, struct json_writer *w);
    /* All choices are done, the stream ends; may be NULL. */
    void (*end)(struct generation *g, struct json_writer *w);
    void (*failed)(struct generation *g, const struct error *err, struct json_writer *w);
    /* The generation is closed; may be NULL. */
    void (*close)(struct generation *g);
    /* Without streaming: the whole body. */
    void (*whole)(struct generation *g, struct json_writer *w);
};

struct generation {
    struct exchange *exchange;
    const struct response_renderer *renderer;
    const struct request *request; /* in the exchange's arena, as all of this */
    struct model *model;           /* held */
    struct choice *choices;        /* [n_choices] */
    size_t n_choices;
    struct keyed_reply *reply; /* joined; NULL: the request has no key */
    char id[48];
    uint64_t created_s;
    bool has_begun; /* the stream has begun, perhaps in an earlier request */
    bool is_over;
    void *renderer_state; /* further state of the renderer */
};

/* What is to be generated. All of it but the renderer and its state is needed only inside the calls
 * below. */
struct generation_plan {
    const struct response_renderer *renderer;
    void *renderer_state;
    const struct request *request;
    const struct request_key *key;
    struct model *model;
    struct conversation *conversation; /* of the one reply; NULL: each reply has its own */
    bool is_ephemeral;                 /* conversation is closed afterwards, on failure too */
    bool is_to_keep;  /* conversation was just opened and is kept from now on: in one transaction
                         with  its turn, so that neither is ever there alone */
    const char *name; /* that it is kept by; NULL: none */
    const char *instructions; /* of a response: kept with the key; NULL: none */
    uint64_t created_s;       /* 0: now */
};

/* Opens the conversations and begins the turns. On failure nothing has begun. */
enum status generation_start(struct exchange *x, const struct generation_plan *plan,
                             struct error *err) MUST_CHECK;
/* Joins the reply of the plan's key, from the place that the key names. model and conversation are
 * the reply's. */
enum status generation_rejoin(struct exchange *x, const struct generation_plan *plan,
                              struct error *err) MUST_CHECK;

/* Reads the reply of a turn that there is from its start. model and conversation are the turn's.
 * is_cancelled: it is ended. */
enum status generation_reread(struct exchange *x, const struct generation_plan *plan, uint32_t turn,
                              bool is_cancelled, struct error *err) MUST_CHECK;
/* Of a choice whose renderer has parts: takes more of the reply's text, or its end, into c->parser,
 * which is opened first where the reply may have calls or thoughts. Its parts are then read by
 * reply_parser_next. */
enum status generation_parse(struct choice *c, const char *text, size_t len,
                             struct error *err) MUST_CHECK;
enum status generation_parse_end(struct choice *c, struct error *err) MUST_CHECK;
/* The text of the i-th token of the passed part of c's reply, which begins at from; behind its last
 * token: the rest. */
const char *generation_passed_token(const struct choice *c, size_t i, size_t from,
                                    const struct turn_event *part, size_t *ret_len);
/* The same without parts: of what went out in an earlier stream. */
enum status generation_parse_passed(struct choice *c, size_t len, struct error *err) MUST_CHECK;
/* Whether c's reply is read in parts. */
bool generation_has_parts(const struct choice *c);
/* A choice's whole reply in parts, once it is done; the caller deinits it. */
enum status generation_divide(const struct choice *c, struct whole_reply *out,
                              struct error *err) MUST_CHECK;
/* Of the ids of c's calls; 0: it has none. */
uint64_t generation_call_seed(const struct choice *c);

/* The tools that c's reply may call, as in a tool_use. */
struct text generation_tools(const struct choice *c);

/* A choice's whole reply, as one event, once it is done. */
void generation_all(const struct choice *c, struct turn_event *out, const char **ret_text,
                    size_t *ret_len);

/* Whether the turns of r give the log-probabilities of their prompts; one without a reply gives
 * them in any case. */
static inline bool request_wants_prompt_logprobs(const struct request *r)
{
    return r->has_prompt_logprobs || r->no_reply || (r->echo && r->want_logprobs);
}

/* Writes cached_tokens, and cached_tokens_details where a level below the KV cache answered. */
void generation_write_cached(struct json_writer *w, uint64_t n_cached, uint64_t n_host,
                             uint64_t n_disk);

/* What several APIs write. */
/* Begins the object that is an answer in OpenAI's form, of this "object"; the caller ends it. */
void generation_begin_body(const struct generation *g, const char *object, struct json_writer *w);
/* The same as a chunk of a stream, which generation_end_event ends. */
void generation_begin_chunk(const struct generation *g, const char *object, struct json_writer *w);
/* Begins an event with a name: its lines, and an object whose "type" is the name. */
void generation_begin_event(const char *type, struct json_writer *w);
/* Ends the event's object and the event. */
void generation_end_event(struct json_writer *w);
/* Ends a stream of chunks: writes the usage, if the request wants it, and the last line. */
void generation_end_chunks(const struct generation *g, const char *object, struct json_writer *w);
/* Writes the member "usage". */
void generation_write_usage(const struct generation *g, struct json_writer *w);
/* Writes the member "usage" of a chunk, if the request wants it in each. */
void generation_write_running_usage(const struct generation *g, struct json_writer *w);
/* Writes the line of an event's id, if the request has a key. */
void generation_write_id(const struct generation *g, struct json_writer *w);
void generation_write_failure(struct generation *g, const struct error *err, struct json_writer *w);
/* Writes, if the request wants ids, the member "prompt_token_ids" of c's prompt, and "token_ids" of
 * a piece, or of none if it is NULL. */
void generation_write_prompt_ids(const struct generation *g, const struct choice *c,
                                 struct json_writer *w);
void generation_write_ids(const struct generation *g, const struct choice *c,
                          const struct turn_event *piece, struct json_writer *w);
/* Writes both of c's whole reply, once it is done. */
void generation_write_whole_ids(const struct generation *g, const struct choice *c,
                                struct json_writer *w);
/* A token that is named by its id. */
#define GENERATION_ID_NAME "token_id:%d"
void generation_write_logprob(struct json_writer *w, const char *name, float logprob);
/* The piece's tokens as OpenAI's chat has them:
 * [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}]. */
void generation_write_logprobs(const struct generation *g, const struct choice *c, const char *name,
                               const struct turn_event *piece, struct json_writer *w);
/* "stop", "length", … */
const char *generation_finish_name(const struct choice *c);

/* The bytes of a token, as text. */
enum status generation_token(const struct generation *g, int32_t id, struct buf *out) MUST_CHECK;
enum status generation_text(const struct generation *g, const int32_t *ids, size_t n,
                            struct buf *out) MUST_CHECK;

#endif
