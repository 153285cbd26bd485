/* A conversation by OpenAI's API: builds the requests' bodies, each with the whole conversation so
 * far, and parses the response streams. No sockets. */
#ifndef CLIENT_CLI_BENCH_OPENAI_H
#define CLIENT_CLI_BENCH_OPENAI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "client/cli/bench/sse.h"
#include "client/cli/bench/target.h"

enum openai_api { OPENAI_COMPLETIONS, OPENAI_CHAT, OPENAI_RESPONSES };

struct openai {
    struct target_session *session; /* its events report chunks as they arrive */
    enum openai_api api;
    struct buf prompt;    /* completions: the conversation so far, without the last reply */
    json_t *messages;     /* chat and responses: likewise */
    struct buf reply;     /* of this turn */
    struct buf complaint; /* the body of a response that is not a stream */
    struct sse sse;
    uint32_t n_chunks;
    bool is_done;
    struct error err; /* of this turn; the first one stays */
};

enum openai_api openai_api_of(const struct target_config *config);
/* Of its requests, after "/v1/". */
const char *openai_path(enum openai_api api);

void openai_init(struct openai *o, struct target_session *session, enum openai_api api);
void openai_deinit(struct openai *o);

/* The body of the session's next turn. *out is from malloc; the caller frees it. */
enum status openai_request(char **out, struct openai *o, const struct target_config *config,
                           const char *model, struct error *err) MUST_CHECK;
/* Bytes of the response. False: stop reading; err says why. */
bool openai_feed(struct openai *o, long http_status, const char *bytes, size_t len);
/* The response is over; err says whether it was complete. */
void openai_end(struct openai *o, long http_status);
/* The turn fails, unless it did already. */
void openai_fail(struct openai *o, enum status status, const char *what, const char *detail);

#endif
