/* Happy path: the first call for a place asks the journal, which gives the place to a daemon. Until
 * that daemon has ended, every daemon knows where the place is and asks no more.
 *
 * Failure: a daemon whose lease was over may have lost the place. It asks again before the next
 * use, and if the place's epoch is another one, what it has in memory leaves. A daemon that is
 * believed to have the place refuses the call, and its caller asks the journal again. */
#include "server/cluster/places.h"

#include <assert.h>
#include <string.h>

#include "base/alarm.h"
#include "base/env.h"
#include "base/log.h"

enum { PLACES_LOOK_US = 500000 };

void places_init(struct places *p, const struct env *env, struct alarm *alarm)
{
    p->env = env;
    p->alarm = alarm;
    for (int i = 0; i < JOURNAL_N_PLACES; i++)
        list_init(&p->rows[i].waits);
}

void places_hold(struct places *p, enum journal_place place, const struct place_holder *holder)
{
    p->rows[place].holder = *holder;
}

static void places_arm(struct places *p)
{
    alarm_set(p->alarm, env_now_us(p->env) + PLACES_LOOK_US);
}

void places_join(struct places *p, struct journal *journal)
{
    if (!journal_is_shared(journal))
        return;
    p->journal = journal;
    places_arm(p);
}

void places_drain(void *places)
{
    ((struct places *)places)->is_draining = true;
}

/* What is known may be over. */
static void place_check(struct places *p, struct places_row *row)
{
    if (row->state == PLACE_HERE &&
        (!journal_has_lease(p->journal) || row->n_lapses != journal_n_lapses(p->journal)))
        row->state = PLACE_UNKNOWN;
    if (row->state == PLACE_THERE && journal_n_beats(p->journal) >= row->judged_from &&
        !journal_has_other(p->journal, row->owner.id))
        row->state = PLACE_UNKNOWN;
}

static bool place_is_ready(const struct places_row *row)
{
    struct error ignored;

    return row->holder.keeper == NULL || keeper_ready(row->holder.keeper, &ignored) == STATUS_OK;
}

enum place_state places_look(struct places *p, enum journal_place place,
                             const struct journal_peer **ret_owner)
{
    struct places_row *row = &p->rows[place];

    if (p->journal == NULL)
        return PLACE_HERE;
    place_check(p, row);
    *ret_owner = &row->owner;
    return row->state == PLACE_HERE && !place_is_ready(row) ? PLACE_UNKNOWN : row->state;
}

static void place_lose(struct places_row *row)
{
    struct error why;

    if (row->epoch == 0)
        return;
    places_ready(row); /* they find that it is gone */
    row->epoch = 0;
    (void)error_because(&why, STATUS_UNAVAILABLE, REASON_SERVER_DRAINING, NULL,
                        "another parleyd has this now: ask again");
    log_warn("cluster", "place=lost what=\"another parleyd has what was here\"");
    if (row->holder.keeper != NULL)
        keeper_leave(row->holder.keeper);
    if (row->holder.leave != NULL)
        row->holder.leave(row->holder.self, &why);
}

bool places_arrived(struct places *p, enum journal_place place, uint64_t epoch)
{
    struct places_row *row = &p->rows[place];
    const bool is_first = row->epoch == 0 || row->epoch == epoch;

    if (!is_first)
        place_lose(row);
    row->epoch = epoch;
    return is_first;
}

static void place_is_here(struct places *p, struct places_row *row, uint64_t epoch)
{
    row->state = PLACE_HERE;
    row->n_lapses = journal_n_lapses(p->journal);
    if (row->epoch == epoch)
        return;
    place_lose(row);
    row->epoch = epoch;
    if (row->holder.keeper != NULL)
        keeper_arrive(row->holder.keeper);
}

static void on_place(void *arg, struct journal_found *found, const struct error *err)
{
    struct place_ask *a = arg;
    struct places *p = a->of;
    struct places_row *row = &p->rows[a->place];
    struct error why = *err;

    if (why.status == STATUS_OK && found->is_found) {
        place_is_here(p, row, found->owner_epoch);
    } else if (why.status == STATUS_UNAVAILABLE && found->owner.id[0] != '\0') {
        place_lose(row);
        row->state = PLACE_THERE;
        row->owner = found->owner;
        row->judged_from = journal_n_beats(p->journal) + 2; /* the next may have begun already */
        why.status = STATUS_OK;
    } else {
        row->state = PLACE_UNKNOWN;
    }
    if (row->state == PLACE_HERE && !place_is_ready(row))
        list_push(&row->waits, &a->link);
    else
        a->done(a, row->state == PLACE_THERE ? &row->owner : NULL, &why);
}

/* Also where reading failed: the call says so. */
void places_ready(void *row)
{
    const struct error err = {.status = STATUS_OK};
    struct places_row *place = row;
    struct list waits;
    struct link *l;

    list_init(&waits);
    list_move(&place->waits, &waits);
    while ((l = list_pop(&waits)) != NULL) {
        struct place_ask *a = container_of(l, struct place_ask, link);

        a->done(a, NULL, &err);
    }
}

static void place_ask_begin(struct place_ask *a, const struct journal_query *q)
{
    assert(a->wait.item == NULL);
    journal_read(a->of->journal, &a->wait, q, on_place, a);
}

void places_ask(struct places *p, enum journal_place place, bool is_patient, struct place_ask *a,
                void (*done)(struct place_ask *a, const struct journal_peer *owner,
                             const struct error *err))
{
    const struct journal_query q = {
        .by = JOURNAL_PLACE, .number = place, .wants_owner = !is_patient};

    *a = (struct place_ask){.of = p, .place = place, .done = done};
    place_ask_begin(a, &q);
}

void places_leave(struct place_ask *a)
{
    journal_leave(&a->wait);
    if (link_is_on(&a->link))
        list_remove(&a->link);
}

static void on_looked(struct place_ask *a, const struct journal_peer *owner,
                      const struct error *err)
{
}

void places_tick(void *places)
{
    struct places *p = places;

    if (p->journal == NULL || p->is_draining)
        return;
    for (int i = 0; i < JOURNAL_N_PLACES; i++) {
        const struct journal_query q = {
            .by = JOURNAL_PLACE, .number = (uint32_t)i, .wants_owner = true, .is_sweep = true};
        struct place_ask *a = &p->looks[i];

        place_check(p, &p->rows[i]);
        if (p->rows[i].holder.leave == NULL || p->rows[i].state != PLACE_UNKNOWN ||
            a->wait.item != NULL || link_is_on(&a->link))
            continue;
        *a = (struct place_ask){.of = p, .place = (enum journal_place)i, .done = on_looked};
        place_ask_begin(a, &q);
    }
    places_arm(p);
}
