/* A wave is a vector of environments, an episode each. Rollouts of some steps follow each other
 * until every first episode of the vector is over; what comes after an end is not counted. */
#include "worlds/verbs/policy/remote_score.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/cli/connection.h"
#include "parley/v1/env.pb-c.h"

enum {
    REMOTE_STEPS = 128,              /* of a rollout, at most */
    REMOTE_ROLLOUT_BYTES = 2 << 20,  /* of a rollout's observations, where one step fits */
    REMOTE_EPISODE_STEPS = 10000000, /* of an episode, at most */
    REMOTE_TIMEOUT_MS = 600 * 1000,
};

struct remote_wave {
    struct remote_score *score;
    struct parley_channel *channel;
    size_t first, n; /* episodes */
    Parley__V1__EnvOpenResponse *opened;
    bool *is_over; /* [n] */
    size_t n_over;
};

/* The caller frees *out by protobuf_c_message_free_unpacked. */
static enum status remote_call(ProtobufCMessage **out, struct parley_channel *channel,
                               const char *method, const ProtobufCMessage *request,
                               const ProtobufCMessageDescriptor *response, struct error *err)
{
    struct parley_error why;

    if (connection_call(out, channel, method, request, response, REMOTE_TIMEOUT_MS, &why) !=
        PARLEY_OK)
        return error_set(err, (enum status)why.status, "%.300s", why.text);
    return STATUS_OK;
}

static enum status remote_wave_open(struct remote_wave *w, struct error *err)
{
    Parley__V1__EnvOpenRequest request = PARLEY__V1__ENV_OPEN_REQUEST__INIT;
    uint64_t seed = w->score->seed + w->first;
    ProtobufCMessage *opened = NULL;

    request.name = (char *)(uintptr_t)w->score->environment; /* only read */
    request.count = (uint32_t)w->n;
    request.n_seeds = 1;
    request.seeds = &seed;
    w->is_over = xalloc(w->n * sizeof(*w->is_over));
    if (remote_call(&opened, w->channel, "/parley.v1.Env/Open", &request.base,
                    &parley__v1__env_open_response__descriptor, err) != STATUS_OK)
        return err->status;
    w->opened = (Parley__V1__EnvOpenResponse *)opened;
    return STATUS_OK;
}

static void remote_wave_close(struct remote_wave *w)
{
    Parley__V1__EnvCloseRequest request = PARLEY__V1__ENV_CLOSE_REQUEST__INIT;
    ProtobufCMessage *response = NULL;
    struct error ignored; /* the server closes a vector that is not used */

    if (w->opened != NULL) {
        request.handle = w->opened->handle;
        if (remote_call(&response, w->channel, "/parley.v1.Env/Close", &request.base,
                        &parley__v1__env_close_response__descriptor, &ignored) == STATUS_OK)
            protobuf_c_message_free_unpacked(response, NULL);
        parley__v1__env_open_response__free_unpacked(w->opened, NULL);
    }
    free(w->is_over);
}

/* The steps of a rollout: the server returns all observations. */
static uint32_t remote_wave_steps(const struct remote_wave *w)
{
    const size_t row =
        w->n * (w->opened->observations != 0 ? w->opened->observations : 1) * sizeof(float);
    const size_t fit = REMOTE_ROLLOUT_BYTES / row;

    return fit > REMOTE_STEPS ? REMOTE_STEPS : (fit > 2 ? (uint32_t)fit - 1 : 1);
}

static bool remote_tensor_has(const Parley__V1__Tensor *t, size_t size_bytes)
{
    return t != NULL && t->data.len == size_bytes;
}

static enum status remote_wave_count(struct remote_wave *w, const Parley__V1__EnvRolloutResponse *r,
                                     size_t n_steps, struct error *err)
{
    const size_t n = w->n * n_steps;

    for (size_t i = 0; i < r->n_failures; i++) {
        const Parley__V1__EnvFailure *f = r->failures[i];

        if (f->index < w->n && !w->is_over[f->index] && f->error != NULL)
            return error_set(err, (enum status)f->error->code, "%.300s", f->error->message);
    }
    if (!remote_tensor_has(r->reward, n * sizeof(float)) || !remote_tensor_has(r->terminated, n) ||
        !remote_tensor_has(r->truncated, n))
        return error_set(err, STATUS_INTERNAL, "the server sent a rollout of another shape");
    for (size_t i = 0; i < n; i++) {
        const size_t at = i / n_steps;
        float reward;

        if (w->is_over[at])
            continue;
        memcpy(&reward, r->reward->data.data + i * sizeof(reward), sizeof(reward));
        w->score->rewards[w->first + at] += reward;
        w->is_over[at] = r->terminated->data.data[i] != 0 || r->truncated->data.data[i] != 0;
        w->n_over += w->is_over[at];
        w->score->n_cut += r->terminated->data.data[i] == 0 && r->truncated->data.data[i] != 0;
    }
    return STATUS_OK;
}

static enum status remote_wave_play(struct remote_wave *w, struct error *err)
{
    Parley__V1__EnvRolloutRequest request = PARLEY__V1__ENV_ROLLOUT_REQUEST__INIT;
    Parley__V1__EnvRolloutResponse *last = NULL;
    ProtobufCMessage *played = NULL;
    enum status rc = STATUS_OK;

    request.handle = w->opened->handle;
    request.model = (char *)(uintptr_t)(w->score->policy != NULL ? w->score->policy : "");
    request.n_steps = remote_wave_steps(w);
    request.seed = w->score->seed + w->first;
    request.reset = true;
    for (size_t n_steps = 0; rc == STATUS_OK && w->n_over < w->n; n_steps += request.n_steps) {
        if (n_steps >= REMOTE_EPISODE_STEPS) {
            rc = error_set(err, STATUS_EXHAUSTED, "an episode has more than %d steps",
                           REMOTE_EPISODE_STEPS);
            break;
        }
        request.state = last != NULL ? last->last_state : NULL;
        rc = remote_call(&played, w->channel, "/parley.v1.Env/Rollout", &request.base,
                         &parley__v1__env_rollout_response__descriptor, err);
        if (rc != STATUS_OK)
            break;
        if (last != NULL)
            parley__v1__env_rollout_response__free_unpacked(last, NULL);
        last = (Parley__V1__EnvRolloutResponse *)played;
        rc = remote_wave_count(w, last, request.n_steps, err);
        request.reset = false;
    }
    if (last != NULL)
        parley__v1__env_rollout_response__free_unpacked(last, NULL);
    return rc;
}

enum status remote_score_play(struct remote_score *s, struct parley_channel *channel,
                              remote_score_fn tell, void *arg, struct error *err)
{
    enum status rc = STATUS_OK;

    memset(s->rewards, 0, s->n_episodes * sizeof(*s->rewards));
    s->n_cut = 0;
    for (size_t first = 0; rc == STATUS_OK && first < s->n_episodes; first += s->n_at_once) {
        const size_t n_left = s->n_episodes - first;
        struct remote_wave wave = {.score = s,
                                   .channel = channel,
                                   .first = first,
                                   .n = n_left < s->n_at_once ? n_left : s->n_at_once};

        rc = remote_wave_open(&wave, err);
        if (rc == STATUS_OK)
            rc = remote_wave_play(&wave, err);
        if (rc == STATUS_OK)
            tell(first + wave.n, arg);
        remote_wave_close(&wave);
    }
    return rc;
}
