/* parley.v1.Conversations.List. Without a journal a page lists the conversations in memory. With
 * one it is read from the journal, newest first, with the present state of those in memory.
 * Conversations that are only in memory are listed between them, in the order of opening. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
#include "server/conversation/keeping.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

enum { PAGE_DEFAULT = 50, PAGE_MAX = 1000 };

/* Bound of one answer's memory. */
#define LIST_MAX_BYTES ((size_t)256 << 20)

static size_t list_size(const Parley__V1__ConversationsListRequest *request)
{
    size_t size = request->page_size == 0 ? PAGE_DEFAULT : request->page_size;

    return size > PAGE_MAX ? PAGE_MAX : size;
}

/* --- what is in memory --- */

/* A page token names the last conversation of its page by id, for a direct lookup, and by serial,
 * to find the position after the conversation was closed. */
enum { LIST_TOKEN_CHARS = CONVERSATION_ID_CHARS + 1 + 16 };

static void token_format(char out[LIST_TOKEN_CHARS], const struct conversation *c)
{
    conversation_id_format(&c->id, out);
    (void)snprintf(out + CONVERSATION_ID_CHARS - 1, LIST_TOKEN_CHARS - CONVERSATION_ID_CHARS + 1,
                   "-%016llx", (unsigned long long)c->serial);
}

/* Finds the first conversation of the page. */
static enum status page_start(const struct conversation **out, const struct conversations *all,
                              uint32_t principal, const char *token, struct error *err)
{
    char text[CONVERSATION_ID_CHARS];
    const struct conversation *c;
    struct conversation_id id;
    unsigned long long serial;
    size_t id_len = sizeof(text) - 1;

    if (token[0] == '\0') {
        *out = conversations_newest_of(all, principal);
        return STATUS_OK;
    }
    if (strlen(token) != LIST_TOKEN_CHARS - 1 || token[id_len] != '-' ||
        sscanf(token + id_len + 1, "%16llx", &serial) != 1)
        return error_field(err, "page_token", "is not a token of an earlier response");
    memcpy(text, token, id_len);
    text[id_len] = '\0';
    if (!conversation_id_parse(&id, text))
        return error_field(err, "page_token", "is not a token of an earlier response");
    c = conversations_get_of(all, principal, &id);
    if (c != NULL) {
        *out = conversations_older_of(c);
        return STATUS_OK;
    }
    c = conversations_newest_of(all, principal);
    while (c != NULL && c->serial >= serial)
        c = conversations_older_of(c);
    *out = c;
    return STATUS_OK;
}

static enum status fill_page(Parley__V1__ConversationsListResponse *response,
                             const struct call *call,
                             const Parley__V1__ConversationsListRequest *request,
                             struct arena *arena, struct error *err)
{
    struct server *server = call_server(call);
    const struct conversations *all = server->conversations;
    uint32_t principal = call_principal(call)->id;
    const size_t size = list_size(request);
    const struct conversation *c = NULL, *last = NULL;
    struct model *model = NULL;
    char *token;
    enum status rc = STATUS_OK;

    if (request->model[0] != '\0')
        rc = models_get(&model, server->models, request->model, err);
    if (rc == STATUS_OK)
        rc = page_start(&c, all, principal, request->page_token, err);
    if (rc != STATUS_OK)
        return rc;
    response->total = (uint32_t)conversations_count_of(all, principal, model);
    response->conversations = arena_alloc(arena, size, sizeof(response->conversations[0]));
    token = arena_alloc(arena, LIST_TOKEN_CHARS, 1);
    if (response->conversations == NULL || token == NULL)
        return error_no_memory(err, 0, "a page of conversations");
    for (; c != NULL; c = conversations_older_of(c)) {
        if (model != NULL && c->host.model != model)
            continue;
        if (response->n_conversations == size) {
            token_format(token, last);
            response->next_page_token = token;
            break;
        }
        rc = wire_conversation(&response->conversations[response->n_conversations], c,
                               call_principal(call), arena, err);
        if (rc != STATUS_OK)
            return rc;
        response->n_conversations++;
        last = c;
    }
    return STATUS_OK;
}

/* --- what is in the journal --- */

/* Where a page begins: the journal's place and the serial in memory, of those before; and how many
 * there were when the first page was asked for. */
struct list_place {
    uint64_t place, serial;
    uint32_t n_total;
};

enum { LIST_PLACE_CHARS = 16 + 1 + 16 + 1 + 8 + 1 };

static void list_place_format(char out[LIST_PLACE_CHARS], const struct list_place *p)
{
    (void)snprintf(out, LIST_PLACE_CHARS, "%016" PRIx64 "-%016" PRIx64 "-%08" PRIx32, p->place,
                   p->serial, p->n_total);
}

static enum status list_place_parse(struct list_place *out, const char *token, struct error *err)
{
    char again[LIST_PLACE_CHARS];

    *out = (struct list_place){.place = INT64_MAX, .serial = UINT64_MAX};
    if (token[0] == '\0')
        return STATUS_OK;
    if (sscanf(token, "%16" SCNx64 "-%16" SCNx64 "-%8" SCNx32, &out->place, &out->serial,
               &out->n_total) == 3 &&
        out->place <= INT64_MAX) {
        list_place_format(again, out);
        if (strcmp(again, token) == 0)
            return STATUS_OK;
    }
    return error_field(err, "page_token", "is not a token of an earlier response");
}

struct stored_list {
    struct journal_wait wait;
    struct call *call;
    const Parley__V1__ConversationsListRequest *request;
    const struct conversations *all;
    const char *model; /* its name, which need not be served; "": of any */
    struct list_place at;
    size_t size;
};

/* The first one in memory alone from c on, NULL: none. */
static const struct conversation *list_unkept(const struct stored_list *l,
                                              const struct conversation *c)
{
    while (c != NULL && (c->serial >= l->at.serial ||
                         (l->model[0] != '\0' && strcmp(c->host.model->name, l->model) != 0)))
        c = conversations_older_unkept(c);
    return c;
}

static uint32_t list_count_unkept(const struct stored_list *l, uint32_t principal)
{
    const struct conversation *c = list_unkept(l, conversations_newest_unkept(l->all, principal));
    uint32_t n = 0;

    for (; c != NULL; c = list_unkept(l, conversations_older_unkept(c)))
        n++;
    return n;
}

/* Merges both by the time of opening. */
static enum status list_merge(Parley__V1__ConversationsListResponse *response,
                              struct stored_list *l, const struct journal_found *found,
                              struct arena *arena, struct error *err)
{
    const uint32_t principal = call_principal(l->call)->id;
    const struct conversation *c = list_unkept(l, conversations_newest_unkept(l->all, principal));
    struct link *at = list_first(&found->rows);
    char *token = arena_alloc(arena, LIST_PLACE_CHARS, 1);

    response->conversations = arena_alloc(arena, l->size, sizeof(response->conversations[0]));
    if (response->conversations == NULL || token == NULL)
        return error_no_memory(err, l->size, "a page of conversations");
    while (response->n_conversations < l->size && (at != NULL || (c != NULL && !found->has_more))) {
        const struct journal_row *row =
            at == NULL ? NULL : container_of(at, const struct journal_row, link);
        Parley__V1__Conversation **to = &response->conversations[response->n_conversations];
        enum status rc;

        if (row != NULL && (c == NULL || row->opened_unix_ms >= c->opened_unix_ms)) {
            rc = wire_listed_conversation(to, l->all, row, call_principal(l->call), arena, err);
            l->at.place = row->place;
            at = list_next(&found->rows, at);
        } else {
            rc = wire_conversation(to, c, call_principal(l->call), arena, err);
            l->at.serial = c->serial;
            c = list_unkept(l, conversations_older_unkept(c));
        }
        if (rc != STATUS_OK)
            return rc;
        response->n_conversations++;
    }
    response->total = l->at.n_total;
    if (at != NULL || c != NULL || found->has_more) {
        list_place_format(token, &l->at);
        response->next_page_token = token;
    }
    return STATUS_OK;
}

/* A model that nothing is stored of, and that is not known either, is a mistake. */
static enum status list_check_model(const struct stored_list *l,
                                    const Parley__V1__ConversationsListResponse *response,
                                    struct error *err)
{
    const struct server *server = call_server(l->call);
    struct model *ignored;

    if (response->n_conversations > 0 || l->model[0] == '\0' || l->request->page_token[0] != '\0' ||
        models_find(server->models, l->model) != NULL)
        return STATUS_OK;
    return models_get(&ignored, server->models, l->model, err);
}

static void on_list_page(void *arg, struct journal_found *found, const struct error *err)
{
    Parley__V1__ConversationsListResponse response = PARLEY__V1__CONVERSATIONS_LIST_RESPONSE__INIT;
    struct stored_list *l = arg;
    struct error why = *err;
    struct arena arena;

    arena_init(&arena, LIST_MAX_BYTES);
    if (why.status == STATUS_OK && l->request->page_token[0] == '\0')
        l->at.n_total =
            (uint32_t)found->n_total + list_count_unkept(l, call_principal(l->call)->id);
    if (why.status == STATUS_OK && list_merge(&response, l, found, &arena, &why) == STATUS_OK &&
        list_check_model(l, &response, &why) == STATUS_OK)
        call_reply(l->call, &response.base);
    else
        call_finish(l->call, &why);
    arena_deinit(&arena);
}

static void list_on_close(struct call *call, void *state, enum status why)
{
    struct stored_list *l = state;

    journal_leave(&l->wait);
}

static enum status list_stored(struct call *call, struct server *server,
                               const Parley__V1__ConversationsListRequest *request,
                               struct error *err)
{
    static const struct call_handler handler = {.on_close = list_on_close};
    struct stored_list *l = arena_alloc(call_arena(call), 1, sizeof(*l));
    struct journal_query q = {.by = JOURNAL_PAGE};

    if (l == NULL)
        return error_no_memory(err, sizeof(*l), "a call");
    *l = (struct stored_list){
        .call = call, .request = request, .all = server->conversations, .size = list_size(request)};
    if (list_place_parse(&l->at, request->page_token, err) != STATUS_OK)
        return err->status;
    l->model = request->model;
    q.principal = keeping_principal(l->all, call_principal(call)->id);
    q.text = l->model[0] == '\0' ? NULL : l->model;
    q.place = l->at.place;
    q.max_rows = (uint32_t)l->size + 1; /* the last tells that there are more */
    q.wants_total = request->page_token[0] == '\0';
    journal_read(l->all->keeping.journal, &l->wait, &q, on_list_page, l);
    call_set_handler(call, &handler, l);
    return STATUS_OK;
}

static void list_conversations(struct call *call,
                               const Parley__V1__ConversationsListRequest *request)
{
    struct server *server = call_server(call);
    Parley__V1__ConversationsListResponse response = PARLEY__V1__CONVERSATIONS_LIST_RESPONSE__INIT;
    struct arena arena;
    struct error err;

    if (server->conversations->keeping.journal != NULL) {
        if (list_stored(call, server, request, &err) != STATUS_OK)
            call_finish(call, &err);
        return;
    }
    arena_init(&arena, LIST_MAX_BYTES);
    if (fill_page(&response, call, request, &arena, &err) == STATUS_OK)
        call_reply(call, &response.base);
    else
        call_finish(call, &err);
    arena_deinit(&arena);
}

#define CONVERSATIONS_LIST_METHODS(METHOD)                               \
    METHOD(UNARY, KEY, "Conversations/List", conversations_list_request, \
           conversations_list_response, list_conversations)

PARLEY_TABLE(conversations_list_methods, CONVERSATIONS_LIST_METHODS)
