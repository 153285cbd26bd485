/* The entry is made before the conversation, so that nothing has to be taken back: what follows
 * cannot fail. Both run within one call on the loop, so of requests that come at once the first
 * opens. */
#include "server/conversation/opening.h"

#include <stdlib.h>
#include <string.h>

#include "proto/sampling_fields.h"
#include "server/conversation/keeping.h"
#include "server/model/model.h"

/* --- what a request says --- */

enum opening_kind { OPENING_OPEN, OPENING_FORK };

static uint64_t number_bits(const void *value, size_t size_bytes)
{
    uint64_t bits = 0;

    memcpy(&bits, value, size_bytes);
    return bits;
}

static void digest_set(struct digest_writer *w, size_t n, const struct digest *set)
{
    digest_number(w, n);
    digest_number(w, set->words[0]);
    digest_number(w, set->words[1]);
}

static void digest_metadata(struct digest_writer *w, const struct digest_key *key,
                            const struct pair *pairs, size_t n)
{
    struct digest set = {{0}};

    for (size_t i = 0; i < n; i++) {
        struct digest_writer pair;

        digest_start(&pair, key);
        digest_text(&pair, pairs[i].key);
        digest_text(&pair, pairs[i].value);
        digest_join(&set, digest_end(&pair));
    }
    digest_set(w, n, &set);
}

static void digest_biases(struct digest_writer *w, const struct digest_key *key,
                          const struct sampling *s)
{
    struct digest set = {{0}};

    for (size_t i = 0; i < s->n_biases; i++) {
        struct digest_writer bias;

        digest_start(&bias, key);
        digest_number(&bias, (uint64_t)s->biases[i].id);
        digest_number(&bias, number_bits(&s->biases[i].bias, sizeof(s->biases[i].bias)));
        digest_join(&set, digest_end(&bias));
    }
    digest_set(w, s->n_biases, &set);
}

static void digest_sampling(struct digest_writer *w, const struct digest_key *key,
                            const struct sampling_overrides *overrides)
{
    struct sampling s;

    sampling_init(&s); /* what is not given is the same in all */
    sampling_overrides_apply(overrides, &s);
    digest_number(w, overrides == NULL ? 0 : overrides->given);
    /* A parameter that came later counts where it is given, so that stored digests stay. */
#define DIGEST(name, NAME, kind, number, neutral, least, most, bounds, since)             \
    if ((since) == 1 || (overrides != NULL && (overrides->given & SAMPLING_##NAME) != 0)) \
        digest_number(w, number_bits(&s.name, sizeof(s.name)));
    SAMPLING_FIELDS(DIGEST)
#undef DIGEST
    digest_number(w, s.n_stops);
    for (size_t i = 0; i < s.n_stops; i++)
        digest_bytes(w, s.stops[i].text, s.stops[i].len);
    digest_biases(w, key, &s);
}

static struct digest open_digest(const struct digest_key *key, const struct model *model,
                                 const struct open_request *r)
{
    struct digest_writer w;

    digest_start(&w, key);
    digest_number(&w, OPENING_OPEN);
    digest_text(&w, model->name);
    digest_bytes(&w, r->system, r->system_len);
    digest_sampling(&w, key, r->overrides);
    digest_number(&w, r->limits.max_turns);
    digest_number(&w, r->limits.max_tokens);
    digest_number(&w, (uint64_t)r->limits.priority);
    digest_number(&w, r->ttl_ms);
    digest_metadata(&w, key, r->metadata, r->n_metadata);
    return digest_end(&w);
}

static struct digest fork_digest(const struct digest_key *key, const struct fork_request *r)
{
    struct digest_writer w;

    digest_start(&w, key);
    digest_number(&w, OPENING_FORK);
    digest_text(&w, r->parent);
    digest_number(&w, r->has_at_turn);
    digest_number(&w, r->has_at_turn ? r->at_turn : 0);
    digest_metadata(&w, key, r->metadata, r->n_metadata);
    return digest_end(&w);
}

/* --- opening --- */

/* The request's entry: *ret_before where it came before, else *ret_made, for the conversation that
 * it will open. */
static enum status opening_look_up(const struct opened_request **ret_before,
                                   struct opened_request **ret_made,
                                   const struct opened_requests *opened, uint32_t principal,
                                   const char *request_id, const struct digest *digest,
                                   struct error *err)
{
    enum status rc = opened_requests_find(ret_before, opened, principal, request_id, digest, err);

    if (rc != STATUS_OK || *ret_before != NULL)
        return rc;
    return opened_request_make(ret_made, principal, request_id, digest, err);
}

/* Takes made, also where the conversation could not be opened. */
static void opening_settle(struct opened_requests *opened, struct opened_request *made,
                           struct conversation *c)
{
    if (c == NULL) {
        free(made);
        return;
    }
    made->conversation = c;
    made->n_turns = c->host.n_turns;
    c->opened = made;
    opened_requests_add(opened, made);
}

static enum status opening_keep(struct conversation **out, struct conversation *c,
                                struct error *err)
{
    enum status rc = keeping_begin(c, NULL, err);

    if (rc == STATUS_OK)
        *out = c;
    return rc;
}

enum status opening_open(struct conversation **out, struct conversations *all, struct model *model,
                         const char *request_id, const struct open_request *r, struct error *err)
{
    const struct opened_request *before;
    struct opened_request *made = NULL;
    struct conversation *c = NULL;
    struct digest digest;
    enum status rc;

    if (request_id[0] == '\0') {
        rc = conversation_open(&c, all, model, r, err);
        return rc == STATUS_OK ? opening_keep(out, c, err) : rc;
    }
    digest = open_digest(&all->opened.key, model, r);
    rc = opening_look_up(&before, &made, &all->opened, r->principal, request_id, &digest, err);
    if (rc != STATUS_OK)
        return rc;
    if (before != NULL) {
        *out = before->conversation;
        return STATUS_OK;
    }
    rc = conversation_open(&c, all, model, r, err);
    opening_settle(&all->opened, made, c);
    return rc == STATUS_OK ? opening_keep(out, c, err) : rc;
}

static enum status fork_parent(struct conversation **out, struct conversations *all,
                               const struct fork_request *r, struct error *err)
{
    struct conversation *parent;
    enum status rc = conversations_find(&parent, all, r->principal, r->parent, err);

    if (rc != STATUS_OK)
        return rc;
    return conversation_fork(out, parent, r->has_at_turn ? r->at_turn : parent->host.n_turns,
                             r->metadata, r->n_metadata, err);
}

enum status opening_fork(struct conversation **out, uint32_t *ret_turns, struct conversations *all,
                         const char *request_id, const struct fork_request *r, struct error *err)
{
    const struct opened_request *before = NULL;
    struct opened_request *made = NULL;
    struct conversation *f = NULL;
    enum status rc = STATUS_OK;

    if (request_id[0] != '\0') {
        struct digest digest = fork_digest(&all->opened.key, r);

        rc = opening_look_up(&before, &made, &all->opened, r->principal, request_id, &digest, err);
    }
    if (rc != STATUS_OK)
        return rc;
    if (before != NULL) {
        *out = before->conversation;
        *ret_turns = before->n_turns;
        return STATUS_OK;
    }
    rc = fork_parent(&f, all, r, err);
    if (made != NULL)
        opening_settle(&all->opened, made, f);
    if (f != NULL)
        *ret_turns = f->host.n_turns;
    return rc == STATUS_OK ? opening_keep(out, f, err) : rc;
}
