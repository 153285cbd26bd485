#include "server/api/reply_stop.h"

#include <string.h>

#include "agents/text.h"
#include "base/utf8.h"
#include "server/api/generation.h"
#include "server/model/model.h"

enum { REPLY_MAX_BYTES = 64 << 20 };

/* How many of the bytes make a text of this length, in which each that is no character is U+FFFD.
 */
static size_t reply_shown(const struct buf *bytes, size_t text_len)
{
    size_t at = 0, shown = 0;
    uint32_t c;

    while (at < bytes->len && shown < text_len) {
        size_t n = utf8_decode(bytes->data + at, bytes->len - at, &c);

        shown += n > 0 ? n : 3;
        at += n > 0 ? n : utf8_next(bytes->data + at, bytes->len - at, &c);
    }
    return at;
}

/* The longest of the stop texts that follows the reply's text and ends within the last n bytes of
 * all. A token that ends the model's turn has a text, too, which is no stop, unless it begins so.
 */
static const struct text *reply_stop_in(const struct buf *all, size_t n,
                                        const struct completed_turn *t)
{
    const struct sampling *s = &t->request->overrides->values;
    size_t at = reply_shown(all, t->len);
    const struct text *longest = NULL;

    for (size_t i = 0; i < s->n_stops; i++) {
        const struct text *stop = &s->stops[i];

        if (stop->len <= all->len - at && at + stop->len > all->len - n &&
            (longest == NULL || stop->len > longest->len) &&
            memcmp(all->data + at, stop->text, stop->len) == 0)
            longest = stop;
    }
    return longest;
}

/* Appends the bytes of the reply's tokens; *ret_last: how many the last one has. The first token
 * stands twice, since a vocabulary may leave out the space that a text begins with. */
static enum status reply_decode(const struct generation *g, const struct completed_turn *t,
                                struct buf *out, size_t *ret_last)
{
    const struct agent *agent = g->model->agent;
    int32_t *ids = arena_alloc(exchange_arena(g->exchange), t->n_tokens + 1, sizeof(ids[0]));
    const size_t n_ids[] = {1, t->n_tokens, t->n_tokens + 1};
    enum status rc = ids != NULL ? STATUS_OK : STATUS_EXHAUSTED;
    size_t lens[3];
    struct error ignored;

    for (size_t i = 0; ids != NULL && i <= t->n_tokens; i++)
        ids[i] = t->tokens[i == 0 ? 0 : i - 1].id;
    for (size_t i = 0; i < 3 && rc == STATUS_OK; i++) {
        buf_clear(out);
        rc = agent->type->text->detokenize(agent, ids, n_ids[i], out, &ignored);
        lens[i] = out->len;
    }
    if (rc != STATUS_OK)
        return rc;
    buf_consume(out, lens[0]);
    *ret_last = lens[2] - lens[1];
    return STATUS_OK;
}

const struct text *reply_stop(const struct generation *g, const struct choice *c)
{
    const struct completed_turn *t = c->reader.completed;
    const struct sampling_overrides *overrides = t->request->overrides;
    const struct text *stop = NULL;
    struct buf all;
    size_t last;

    if (c->finish != FINISH_STOP || t->n_tokens == 0 || overrides == NULL ||
        (overrides->given & SAMPLING_STOPS) == 0 || g->model->agent->type->text == NULL)
        return NULL;
    buf_init(&all, REPLY_MAX_BYTES);
    if (reply_decode(g, t, &all, &last) == STATUS_OK)
        stop = reply_stop_in(&all, last, t);
    buf_deinit(&all);
    return stop;
}
