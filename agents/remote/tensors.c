#include "agents/remote/tensors.h"

#include <math.h>
#include <string.h>

bool remote_tensors_are_equal(const struct remote_tensors *a, const struct remote_tensors *b)
{
    return a->n_observations == b->n_observations && a->n_actions == b->n_actions &&
           a->n_action_numbers == b->n_action_numbers && a->has_logp == b->has_logp &&
           a->has_value == b->has_value;
}

enum status remote_tensors_check(const struct remote_tensors *t, struct error *err)
{
    if (t->n_observations == 0 || t->n_observations > REMOTE_MAX_NUMBERS)
        return error_field(err, "offer.tensors.observations", "is %zu, it must be from 1 to %d",
                           t->n_observations, REMOTE_MAX_NUMBERS);
    if ((t->n_actions == 0) == (t->n_action_numbers == 0))
        return error_field(err, "offer.tensors.actions",
                           "is %zu and action_numbers is %zu, exactly one of the two must be set",
                           t->n_actions, t->n_action_numbers);
    if (t->n_actions == 1 || t->n_actions > REMOTE_MAX_NUMBERS)
        return error_field(err, "offer.tensors.actions", "is %zu, it must be from 2 to %d",
                           t->n_actions, REMOTE_MAX_NUMBERS);
    if (t->n_action_numbers > REMOTE_MAX_NUMBERS)
        return error_field(err, "offer.tensors.action_numbers", "is %zu, it must be at most %d",
                           t->n_action_numbers, REMOTE_MAX_NUMBERS);
    return STATUS_OK;
}

/* t is F32. */
static enum status check_finite(const struct tensor_view *t, const char *field, struct error *err)
{
    const float *numbers = t->data;

    for (size_t i = 0; i < t->size_bytes / sizeof(numbers[0]); i++)
        if (!isfinite(numbers[i]))
            return error_field(err, field, "holds %g at %zu in '%s'", (double)numbers[i], i,
                               t->name);
    return STATUS_OK;
}

enum status remote_tensors_check_observation(const struct remote_tensors *t,
                                             const struct observation *seen, struct error *err)
{
    const int64_t shape[1] = {(int64_t)t->n_observations};

    if (seen->n_tensors == 0 && seen->n_messages > 0)
        return error_field(err, "messages", "are given, but this model takes observations");
    if (seen->n_tensors != 1)
        return error_field(err, "observation", "has %zu tensors, it must have one",
                           seen->n_tensors);
    if (seen->tensors[0].name == NULL || strcmp(seen->tensors[0].name, "observation") != 0)
        return error_field(err, "observation", "is called '%.40s', it must be 'observation'",
                           seen->tensors[0].name == NULL ? "" : seen->tensors[0].name);
    if (tensor_expect(&seen->tensors[0], TENSOR_F32, shape, 1, err) != STATUS_OK)
        return error_name_field(err, "observation");
    return check_finite(&seen->tensors[0], "observation", err);
}

static enum status check_action(const struct remote_tensors *t, const struct tensor_view *action,
                                struct error *err)
{
    const int64_t shape[1] = {(int64_t)t->n_action_numbers};
    int64_t choice;

    if (t->n_action_numbers > 0) {
        if (tensor_expect(action, TENSOR_F32, shape, 1, err) != STATUS_OK)
            return error_name_field(err, "result.rows.output");
        return check_finite(action, "result.rows.output", err);
    }
    if (tensor_expect(action, TENSOR_I64, NULL, 0, err) != STATUS_OK)
        return error_name_field(err, "result.rows.output");
    memcpy(&choice, action->data, sizeof(choice));
    if (choice >= 0 && (size_t)choice < t->n_actions)
        return STATUS_OK;
    return error_field(err, "result.rows.output",
                       "has the action %lld, but there are only %zu actions", (long long)choice,
                       t->n_actions);
}

static enum status check_scalar(const struct tensor_view *t, struct error *err)
{
    if (tensor_expect(t, TENSOR_F32, NULL, 0, err) != STATUS_OK)
        return error_name_field(err, "result.rows.output");
    return check_finite(t, "result.rows.output", err);
}

enum status remote_tensors_check_output(const struct remote_tensors *t,
                                        const struct tensor_view *output, size_t n_output,
                                        struct error *err)
{
    const char *const wanted[] = {"action", t->has_logp ? "logp" : "value", "value"};
    size_t n_wanted = 1 + (size_t)t->has_logp + (size_t)t->has_value;

    if (n_output != n_wanted)
        return error_field(err, "result.rows.output", "has %zu tensors, but %zu were offered",
                           n_output, n_wanted);
    for (size_t i = 0; i < n_output; i++) {
        if (strcmp(output[i].name, wanted[i]) != 0)
            return error_field(err, "result.rows.output",
                               "has the tensor '%.40s' at %zu, it must be '%s'", output[i].name, i,
                               wanted[i]);
        if (i == 0 ? check_action(t, &output[i], err) : check_scalar(&output[i], err))
            return err->status;
    }
    return STATUS_OK;
}

enum status remote_tensors_keep(struct agent_turn *turn, const struct tensor_view *output,
                                size_t n_output, struct error *err)
{
    static const char *const names[] = {"action", "logp", "value"};
    struct tensor_view *kept = arena_alloc(turn->arena, n_output, sizeof(kept[0]));

    if (kept == NULL)
        return error_no_memory(err, n_output * sizeof(kept[0]), "an action");
    for (size_t i = 0; i < n_output; i++) {
        void *data = arena_alloc(turn->arena, output[i].size_bytes, 1);

        if (data == NULL)
            return error_no_memory(err, output[i].size_bytes, "an action");
        kept[i] = output[i];
        kept[i].data = memcpy(data, output[i].data, output[i].size_bytes);
        for (size_t name = 0; name < sizeof(names) / sizeof(names[0]); name++)
            if (strcmp(output[i].name, names[name]) == 0)
                kept[i].name = names[name];
    }
    turn->reply.tensors = kept;
    turn->reply.n_tensors = n_output;
    turn->reply.finish = FINISH_STOP;
    return STATUS_OK;
}
