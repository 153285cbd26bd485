#include "agents/lm/history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static void history_drop(struct lm_history *h, uint32_t n)
{
    while (h->n > n) {
        free((char *)h->messages[--h->n].text);
        free((char *)h->messages[h->n].more);
    }
}

void lm_history_deinit(struct lm_history *h)
{
    history_drop(h, 0);
    free(h->messages);
    free(h->turn_ends);
    *h = (struct lm_history){0};
}

static enum status history_grow(struct lm_history *h, size_t n_more, struct error *err)
{
    const size_t cap = 2 * (h->n + n_more), cap_turns = 2 * ((size_t)h->n_turns + 2);
    struct message *messages;
    uint32_t *turn_ends;

    if (h->n + n_more > h->cap) {
        messages = try_realloc(h->messages, cap, sizeof(*messages));
        if (messages == NULL)
            return error_no_memory(err, cap * sizeof(*messages), "a conversation's messages");
        h->messages = messages;
        h->cap = (uint32_t)cap;
    }
    if (h->n_turns == h->cap_turns) {
        turn_ends = try_realloc(h->turn_ends, cap_turns, sizeof(*turn_ends));
        if (turn_ends == NULL)
            return error_no_memory(err, cap_turns * sizeof(*turn_ends), "a conversation's turns");
        h->turn_ends = turn_ends;
        h->cap_turns = (uint32_t)cap_turns;
    }
    return STATUS_OK;
}

/* There is room for it. */
static enum status history_add(struct lm_history *h, const struct message *m, struct error *err)
{
    char *text = try_strndup(m->len == 0 ? "" : m->text, m->len);
    char *more = try_strndup(m->more_len == 0 ? "" : m->more, m->more_len);

    if (text == NULL || more == NULL) {
        free(text);
        free(more);
        return error_no_memory(err, m->len + m->more_len, "a conversation's messages");
    }
    h->messages[h->n++] = (struct message){m->role, text, m->len, more, m->more_len};
    return STATUS_OK;
}

enum status lm_history_push(struct lm_history *h, const struct message *messages, size_t n,
                            const struct message *reply, struct error *err)
{
    const uint32_t before = h->n;
    enum status rc = history_grow(h, n + 1, err);

    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        rc = history_add(h, &messages[i], err);
    if (rc == STATUS_OK && reply != NULL)
        rc = history_add(h, reply, err);
    if (rc == STATUS_OK)
        h->turn_ends[h->n_turns++] = h->n;
    else
        history_drop(h, before);
    return rc;
}

void lm_history_cut(struct lm_history *h, uint32_t n_turns)
{
    assert(n_turns <= h->n_turns);
    history_drop(h, n_turns == 0 ? 0 : h->turn_ends[n_turns - 1]);
    h->n_turns = n_turns;
}

enum status lm_history_copy(struct lm_history *out, const struct lm_history *from, uint32_t n_turns,
                            struct error *err)
{
    enum status rc = STATUS_OK;

    for (uint32_t i = 0, at = 0; rc == STATUS_OK && i < n_turns; at = from->turn_ends[i++])
        rc = lm_history_push(out, from->messages + at, from->turn_ends[i] - at, NULL, err);
    if (rc != STATUS_OK)
        lm_history_deinit(out);
    return rc;
}

/* Before each message: its turn from 0, its role, the lengths of its text and of its extras. */
struct saved_message {
    uint32_t turn, role, len, more_len;
};

enum status lm_history_save(const struct lm_history *h, struct buf *out, struct error *err)
{
    for (uint32_t turn = 0, i = 0; turn < h->n_turns; turn++)
        for (; i < h->turn_ends[turn]; i++) {
            const struct message *m = &h->messages[i];
            const struct saved_message head = {turn, m->role, (uint32_t)m->len,
                                               (uint32_t)m->more_len};

            if (buf_append(out, &head, sizeof(head)) != STATUS_OK ||
                (m->len != 0 && buf_append(out, m->text, m->len) != STATUS_OK) ||
                (m->more_len != 0 && buf_append(out, m->more, m->more_len) != STATUS_OK))
                return error_set(err, STATUS_EXHAUSTED, "no room for the saved state");
        }
    return STATUS_OK;
}

/* A message joins the last turn, or begins the next one. */
static enum status restore_message(struct lm_history *h, const struct saved_message *head,
                                   const uint8_t *text, struct error *err)
{
    const struct message m = {(enum role)head->role, (const char *)text, head->len,
                              (const char *)text + head->len, head->more_len};
    enum status rc = history_grow(h, 1, err);

    if (rc == STATUS_OK)
        rc = history_add(h, &m, err);
    if (rc == STATUS_OK && head->turn == h->n_turns)
        h->n_turns++;
    if (rc == STATUS_OK)
        h->turn_ends[h->n_turns - 1] = h->n;
    return rc;
}

enum status lm_history_restore(struct lm_history *out, const uint8_t *data, size_t size_bytes,
                               struct error *err)
{
    struct saved_message head;
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && size_bytes != 0) {
        rc = error_set(err, STATUS_DATA_LOSS, "saved state: a message is malformed");
        if (size_bytes < sizeof(head))
            break;
        memcpy(&head, data, sizeof(head));
        if (head.len > size_bytes - sizeof(head) ||
            head.more_len > size_bytes - sizeof(head) - head.len || head.role > ROLE_TOOL ||
            head.turn > out->n_turns || head.turn + 1 < out->n_turns)
            break;
        rc = restore_message(out, &head, data + sizeof(head), err);
        data += sizeof(head) + head.len + head.more_len;
        size_bytes -= sizeof(head) + head.len + head.more_len;
    }
    if (rc != STATUS_OK)
        lm_history_deinit(out);
    return rc;
}
