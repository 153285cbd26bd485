#include "worlds/baselines/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/counter_rng.h"

double simple_draw(struct simple_clone *c)
{
    return (double)counter_rng_uniform(simple_of(&c->base)->config.seed, c->place.index,
                                       c->n_drawn++, c->place.thread);
}

void simple_close(struct participant *p)
{
    struct simple *s = container_of(p, struct simple, base);

    if (s->prepared != NULL)
        s->free_prepared(s->prepared);
    free(s->cant_answer_message);
    free(s->fixed_response);
    free(s);
}

enum status simple_clone_init(struct participant_clone *base, const struct participant_slot *place,
                              struct error *err)
{
    simple_clone_of(base)->place = *place;
    return STATUS_OK;
}

enum status simple_observe(struct participant_clone *c, const struct act *act,
                           const struct act **ret_observation, struct error *err)
{
    simple_clone_of(c)->heard = act;
    *ret_observation = act;
    return STATUS_OK;
}

void simple_reset(struct participant_clone *base)
{
    struct simple_clone *c = simple_clone_of(base);

    c->heard = NULL;
    c->n_drawn = 0;
}

enum status reply_start(struct act *out, const char *id, struct error *err)
{
    enum { ROOM = 4 };
    struct field *f = arena_alloc(out->arena, ROOM, sizeof(*f));

    if (f == NULL)
        return error_no_memory(err, ROOM * sizeof(*f), "a reply");
    f[0] = (struct field){act_key_name(ACT_ID), ACT_ID, value_text((struct text){id, strlen(id)})};
    *out = (struct act){
        .fields = f, .n = 1, .cap = ROOM, .present = 1u << ACT_ID, .arena = out->arena};
    return STATUS_OK;
}

enum status reply_say(struct act *out, const char *id, struct text text, struct error *err)
{
    if (reply_start(out, id, err) != STATUS_OK)
        return err->status;
    return act_set(out, ACT_TEXT, value_text(text), err);
}
