/* Happy path, closed loop: the main thread begins a conversation in each slot, then sleeps. On the
 * target's thread the end of a turn sends the next one, or begins the next conversation in the same
 * slot; the last end wakes the main thread. Timed events (an arrival, a turn after thinking) are
 * the main thread's.
 *
 * Failure: a failed turn ends its conversation, whose remaining turns count as failed. A failed
 * background turn ends the load. Stopping: leaves every conversation and waits for its end. */
#include "client/cli/bench/load.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "base/env.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "client/cli/bench/due.h"
#include "client/cli/bench/server_cpu.h"

enum {
    MAX_TEXT_BYTES = 64 << 20,
    TICK_MS = 250, /* between two lines of progress */
    LOOK_MS = 100, /* between two looks for turns that take too long */
    BACKGROUND_INPUT_TOKENS = 64,
    BACKGROUND_OUTPUT_TOKENS = 256,
    /* Conversations that are not measured are numbered from here, so that their words differ. */
    FIRST_BACKGROUND = 1 << 29,
    FIRST_NEWCOMER = 1 << 30,
    /* Added to the seed, so that shares have other draws than words and lengths. */
    SHARES = 1 << 20,
    /* With a duration, the next conversation begins only this long after a failed one: else an
     * unavailable server would get requests as fast as it refuses them. */
    AFTER_FAILURE_US = 1000 * 1000,
};

enum role { MEASURED, BACKGROUND, NEWCOMER };

/* A slot runs one conversation after another. The load's lock guards it. */
struct load_slot {
    struct load *load;
    struct target_session *session;
    enum role role;
    uint32_t conversation;      /* its number */
    bool is_taken;              /* its conversation has not ended */
    bool is_busy;               /* a turn is in flight */
    bool is_to_cancel;          /* this turn will be cancelled at its first chunk */
    bool is_cancelled;          /* this turn was cancelled */
    bool is_late;               /* it took too long, and was left */
    bool has_spoken;            /* has had a chunk at any time */
    bool is_idle, is_due;       /* on the load's stack or heap */
    uint64_t n_tokens, busy_us; /* of this conversation */
    struct buf system, text;
};

struct load {
    struct target *target;
    const struct prompts *prompts;
    const struct load_plan *plan;
    int event_fd;         /* written to wake the main thread */
    pthread_mutex_t lock; /* guards what follows */
    struct figures *figures;
    struct load_slot
        *slots; /* [n_slots]: the measured ones, those in the background, the newcomer */
    uint32_t n_measured, n_slots;
    uint32_t *idle; /* [n_idle]: measured slots that wait for a conversation to arrive */
    uint32_t n_idle;
    struct due due;              /* measured slots that wait for a time, by number */
    uint32_t n_arrived, n_begun; /* conversations that may begin, and that have begun */
    /* Open loop: the same schedule, as far as conversations have arrived and have begun. */
    struct arrivals_plan schedule;
    struct arrivals arriving, beginning;
    uint32_t n_taken;      /* measured slots */
    uint32_t n_busy;       /* slots of any role */
    uint32_t n_spoken[2];  /* slots, by role */
    uint64_t n_chunks;     /* measured */
    uint64_t next_look_us; /* when turns that take too long are looked for again */
    bool is_stopping;
    struct error err; /* the failure that ends the load */
};

static void load_wake(struct load *l)
{
    uint64_t one = 1;

    /* Fails only if the counter has reached 2^64 - 1. */
    (void)!write(l->event_fd, &one, sizeof(one));
}

static bool is_time_over(const struct load *l)
{
    uint64_t duration_us = (uint64_t)(l->plan->duration_s * 1e6);

    return duration_us > 0 && env_now_us(&env_real) >= l->figures->start_us + duration_us;
}

/* --- one slot; the lock is held --- */

enum { DRAW_INPUT, DRAW_OUTPUT };                  /* of lengths */
enum { DRAW_FORK, DRAW_CANCEL, DRAW_CONSTRAINED }; /* of shares */

/* What the trace says of a measured conversation's turn; NULL: there is no trace. */
static const struct trace_turn *trace_turn_of(const struct load_slot *slot, uint32_t turn)
{
    const struct load_plan *plan = slot->load->plan;

    if (slot->role != MEASURED || plan->trace == NULL)
        return NULL;
    return &plan->trace->items[(slot->conversation - plan->first) % plan->trace->n].turns[turn - 1];
}

/* How many turns the slot's conversation has. */
static uint32_t turns_of(const struct load_slot *slot)
{
    const struct load_plan *plan = slot->load->plan;

    return plan->trace == NULL
               ? plan->n_turns
               : plan->trace->items[(slot->conversation - plan->first) % plan->trace->n].n_turns;
}

static uint32_t drawn(const struct load_slot *slot, const struct token_lengths *from, uint32_t turn,
                      uint32_t what)
{
    return lengths_draw(from, slot->load->prompts->seed, slot->conversation, turn, what);
}

static uint32_t input_tokens(const struct load_slot *slot, uint32_t turn)
{
    const struct load_plan *plan = slot->load->plan;
    const struct trace_turn *said = trace_turn_of(slot, turn);

    switch (slot->role) {
    case MEASURED:
        return said != NULL && said->input_tokens > 0
                   ? said->input_tokens
                   : drawn(slot, &plan->input_tokens, turn, DRAW_INPUT);
    case BACKGROUND:
        return BACKGROUND_INPUT_TOKENS;
    case NEWCOMER:
        break;
    }
    return plan->newcomer_tokens;
}

static uint32_t output_tokens(const struct load_slot *slot, uint32_t turn)
{
    const struct load_plan *plan = slot->load->plan;
    const struct trace_turn *said = trace_turn_of(slot, turn);

    switch (slot->role) {
    case MEASURED:
        return said != NULL && said->output_tokens > 0
                   ? said->output_tokens
                   : drawn(slot, &plan->output_tokens, turn, DRAW_OUTPUT);
    case BACKGROUND:
        return BACKGROUND_OUTPUT_TOKENS;
    case NEWCOMER:
        break;
    }
    return 1;
}

static enum status turn_text(struct load_slot *slot, uint32_t turn)
{
    const struct trace_turn *said = trace_turn_of(slot, turn);

    if (said == NULL || said->text == NULL)
        return prompts_text(slot->load->prompts, slot->conversation, turn, input_tokens(slot, turn),
                            &slot->text);
    buf_clear(&slot->text);
    return buf_append_text(&slot->text, said->text);
}

/* Whether a measured turn is one of this share. */
static bool is_of_share(const struct load_slot *slot, double share, uint32_t turn, uint32_t what)
{
    return slot->role == MEASURED && share > 0 &&
           (double)counter_rng_uniform(slot->load->prompts->seed ^ SHARES, slot->conversation, turn,
                                       what) < share;
}

/* due_us: when the schedule begins it; 0: now. */
static enum status send_turn(struct load_slot *slot, uint32_t turn, uint64_t due_us,
                             struct error *err)
{
    struct load *l = slot->load;
    struct target_session *s = slot->session;
    enum status rc = STATUS_OK;

    if (turn == 1)
        rc = prompts_system(l->prompts, slot->conversation, &slot->system);
    if (rc == STATUS_OK)
        rc = turn_text(slot, turn);
    if (rc != STATUS_OK)
        return error_set(err, rc, "a prompt is longer than %d MiB", MAX_TEXT_BYTES >> 20);
    s->turn = turn;
    s->due_us = due_us;
    s->system = slot->system.len == 0 ? NULL : slot->system.data;
    s->text = slot->text.data;
    s->max_tokens = output_tokens(slot, turn);
    s->is_fork = turn > 1 && is_of_share(slot, l->plan->forks, turn, DRAW_FORK);
    s->json_schema = is_of_share(slot, l->plan->constrained, turn, DRAW_CONSTRAINED)
                         ? l->plan->json_schema
                         : NULL;
    slot->is_to_cancel = is_of_share(slot, l->plan->cancels, turn, DRAW_CANCEL);
    slot->is_cancelled = slot->is_late = false;
    rc = l->target->type->send(l->target, s, err);
    if (rc != STATUS_OK)
        return rc;
    slot->is_busy = true;
    l->n_busy++;
    if (l->n_busy > l->figures->n_peak)
        l->figures->n_peak = l->n_busy;
    return STATUS_OK;
}

/* Its conversation is over. */
static void load_slot_release(struct load_slot *slot)
{
    struct load *l = slot->load;

    if (slot->role == MEASURED && slot->is_taken) {
        l->n_taken--;
        if (slot->busy_us > 0)
            quantiles_add(&l->figures->rates_milli,
                          (uint64_t)((double)slot->n_tokens * 1e9 / (double)slot->busy_us));
    }
    slot->is_taken = false;
    l->target->type->leave(l->target, slot->session);
}

/* Conversation number n, in this slot, due at that time; 0: now. */
static enum status load_slot_begin(struct load_slot *slot, uint32_t n, uint64_t due_us,
                                   struct error *err)
{
    slot->conversation = n;
    slot->n_tokens = slot->busy_us = 0;
    slot->is_taken = true;
    if (slot->role == MEASURED)
        slot->load->n_taken++;
    return send_turn(slot, 1, due_us, err);
}

/* Its next turn or conversation begins at that time. */
static void load_slot_wait(struct load_slot *slot, uint64_t until_us)
{
    slot->is_due = true;
    due_add(&slot->load->due, until_us, (uint32_t)(slot - slot->load->slots));
}

/* A turn of a measured conversation failed, and so its later turns fail too. */
static void load_slot_fail(struct load_slot *slot, uint32_t turn, const struct error *why)
{
    const struct load_plan *plan = slot->load->plan;

    figures_add_failed(slot->load->figures, plan->duration_s > 0 ? 1 : turns_of(slot) - turn + 1,
                       why);
    load_slot_release(slot);
    if (plan->duration_s > 0 && !arrivals_are_given(&plan->arrivals))
        load_slot_wait(slot, env_now_us(&env_real) + AFTER_FAILURE_US);
}

static uint64_t arrival_us(const struct load *l, double at_s)
{
    return l->figures->start_us + (uint64_t)(at_s * 1e6);
}

/* When the next conversation to begin was due; 0 in a closed loop. Steps on. */
static uint64_t take_due(struct load *l)
{
    return arrivals_are_given(&l->plan->arrivals) ? arrival_us(l, arrivals_take(&l->beginning)) : 0;
}

/* Whether the next conversation of those that have arrived may begin. In an open loop each one does
 * that was due in time: those that a slow server has delayed belong to the load. */
static bool may_begin(const struct load *l)
{
    if (l->n_begun == l->n_arrived || l->is_stopping)
        return false;
    if (arrivals_are_given(&l->plan->arrivals) && l->plan->duration_s > 0)
        return l->beginning.at_s < l->plan->duration_s;
    return !is_time_over(l);
}

/* Begins the next conversation that has arrived; without one the slot is idle. */
static void begin_next(struct load_slot *slot)
{
    struct load *l = slot->load;
    struct error err;

    while (!slot->is_due && may_begin(l)) {
        uint32_t n = l->plan->first + l->n_begun++;

        if (load_slot_begin(slot, n, take_due(l), &err) == STATUS_OK)
            return;
        load_slot_fail(slot, 1, &err);
    }
    if (!slot->is_due && !slot->is_idle) {
        slot->is_idle = true;
        l->idle[l->n_idle++] = (uint32_t)(slot - l->slots);
    }
}

/* A background conversation or the newcomer failed. */
static void spoil(struct load *l, const struct error *why, const char *what)
{
    if (l->err.status == STATUS_OK && !l->is_stopping) {
        l->err = *why;
        (void)error_prefix(&l->err, "%s failed", what);
    }
}

/* --- the target's callbacks, on its thread --- */

static bool newcomer_is_busy(const struct load *l)
{
    return l->plan->newcomer_tokens > 0 && l->slots[l->n_slots - 1].is_busy;
}

/* Whether an arrival within the duration is not counted yet: this thread may be late. */
static bool awaits_arrival(const struct load *l)
{
    return arrivals_are_given(&l->plan->arrivals) && l->n_arrived < l->plan->n_conversations &&
           l->arriving.at_s < l->plan->duration_s;
}

static bool is_over(const struct load *l)
{
    bool is_through = l->n_begun == l->plan->n_conversations ||
                      (is_time_over(l) && !may_begin(l) && !awaits_arrival(l));

    return l->err.status != STATUS_OK || (is_through && l->n_taken == 0 && !newcomer_is_busy(l));
}

static void on_first_chunk(struct load_slot *slot)
{
    struct load *l = slot->load;
    struct error err;

    if (slot->role == NEWCOMER || slot->has_spoken)
        return;
    slot->has_spoken = true;
    l->n_spoken[slot->role]++;
    if (slot->role == BACKGROUND && l->n_spoken[BACKGROUND] == l->plan->n_background)
        load_wake(l);
    if (slot->role == MEASURED && l->n_spoken[MEASURED] == l->n_measured &&
        l->plan->newcomer_tokens > 0 && !l->is_stopping &&
        load_slot_begin(&l->slots[l->n_slots - 1], FIRST_NEWCOMER, 0, &err) != STATUS_OK)
        spoil(l, &err, "the newcomer");
}

static void on_chunk(struct target_session *s, bool is_first, uint64_t gap_us)
{
    struct load_slot *slot = s->owner;
    struct load *l = slot->load;

    (void)pthread_mutex_lock(&l->lock);
    if (slot->role == MEASURED) {
        l->n_chunks++;
        if (!is_first)
            quantiles_add(&l->figures->itl_us, gap_us);
        if (!is_first && newcomer_is_busy(l))
            quantiles_add(&l->figures->newcomer_itl_us, gap_us);
    }
    if (is_first)
        on_first_chunk(slot);
    if (is_first && slot->is_to_cancel) {
        slot->is_cancelled = true;
        l->target->type->leave(l->target, s);
    }
    (void)pthread_mutex_unlock(&l->lock);
}

static void end_measured(struct load_slot *slot, const struct error *how)
{
    struct load *l = slot->load;
    struct target_session *s = slot->session;
    struct error err;

    if (l->is_stopping) {
        load_slot_release(slot); /* the turn ended because the load stops */
        return;
    }
    l->figures->end_us = env_now_us(&env_real);
    if (how->status != STATUS_OK && slot->is_cancelled) {
        l->figures->n_cancelled++;
        load_slot_release(slot);
        begin_next(slot);
        return;
    }
    if (how->status != STATUS_OK) {
        load_slot_fail(slot, s->turn, how);
        begin_next(slot);
        return;
    }
    figures_add_turn(l->figures, s);
    slot->n_tokens += s->completion_tokens;
    slot->busy_us += s->last_us == 0 ? 0 : s->last_us - s->sent_us;
    if (s->turn == turns_of(slot) || is_time_over(l) || slot->is_cancelled) {
        load_slot_release(slot);
        begin_next(slot);
    } else if (l->plan->think_s > 0) {
        load_slot_wait(slot, l->figures->end_us + (uint64_t)(l->plan->think_s * 1e6));
    } else if (send_turn(slot, s->turn + 1, 0, &err) != STATUS_OK) {
        load_slot_fail(slot, s->turn, &err);
        begin_next(slot);
    }
}

static void end_background(struct load_slot *slot, const struct error *how)
{
    struct load *l = slot->load;
    struct error err = *how;

    load_slot_release(slot);
    if (err.status == STATUS_OK && !l->is_stopping)
        (void)load_slot_begin(slot, slot->conversation + l->plan->n_background, 0,
                              &err); /* err says whether it failed */
    if (err.status != STATUS_OK)
        spoil(l, &err, "a conversation in the background");
}

static void end_newcomer(struct load_slot *slot, const struct error *how)
{
    struct load *l = slot->load;
    const struct target_session *s = slot->session;

    if (how->status != STATUS_OK)
        spoil(l, how, "the newcomer");
    else if (s->first_us > 0)
        l->figures->newcomer_ttft_ms = (double)(s->first_us - s->sent_us) / 1e3;
    load_slot_release(slot);
}

static void on_end(struct target_session *s, const struct error *err)
{
    static void (*const ends[])(struct load_slot * slot, const struct error *how) = {
        [MEASURED] = end_measured, [BACKGROUND] = end_background, [NEWCOMER] = end_newcomer};
    struct load_slot *slot = s->owner;
    struct load *l = slot->load;
    struct error how = *err;

    (void)pthread_mutex_lock(&l->lock);
    slot->is_busy = false;
    l->n_busy--;
    if (how.status != STATUS_OK && slot->is_late)
        (void)error_set(&how, STATUS_DEADLINE, "the turn took longer than %g s",
                        l->plan->timeout_s);
    ends[slot->role](slot, &how);
    if (l->is_stopping || slot->is_due || is_over(l))
        load_wake(l); /* with the lock held: the load may be freed right after */
    (void)pthread_mutex_unlock(&l->lock);
}

/* --- the main thread --- */

static void send_one_due(struct load *l, struct due_entry due)
{
    struct load_slot *slot = &l->slots[due.id];
    uint32_t turn = slot->session->turn + 1;
    struct error err;

    slot->is_due = false;
    if (slot->is_taken && send_turn(slot, turn, due.at_us, &err) != STATUS_OK)
        load_slot_fail(slot, turn, &err);
    if (!slot->is_taken)
        begin_next(slot);
}

/* Sends the turns that are due. Returns when the next one is due, UINT64_MAX for none. */
static uint64_t send_due(struct load *l)
{
    uint64_t now_us = env_now_us(&env_real);

    while (due_next(&l->due) <= now_us)
        send_one_due(l, due_take(&l->due));
    return due_next(&l->due);
}

/* Leaves the turns that take too long; looks only once in a while. */
static void leave_late(struct load *l)
{
    uint64_t now_us = env_now_us(&env_real);
    uint64_t timeout_us = (uint64_t)(l->plan->timeout_s * 1e6);

    if (timeout_us == 0 || now_us < l->next_look_us)
        return;
    l->next_look_us = now_us + LOOK_MS * 1000;
    for (uint32_t i = 0; i < l->n_slots; i++) {
        struct load_slot *slot = &l->slots[i];

        if (slot->is_busy && !slot->is_late && now_us >= slot->session->begun_us + timeout_us) {
            slot->is_late = true;
            l->target->type->leave(l->target, slot->session);
        }
    }
}

static void fill_slots(struct load *l)
{
    while (l->n_idle > 0 && may_begin(l)) {
        struct load_slot *slot = &l->slots[l->idle[--l->n_idle]];

        slot->is_idle = false;
        begin_next(slot);
    }
}

/* Begins the conversations that are due. Returns when the next one is due, UINT64_MAX for none. */
static uint64_t let_arrive(struct load *l)
{
    uint64_t now_us = env_now_us(&env_real);

    if (!arrivals_are_given(&l->plan->arrivals)) {
        l->n_arrived = l->plan->n_conversations;
        fill_slots(l);
        return UINT64_MAX;
    }
    while (l->n_arrived < l->plan->n_conversations) {
        uint64_t at_us = arrival_us(l, l->arriving.at_s);

        if (at_us > now_us)
            break;
        (void)arrivals_take(&l->arriving);
        l->n_arrived++;
    }
    fill_slots(l);
    return l->n_arrived < l->plan->n_conversations ? arrival_us(l, l->arriving.at_s) : UINT64_MAX;
}

/* The progress as a line; "" at the very start. The lock is held. */
static void load_describe(const struct load *l, char *line, size_t size)
{
    uint64_t us = env_now_us(&env_real) - l->figures->start_us;
    const struct figures *f = l->figures;

    line[0] = '\0';
    if (us > (uint64_t)TICK_MS * 1000)
        (void)snprintf(
            line, size, "%llu turns, %llu failed · %u in flight · %.0f chunks/s · %llu s",
            (unsigned long long)(f->n_completed + f->n_failed), (unsigned long long)f->n_failed,
            l->n_busy, (double)l->n_chunks * 1e6 / (double)us, (unsigned long long)us / 1000000);
}

/* Sleeps until an event, until_us at most. A Ctrl-C fails the load. */
static void wait_event(struct load *l, uint64_t until_us)
{
    uint64_t now_us = env_now_us(&env_real), wait_us = (uint64_t)TICK_MS * 1000, n;
    struct pollfd fds[2] = {{.fd = l->event_fd, .events = POLLIN},
                            {.fd = interrupt_fd(), .events = POLLIN}};
    struct timespec wait;

    if (until_us <= now_us)
        wait_us = 0;
    else if (until_us - now_us < wait_us)
        wait_us = until_us - now_us;
    wait = (struct timespec){.tv_nsec = (long)wait_us * 1000};
    (void)ppoll(fds, 2, &wait, NULL);        /* a signal only makes the round shorter */
    (void)!read(l->event_fd, &n, sizeof(n)); /* fails if there is nothing to clear */
    if (interrupt_take()) {
        (void)pthread_mutex_lock(&l->lock);
        (void)error_set(&l->err, STATUS_CANCELLED, "stopped with %" PRIu32 " turn%s in flight",
                        l->n_busy, l->n_busy == 1 ? "" : "s");
        if (l->figures->start_us > 0 && !l->is_stopping)
            l->figures->end_us = env_now_us(&env_real); /* turns in flight took their time too */
        (void)pthread_mutex_unlock(&l->lock);
        interrupt_release(); /* a second Ctrl-C ends the program at once */
    }
}

static double load_cpu_s(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u); /* cannot fail */
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Background conversations start before the measurement. */
static void start_background(struct load *l)
{
    struct error err;

    (void)pthread_mutex_lock(&l->lock);
    for (uint32_t i = 0; i < l->plan->n_background; i++)
        if (load_slot_begin(&l->slots[l->n_measured + i], FIRST_BACKGROUND + i, 0, &err) !=
            STATUS_OK)
            spoil(l, &err, "a conversation in the background");
    while (l->err.status == STATUS_OK && l->n_spoken[BACKGROUND] < l->plan->n_background) {
        leave_late(l);
        (void)pthread_mutex_unlock(&l->lock);
        console_progress("the conversations in the background begin");
        wait_event(l, UINT64_MAX);
        (void)pthread_mutex_lock(&l->lock);
    }
    (void)pthread_mutex_unlock(&l->lock);
}

static void run_measured(struct load *l)
{
    const int server = server_process(l->plan->server);
    double before_s = load_cpu_s(), server_before_s = server_cpu_s(server);
    char line[128];

    (void)pthread_mutex_lock(&l->lock);
    l->figures->start_us = l->figures->end_us = env_now_us(&env_real);
    while (!is_over(l)) {
        uint64_t due_us = send_due(l), next_us = let_arrive(l);

        if (is_over(l))
            break;
        leave_late(l);
        load_describe(l, line, sizeof(line));
        (void)pthread_mutex_unlock(&l->lock);
        if (*line != '\0')
            console_progress("%s", line);
        wait_event(l, due_us < next_us ? due_us : next_us);
        (void)pthread_mutex_lock(&l->lock);
    }
    (void)pthread_mutex_unlock(&l->lock);
    l->figures->client_cpu_s = load_cpu_s() - before_s;
    l->figures->server_cpu_s = server_cpu_s(server) - server_before_s;
}

static void stop(struct load *l)
{
    (void)pthread_mutex_lock(&l->lock);
    l->is_stopping = true;
    for (uint32_t i = 0; i < l->n_slots; i++)
        if (l->slots[i].is_taken)
            l->target->type->leave(l->target, l->slots[i].session);
    while (l->n_busy > 0) {
        (void)pthread_mutex_unlock(&l->lock);
        wait_event(l, UINT64_MAX);
        (void)pthread_mutex_lock(&l->lock);
    }
    (void)pthread_mutex_unlock(&l->lock);
    console_clear();
}

static void slots_init(struct load *l)
{
    static const struct session_events events = {on_chunk, on_end};
    const struct load_plan *plan = l->plan;

    l->n_measured =
        plan->concurrency < plan->n_conversations ? plan->concurrency : plan->n_conversations;
    l->n_slots = l->n_measured + plan->n_background + (plan->newcomer_tokens > 0);
    l->slots = xalloc(l->n_slots * sizeof(*l->slots));
    l->idle = xalloc(l->n_measured * sizeof(*l->idle));
    for (uint32_t i = l->n_measured; i-- > 0;)
        l->idle[l->n_idle++] = i;
    for (uint32_t i = 0; i < l->n_slots; i++) {
        struct load_slot *slot = &l->slots[i];

        slot->load = l;
        slot->is_idle = i < l->n_measured;
        slot->role = i < l->n_measured                        ? MEASURED
                     : i < l->n_measured + plan->n_background ? BACKGROUND
                                                              : NEWCOMER;
        slot->session = xalloc(l->target->type->session_size);
        slot->session->events = &events;
        slot->session->owner = slot;
        buf_init(&slot->system, MAX_TEXT_BYTES);
        buf_init(&slot->text, MAX_TEXT_BYTES);
    }
}

static void slots_deinit(struct load *l)
{
    for (uint32_t i = 0; i < l->n_slots; i++) {
        l->target->type->session_deinit(l->slots[i].session);
        free(l->slots[i].session);
        buf_deinit(&l->slots[i].system);
        buf_deinit(&l->slots[i].text);
    }
    free(l->slots);
    free(l->idle);
    due_deinit(&l->due);
}

enum status load_run(struct figures *out, struct target *t, const struct prompts *prompts,
                     const struct load_plan *plan, struct error *err)
{
    struct load l = {.target = t,
                     .prompts = prompts,
                     .plan = plan,
                     .figures = out,
                     .event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};

    if (l.event_fd < 0)
        return error_set(err, STATUS_EXHAUSTED, "no file descriptor is left: %s", strerror(errno));
    (void)pthread_mutex_init(&l.lock, NULL); /* cannot fail on Linux */
    l.schedule = plan->arrivals;
    l.schedule.seed = prompts->seed;
    l.schedule.stream = plan->first;
    arrivals_init(&l.arriving, &l.schedule);
    arrivals_init(&l.beginning, &l.schedule);
    slots_init(&l);
    start_background(&l);
    if (l.err.status == STATUS_OK)
        run_measured(&l);
    stop(&l);
    slots_deinit(&l);
    (void)pthread_mutex_destroy(&l.lock);
    (void)close(l.event_fd);
    *err = l.err;
    return err->status;
}
