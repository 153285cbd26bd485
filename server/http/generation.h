/* The replies to one request: a conversation and a reader for each, whose events go out as the
 * request's API has them. */
#ifndef SERVER_HTTP_GENERATION_H
#define SERVER_HTTP_GENERATION_H

#include "server/conversation.h"
#include "server/http/exchange.h"
#include "server/http/request.h"
#include "server/reader.h"

struct generation;

struct choice {
    struct generation *generation;
    uint32_t index;
    struct conversation_id conversation;
    bool is_ours;   /* the conversation: closed with the reply */
    bool has_begun; /* to be streamed */
    bool is_done;
    struct reader reader;
    uint32_t n_prompt, n_cached, n_said; /* tokens so far */
    size_t n_chars;                      /* of the text so far, as its tokens have them */
    enum finish finish;
};

/* How an API writes. What is appended to out is sent. */
struct format {
    const char *object; /* of ids: "chatcmpl" */
    /* The stream begins; may be NULL. */
    enum status (*begin)(struct generation *g, struct buf *out);
    enum status (*piece)(struct generation *g, struct choice *c, const struct turn_event *event,
                         struct buf *out);
    enum status (*finish)(struct generation *g, struct choice *c, struct buf *out);
    /* All are done: the stream ends. */
    enum status (*end)(struct generation *g, struct buf *out);
    enum status (*failed)(struct generation *g, const struct error *err, struct buf *out);
    /* Not streamed: the whole body. */
    enum status (*whole)(struct generation *g, struct buf *out);
};

struct generation {
    struct exchange *exchange;
    const struct format *format;
    const struct request *request; /* in the exchange's arena, as all of this */
    struct model *model;           /* held */
    struct choice *choices;        /* [n_choices] */
    size_t n_choices;
    char id[48];
    uint64_t created_s;
    bool is_over;
    void *of_format; /* what else it needs */
};

/* Opens the conversations and begins the turns. conversation, if not NULL, is the one that says
 * the one reply; is_ours: it is closed after. On failure nothing has begun, but conversation is
 * closed all the same if it is ours. r and its JSON's texts are needed only inside. */
enum status generation_start(struct exchange *x, const struct format *format,
                             const struct request *r, struct model *model,
                             struct conversation *conversation, bool is_ours, void *of_format,
                             struct error *err) MUST_CHECK;

/* A choice's whole reply, as one event, once it is done. */
void generation_all(const struct choice *c, struct turn_event *out, const char **ret_text,
                    size_t *ret_len);

/* What all formats write. */
enum status generation_append_head(const struct generation *g, const char *object,
                                   struct buf *out) MUST_CHECK;
enum status generation_append_usage(const struct generation *g, struct buf *out) MUST_CHECK;
/* ,"usage":… where the request wants it with each event. */
enum status generation_append_running_usage(const struct generation *g, struct buf *out) MUST_CHECK;
enum status generation_append_failure(struct generation *g, const struct error *err,
                                      struct buf *out) MUST_CHECK;
/* "stop", "length", … */
const char *generation_finish_name(const struct choice *c);

/* The bytes of a token, as text. */
enum status generation_token(const struct generation *g, int32_t id, struct buf *out) MUST_CHECK;
enum status generation_append_number(struct buf *out, float value) MUST_CHECK;

#endif
