/* Any bytes as what workers, their supervisors and clients send to the table of tasks: offers,
 * answers to tasks that they have or have not, of more bytes or fewer than announced, reports. A
 * worker may be refused or ended; every task ends once, and in the end nothing is left. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "server/work/work.h"
#include "server/work/worker.h"
#include "tests/fuzz/target.h"

enum { WORKERS = 3, MAX_BYTES = 4096 };

struct work_input {
    const uint8_t *at, *end;
    uint64_t now_us, n_random;
    struct work_table work;
    struct alarm alarm;
    struct work_worker workers[WORKERS];
    struct work_wait wait;
};

static uint8_t input_byte(struct work_input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static uint64_t fuzz_now(void *self)
{
    return ((struct work_input *)self)->now_us;
}

/* Ids that a worker may guess. */
static void fuzz_random(void *self, void *out, size_t n_bytes)
{
    struct work_input *in = self;

    memset(out, 0, n_bytes);
    in->n_random++;
    memcpy(out, &in->n_random, n_bytes < sizeof(in->n_random) ? n_bytes : sizeof(in->n_random));
}

static void fuzz_notify(struct peer *p)
{
}

static void fuzz_ended(struct peer *p, const struct error *err)
{
    assert(err->status != STATUS_OK);
    work_worker_close(container_of(p, struct work_worker, peer));
}

static void fuzz_ready(struct work_wait *wait)
{
}

/* What is refused is refused with a sentence. */
static void check_sentence(enum status rc, const struct error *err)
{
    assert(rc == STATUS_OK || (err->status == rc && err->text[0] != '\0'));
}

/* A text of the input: "f" for most, else anything. */
static const char *input_text(struct work_input *in, char out[16])
{
    uint8_t n = input_byte(in);

    if (n < 128)
        return memcpy(out, n % 2 == 0 ? "f" : "g", 2);
    n %= 16;
    for (uint8_t i = 0; i < n; i++)
        out[i] = (char)input_byte(in);
    out[n] = '\0';
    return out;
}

static void input_attach(struct work_input *in, struct work_worker *w)
{
    char texts[3][16];
    const char *functions[] = {input_text(in, texts[0]), input_text(in, texts[1])};
    const struct work_offer offer = {.name =
                                         input_byte(in) % 2 == 0 ? "" : input_text(in, texts[2]),
                                     .principal = input_byte(in) % 3,
                                     .is_private = input_byte(in) % 2 == 1,
                                     .functions = functions,
                                     .n_functions = input_byte(in) % 3,
                                     .room = input_byte(in),
                                     .n_at_once = input_byte(in)};
    struct error err;

    if (peer_is_open(&w->peer))
        return;
    *w = (struct work_worker){.peer = {.notify = fuzz_notify, .ended = fuzz_ended}};
    assert((work_worker_open(w, &in->work, &offer, &err) == STATUS_OK) == peer_is_open(&w->peer));
}

static void input_submit(struct work_input *in)
{
    const uint32_t principal = input_byte(in) % 3;
    const size_t n = 8 * (size_t)input_byte(in);
    static const uint8_t zeros[8 * 256];
    char texts[2][16];
    const struct work_submission s = {.principal = principal,
                                      .function = input_text(in, texts[0]),
                                      .request_id =
                                          input_byte(in) % 2 == 0 ? "" : input_text(in, texts[1]),
                                      .n_retries = input_byte(in),
                                      .deadline_us = input_byte(in) * 1000u};
    struct work_bytes bytes = {0};
    struct work_task *t;
    struct error err;

    if (work_bytes_begin(&bytes, &in->work, principal, n, &err) == STATUS_OK &&
        work_bytes_append(&bytes, zeros, n, &err) == STATUS_OK &&
        work_submit(&t, &in->work, &s, &bytes, &err) == STATUS_OK)
        check_sentence(work_wait_add(&in->wait, t, 1, &err), &err);
    work_bytes_free(&bytes, &in->work);
}

/* Of a task of its own, or of any id. */
static void input_answer(struct work_input *in, struct work_worker *w)
{
    const struct peer_order *own = peer_oldest(&w->peer);
    uint64_t id = input_byte(in);
    const uint64_t announced = 8 * (uint64_t)input_byte(in);
    struct work_failure failure = {
        .is_exception = true, .type = "Odd", .message = "it is", .trace = ""};
    struct work_bytes bytes = {0};
    struct work_task *t;
    struct error err;
    char part[255] = {0};

    if (id >= 128 && own != NULL && peer_order_is_taken(own))
        id = container_of(own, struct work_task, order)->by_id.hash;
    if (work_worker_find(&t, w, id, &err) != STATUS_OK)
        return;
    assert(t->worker == w);
    (void)error_set(&failure.err, STATUS_UNKNOWN, "Odd: it is");
    if (input_byte(in) % 4 == 0) {
        work_worker_return(w, t);
        return;
    }
    if (work_bytes_begin(&bytes, &in->work, work_task_principal(t), announced, &err) == STATUS_OK &&
        work_bytes_append(&bytes, part, input_byte(in), &err) == STATUS_OK &&
        work_bytes_is_whole(&bytes))
        work_worker_result(w, t, &bytes, input_byte(in) % 2 == 0 ? NULL : &failure);
    work_bytes_free(&bytes, &in->work);
}

static void input_report(struct work_input *in)
{
    const uint64_t begun[] = {input_byte(in), input_byte(in)};
    char texts[2][16];
    const struct work_report report = {.name = input_text(in, texts[0]),
                                       .principal = input_byte(in) % 3,
                                       .signal = input_byte(in),
                                       .tail = input_text(in, texts[1]),
                                       .tells_begun = input_byte(in) % 2 == 1,
                                       .begun = begun,
                                       .n_begun = input_byte(in) % 3};
    struct error err;

    check_sentence(work_report(&in->work, &report, &err), &err);
}

static void input_of_worker(struct work_input *in, uint8_t what, struct work_worker *w)
{
    struct error err;
    uint64_t id;

    if (what % 8 == 0)
        input_attach(in, w);
    if (!peer_is_open(&w->peer))
        return;
    switch (what % 8) {
    case 1:
        work_worker_close(w);
        break;
    case 2:
        if (work_worker_order(w) != NULL)
            work_worker_taken(w);
        break;
    case 3:
        (void)work_worker_recall(w, &id); /* there may be none */
        break;
    case 4:
        check_sentence(work_worker_set_room(w, 8u * input_byte(in), &err), &err);
        break;
    case 5:
        peer_heard(&w->peer);
        break;
    case 6:
    case 7:
        input_answer(in, w);
        break;
    default:
        break;
    }
}

static void input_run(struct work_input *in)
{
    while (in->at < in->end) {
        uint8_t what = input_byte(in);
        struct work_wait_entry *e;

        switch (what >> 6) {
        case 0:
            input_of_worker(in, what, &in->workers[(what >> 3) % WORKERS]);
            break;
        case 1:
            input_submit(in);
            break;
        case 2:
            in->now_us += 1000u * input_byte(in);
            alarm_ring(&in->alarm);
            break;
        default:
            e = work_wait_next(&in->wait);
            if (what % 2 == 0)
                input_report(in);
            else if (e != NULL && what % 4 == 1)
                work_wait_taken(e, what % 8 == 1);
            else if (!list_is_empty(&in->wait.pending))
                work_cancel(
                    container_of(list_first(&in->wait.pending), struct work_wait_entry, of_wait)
                        ->task);
            break;
        }
        assert(in->work.bytes_limit.held <= MAX_BYTES);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct work_input in = {.at = data, .end = data + size_bytes, .now_us = 1};
    const struct env env = {.now_us = fuzz_now, .random = fuzz_random, .self = &in};
    const struct work_config config = {.env = &env,
                                       .silence_us = 100000,
                                       .may_attach = true,
                                       .max_bytes = MAX_BYTES,
                                       .alarm = &in.alarm};

    in.alarm = (struct alarm){.tick = work_tick, .owner = &in.work};
    work_init(&in.work, &config);
    work_wait_init(&in.wait, fuzz_ready);
    input_run(&in);
    for (size_t i = 0; i < WORKERS; i++)
        work_worker_close(&in.workers[i]);
    work_end(&in.work);
    assert(list_is_empty(&in.wait.pending)); /* each has ended */
    work_wait_close(&in.wait, true);
    work_deinit(&in.work); /* asserts that nothing is left */
    return 0;
}
