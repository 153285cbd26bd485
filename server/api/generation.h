/* The replies to one request: each is a conversation and a reader, whose events are written in the
 * format of the request's API. */
#ifndef SERVER_API_GENERATION_H
#define SERVER_API_GENERATION_H

#include "server/api/request.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"
#include "server/http/exchange.h"
#include "server/json/writer.h"

struct generation;

struct choice {
    struct generation *generation;
    uint32_t index;
    struct conversation_id conversation;
    bool is_ephemeral; /* the conversation is closed with the reply */
    bool has_begun;    /* the stream of it has begun */
    bool is_done;
    struct turn_reader reader;
    uint32_t n_prompt, n_cached, n_said; /* tokens so far */
    size_t n_chars;                      /* of the text so far, counted over its tokens */
    enum finish finish;
};

/* How an API writes its responses. Written bytes are sent; the generation checks the writer for
 * failures. */
struct response_renderer {
    const char *object; /* of ids: "chatcmpl" */
    /* The stream begins; may be NULL. */
    void (*begin)(struct generation *g, struct json_writer *w);
    void (*piece)(struct generation *g, struct choice *c, const struct turn_event *event,
                  struct json_writer *w);
    void (*finish)(struct generation *g, struct choice *c, struct json_writer *w);
    /* All choices are done, the stream ends; may be NULL. */
    void (*end)(struct generation *g, struct json_writer *w);
    void (*failed)(struct generation *g, const struct error *err, struct json_writer *w);
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
    char id[48];
    uint64_t created_s;
    bool is_over;
    void *renderer_state; /* further state of the renderer */
};

/* Opens the conversations and begins the turns. conversation, if not NULL, says the one reply;
 * is_ephemeral: it is closed afterwards, on failure too. On failure nothing has begun. r and the
 * texts of its JSON are needed only inside. */
enum status generation_start(struct exchange *x, const struct response_renderer *renderer,
                             const struct request *r, struct model *model,
                             struct conversation *conversation, bool is_ephemeral,
                             void *renderer_state, struct error *err) MUST_CHECK;

/* A choice's whole reply, as one event, once it is done. */
void generation_all(const struct choice *c, struct turn_event *out, const char **ret_text,
                    size_t *ret_len);

/* What several APIs write. */
void generation_write_head(const struct generation *g, const char *object, struct json_writer *w);
void generation_write_usage(const struct generation *g, struct json_writer *w);
/* Writes ,"usage":… if the request wants it with each event. */
void generation_write_running_usage(const struct generation *g, struct json_writer *w);
void generation_write_failure(struct generation *g, const struct error *err, struct json_writer *w);
void generation_write_logprob(struct json_writer *w, float logprob);
/* "stop", "length", … */
const char *generation_finish_name(const struct choice *c);

/* The bytes of a token, as text. */
enum status generation_token(const struct generation *g, int32_t id, struct buf *out) MUST_CHECK;

#endif
