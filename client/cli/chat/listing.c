#include "client/cli/chat/listing.h"

#include <stdio.h>
#include <string.h>

#include "client/cli/chat/transcript.h"
#include "client/cli/connection.h"

enum { LISTING_PAGE = 500 };

enum parley_status listing_each(struct parley_channel *channel, const char *model, uint32_t limit,
                                listing_fn each, void *arg, uint32_t *ret_total,
                                struct parley_error *err)
{
    Parley__V1__ConversationsListRequest request = PARLEY__V1__CONVERSATIONS_LIST_REQUEST__INIT;
    uint32_t n_left = limit == 0 ? UINT32_MAX : limit;
    char token[256] = "";
    bool is_wanted = true;

    request.page_token = token;
    request.model = (char *)(uintptr_t)(model == NULL ? "" : model); /* is only read */
    do {
        const Parley__V1__ConversationsListResponse *page;
        ProtobufCMessage *answer;
        enum parley_status rc;

        request.page_size = n_left < LISTING_PAGE ? n_left : LISTING_PAGE;
        rc = connection_call(&answer, channel, "/parley.v1.Conversations/List", &request.base,
                             &parley__v1__conversations_list_response__descriptor, 0, err);
        if (rc != PARLEY_OK)
            return rc;
        page = (const Parley__V1__ConversationsListResponse *)answer;
        for (size_t i = 0; is_wanted && i < page->n_conversations; i++)
            is_wanted = each(arg, page->conversations[i]);
        n_left -=
            (uint32_t)page->n_conversations < n_left ? (uint32_t)page->n_conversations : n_left;
        if (ret_total != NULL)
            *ret_total = page->total;
        (void)snprintf(token, sizeof(token), "%s", page->next_page_token);
        protobuf_c_message_free_unpacked(answer, NULL);
    } while (is_wanted && *token != '\0' && n_left > 0);
    return PARLEY_OK;
}

/* --- which one is meant --- */

struct prefix_search {
    const char *prefix;
    char found[LISTING_ID_CHARS], other[LISTING_ID_CHARS]; /* "": none */
};

static bool prefix_search_look(void *arg, const Parley__V1__Conversation *c)
{
    struct prefix_search *s = arg;

    if (strncmp(c->conversation, s->prefix, strlen(s->prefix)) != 0)
        return true;
    (void)snprintf(*s->found == '\0' ? s->found : s->other, LISTING_ID_CHARS, "%s",
                   c->conversation);
    return *s->other == '\0';
}

static bool is_hexadecimal(const char *text)
{
    return text[strspn(text, "0123456789abcdef")] == '\0';
}

static enum parley_status resolve_prefix(char out[LISTING_ID_CHARS], struct parley_channel *channel,
                                         const char *prefix, struct parley_error *err)
{
    struct prefix_search s = {.prefix = prefix};
    const struct parley_error unknown = *err;
    enum parley_status rc =
        listing_each(channel, NULL, LISTING_LOOKED_AT, prefix_search_look, &s, NULL, err);

    if (rc != PARLEY_OK)
        return rc;
    if (*s.found == '\0') {
        *err = unknown;
        return err->status;
    }
    if (*s.other != '\0') {
        *err = (struct parley_error){.status = PARLEY_INVALID_ARGUMENT};
        (void)snprintf(err->text, sizeof(err->text),
                       "'%s' is the beginning of more than one conversation, as of %s and %s; give "
                       "more of the id",
                       prefix, s.found, s.other);
        return err->status;
    }
    memcpy(out, s.found, LISTING_ID_CHARS);
    return PARLEY_OK;
}

enum parley_status listing_resolve(char out[LISTING_ID_CHARS], struct parley_channel *channel,
                                   const char *text, struct parley_error *err)
{
    const size_t len = strlen(text);
    Parley__V1__Conversation *found;
    enum parley_status rc;

    if (len == LISTING_ID_CHARS - 1 && is_hexadecimal(text)) {
        memcpy(out, text, LISTING_ID_CHARS);
        return PARLEY_OK;
    }
    rc = transcript_get(&found, channel, text, false, err);
    if (rc == PARLEY_OK) {
        (void)snprintf(out, LISTING_ID_CHARS, "%s", found->conversation);
        parley__v1__conversation__free_unpacked(found, NULL);
        return rc;
    }
    if (rc != PARLEY_NOT_FOUND || len < LISTING_PREFIX_MIN || len >= LISTING_ID_CHARS ||
        !is_hexadecimal(text))
        return rc;
    return resolve_prefix(out, channel, text, err);
}
