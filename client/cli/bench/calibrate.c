/* A probe is a turn whose prompt tokens the server counts. Two probes, the second with n more
 * words, show whether those n words are n tokens; if not, each half is probed. */
#include "client/cli/bench/calibrate.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"

enum { MAX_TEXT_BYTES = 1 << 20, PAUSE_MS = 50 /* between two looks at the clock */ };

struct probe {
    struct target *target;
    struct target_session *session;
    struct buf system, text;
    uint32_t base; /* tokens of a first turn without drawn words */
    int event_fd;  /* written at the turn's end */
    struct error err;
    double timeout_s; /* of a turn; 0: none */
};

static void on_chunk(struct target_session *s, bool is_first, uint64_t gap_us)
{
}

static void on_end(struct target_session *s, const struct error *err)
{
    struct probe *b = s->owner;
    uint64_t one = 1;

    b->err = *err;
    /* Fails only if the counter has reached 2^64 - 1. */
    (void)!write(b->event_fd, &one, sizeof(one));
}

static void probe_wait_for_end(struct probe *b)
{
    struct pollfd fds[2] = {{.fd = b->event_fd, .events = POLLIN}, {.events = POLLIN}};
    uint64_t end_us = env_now_us(&env_real) + (uint64_t)(b->timeout_s * 1e6), n;
    bool is_late = false;

    for (;;) {
        fds[1].fd = interrupt_fd();
        (void)poll(fds, 2, b->timeout_s > 0 ? PAUSE_MS : -1); /* a signal only makes it shorter */
        if (read(b->event_fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
            break;
        if (interrupt_take())
            b->target->type->leave(b->target, b->session);
        if (b->timeout_s > 0 && !is_late && env_now_us(&env_real) >= end_us) {
            is_late = true;
            b->target->type->leave(b->target, b->session);
        }
    }
    if (is_late && b->err.status != STATUS_OK)
        (void)error_set(&b->err, STATUS_DEADLINE, "a turn took longer than %g s", b->timeout_s);
}

/* Runs a turn with the present system prompt and text. */
static enum status probe_take_turn(struct probe *b, uint32_t turn, struct error *err)
{
    struct target_session *s = b->session;
    enum status rc;

    s->turn = turn;
    s->system = b->system.data;
    s->text = b->text.data;
    s->max_tokens = 1;
    rc = b->target->type->send(b->target, s, err);
    if (rc != STATUS_OK)
        return rc;
    probe_wait_for_end(b);
    *err = b->err;
    return err->status;
}

/* *ret_n: the tokens of a first turn of these words. */
static enum status probe_count(struct probe *b, const char *const *words, size_t n, uint32_t *ret_n,
                               struct error *err)
{
    enum status rc;

    if (prompts_join(&b->text, words, n) != STATUS_OK)
        return error_no_memory(err, n, "a prompt");
    rc = probe_take_turn(b, 1, err);
    b->target->type->leave(b->target, b->session);
    if (rc == STATUS_OK)
        *ret_n = b->session->prompt_tokens;
    return rc;
}

/* Moves the *ret_n words that are one token each to the front of words [n]. */
static enum status keep_whole(struct probe *b, const char **words, size_t n, size_t *ret_n,
                              struct error *err)
{
    size_t half = n / 2, n_left, n_right;
    uint32_t n_tokens = 0;
    enum status rc = probe_count(b, words, n, &n_tokens, err);

    if (rc != STATUS_OK)
        return rc;
    if (n_tokens == b->base + n || n == 1) {
        *ret_n = n_tokens == b->base + n ? n : 0;
        return STATUS_OK;
    }
    if ((rc = keep_whole(b, words, half, &n_left, err)) != STATUS_OK ||
        (rc = keep_whole(b, words + half, n - half, &n_right, err)) != STATUS_OK)
        return rc;
    memmove(words + n_left, words + half, n_right * sizeof(*words));
    *ret_n = n_left + n_right;
    return STATUS_OK;
}

/* Tokens of a second turn beyond its own words, the first turn and its reply. */
static enum status count_later(struct probe *b, uint32_t *ret_overhead, struct error *err)
{
    enum status rc = prompts_join(&b->text, NULL, 0);
    uint32_t before;

    if (rc != STATUS_OK)
        return error_no_memory(err, 1, "a prompt");
    rc = probe_take_turn(b, 1, err);
    before = b->session->prompt_tokens + b->session->completion_tokens;
    if (rc == STATUS_OK)
        rc = probe_take_turn(b, 2, err);
    b->target->type->leave(b->target, b->session);
    if (rc != STATUS_OK)
        return rc;
    /* An agent without a history counts only the current turn. */
    *ret_overhead = b->session->prompt_tokens - (b->session->prompt_tokens > before ? before : 0);
    return STATUS_OK;
}

static enum status probe_run(struct probe *b, struct prompts *p, bool has_more_turns,
                             struct error *err)
{
    uint32_t with_system = 0, n_tokens = 0;
    enum status rc = prompts_join(&b->system, NULL, 0);

    if (rc != STATUS_OK)
        return error_no_memory(err, 1, "a prompt");
    if ((rc = probe_count(b, NULL, 0, &b->base, err)) != STATUS_OK ||
        (b->base == 0 && (rc = probe_count(b, p->words, p->n_words, &n_tokens, err)) != STATUS_OK))
        return rc;
    if (b->base == 0 && n_tokens == 0) {
        console_line("the server counts no tokens of a prompt: each word is taken for one");
        p->overhead[0] = (uint32_t)p->n_system + 2; /* each text's first word */
        p->overhead[1] = 1;
        return STATUS_OK;
    }
    if ((rc = keep_whole(b, p->words, p->n_words, &p->n_words, err)) != STATUS_OK)
        return rc;
    if (p->n_words == 0)
        return error_set(err, STATUS_PRECONDITION,
                         "none of the built-in words is a single token of this model: give prompts "
                         "with --prompt-file");
    if (has_more_turns && (rc = count_later(b, &p->overhead[1], err)) != STATUS_OK)
        return rc;
    if (prompts_join(&b->system, p->words, 1) != STATUS_OK)
        return error_no_memory(err, 1, "a prompt");
    rc = probe_count(b, NULL, 0, &with_system, err);
    /* Not every agent counts its system prompt. */
    p->overhead[0] = b->base + (with_system > b->base ? (uint32_t)p->n_system : 0);
    return rc;
}

enum status calibrate(struct prompts *p, struct target *t, bool has_more_turns, double timeout_s,
                      struct error *err)
{
    static const struct session_events events = {on_chunk, on_end};
    struct probe b = {
        .target = t, .timeout_s = timeout_s, .event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    enum status rc;

    if (b.event_fd < 0)
        return error_set(err, STATUS_EXHAUSTED, "no file descriptor is left: %s", strerror(errno));
    b.session = xalloc(t->type->session_size);
    b.session->events = &events;
    b.session->owner = &b;
    buf_init(&b.system, MAX_TEXT_BYTES);
    buf_init(&b.text, MAX_TEXT_BYTES);
    rc = probe_run(&b, p, has_more_turns, err);
    t->type->session_deinit(b.session);
    free(b.session);
    buf_deinit(&b.system);
    buf_deinit(&b.text);
    (void)close(b.event_fd);
    return rc;
}
