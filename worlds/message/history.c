/* Utterances are tokenised one by one when they are added, so a prompt's token vector is put
 * together from theirs and the delimiter's. history_hear builds all of its utterances before the
 * oldest ones are dropped, so that a failure changes nothing. */
#include "worlds/message/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const struct text newline = {"\n", 1};

static struct text delimiter_of(const struct history *h)
{
    return h->config->delimiter.text != NULL ? h->config->delimiter : newline;
}

void history_open(struct history *h, const struct history_config *config)
{
    *h = (struct history){.config = config};
}

static void free_utterance(struct utterance *u)
{
    free(u->text);
    free(u->ids);
    free(u->speaker);
    *u = (struct utterance){0};
}

static void forget_passing(struct history *h)
{
    free(h->passing);
    h->passing = NULL;
    h->passing_len = 0;
}

void history_clear(struct history *h)
{
    for (size_t i = 0; i < h->n; i++)
        free_utterance(&h->items[i]);
    h->n = 0;
    forget_passing(h);
}

void history_close(struct history *h)
{
    history_clear(h);
    free(h->items);
    free(h->delimiter);
    *h = (struct history){.config = h->config};
}

/* Allocates the text's ids. */
static enum status history_encode(const struct history *h, struct text text, int32_t **out,
                                  size_t *ret_n, struct error *err)
{
    const struct coder *c = &h->config->coder;
    struct buf ids;
    enum status rc;

    buf_init(&ids, SIZE_MAX);
    rc = c->encode(c->self, text.text, text.len, &ids, err);
    if (rc == STATUS_OK) {
        *ret_n = ids.len / sizeof(int32_t);
        *out = (int32_t *)(void *)ids.data;
        buf_init(&ids, 0); /* given away */
    }
    buf_deinit(&ids);
    return rc;
}

static enum status know_delimiter(struct history *h, struct error *err)
{
    if (h->delimiter != NULL || h->n_delimiter != 0)
        return STATUS_OK;
    return history_encode(h, delimiter_of(h), &h->delimiter, &h->n_delimiter, err);
}

/* Offset at which the person token is inserted. */
static size_t person_place(const struct history *h, struct text text, bool is_own)
{
    size_t at = text.len;

    if (is_own || !h->config->p1_after_newline)
        return 0;
    while (at > 0 && text.text[at - 1] != '\n')
        at--;
    return at;
}

static enum status history_make(const struct history *h, struct text text, struct text speaker,
                                bool is_own, struct utterance *out, struct error *err)
{
    static const struct text persons[] = {{"__p1__ ", 7}, {"__p2__ ", 7}};
    const struct text person = h->config->person_tokens ? persons[is_own] : (struct text){"", 0};
    const size_t at = person_place(h, text, is_own);
    struct utterance u = {
        .len = person.len + text.len, .raw = at == 0 ? person.len : 0, .is_own = is_own};
    enum status rc;

    u.text = try_alloc(u.len + 1, 1);
    if (u.text == NULL)
        return error_no_memory(err, u.len + 1, "an utterance");
    if (speaker.text != NULL && (u.speaker = try_strndup(speaker.text, speaker.len)) == NULL) {
        free_utterance(&u);
        return error_no_memory(err, speaker.len + 1, "an utterance");
    }
    if (at > 0)
        memcpy(u.text, text.text, at);
    memcpy(u.text + at, person.text, person.len);
    if (text.len > at)
        memcpy(u.text + at + person.len, text.text + at, text.len - at);
    rc = history_encode(h, (struct text){u.text, u.len}, &u.ids, &u.n_ids, err);
    if (rc == STATUS_OK)
        *out = u;
    else
        free_utterance(&u);
    return rc;
}

static enum status history_make_room(struct history *h, size_t n_more, struct error *err)
{
    size_t cap = h->cap;
    struct utterance *items;

    if (h->n + n_more <= cap)
        return STATUS_OK;
    while (cap < h->n + n_more)
        cap = cap == 0 ? 4 : 2 * cap;
    items = try_realloc(h->items, cap, sizeof(*items));
    if (items == NULL)
        return error_no_memory(err, cap * sizeof(*items), "a history");
    h->items = items;
    h->cap = cap;
    return STATUS_OK;
}

/* Drops the oldest utterances beyond the size. */
static void keep_size(struct history *h)
{
    size_t most = h->config->size > 0 ? (size_t)h->config->size : SIZE_MAX, n_gone;

    if (h->n <= most)
        return;
    n_gone = h->n - most;
    for (size_t i = 0; i < n_gone; i++)
        free_utterance(&h->items[i]);
    h->n = most;
    memmove(h->items, h->items + n_gone, most * sizeof(*h->items));
}

/* Appends an utterance; the caller then calls keep_size. */
static enum status history_push(struct history *h, struct text text, struct text speaker,
                                bool is_own, struct error *err)
{
    enum status rc = know_delimiter(h, err);

    if (rc == STATUS_OK)
        rc = history_make_room(h, 1, err);
    if (rc == STATUS_OK)
        rc = history_make(h, text, speaker, is_own, &h->items[h->n], err);
    h->n += rc == STATUS_OK;
    return rc;
}

enum status history_hear(struct history *h, struct text text, struct text speaker,
                         struct text passing, struct error *err)
{
    size_t n_before = h->n;
    char *copy = NULL;
    enum status rc = STATUS_OK;

    if (passing.text != NULL && (copy = try_strndup(passing.text, passing.len)) == NULL)
        return error_no_memory(err, passing.len, "a history");
    for (bool is_last = text.text == NULL; rc == STATUS_OK && !is_last;) {
        const char *end = h->config->split_lines ? memchr(text.text, '\n', text.len) : NULL;
        size_t len = end != NULL ? (size_t)(end - text.text) : text.len;

        rc = history_push(h, (struct text){text.text, len}, speaker, false, err);
        is_last = end == NULL;
        if (!is_last)
            text = (struct text){end + 1, text.len - len - 1};
    }
    if (rc != STATUS_OK) {
        while (h->n > n_before)
            free_utterance(&h->items[--h->n]);
        free(copy);
        return rc;
    }
    keep_size(h);
    forget_passing(h);
    h->passing = copy;
    h->passing_len = copy != NULL ? passing.len : 0;
    return STATUS_OK;
}

enum status history_say(struct history *h, struct text text, struct error *err)
{
    enum status rc = history_push(h, text, (struct text){0}, true, err);

    keep_size(h);
    return rc;
}

static enum status history_append(struct buf *out, const void *data, size_t len, struct error *err)
{
    return len == 0 || buf_append(out, data, len) == STATUS_OK
               ? STATUS_OK
               : error_no_memory(err, len, "a history");
}

enum status history_text(const struct history *h, struct buf *out, struct error *err)
{
    const struct text delimiter = delimiter_of(h);
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < h->n; i++) {
        if (i > 0)
            rc = history_append(out, delimiter.text, delimiter.len, err);
        if (rc == STATUS_OK)
            rc = history_append(out, h->items[i].text, h->items[i].len, err);
    }
    if (rc == STATUS_OK && h->n > 0)
        rc = history_append(out, h->passing, h->passing_len, err);
    return rc;
}

static void reverse(int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        int32_t id = ids[i];

        ids[i] = ids[n - 1 - i];
        ids[n - 1 - i] = id;
    }
}

enum status history_ids(const struct history *h, struct buf *out, struct error *err)
{
    const struct coder *c = &h->config->coder;
    const size_t start = out->len;
    enum status rc = STATUS_OK;

    if (h->n == 0)
        return STATUS_OK;
    for (size_t i = 0; rc == STATUS_OK && i < h->n; i++) {
        if (i > 0)
            rc = history_append(out, h->delimiter, h->n_delimiter * sizeof(*h->delimiter), err);
        if (rc == STATUS_OK)
            rc = history_append(out, h->items[i].ids, h->items[i].n_ids * sizeof(*h->items[i].ids),
                                err);
    }
    if (rc == STATUS_OK && h->passing != NULL)
        rc = c->encode(c->self, h->passing, h->passing_len, out, err);
    if (rc == STATUS_OK && h->config->add_end && c->end >= 0)
        rc = history_append(out, &c->end, sizeof(c->end), err);
    if (rc == STATUS_OK && h->config->reversed && out->len > start)
        reverse((int32_t *)(void *)(out->data + start), (out->len - start) / sizeof(int32_t));
    return rc;
}
