#include "server/journal/chain.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = JOURNAL_ID_BYTES + 4 + 4 + 4 + 8 + 4 };

enum status chain_open(struct journal_chain *out, struct error *err)
{
    return sha256_open(&out->sha, err);
}

void chain_close(struct journal_chain *c)
{
    if (c->sha != NULL)
        sha256_close(c->sha);
    c->sha = NULL;
}

static unsigned char *chain_put_number(unsigned char *at, uint64_t number, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        at[i] = (unsigned char)(number >> 8 * i);
    return at + size_bytes;
}

void chain_content(struct journal_chain *c, const struct journal_record *r,
                   uint8_t out[SHA256_BYTES])
{
    const bool opens = r->kind == JOURNAL_OPEN || r->kind == JOURNAL_ROOM;
    const size_t n = opens && r->principal != NULL ? strlen(r->principal) : 0;
    unsigned char head[HEAD_BYTES], *at = head;

    memcpy(at, r->conversation, JOURNAL_ID_BYTES);
    at = chain_put_number(at + JOURNAL_ID_BYTES, (uint64_t)r->kind, 4);
    at = chain_put_number(at, r->generation, 4);
    at = chain_put_number(at, r->turn, 4);
    at = chain_put_number(at, r->unix_ms, 8);
    (void)chain_put_number(at, n, 4);
    sha256_add(c->sha, head, sizeof(head));
    if (n > 0)
        sha256_add(c->sha, r->principal, n);
    if (r->size_bytes > 0)
        sha256_add(c->sha, r->body, r->size_bytes);
    sha256_take(c->sha, out);
}

void chain_add(struct journal_chain *c, uint8_t at[SHA256_BYTES],
               const uint8_t content[SHA256_BYTES])
{
    uint8_t both[2 * SHA256_BYTES];

    memcpy(both, at, SHA256_BYTES);
    memcpy(both + SHA256_BYTES, content, SHA256_BYTES);
    sha256_add(c->sha, both, sizeof(both));
    sha256_take(c->sha, at);
}

/* What is without its body is so because of a later record, and only some kinds can be. */
static const char *check_gone(struct chain_check *at, const struct chain_link *link)
{
    const enum journal_kind kind = link->record.kind;

    if (kind == JOURNAL_WITHDRAW) {
        if (at->withdrawn != link->gone)
            return "withdraws another turn than it did";
        at->withdrawn = 0;
        return NULL;
    }
    if (link->gone != link->seq)
        return "is marked as no part of the conversation";
    if (link->record.size_bytes > 0)
        return "has a body that was taken away";
    if (kind == JOURNAL_UPDATE)
        at->has_replaced = true;
    else if (kind == JOURNAL_ACCEPT)
        at->withdrawn = link->seq;
    else if (kind == JOURNAL_OPEN || kind == JOURNAL_FINISH || kind == JOURNAL_OBSERVE ||
             kind == JOURNAL_REWIND)
        return "has lost its body";
    return NULL;
}

const char *chain_check(struct journal_chain *c, struct chain_check *at,
                        const struct chain_link *link)
{
    const enum journal_kind kind = link->record.kind;
    const char *why = NULL;
    uint8_t content[SHA256_BYTES];

    if (link->n_content_bytes != SHA256_BYTES || link->n_chain_bytes != SHA256_BYTES)
        return "has no hash";
    if (kind == JOURNAL_OPEN) { /* of a fork: what follows in its parent is not read */
        at->withdrawn = 0;
        at->has_replaced = false;
    }
    if (at->withdrawn != 0 && kind == JOURNAL_ACCEPT)
        return "stands behind a turn that nothing withdraws";
    if (link->gone == 0 || kind == JOURNAL_WITHDRAW) {
        chain_content(c, &link->record, content);
        if (memcmp(content, link->content, sizeof(content)) != 0)
            return "is not what was written";
    }
    if (link->gone != 0)
        why = check_gone(at, link);
    else if (kind == JOURNAL_WITHDRAW)
        why = "withdraws nothing";
    else if (kind == JOURNAL_UPDATE)
        at->has_replaced = false;
    if (why != NULL)
        return why;
    chain_add(c, at->at, link->content);
    at->has_record = true;
    return memcmp(at->at, link->chain, SHA256_BYTES) == 0 ? NULL : "does not follow the one before";
}

const char *chain_check_end(const struct chain_check *at)
{
    if (!at->has_record)
        return "is missing";
    if (at->withdrawn != 0)
        return "was taken away, and nothing withdraws it";
    return at->has_replaced ? "was taken away, and nothing replaces it" : NULL;
}

enum status chain_take(struct journal_found *found, const struct journal_query *q,
                       const struct chain_link *link, size_t max_bytes, struct error *err)
{
    struct journal_proof *proof;

    if (link->gone != 0 && !q->wants_chain)
        return STATUS_OK;
    if (journal_found_take(found, &link->record, max_bytes, err) != STATUS_OK)
        return err->status;
    proof = &container_of(list_last(&found->events), struct journal_event, link)->proof;
    proof->seq = link->seq;
    proof->gone = link->gone;
    memcpy(proof->content, link->content, SHA256_BYTES);
    memcpy(proof->chain, link->chain, SHA256_BYTES);
    return STATUS_OK;
}

/* "conversation 00…ff, record 3 (kind 4, turn 2) is not what was written" */
enum status chain_refuse(const struct chain_link *link, const char *why, struct error *err)
{
    char id[2 * JOURNAL_ID_BYTES + 1];

    for (size_t i = 0; i < JOURNAL_ID_BYTES; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", link->record.conversation[i]);
    return error_set(err, STATUS_DATA_LOSS,
                     "conversation %s, record %llu (kind %d, generation %u, turn %u) %s: restore a "
                     "backup, or close the conversation",
                     id, (unsigned long long)link->seq, (int)link->record.kind,
                     link->record.generation, link->record.turn, why);
}
