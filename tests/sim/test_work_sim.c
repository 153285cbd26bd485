/* The table of tasks under a clock turned by hand: clients of three principals submit, submit
 * again, wait, cancel and leave, while workers attach, compute, hand tasks back, are killed, stop
 * and go on, answer twice, and memory is short now and then. Each seed is one schedule. A task that
 * is waited for has one result, which is its own; it is ABORTED after exactly as many losses as
 * were allowed, and CANCELLED or late only if it was to be. In the end nothing is left. --seed N
 * replays one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "server/work/work.h"
#include "server/work/worker.h"
#include "tests/support/sim.h"

enum { N_EVENTS = 400, N_WORKERS = 4, N_CLIENTS = 3, MAX_TASKS = N_EVENTS + 1, MAX_HELD = 64 };

static const char *const functions[] = {"double", "also"};

struct sim_task {
    uint64_t id, payload, due_us;
    uint32_t principal;
    unsigned n_retries, n_lost;
    bool is_cancelled, was_without_workers;
    unsigned n_results;
};

struct sim_worker {
    struct work_worker worker;
    bool is_attached, is_stopped;
    uint64_t held[MAX_HELD]; /* [n_held] ids, in the order in which they came */
    size_t n_held, n_at_once;
    char name[16];
};

struct sim_client {
    struct work_wait wait;
    size_t n_waited, n_results;
};

static struct world {
    struct work_table work;
    struct alarm alarm;
    struct sim_task tasks[MAX_TASKS];
    size_t n_tasks;
    unsigned n_names;
    struct sim_worker workers[N_WORKERS];
    struct sim_client clients[N_CLIENTS];
    uint64_t n_faults, n_results, n_aborted, n_killed, n_reported, n_duplicates;
    bool has_faults;
} s;

static struct sim_task *task_of(uint64_t id)
{
    for (size_t i = 0; i < s.n_tasks; i++)
        if (s.tasks[i].id == id)
            return &s.tasks[i];
    return NULL;
}

/* --- workers --- */

static void on_notify(struct peer *p)
{
}

/* Its oldest task has begun, and is lost with it; where nobody tells that, others are, too. */
static void worker_gone(struct sim_worker *f, bool is_reported)
{
    size_t n = is_reported ? 1 : f->n_at_once;

    for (size_t i = 0; i < n && i < f->n_held; i++)
        if (task_of(f->held[i]) != NULL)
            task_of(f->held[i])->n_lost++;
    f->is_attached = false;
    f->n_held = 0;
}

static void on_ended(struct peer *p, const struct error *err)
{
    struct sim_worker *f = container_of(p, struct sim_worker, worker.peer);

    MUST(f->is_attached && err->text[0] != '\0');
    MUST(f->is_stopped || err->status == STATUS_UNAVAILABLE);
    work_worker_close(&f->worker);
    worker_gone(f, false);
}

/* False: there was no memory for it. */
static bool worker_report(const struct sim_worker *f, uint64_t begun)
{
    const struct work_report r = {.name = f->name,
                                  .principal = f->worker.principal,
                                  .signal = 9,
                                  .tail = "the last words",
                                  .tells_begun = true,
                                  .begun = &begun,
                                  .n_begun = 1};
    struct error err;

    if (work_report(&s.work, &r, &err) == STATUS_OK) {
        s.n_reported++;
        return true;
    }
    MUST(s.has_faults && err.status == STATUS_EXHAUSTED);
    return false;
}

static void worker_attach(struct sim_worker *f)
{
    struct error err;
    bool has_name = pick(3) > 0;
    struct work_offer offer = {.functions = functions,
                               .n_functions = 1 + pick(2),
                               .room = 1 + pick(4),
                               .is_private = pick(4) == 0,
                               .principal = pick(N_CLIENTS)};

    *f = (struct sim_worker){.worker.peer = {.notify = on_notify, .ended = on_ended}};
    (void)snprintf(f->name, sizeof(f->name), "w%u", ++s.n_names);
    offer.name = has_name ? f->name : "";
    offer.n_at_once = f->n_at_once = has_name ? 1 + pick(3) : 1;
    f->is_attached = work_worker_open(&f->worker, &s.work, &offer, &err) == STATUS_OK;
    MUST(f->is_attached || (s.has_faults && err.status == STATUS_EXHAUSTED));
}

static void worker_kill(struct sim_worker *f)
{
    unsigned how = f->worker.name[0] == '\0' ? 2 : pick(3);

    uint64_t begun = f->n_held > 0 ? f->held[0] : 0;
    bool is_reported = how == 1;
    struct sim_worker was = *f;

    s.n_killed++;
    fault_after = -1; /* else the server cannot tell which of its tasks are lost */
    if (how == 0)
        is_reported = worker_report(f, begun);
    worker_gone(f, is_reported);
    work_worker_close(&f->worker);
    if (how == 1)
        (void)worker_report(&was, begun);
}

static void worker_take(struct sim_worker *f)
{
    struct work_task *t;
    uint64_t id;

    while (work_worker_recall(&f->worker, &id))
        MUST(task_of(id) == NULL || task_of(id)->is_cancelled || task_of(id)->due_us != 0);
    if ((t = work_worker_order(&f->worker)) == NULL)
        return;
    f->held[f->n_held++] = t->by_id.hash;
    work_worker_taken(&f->worker);
}

static void worker_answer(struct sim_worker *f)
{
    struct work_failure failure = {
        .is_exception = true, .type = "Odd", .message = "it is", .trace = ""};
    struct work_bytes result = {0};
    struct work_task *t;
    uint64_t id = f->held[0], value;
    struct sim_task *known = task_of(id);
    struct error err;

    MUST(work_worker_find(&t, &f->worker, id, &err) == STATUS_OK);
    value = known == NULL ? 0 : 2 * known->payload;
    if (work_bytes_begin(&result, &s.work, work_task_principal(t), sizeof(value), &err) !=
        STATUS_OK) {
        MUST(s.has_faults);
        return;
    }
    MUST(work_bytes_append(&result, &value, sizeof(value), &err) == STATUS_OK);
    (void)error_set(&failure.err, STATUS_UNKNOWN, "Odd: it is");
    work_worker_result(&f->worker, t, &result, value % 7 == 6 ? &failure : NULL);
    f->n_held--;
    memmove(f->held, f->held + 1, f->n_held * sizeof(f->held[0]));
    MUST(work_worker_find(&t, &f->worker, id, &err) == STATUS_INVALID); /* once is enough */
}

static void worker_hand_back(struct sim_worker *f)
{
    struct work_task *t;
    struct error err;

    MUST(work_worker_find(&t, &f->worker, f->held[f->n_held - 1], &err) == STATUS_OK);
    f->n_held--;
    work_worker_return(&f->worker, t);
}

static void worker_act(struct sim_worker *f)
{
    unsigned what = pick(20);
    struct error err;

    if (!f->is_attached) {
        if (what < 8)
            worker_attach(f);
    } else if (f->is_stopped) {
        f->is_stopped = what > 6;
        if (!f->is_stopped)
            peer_heard(&f->worker.peer);
    } else if (what < 1) {
        worker_kill(f);
    } else if (what < 2) {
        f->is_stopped = true;
    } else {
        if (what < 9)
            worker_take(f);
        else if (what < 17 && f->n_held > 0)
            worker_answer(f);
        else if (what < 18 && f->n_held > 1)
            worker_hand_back(f);
        else if (what < 19)
            MUST(work_worker_set_room(&f->worker, pick(5), &err) == STATUS_OK);
    }
}

/* --- clients --- */

static void on_ready(struct work_wait *wait)
{
}

static void client_submit(struct sim_client *c, uint32_t principal)
{
    struct sim_task *known = &s.tasks[s.n_tasks];
    struct work_submission m = {.principal = principal,
                                .function = functions[pick(2)],
                                .request_id = "",
                                .n_retries = pick(3),
                                .deadline_us = pick(5) == 0 ? sim.now_us + pick(2000000) : 0};
    uint64_t payload = s.n_tasks;
    struct work_bytes bytes = {0};
    struct work_task *t, *again;
    char request_id[32];
    struct error err;
    enum status rc;

    (void)snprintf(request_id, sizeof(request_id), "r%zu", s.n_tasks);
    if (pick(2) == 0)
        m.request_id = request_id;
    rc = work_bytes_begin(&bytes, &s.work, principal, sizeof(payload), &err);
    if (rc == STATUS_OK)
        rc = work_bytes_append(&bytes, &payload, sizeof(payload), &err);
    if (rc == STATUS_OK)
        rc = work_submit(&t, &s.work, &m, &bytes, &err);
    work_bytes_free(&bytes, &s.work);
    if (rc != STATUS_OK) {
        MUST(rc == STATUS_NOT_FOUND || (s.has_faults && rc == STATUS_EXHAUSTED));
        return;
    }
    *known = (struct sim_task){.id = t->by_id.hash,
                               .payload = payload,
                               .principal = principal,
                               .n_retries = m.n_retries,
                               .due_us = m.deadline_us};
    s.n_tasks++;
    if (m.request_id[0] != '\0' &&
        work_bytes_begin(&bytes, &s.work, principal, sizeof(payload), &err) == STATUS_OK) {
        MUST(work_bytes_append(&bytes, &payload, sizeof(payload), &err) == STATUS_OK);
        MUST(work_submit(&again, &s.work, &m, &bytes, &err) == STATUS_OK && again == t);
        s.n_duplicates++;
    }
    if (work_wait_add(&c->wait, t, payload, &err) == STATUS_OK) {
        c->n_waited++;
    } else {
        MUST(s.has_faults);
        known->is_cancelled = true;
        t->is_forgotten = true;
        work_cancel(t);
    }
}

static void client_take(struct sim_client *c)
{
    struct work_wait_entry *e = work_wait_next(&c->wait);
    const struct work_failure *f;
    struct sim_task *t;
    uint64_t value;

    if (e == NULL)
        return;
    t = task_of(e->task->by_id.hash);
    MUST(t != NULL && t->payload == e->tag && ++t->n_results == 1);
    f = e->task->failure;
    if (f == NULL || f->is_exception) {
        MUST(e->task->result.size_bytes == sizeof(value));
        memcpy(&value, e->task->result.data, sizeof(value));
        MUST(value == 2 * t->payload && (f != NULL) == (value % 7 == 6));
        MUST(t->n_lost <= t->n_retries);
    } else if (f->err.status == STATUS_ABORTED) {
        MUST(t->n_lost == t->n_retries + 1 && f->is_loss);
        MUST(f->signal == 0 || (f->signal == 9 && strcmp(f->tail, "the last words") == 0));
        s.n_aborted++;
    } else if (f->err.status == STATUS_CANCELLED) {
        MUST(t->is_cancelled);
    } else if (f->err.status == STATUS_DEADLINE) {
        MUST(t->due_us != 0 && t->due_us <= sim.now_us);
    } else if (f->err.status != STATUS_UNAVAILABLE) {
        MUST(s.has_faults && f->err.status == STATUS_EXHAUSTED);
    }
    s.n_results++;
    c->n_results++;
    work_wait_taken(e, pick(2) == 0);
}

static void client_act(unsigned at)
{
    struct sim_client *c = &s.clients[at];
    unsigned what = pick(10);
    struct work_task *t;
    struct sim_task *known;
    struct error err;

    if (what < 5) {
        client_submit(c, at);
    } else if (what < 8) {
        client_take(c);
    } else if (what < 9 && s.n_tasks > 0) {
        known = &s.tasks[pick((unsigned)s.n_tasks)];
        if (known->principal != at) {
            MUST(work_find(&t, &s.work, at, known->id, &err) == STATUS_NOT_FOUND);
        } else if (work_find(&t, &s.work, at, known->id, &err) == STATUS_OK) {
            known->is_cancelled = known->is_cancelled || t->state != WORK_TASK_DONE;
            work_cancel(t);
        }
    }
}

/* --- a schedule --- */

static void world_end(void)
{
    struct error err;

    fault_after = -1;
    for (size_t i = 0; i < N_WORKERS; i++)
        if (s.workers[i].is_attached)
            worker_kill(&s.workers[i]);
    sim.now_us += UINT64_C(1000000) * 6; /* no report comes any more */
    alarm_ring(&s.alarm);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        struct sim_worker *f = &s.workers[i];
        struct work_offer offer = {
            .name = "", .functions = functions, .n_functions = 2, .room = 50};

        *f = (struct sim_worker){.worker.peer = {.notify = on_notify, .ended = on_ended}};
        offer.principal = (uint32_t)i;
        offer.is_private = true;
        MUST(work_worker_open(&f->worker, &s.work, &offer, &err) == STATUS_OK);
        f->is_attached = true;
        f = &s.workers[N_WORKERS - 1];
        if (i > 0)
            continue;
        offer.is_private = false;
        *f = (struct sim_worker){.worker.peer = {.notify = on_notify, .ended = on_ended}};
        MUST(work_worker_open(&f->worker, &s.work, &offer, &err) == STATUS_OK);
        f->is_attached = true;
    }
    for (bool is_going = true; is_going;) {
        is_going = false;
        for (size_t i = 0; i < N_WORKERS; i++) {
            struct sim_worker *f = &s.workers[i];

            if (work_worker_order(&f->worker) == NULL && f->n_held == 0)
                continue;
            worker_take(f);
            if (f->n_held > 0)
                worker_answer(f);
            is_going = true;
        }
    }
    for (size_t i = 0; i < N_CLIENTS; i++) {
        while (work_wait_next(&s.clients[i].wait) != NULL)
            client_take(&s.clients[i]);
        MUST(s.clients[i].wait.n_pending == 0);
        MUST(s.clients[i].n_results == s.clients[i].n_waited); /* of all, once */
        work_wait_close(&s.clients[i].wait, true);
    }
    work_end(&s.work);
    for (size_t i = 0; i < N_WORKERS; i++)
        MUST(!s.workers[i].is_attached);
    work_deinit(&s.work);
}

static void run(uint64_t seed)
{
    const struct work_config config = {.env = &sim_env,
                                       .silence_us = 3000000,
                                       .may_attach = true,
                                       .max_bytes = 1 << 20,
                                       .alarm = &s.alarm};

    sim_start(seed);
    s.n_tasks = 0;
    s.n_names = 0;
    memset(s.workers, 0, sizeof(s.workers));
    memset(s.clients, 0, sizeof(s.clients));
    s.has_faults = seed % 3 == 0;
    s.alarm = (struct alarm){.tick = work_tick, .owner = &s.work};
    work_init(&s.work, &config);
    for (size_t i = 0; i < N_CLIENTS; i++)
        work_wait_init(&s.clients[i].wait, on_ready);
    for (unsigned n = 0; n < N_EVENTS; n++) {
        if (s.has_faults && pick(10) == 0)
            fault_after = pick(4);
        sim.now_us += pick(20) == 0 ? pick(1000000) : pick(30000);
        for (size_t i = 0; i < N_WORKERS; i++)
            if (s.workers[i].is_attached && !s.workers[i].is_stopped)
                peer_heard(&s.workers[i].worker.peer);
        if (pick(3) == 0)
            client_act(pick(N_CLIENTS));
        else
            worker_act(&s.workers[pick(N_WORKERS)]);
        if (pick(4) == 0)
            alarm_ring(&s.alarm); /* a tick may come at any time */
    }
    world_end();
}

int main(int argc, char **argv)
{
    uint64_t first = 1, n = 500;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            first = strtoull(argv[i + 1], NULL, 10), n = 1;
        else if (strcmp(argv[i], "--seeds") == 0)
            n = strtoull(argv[i + 1], NULL, 10);
    }
    for (uint64_t seed = first; seed < first + n; seed++)
        run(seed);
    printf("seeds=%" PRIu64 " results=%" PRIu64 " aborted=%" PRIu64 " killed=%" PRIu64
           " reported=%" PRIu64 " duplicates=%" PRIu64 "\n",
           n, s.n_results, s.n_aborted, s.n_killed, s.n_reported, s.n_duplicates);
    MUST(n < 100 || (s.n_aborted > n && s.n_reported > n && s.n_results > 10 * n));
    return 0;
}
