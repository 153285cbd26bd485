#include "server/conversation/named_lookup.h"

#include "server/conversation/keeping.h"

static void on_named_lookup(struct lookup *lookup, const struct error *err);

static bool named_lookup_by_name(struct named_lookup *l, uint32_t principal)
{
    l->is_by_name = true;
    return conversation_name_is_valid(l->text) &&
           lookup_begin(&l->lookup, l->names->all, JOURNAL_BY_NAME, l->how, principal, l->text,
                        on_named_lookup);
}

static void on_named_lookup(struct lookup *lookup, const struct error *err)
{
    struct named_lookup *l = container_of(lookup, struct named_lookup, lookup);
    const uint32_t principal = lookup->principal;
    struct error why = *err;

    if (why.status == STATUS_OK && !lookup->is_found && !l->is_by_name &&
        named_lookup_by_name(l, principal))
        return;
    if (why.status == STATUS_OK && lookup->is_found && l->is_by_name)
        (void)!conversation_names_bind(l->names, principal, l->text, &lookup->id,
                                       &why); /* it is in why */
    l->done(l, &why);
}

bool named_lookup_begin(struct named_lookup *l, struct conversation_names *names,
                        enum lookup_how how, uint32_t principal, const char *text,
                        named_lookup_done_fn done)
{
    *l = (struct named_lookup){.names = names, .text = text, .done = done, .how = how};
    keeping_check_lease(names->all);
    if (names->all->keeping.journal == NULL || text[0] == '\0' ||
        conversation_names_find(names, principal, text) != NULL)
        return false;
    return lookup_begin(&l->lookup, names->all, JOURNAL_BY_ID, how, principal, text,
                        on_named_lookup) ||
           named_lookup_by_name(l, principal);
}

void named_lookup_leave(struct named_lookup *l)
{
    lookup_leave(&l->lookup);
}
