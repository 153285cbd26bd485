#include "server/api/answer.h"

#include "server/http/exchange.h"

void answer_json(struct exchange *x, struct json_writer *w, const struct buf *body)
{
    struct error err;

    if (json_writer_end(w) == STATUS_OK) {
        exchange_reply(x, 200, "application/json", body->data, body->len);
        return;
    }
    (void)error_because(&err, STATUS_EXHAUSTED, REASON_OUT_OF_MEMORY, NULL,
                        "out of memory for the answer");
    exchange_fail(x, &err);
}
