/* Writes the records of conversations and of their turns to the journal. A turn asks for its
 * records itself (accept and store of its conversation's callbacks) and goes on when the journal
 * has answered. Nobody waits for the other records: if the journal refuses one, its conversation
 * leaves memory. */
#include "server/conversation/keeping.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/conversation/body.h"
#include "server/model/model.h"

#define RECORD_MAX_BYTES ((size_t)1 << 30)

const char *keeping_principal(const struct conversations *all, uint32_t principal)
{
    const struct keeping_config *k = &all->keeping;

    return k->principal_name == NULL ? "" : k->principal_name(k->self, principal);
}

enum status keeping_binding(struct buf *out, const struct conversations *all, const struct model *m,
                            struct error *err)
{
    if (buf_printf(out, "%s %s", m->info.version, all->keeping.binding) != STATUS_OK)
        return error_no_memory(err, sizeof(m->info.version), "a record of the journal");
    return STATUS_OK;
}

static struct conversation *keeping_of(struct turn_host *h)
{
    return container_of(h, struct conversation, host);
}

static struct journal_record keeping_record(const struct conversation *c, enum journal_kind kind)
{
    struct journal_record r = {
        .kind = kind,
        .generation = c->host.generation,
        .unix_ms = conversations_unix_ms(c->all),
        .owner_epoch = c->owner_epoch,
    };

    memcpy(r.conversation, c->id.bytes, sizeof(r.conversation));
    return r;
}

/* --- the conversation itself --- */

/* Which conversation a record is of that nobody waits for. */
struct keeping_note {
    struct conversations *all;
    struct conversation_id id;
};

static void on_note(void *arg, const struct error *err)
{
    struct keeping_note *note = arg;
    struct conversation *c = conversations_get(note->all, &note->id);

    if (err->status != STATUS_OK && c != NULL)
        conversation_unload(c);
    free(note);
}

/* If it fails at once, c has left memory. */
static enum status keeping_note(struct conversation *c, const struct journal_record *r,
                                struct error *err)
{
    struct keeping_note *note = xalloc(sizeof(*note));

    *note = (struct keeping_note){c->all, c->id};
    if (journal_append(c->all->keeping.journal, r, on_note, note, err) == STATUS_OK)
        return STATUS_OK;
    free(note);
    conversation_unload(c);
    return err->status;
}

static enum status keeping_write_terms(struct buf *out, const struct conversation *c,
                                       struct error *err)
{
    const struct conversation_options *o = c->host.options;
    const struct body_terms terms = {
        .model = c->host.model->name,
        .version = c->host.model->info.version,
        .seed = c->host.seed,
        .ttl_ms = o->ttl_ms,
        .limits = o->limits,
        .system = o->system,
        .system_len = o->system_len,
        .overrides = o->overrides,
        .metadata = c->metadata == NULL ? NULL : c->metadata->pairs,
        .n_metadata = c->metadata == NULL ? 0 : c->metadata->n_pairs,
        .has_digest = c->opened != NULL,
        .digest = c->opened == NULL ? (struct digest){{0}} : c->opened->digest,
        .opened_turns = c->opened == NULL ? 0 : c->opened->n_turns,
    };

    return body_write_terms(out, &terms, err);
}

/* r is complete but for its body. If it fails, c has left memory. */
static enum status keeping_write(struct conversation *c, struct journal_record *r,
                                 struct error *err)
{
    struct buf body;
    enum status rc;

    buf_init(&body, RECORD_MAX_BYTES);
    rc = keeping_write_terms(&body, c, err);
    r->body = body.data;
    r->size_bytes = body.len;
    if (rc != STATUS_OK)
        conversation_unload(c);
    else
        rc = keeping_note(c, r, err);
    buf_deinit(&body);
    return rc;
}

enum status keeping_begin(struct conversation *c, const char *name, struct error *err)
{
    struct journal_record r = keeping_record(c, JOURNAL_OPEN);
    const struct conversation *parent =
        c->has_parent ? conversations_get(c->all, &c->parent) : NULL;

    if (c->all->keeping.journal == NULL ||
        (c->has_parent && (parent == NULL || !parent->host.is_kept)))
        return STATUS_OK;
    r.unix_ms = c->opened_unix_ms; /* the clock may have gone on since */
    conversation_is_kept(c);
    conversations_expiry_changed(c);
    c->owner_epoch = 1;
    r.turn = c->host.n_turns;
    r.principal = keeping_principal(c->all, c->principal);
    r.request_id = c->opened == NULL ? NULL : c->opened->id;
    r.name = name;
    r.model = c->host.model->name;
    r.parent = c->has_parent ? c->parent.bytes : NULL;
    return keeping_write(c, &r, err);
}

enum status keeping_update(struct conversation *c, struct error *err)
{
    struct journal_record r = keeping_record(c, JOURNAL_UPDATE);

    if (!c->host.is_kept)
        return STATUS_OK;
    r.generation = 0; /* one is kept, whatever the generation */
    return keeping_write(c, &r, err);
}

enum status keeping_rewind(struct conversation *c, struct error *err)
{
    struct journal_record r = keeping_record(c, JOURNAL_REWIND);

    if (!c->host.is_kept)
        return STATUS_OK;
    r.turn = c->rewound_to;
    return keeping_note(c, &r, err);
}

/* Without a binding: when it is read again, it is as of another model. */
static enum status keeping_import_part(struct conversation *c, enum journal_kind kind,
                                       const struct completed_turn *t, const void *trace,
                                       size_t trace_size, struct error *err)
{
    struct journal_record r = keeping_record(c, kind);
    const bool is_new = t->origin.generation == r.generation &&
                        memcmp(&t->origin.conversation, &c->id, sizeof(c->id)) == 0;
    struct buf body;
    enum status rc;

    buf_init(&body, RECORD_MAX_BYTES);
    rc = kind == JOURNAL_FINISH
             ? body_write_finish(&body, t, trace, trace_size, err)
             : body_write_accept(&body, t->request, NULL, "", is_new ? NULL : &t->origin, err);
    r.turn = t->number;
    r.body = body.data;
    r.size_bytes = body.len;
    if (rc != STATUS_OK)
        conversation_unload(c);
    else
        rc = keeping_note(c, &r, err);
    buf_deinit(&body);
    return rc;
}

enum status keeping_import(struct conversation *c, const struct completed_turn *t,
                           const void *trace, size_t trace_size, struct error *err)
{
    enum status rc;

    if (!c->host.is_kept)
        return STATUS_OK;
    if (t->request->is_observed)
        return keeping_import_part(c, JOURNAL_OBSERVE, t, NULL, 0, err);
    rc = keeping_import_part(c, JOURNAL_ACCEPT, t, NULL, 0, err);
    return rc == STATUS_OK ? keeping_import_part(c, JOURNAL_FINISH, t, trace, trace_size, err) : rc;
}

/* --- turns --- */

static void on_accept(void *arg, const struct error *err)
{
    turn_accepted(arg, err);
}

static void on_store(void *arg, const struct error *err)
{
    turn_stored(arg, err);
}

static enum status keeping_accept(struct turn_host *h, struct turn *t, struct error *err)
{
    struct conversation *c = keeping_of(h);
    struct journal_record r = keeping_record(c, JOURNAL_ACCEPT);
    struct buf body, binding;
    enum status rc;

    buf_init(&body, RECORD_MAX_BYTES);
    buf_init(&binding, RECORD_MAX_BYTES);
    rc = keeping_binding(&binding, c->all, h->model, err);
    if (rc == STATUS_OK)
        rc = body_write_accept(&body, t->request, &t->agent.seen.sampling, binding.data, NULL, err);
    r.turn = t->number;
    r.body = body.data;
    r.size_bytes = body.len;
    if (t->key != NULL) {
        r.principal = keeping_principal(c->all, c->principal);
        r.key = t->key->text;
        r.part = t->key->part;
        r.key_body = t->key->body;
        r.key_size_bytes = t->key->size_bytes;
        r.key_until_unix_ms = t->key->until_unix_ms;
        r.keys_over_unix_ms = conversations_stored_ms(c->all);
    }
    if (rc == STATUS_OK)
        rc = journal_append(c->all->keeping.journal, &r, on_accept, t, err);
    buf_deinit(&binding);
    buf_deinit(&body);
    return rc;
}

static enum status keeping_store(struct turn_host *h, struct turn *t, struct error *err)
{
    struct conversation *c = keeping_of(h);
    struct journal_record r = keeping_record(c, JOURNAL_FINISH);
    struct buf body;
    enum status rc = STATUS_OK;

    buf_init(&body, RECORD_MAX_BYTES);
    if (t->completed == NULL) {
        r.kind = JOURNAL_WITHDRAW;
    } else if (t->is_observed) {
        r.kind = JOURNAL_OBSERVE;
        rc = body_write_accept(&body, t->completed->request, NULL, "", NULL, err);
    } else {
        rc = body_write_finish(&body, t->completed, t->trace.data, t->trace.len, err);
    }
    r.turn = t->number;
    r.body = body.data;
    r.size_bytes = body.len;
    if (rc == STATUS_OK)
        rc = journal_append(c->all->keeping.journal, &r, on_store, t, err);
    buf_deinit(&body);
    return rc;
}

static void keeping_lost(struct turn_host *h)
{
    conversation_lose(keeping_of(h));
}

void keeping_withdraw(struct conversation *c, uint32_t number)
{
    struct journal_record r = keeping_record(c, JOURNAL_WITHDRAW);
    struct error ignored;

    r.turn = number;
    /* If it fails it is there when c is read again, and tried again then. */
    (void)!journal_append(c->all->keeping.journal, &r, NULL, NULL, &ignored);
}

/* Another daemon asks for a conversation. One that has a turn goes when the turn has ended: the
 * journal calls again. */
static void on_wanted(void *arg, const uint8_t *id)
{
    struct conversations *all = arg;
    struct conversation_id which;
    struct conversation *c;

    memcpy(which.bytes, id, sizeof(which.bytes));
    c = conversations_get(all, &which);
    if (c != NULL && c->host.n_live > 0)
        return;
    if (c != NULL)
        conversation_put_away(c, "another parleyd goes on with it");
    journal_give(all->keeping.journal, id, false);
}

static struct conversation *keeping_first(const struct conversations *all)
{
    for (struct link *l = list_first(&all->newest_first); l != NULL;
         l = list_next(&all->newest_first, l)) {
        struct conversation *c = container_of(l, struct conversation, link);

        if (c->host.is_kept)
            return c;
    }
    return NULL;
}

/* Another daemon may have gone on with any conversation. Each is read again when it is used. */
static void on_lapsed(void *arg)
{
    struct conversations *all = arg;
    struct conversation *c;
    size_t n = 0;

    for (; (c = keeping_first(all)) != NULL; n++)
        conversation_unload(c);
    if (n > 0)
        log_warn("journal",
                 "state=lapsed conversations=%zu what=\"this daemon was silent for longer "
                 "than --lease: what it had in memory is read again\"",
                 n);
}

void keeping_check_lease(struct conversations *all)
{
    if (all->keeping.journal != NULL && !journal_has_lease(all->keeping.journal))
        on_lapsed(all);
}

void conversations_keep(struct conversations *all, const struct keeping_config *config)
{
    all->keeping = *config;
    if (config->journal == NULL)
        return;
    all->turns.accept = keeping_accept;
    all->turns.store = keeping_store;
    all->turns.lost = keeping_lost;
    memcpy(&all->opened.key, journal_secret(config->journal), sizeof(all->opened.key));
    journal_share(config->journal, &(struct journal_sharing){.wanted = on_wanted,
                                                             .orphan = config->orphan,
                                                             .lapsed = on_lapsed,
                                                             .arg = all});
}
