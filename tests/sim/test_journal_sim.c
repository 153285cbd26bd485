/* Clients of the real conversations and journal, with a clock turned by hand, a disk that fails
 * (fake_disk.h), and a network that loses connections; now and then the power goes, and another
 * process reads what the disk has. Each seed is one schedule: whose turn it is, what it asks for,
 * what fails. Checked is what the clients were told: no conversation, turn, fork or rewind that was
 * acknowledged is missing, a turn has one body and one reply, also where it was cut, and it begins
 * with what was told before. --seed N replays one. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/conversation/keeping.h"
#include "server/conversation/lookup.h"
#include "tests/sim/fake_disk.h"
#include "tests/support/fake_server.h"

enum { N_CLIENTS = 3, N_ASKS = 10, MAX_TURNS = 32, MAX_TICKS = 100000 };

/* A turn as its client was told of it. */
struct told_turn {
    unsigned n_say; /* tokens of the whole reply; with fails: the step in which it fails */
    bool fails, is_observed;
    bool is_accepted; /* told so */
    size_t n_seen;    /* tokens told */
    enum finish finish;
};

enum ask { ASK_NONE, ASK_TURN, ASK_AGAIN, ASK_REWIND, ASK_FORK, ASK_AUDIT };

struct client {
    struct world *w;
    struct conversation_id id, made; /* made: not told yet */
    bool has_id;
    uint32_t generation, n_turns; /* told */
    struct told_turn turns[MAX_TURNS + 1];
    int n_left; /* things to ask for */
    enum ask ask;
    uint32_t at; /* the turn that it is about */
    struct fake_reader reader;
    bool is_reading, is_probing; /* probing: with another body */
    struct journal_wait wait;
    struct lookup lookup;
    bool is_waiting; /* for the journal */
};

struct world {
    uint64_t seed, chance;
    bool has_trace;
    uv_loop_t loop;
    struct fake_server s;
    struct models models;
    struct journal *journal;
    struct client clients[N_CLIENTS];
    uint64_t n_lives, n_ticks, n_cut, n_told;
    size_t n_jobs; /* of the disk, in the lives before */
    bool is_stopped;
};

/* splitmix64 */
static uint64_t world_draw(struct world *w, uint64_t below)
{
    uint64_t z = w->chance += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static void world_fault(const struct world *w, const struct client *c, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));

static void world_fault(const struct world *w, const struct client *c, const char *format, ...)
{
    va_list args;

    printf("seed %" PRIu64 ": life %" PRIu64 ", tick %" PRIu64 ", client %d, turn %u: ", w->seed,
           w->n_lives, w->n_ticks, c == NULL ? -1 : (int)(c - w->clients), c == NULL ? 0 : c->at);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)puts("");
    (void)fflush(stdout);
    abort();
}

static void client_trace(const struct client *c, const char *what)
{
    if (c->w->has_trace)
        printf("%" PRIu64 " client %d: %s, turn %u of %u, generation %u\n", c->w->n_ticks,
               (int)(c - c->w->clients), what, c->at, c->n_turns, c->generation);
}

/* --- what clients ask for --- */

static void client_done(struct client *c)
{
    client_trace(c, "is told");
    c->ask = ASK_NONE;
    c->w->n_told++;
}

/* Whether the answer is that it may come again. */
static bool is_later(enum status status)
{
    return status == STATUS_UNAVAILABLE || status == STATUS_EXHAUSTED;
}

/* It is durable, or not known. */
static void on_change(void *arg, const struct error *err)
{
    struct client *c = arg;

    c->is_waiting = false;
    if (err->status != STATUS_OK)
        return;
    switch (c->ask) {
    case ASK_REWIND:
        c->generation++;
        c->n_turns = c->at;
        break;
    case ASK_FORK:
        c->id = c->made;
        c->generation = 1;
        c->n_turns = c->at;
        break;
    case ASK_NONE:
        c->id = c->made;
        c->has_id = true;
        c->generation = 1;
        break;
    case ASK_TURN:
    case ASK_AGAIN:
    case ASK_AUDIT:
        world_fault(c->w, c, "a turn is no change");
    }
    client_done(c);
}

static void client_settle(struct client *c)
{
    c->is_waiting = true;
    journal_settle(c->w->journal, &c->wait, on_change, c);
}

static void client_open(struct client *c)
{
    struct conversation *made = fake_conversation(&c->w->s);
    struct error err;

    c->made = made->id;
    if (keeping_begin(made, NULL, &err) == STATUS_OK)
        client_settle(c);
}

static void on_found(struct lookup *l, const struct error *err)
{
    struct client *c = container_of(l, struct client, lookup);

    c->is_waiting = false;
    if (err->status != STATUS_OK && !is_later(err->status))
        world_fault(c->w, c, "the conversation cannot be read: %s", err->text);
    if (err->status == STATUS_OK && !l->is_found)
        world_fault(c->w, c, "the conversation is lost");
}

/* NULL: it is looked for. */
static struct conversation *client_conversation(struct client *c)
{
    struct conversation *found = conversations_get(&c->w->s.all, &c->id);
    char text[CONVERSATION_ID_CHARS];

    if (found != NULL)
        return found;
    conversation_id_format(&c->id, text);
    c->is_waiting =
        lookup_begin(&c->lookup, &c->w->s.all, JOURNAL_BY_ID, LOOKUP_HERE, 0, text, on_found);
    return NULL;
}

static void client_draw(struct client *c)
{
    struct world *w = c->w;
    struct told_turn *t = &c->turns[c->n_turns + 1];
    uint64_t which = world_draw(w, 20);

    c->n_left--;
    if (which < 11 && c->n_turns < MAX_TURNS) {
        c->ask = ASK_TURN;
        c->at = c->n_turns + 1;
        *t = (struct told_turn){.n_say = 1 + (unsigned)world_draw(w, 9),
                                .fails = world_draw(w, 10) == 0,
                                .is_observed = world_draw(w, 8) == 0};
        t->fails = t->fails && !t->is_observed;
    } else if (which < 14 && c->n_turns > 0) {
        c->ask = ASK_AGAIN;
        c->at = 1 + (uint32_t)world_draw(w, c->n_turns);
    } else {
        c->ask = which < 16 ? ASK_REWIND : which < 18 ? ASK_FORK : ASK_AUDIT;
        c->at = (uint32_t)world_draw(w, c->n_turns + 1);
    }
    client_trace(c, "asks");
}

static void client_turn(struct client *c, struct conversation *in)
{
    struct told_turn *t = &c->turns[c->at];
    char text[32];
    struct message m = {.role = ROLE_USER, .text = text};
    struct turn_request r = {
        .number = c->at, .messages = &m, .n_messages = 1, .is_observed = t->is_observed};
    struct error err;
    enum status rc;

    c->is_probing = t->is_accepted && !t->fails && world_draw(c->w, 4) == 0;
    (void)snprintf(text, sizeof(text), "%s %u", t->fails ? "fail" : "say",
                   t->n_say + (c->is_probing ? 100 : 0));
    m.len = strlen(text);
    fake_reader_init(&c->reader);
    rc = conversation_turn(in, &r, &c->reader.reader, &err);
    if (rc == STATUS_OK && c->is_probing)
        world_fault(c->w, c, "its number was free again");
    if (rc == STATUS_OK) {
        c->is_reading = true;
        return;
    }
    fake_reader_deinit(&c->reader);
    if (!is_later(rc) && !(rc == STATUS_EXISTS && c->is_probing))
        world_fault(c->w, c, "it is refused: %s", err.text);
}

static void client_rewind(struct client *c, struct conversation *in)
{
    struct error err;
    enum status rc = conversation_rewind_from(in, c->generation, c->at, &err);
    struct conversation *still = conversations_get(&c->w->s.all, &c->id);

    if (rc == STATUS_OK)
        client_settle(c);
    else if (!is_later(rc) && (still == NULL || still->host.n_live == 0))
        world_fault(c->w, c, "the rewind is refused: %s", err.text);
}

static void client_fork(struct client *c, struct conversation *in)
{
    struct conversation *f;
    struct error err;
    enum status rc = conversation_fork(&f, in, c->at, NULL, 0, &err);

    if (rc != STATUS_OK)
        world_fault(c->w, c, "the fork is refused: %s", err.text);
    c->made = f->id;
    if (keeping_begin(f, NULL, &err) == STATUS_OK)
        client_settle(c);
}

static void client_audit(struct client *c, const struct conversation *in)
{
    if (in->host.generation != c->generation)
        world_fault(c->w, c, "generation %u was told, it is %u", c->generation,
                    in->host.generation);
    if (in->host.n_turns != c->n_turns)
        world_fault(c->w, c, "%u turns were told, there are %u", c->n_turns, in->host.n_turns);
    client_done(c);
}

/* --- what they are told --- */

static void client_hang_up(struct client *c)
{
    fake_reader_deinit(&c->reader);
    c->is_reading = false;
}

static void client_end(struct client *c)
{
    struct told_turn *t = &c->turns[c->at];
    const struct fake_reader *r = &c->reader;

    if (r->has_failed) {
        if (!is_later(r->err.status) && !t->fails)
            world_fault(c->w, c, "it failed: %s", r->err.text);
        if (!is_later(r->err.status))
            client_done(c); /* its number is free */
        client_hang_up(c);
        return;
    }
    if (c->ask == ASK_AGAIN && (t->finish != r->done.finish || t->n_seen != r->n_ids))
        world_fault(c->w, c, "it ended as %s with %zu tokens, and as %s with %zu",
                    finish_name(t->finish), t->n_seen, finish_name(r->done.finish), r->n_ids);
    if (r->n_ids < t->n_seen)
        world_fault(c->w, c, "%zu tokens were told, it ends with %zu", t->n_seen, r->n_ids);
    if (r->done.finish == FINISH_STOP
            ? r->n_ids != t->n_say || t->fails
            : r->done.finish != (t->is_observed ? FINISH_OBSERVED : FINISH_CANCELLED))
        world_fault(c->w, c, "it ended as %s with %zu of %u tokens", finish_name(r->done.finish),
                    r->n_ids, t->n_say);
    t->finish = r->done.finish;
    t->n_seen = r->n_ids;
    c->w->n_cut += r->done.finish == FINISH_CANCELLED;
    if (c->ask == ASK_TURN)
        c->n_turns = c->at;
    client_hang_up(c);
    client_done(c);
}

static void client_read(struct client *c)
{
    struct told_turn *t = &c->turns[c->at];
    struct fake_reader *r = &c->reader;

    fake_reader_read(r);
    if (r->has_accepted && r->number != c->at)
        world_fault(c->w, c, "its number is %u", r->number);
    t->is_accepted = t->is_accepted || r->has_accepted;
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] != (int32_t)i)
            world_fault(c->w, c, "token %zu is %d", i, (int)r->ids[i]);
    if (r->is_done || r->has_failed) {
        client_end(c);
        return;
    }
    t->n_seen = r->n_ids > t->n_seen ? r->n_ids : t->n_seen;
    if (world_draw(c->w, 25) == 0)
        client_hang_up(c); /* the connection is lost; nobody lingers here, so the turn is cut */
    else if (r->n_ids >= t->n_seen && world_draw(c->w, 40) == 0)
        reader_cancel(&r->reader); /* it has what it was told before: that is not cut away */
}

static void client_step(struct client *c)
{
    struct conversation *in;

    if (c->is_waiting)
        return;
    if (c->is_reading) {
        client_read(c);
        return;
    }
    if (!c->has_id) {
        client_open(c);
        return;
    }
    if (c->ask == ASK_NONE && c->n_left > 0)
        client_draw(c);
    in = c->ask == ASK_NONE ? NULL : client_conversation(c);
    if (in == NULL)
        return;
    switch (c->ask) {
    case ASK_TURN:
    case ASK_AGAIN:
        client_turn(c, in);
        break;
    case ASK_REWIND:
        client_rewind(c, in);
        break;
    case ASK_FORK:
        client_fork(c, in);
        break;
    case ASK_AUDIT:
        if (in->host.n_live == 0)
            client_audit(c, in);
        break;
    case ASK_NONE:
        break;
    }
}

/* --- lives --- */

static void life_begin(struct world *w)
{
    const struct journal_config config = {.dir = "", .type = &fake_disk_type};
    struct keeping_config keeping = {.binding = "here", .models = &w->models};
    struct error err;

    if (uv_loop_init(&w->loop) != 0 || journal_open(&w->journal, &w->loop, &config, &err) != 0)
        world_fault(w, NULL, "there is no journal");
    fake_server_open(&w->s, "fake", 0, NULL);
    w->n_jobs = fake_disk.n_jobs;
    w->s.drawn = ++w->n_lives << 32; /* no id is drawn twice */
    w->models.loaded[0] = &w->s.model;
    w->models.n_loaded = 1;
    keeping.journal = w->journal;
    conversations_keep(&w->s.all, &keeping);
}

/* One transaction, or what was to be read, is told. */
static bool disk_step(struct world *w)
{
    struct journal_figures figures;

    journal_read_figures(w->journal, &figures);
    if (figures.waiting_bytes == 0)
        return false;
    (void)uv_run(&w->loop, UV_RUN_ONCE);
    return true;
}

static void on_journal_stopped(void *arg)
{
    ((struct world *)arg)->is_stopped = true;
}

/* What is in memory is gone; so is what the disk was about to write, or not. */
static void life_end(struct world *w)
{
    struct journal_figures figures;
    size_t last_job;
    bool is_busy;

    journal_read_figures(w->journal, &figures);
    last_job = w->n_jobs + (size_t)figures.n_transactions;
    /* Behind the one that is being written: all that is not there afterwards. */
    atomic_store_explicit(&fake_disk.whole_from, last_job + 2, memory_order_relaxed);
    last_job += (size_t)world_draw(w, 2);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        struct client *c = &w->clients[i];

        if (c->is_reading)
            client_hang_up(c);
        journal_leave(&c->wait);
        lookup_leave(&c->lookup);
        c->is_waiting = false;
    }
    do {
        is_busy = fake_server_step(&w->s);
        is_busy = disk_step(w) || is_busy;
    } while (is_busy);
    fake_server_close(&w->s);
    w->is_stopped = false;
    journal_stop(w->journal, on_journal_stopped, w);
    (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    if (!w->is_stopped || uv_loop_close(&w->loop) != 0)
        world_fault(w, NULL, "the journal does not stop");
    if (fake_disk.is_twice)
        world_fault(w, NULL, "a place of the journal is written twice");
    fake_disk_crash(last_job);
}

static bool world_is_over(const struct world *w)
{
    for (size_t i = 0; i < N_CLIENTS; i++)
        if (w->clients[i].n_left > 0 || w->clients[i].ask != ASK_NONE)
            return false;
    return true;
}

static void world_tick(struct world *w)
{
    uint64_t what = world_draw(w, 100);

    w->n_ticks++;
    if (what < 55) {
        client_step(&w->clients[world_draw(w, N_CLIENTS)]);
    } else if (what < 75) {
        (void)fake_server_step(&w->s);
    } else if (what < 97) {
        (void)disk_step(w);
    } else if (what < 99) {
        w->s.now_us += world_draw(w, 1000000);
        conversations_tick(&w->s.all);
    } else {
        life_end(w);
        life_begin(w);
    }
}

static void world_run(struct world *w)
{
    fake_disk_empty(w->seed);
    for (size_t i = 0; i < N_CLIENTS; i++)
        w->clients[i] = (struct client){.w = w, .n_left = N_ASKS};
    life_begin(w);
    while (!world_is_over(w) && w->n_ticks < MAX_TICKS)
        world_tick(w);
    /* Once more from the disk: all of it, turn by turn. */
    for (uint32_t at = 0; at <= MAX_TURNS && w->n_ticks < MAX_TICKS; at++) {
        if (at == 0) {
            life_end(w);
            life_begin(w);
        }
        for (size_t i = 0; i < N_CLIENTS; i++) {
            struct client *c = &w->clients[i];

            if (at <= c->n_turns) {
                c->ask = at == 0 ? ASK_AUDIT : ASK_AGAIN;
                c->at = at;
            }
        }
        while (!world_is_over(w) && w->n_ticks < MAX_TICKS)
            world_tick(w);
    }
    if (w->n_ticks >= MAX_TICKS)
        world_fault(w, NULL, "it does not come to an end");
    life_end(w);
}

int main(int argc, char **argv)
{
    uint64_t first = 1, n = 500, n_lives = 0, n_told = 0, n_cut = 0, n_failed = 0, n_unknown = 0;
    bool has_trace = false;

    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            first = strtoull(argv[i + 1], NULL, 10);
            n = 1;
            has_trace = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
            n = strtoull(argv[i + 1], NULL, 10);
        } else {
            printf("usage: test_journal_sim [--seed N] [--seeds N]\n");
            return 2;
        }
    }
    for (uint64_t seed = first; seed < first + n; seed++) {
        static struct world w;

        w = (struct world){.seed = seed, .chance = seed, .has_trace = has_trace};
        world_run(&w);
        n_lives += w.n_lives;
        n_told += w.n_told;
        n_cut += w.n_cut;
        n_failed += fake_disk.n_failed;
        n_unknown += fake_disk.n_unknown;
    }
    fake_disk_empty(0);
    printf("seeds=%" PRIu64 " lives=%" PRIu64 " told=%" PRIu64 " cut=%" PRIu64 " failed=%" PRIu64
           " unknown=%" PRIu64 "\n",
           n, n_lives, n_told, n_cut, n_failed, n_unknown);
    /* A simulation in which nothing failed shows nothing. */
    return n >= 100 && (n_cut == 0 || n_failed == 0 || n_unknown == 0) ? 1 : 0;
}
