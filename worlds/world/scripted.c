/* A scripted world has slots whose members speak when the slot's script says so. In a round each
 * script that waits is told what was said and names who speaks next; then all slots that ask the
 * same position are answered in one batch. A parley is over when it is over in each slot. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "worlds/world/kinds.h"
#include "worlds/world/script.h"
#include "worlds/world/world.h"
#include "worlds/world/world_slot.h"

#define SCRIPTED_NOBODY UINT32_MAX

struct scripted_slot {
    struct world_slot *slot;
    void *script;
    bool is_in_parley;
    bool has_ended;     /* the last parley ended the episode */
    bool begins_anew;   /* the world was reset */
    uint32_t asked;     /* position; SCRIPTED_NOBODY: none is */
    uint32_t spoke;     /* bit p: the position has spoken in this episode */
    uint32_t heard;     /* bit p: it has heard something since it spoke */
    struct arena arena; /* of the episode's acts */
    struct arena last;  /* of the episode before, which a member may still observe */
    struct act *said;   /* [n_said] in the last parley; n_said at most cap */
    uint8_t *speakers;  /* [n_said] positions */
    size_t n_said, cap;
    size_t n_examples; /* acts of position 0 in the last parley */
};

struct scripted_world {
    struct world base;
    const struct world_script *script;
    size_t n, n_rows;  /* slots; rows of the last parley */
    size_t n_open;     /* slots that were made */
    char *world_slots; /* [n] of world_slot_size */
    size_t world_slot_size;
    struct scripted_slot *slots;           /* [n] */
    struct offline_scheduler **schedulers; /* [members], NULL for members that act directly */
    struct offline_request *requests;      /* [n] */
    struct error failed;                   /* the first failure of a round */
};

static struct scripted_world *scripted_of(const struct world *w)
{
    return container_of((struct world *)(uintptr_t)w, struct scripted_world, base);
}

/* --- a slot --- */

static enum status scripted_slot_keep(struct scripted_slot *s, uint32_t position, struct error *err)
{
    if (s->n_said == s->cap) {
        const size_t cap = s->cap == 0 ? 4 : 2 * s->cap;
        struct act *said = try_realloc(s->said, cap, sizeof(*said));
        uint8_t *speakers;

        if (said == NULL)
            return error_no_memory(err, cap * sizeof(*said), "a parley");
        s->said = said;
        speakers = try_realloc(s->speakers, cap, sizeof(*speakers));
        if (speakers == NULL)
            return error_no_memory(err, cap * sizeof(*speakers), "a parley");
        s->speakers = speakers;
        s->cap = cap;
    }
    s->said[s->n_said] = world_slot_acts(s->slot)[position];
    s->speakers[s->n_said++] = (uint8_t)position;
    return STATUS_OK;
}

static void scripted_slot_end(struct scripted_slot *s)
{
    s->slot->is_over = true;
    s->is_in_parley = false;
    s->has_ended = true;
}

static void scripted_slot_begin(struct scripted_slot *s)
{
    s->n_said = 0;
    s->n_examples = 0;
    s->asked = SCRIPTED_NOBODY;
    s->is_in_parley = !s->slot->is_over;
    if (s->slot->is_over || (!s->has_ended && !s->begins_anew))
        return;
    s->has_ended = false;
    s->begins_anew = false;
    s->spoke = 0;
    s->heard = 0;
    for (size_t i = 0; i < world_slot_n_positions(s->slot->participants); i++) {
        if (i > 0)
            participant_clone_reset(world_slot_clone(s->slot, i));
        world_slot_heard(s->slot)[i] = NULL;
        act_init(&world_slot_acts(s->slot)[i], NULL);
    }
    arena_deinit(&s->last);
    s->last = s->arena;
    arena_init(&s->arena, SIZE_MAX);
}

/* Whether nothing is left of the tasks for an episode that would begin. */
static bool scripted_slot_is_through(const struct scripted_slot *s)
{
    for (size_t i = 0; i < s->slot->participants->n_tasks; i++)
        if (!world_slot_is_through(s->slot, i))
            return false;
    return true;
}

static bool scripted_slot_is_done(const struct scripted_slot *s)
{
    const struct participants *p = s->slot->participants;

    return s->slot->is_over || quota_is_out(p->quota) ||
           (s->has_ended && (p->graph.ends_world || scripted_slot_is_through(s)));
}

static enum status scripted_slot_hear(struct scripted_slot *s, const struct script_hearing *h,
                                      struct error *err)
{
    struct participant_clone *clone = world_slot_clone(s->slot, h->listener);
    const struct act *act = h->own != NULL ? h->own : &world_slot_acts(s->slot)[h->speaker];

    if (participant_observe(clone, act, &world_slot_heard(s->slot)[h->listener], err) != STATUS_OK)
        return error_prefix(err, "'%.40s'", clone->original->type->name);
    s->heard |= UINT32_C(1) << h->listener;
    return STATUS_OK;
}

/* Tells the script what was said, and does what it says up to the next question. */
static enum status scripted_slot_go_on(struct scripted_slot *s, const struct world_script *script,
                                       struct error *err)
{
    const struct act *said =
        s->asked == SCRIPTED_NOBODY ? NULL : &world_slot_acts(s->slot)[s->asked];
    struct script_step step = {0};
    enum status rc = script->next(s->script, said, s->spoke, &s->arena, &step, err);

    if (rc != STATUS_OK)
        return error_prefix(err, "parley()");
    for (size_t i = 0; i < step.n_hearings && rc == STATUS_OK; i++)
        rc = scripted_slot_hear(s, &step.hearings[i], err);
    s->asked = step.then == SCRIPT_ASK ? step.asked : SCRIPTED_NOBODY;
    s->is_in_parley = step.then == SCRIPT_ASK;
    s->has_ended = step.then == SCRIPT_ENDS_EPISODE;
    if (step.then == SCRIPT_ENDS_WORLD)
        scripted_slot_end(s);
    return rc;
}

/* What the member has said becomes the slot's own, with the member's name; padding, or a task that
 * is out of quota, ends the slot. */
static enum status scripted_slot_take(struct scripted_slot *s, bool was_asked, struct error *err)
{
    const struct participants *p = s->slot->participants;
    struct act *act = &world_slot_acts(s->slot)[s->asked];
    const struct text *name = &p->graph.names[s->asked];
    struct act own;

    if (act_is_padding(act) || (s->asked == 0 && !quota_take(p->quota))) {
        scripted_slot_end(s);
        return STATUS_OK;
    }
    act_init(&own, NULL);
    if (act_copy(&own, act, &s->arena, err) != STATUS_OK ||
        act_force(&own, ACT_ID, value_text(*name), err) != STATUS_OK)
        return err->status;
    *act = own;
    s->spoke |= UINT32_C(1) << s->asked;
    s->heard &= ~(UINT32_C(1) << s->asked);
    s->n_examples += s->asked == 0;
    if (was_asked &&
        participant_self_observe(world_slot_clone(s->slot, s->asked), act, err) != STATUS_OK)
        return error_prefix(err, "'%.*s'", (int)name->len, name->text);
    return scripted_slot_keep(s, s->asked, err);
}

/* --- a round --- */

static void on_answer(struct offline_request *request, const struct error *err)
{
    struct scripted_world *w = request->arg;

    if (err->status == STATUS_OK || w->failed.status != STATUS_OK)
        return;
    w->failed = *err;
    (void)error_prefix(&w->failed, "'%.40s'", request->clone->original->type->name);
}

static enum status scripted_ask(struct scripted_world *w, size_t i, struct offline_scheduler *on,
                                struct error *err)
{
    struct scripted_slot *s = &w->slots[i];
    struct offline_request *request = &w->requests[i];

    act_init(&world_slot_acts(s->slot)[s->asked], &s->arena);
    request->clone = world_slot_clone(s->slot, s->asked);
    request->observation = world_slot_heard(s->slot)[s->asked];
    request->out = &world_slot_acts(s->slot)[s->asked];
    request->slot = (uint32_t)i;
    if (s->asked > 0 && w->base.participants->counts_words)
        participants_lengths(w->base.participants, request->clone, request->observation,
                             &request->lengths);
    request->then = on_answer;
    request->arg = w;
    if (offline_scheduler_ask(on, request, err) != STATUS_OK)
        return error_prefix(err, "'%.40s'", request->clone->original->type->name);
    return STATUS_OK;
}

/* The scheduler that answers for the slot's next speaker; NULL: it acts directly. */
static struct offline_scheduler *scripted_scheduler(const struct scripted_world *w,
                                                    const struct scripted_slot *s)
{
    const struct participant_type *type = world_slot_clone(s->slot, s->asked)->original->type;

    return w->n == 1 && type->act != NULL ? NULL
                                          : w->schedulers[world_slot_member(s->slot, s->asked)];
}

/* An agent that computes has nothing to answer twice. */
static enum status scripted_slot_check(const struct scripted_slot *s, struct error *err)
{
    const struct text *name = &s->slot->participants->graph.names[s->asked];
    const struct participant *member = world_slot_clone(s->slot, s->asked)->original;
    const uint32_t bit = UINT32_C(1) << s->asked;

    if ((s->spoke & bit) == 0 || (s->heard & bit) != 0 || member->type->epoch_done != NULL ||
        !participant_has_batch_act(member)) /* a teacher's next act is another */
        return STATUS_OK;
    return error_set(err, STATUS_PRECONDITION,
                     "parley(): '%.*s' has heard nothing since it spoke: call its observe() before "
                     "its act()",
                     (int)name->len, name->text);
}

static enum status scripted_speak(struct scripted_world *w, uint32_t position, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < w->n && rc == STATUS_OK; i++) {
        struct scripted_slot *s = &w->slots[i];
        struct offline_scheduler *on;

        if (!s->is_in_parley || s->asked != position)
            continue;
        if (position == 0)
            world_slot_choose(s->slot);
        on = scripted_scheduler(w, s);
        rc = scripted_slot_check(s, err);
        if (rc == STATUS_OK)
            rc = on != NULL ? scripted_ask(w, i, on, err)
                            : world_slot_speak(s->slot, position, &s->arena, err);
    }
    /* What was asked ends, also after a failure; the first failure is returned. */
    for (size_t m = 0; m < participants_n_members(w->base.participants); m++)
        while (w->schedulers[m] != NULL && offline_scheduler_step(w->schedulers[m]))
            continue;
    if (rc == STATUS_OK && w->failed.status != STATUS_OK) {
        *err = w->failed;
        rc = err->status;
    }
    w->failed = (struct error){0};
    return rc;
}

/* *ret_goes_on: a member was asked. */
static enum status scripted_round(struct scripted_world *w, bool *ret_goes_on, struct error *err)
{
    uint32_t asked = 0;
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < w->n && rc == STATUS_OK; i++) {
        struct scripted_slot *s = &w->slots[i];

        if (s->is_in_parley)
            rc = scripted_slot_go_on(s, w->script, err);
        if (rc == STATUS_OK && s->is_in_parley)
            asked |= UINT32_C(1) << s->asked;
    }
    for (uint32_t p = 0; p < WORLD_GRAPH_POSITIONS && rc == STATUS_OK; p++)
        if ((asked >> p & 1) != 0)
            rc = scripted_speak(w, p, err);
    for (size_t i = 0; i < w->n && rc == STATUS_OK; i++)
        if (w->slots[i].is_in_parley)
            rc = scripted_slot_take(&w->slots[i], scripted_scheduler(w, &w->slots[i]) != NULL, err);
    *ret_goes_on = asked != 0;
    return rc;
}

static enum status scripted_parley(struct world *base, struct error *err)
{
    struct scripted_world *w = scripted_of(base);
    bool goes_on = true;

    w->n_rows = 0;
    for (size_t i = 0; i < w->n; i++)
        scripted_slot_begin(&w->slots[i]);
    while (goes_on)
        if (scripted_round(w, &goes_on, err) != STATUS_OK)
            return err->status;
    w->n_rows = w->n;
    for (size_t i = 0; i < w->n; i++)
        base->counters.n_examples += w->slots[i].n_examples;
    if (base->participants->counts_words)
        participants_count_batches(base->participants, w->schedulers, &base->counters);
    return STATUS_OK;
}

/* --- the world --- */

static void scripted_reset(struct world *base)
{
    struct scripted_world *w = scripted_of(base);

    w->n_rows = 0;
    for (size_t i = 0; i < w->n; i++) {
        struct scripted_slot *s = &w->slots[i];

        world_slot_reset(s->slot);
        w->script->reset(s->script);
        s->has_ended = false;
        s->begins_anew = true;
        s->is_in_parley = false;
    }
}

static bool scripted_episode_done(const struct world *base)
{
    const struct scripted_world *w = scripted_of(base);

    return w->n == 1 && w->slots[0].has_ended;
}

static bool scripted_epoch_done(const struct world *base)
{
    const struct scripted_world *w = scripted_of(base);

    for (size_t i = 0; i < w->n; i++)
        if (!scripted_slot_is_done(&w->slots[i]))
            return false;
    return true;
}

static size_t scripted_n_rows(const struct world *w)
{
    return scripted_of(w)->n_rows;
}

static void scripted_row(const struct world *base, size_t i, struct world_row *out)
{
    const struct scripted_slot *s = &scripted_of(base)->slots[i];

    *out = (struct world_row){.slot = i,
                              .task = s->slot->task,
                              .acts = s->said,
                              .n_acts = s->n_said,
                              .speakers = s->speakers,
                              .ends_episode = s->has_ended};
}

static void scripted_close(struct world *base)
{
    struct scripted_world *w = scripted_of(base);

    for (size_t i = 0; i < w->n_open; i++) {
        struct scripted_slot *s = &w->slots[i];

        w->script->close(s->script);
        world_slot_deinit(s->slot);
        free(s->said);
        free(s->speakers);
        arena_deinit(&s->arena);
        arena_deinit(&s->last);
    }
    free(w->slots);
    free(w->world_slots);
    participants_close_schedulers(base->participants, w->schedulers);
    free(w->requests);
    participants_close(base->participants);
    free(w);
}

static const struct world_type scripted_world = {
    .name = "scripted",
    .parley = scripted_parley,
    .reset = scripted_reset,
    .episode_done = scripted_episode_done,
    .epoch_done = scripted_epoch_done,
    .n_rows = scripted_n_rows,
    .row = scripted_row,
    .close = scripted_close,
};

static enum status scripted_slot_open(struct scripted_slot *s, struct scripted_world *w, size_t i,
                                      struct error *err)
{
    *s = (struct scripted_slot){
        .slot = (struct world_slot *)(void *)(w->world_slots + i * w->world_slot_size),
        .asked = SCRIPTED_NOBODY};
    arena_init(&s->arena, SIZE_MAX);
    arena_init(&s->last, SIZE_MAX);
    if (w->script->open(&s->script, w->script->arg, err) != STATUS_OK)
        return err->status;
    if (world_slot_init(s->slot, w->base.participants, (uint32_t)i, err) == STATUS_OK)
        return STATUS_OK;
    w->script->close(s->script);
    return err->status;
}

static enum status scripted_make(struct scripted_world *w, struct error *err)
{
    struct participants *p = w->base.participants;
    const struct batcher_config all = {
        .policy = BATCH_CONTINUOUS, .max_rows = w->n, .max_waiting = w->n};
    enum status rc = participants_open_schedulers(&w->schedulers, p, &all, err);

    for (size_t i = 0; rc == STATUS_OK && i < p->n_tasks; i++)
        if (w->schedulers[i] != NULL && p->members[i]->type->epoch_done != NULL) /* a teacher */
            rc = error_set(err, STATUS_INVALID,
                           "a task that makes batches does not work in a world whose parley() says "
                           "who speaks");
    if (rc != STATUS_OK)
        return rc;
    w->world_slot_size = world_slot_size(p);
    w->world_slots = try_alloc(w->n, w->world_slot_size);
    w->slots = try_alloc(w->n, sizeof(w->slots[0]));
    w->requests = try_alloc(w->n, sizeof(w->requests[0]));
    if (w->world_slots == NULL || w->slots == NULL || w->requests == NULL)
        return error_no_memory(err, (uint64_t)w->n * w->world_slot_size, "clones of a world");
    for (; rc == STATUS_OK && w->n_open < w->n; w->n_open += rc == STATUS_OK)
        rc = scripted_slot_open(&w->slots[w->n_open], w, w->n_open, err);
    return rc;
}

enum status scripted_open(struct world **out, struct participants *participants,
                          const struct world_script *script, size_t n, struct error *err)
{
    struct scripted_world *w = xalloc(sizeof(*w));
    enum status rc;

    w->base = (struct world){.type = &scripted_world, .participants = participants};
    w->script = script;
    w->n = n;
    rc = scripted_make(w, err);
    if (rc == STATUS_OK)
        *out = &w->base;
    else
        scripted_close(&w->base);
    return rc;
}
