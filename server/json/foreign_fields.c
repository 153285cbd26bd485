/* Fields of other servers, most of their samplers', for every API. A field that would change the
 * reply is taken under its own name here, or refused unless its value changes nothing: a client
 * cannot tell a field that was dropped from a bad model. */
#include "server/json/foreign_fields.h"

#include <stdlib.h>
#include <string.h>

#include "server/json/field_table.h"
#include "server/json/fields.h"
#include "server/json/sampling.h"

struct foreign_field {
    const char *name;
    const char *ours;                    /* the field that is the same here; NULL: there is none */
    bool (*is_off)(const json_t *value); /* without ours: the values that change nothing */
    const char *says;                    /* of the others, after the name */
};

static bool is_not_positive(const json_t *value)
{
    return field_is_empty(value) || (json_is_number(value) && json_number_value(value) <= 0);
}

static bool is_negative(const json_t *value)
{
    return field_is_empty(value) || (json_is_number(value) && json_number_value(value) < 0);
}

static bool is_negative_one(const json_t *value)
{
    return json_is_number(value) && json_number_value(value) == -1;
}

#define CUTS "is not supported: use temperature, top_k, top_p and min_p"
#define BIASES "is not supported: use logit_bias"
#define PENALTIES "is not supported: use repetition_penalty, presence_penalty and frequency_penalty"
#define BEAMS "is not supported: replies are sampled"
#define THOUGHTS "must be true: thoughts come apart from the reply, and in its stream"
#define HANDED_OVER "is not supported: no server hands keys and values over to this one"
#define LENGTHS "is not supported: use max_tokens"

/* clang-format off */
static const struct foreign_field foreign_fields[] = {
    {"adaptive_target", NULL, is_negative, CUTS},
    {"add_generation_prompt", NULL, field_is_true, "must be true: a reply is a message of its own"},
    {"allowed_token_ids", NULL, field_is_empty, BIASES},
    {"bad_words", NULL, field_is_empty, BIASES},
    {"beam_width", NULL, field_is_one, BEAMS},
    {"chat_template", NULL, field_is_empty, "is not supported: the model's own is used"},
    {"continue_final_message", NULL, field_is_empty, "is not supported: a reply is a message of its own"},
    {"custom_logit_processor", NULL, field_is_empty, BIASES},
    {"diversity_penalty", NULL, field_is_empty, BEAMS},
    {"do_sample", NULL, field_is_true, "is not supported: temperature 0 is greedy"},
    {"documents", NULL, field_is_empty, "is not supported: put them into a message"},
    {"dry_multiplier", NULL, is_not_positive, PENALTIES},
    {"dynatemp_range", NULL, is_not_positive, CUTS},
    {"ebnf", NULL, field_is_empty, "is not supported: use structured_outputs.grammar"},
    {"ec_transfer_params", NULL, field_is_empty, HANDED_OVER},
    {"encoder_repetition_penalty", NULL, field_is_one, PENALTIES},
    {"epsilon_cutoff", NULL, is_not_positive, CUTS},
    {"eta_cutoff", NULL, is_not_positive, CUTS},
    {"grammar_lazy", NULL, field_is_empty, "is not supported: a grammar holds from the start"},
    {"guidance_scale", NULL, field_is_one, "is not supported: there is no negative prompt"},
    {"include_reasoning", NULL, field_is_true, THOUGHTS},
    {"include_stop_str_in_output", NULL, field_is_empty, "is not supported: add the text to the reply"},
    {"kv_transfer_params", NULL, field_is_empty, HANDED_OVER},
    {"logits_processors", NULL, field_is_empty, BIASES},
    {"lora", NULL, field_is_empty, "is not supported: no adapters are loaded"},
    {"lora_path", NULL, field_is_empty, "is not supported: no adapters are loaded"},
    {"max_length", NULL, field_is_empty, LENGTHS},
    {"max_new_tokens", NULL, field_is_empty, LENGTHS},
    {"min_keep", NULL, is_not_positive, CUTS},
    {"min_new_tokens", NULL, field_is_empty, "is not supported: use min_tokens"},
    {"mirostat", NULL, field_is_empty, CUTS},
    {"mirostat_mode", NULL, field_is_empty, CUTS},
    {"n_cmpl", NULL, field_is_one, "is not supported: use n"},
    {"n_indent", NULL, is_not_positive, "is not supported: use a constraint"},
    {"n_predict", NULL, is_negative_one, "is not supported: use max_tokens"},
    {"n_probs", NULL, field_is_empty, "is not supported: use logprobs"},
    {"negative_prompt", NULL, field_is_empty, "is not supported: say it in the prompt"},
    {"no_repeat_ngram_size", NULL, is_not_positive, PENALTIES},
    {"no_stop_trim", NULL, field_is_empty, "is not supported: add the text to the reply"},
    {"num_beam_groups", NULL, field_is_one, BEAMS},
    {"num_beams", NULL, field_is_one, BEAMS},
    {"penalty_alpha", NULL, is_not_positive, CUTS},
    {"priority", NULL, field_is_empty, "must be 0: conversations over gRPC have priorities"},
    {"prompt_embeds", NULL, field_is_empty, "is not supported: a prompt is text or token ids"},
    {"regex", NULL, field_is_empty, "is not supported: use structured_outputs.regex"},
    {"repeat_last_n", NULL, is_negative_one, "must be -1: repeat_penalty counts all that was said"},
    {"repeat_penalty", "repetition_penalty", NULL, NULL},
    {"repetition_detection", NULL, field_is_empty, PENALTIES},
    {"response_fields", NULL, field_is_empty, "is not supported: an answer has all its fields"},
    {"samplers", NULL, field_is_empty, CUTS},
    {"separate_reasoning", NULL, field_is_true, THOUGHTS},
    {"session_params", NULL, field_is_empty, "is not supported: use X-Conversation-Id"},
    {"skip_special_tokens", NULL, field_is_true, "must be true: replies have none"},
    {"smoothing_factor", NULL, is_not_positive, CUTS},
    {"stop_regex", NULL, field_is_empty, "is not supported: use stop"},
    {"stop_token_ids", NULL, field_is_empty, "is not supported: use stop"},
    {"stream_reasoning", NULL, field_is_true, THOUGHTS},
    {"structural_tag", NULL, field_is_empty, "is not supported: use tools, or structured_outputs"},
    {"t_max_predict_ms", NULL, is_not_positive, LENGTHS},
    {"tfs", NULL, field_is_one, CUTS},
    {"tfs_z", NULL, field_is_one, CUTS},
    {"top_a", NULL, is_not_positive, CUTS},
    {"top_n_sigma", NULL, is_not_positive, CUTS},
    {"truncate_prompt_tokens", NULL, field_is_empty, "is not supported: a prompt is read whole"},
    {"typ_p", NULL, field_is_one, CUTS},
    {"typical", NULL, field_is_one, CUTS},
    {"typical_p", NULL, field_is_one, CUTS},
    {"use_beam_search", NULL, field_is_empty, BEAMS},
    {"vllm_xargs", NULL, field_is_empty, "is not supported: no extensions are loaded"},
    {"xtc_probability", NULL, is_not_positive, CUTS},
};
/* clang-format on */

static int foreign_by_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct foreign_field *)row)->name);
}

static const struct foreign_field *foreign_field_find(const char *name)
{
    return bsearch(name, foreign_fields, sizeof(foreign_fields) / sizeof(foreign_fields[0]),
                   sizeof(foreign_fields[0]), foreign_by_name);
}

bool foreign_fields_know(const char *name)
{
    return foreign_field_find(name) != NULL;
}

/* How far back a penalty looks is of no account without one. */
static bool foreign_has_penalty(const json_t *object)
{
    const json_t *penalty = field(object, "repeat_penalty");

    return penalty != NULL && json_number_value(penalty) != 1;
}

enum status foreign_fields_take(struct sampling_overrides *p, const json_t *object,
                                struct arena *arena, struct error *err)
{
    json_t *o = (json_t *)object; /* jansson's iterators change nothing */

    for (void *at = json_object_iter(o); at != NULL; at = json_object_iter_next(o, at)) {
        const json_t *value = json_object_iter_value(at);
        const struct foreign_field *f = foreign_field_find(json_object_iter_key(at));

        if (f == NULL || json_is_null(value))
            continue;
        if (f->ours != NULL) {
            if (sampling_json_set(p, f->ours, value, arena, err) != STATUS_OK)
                return field_rename(err, f->ours, f->name);
        } else if (!f->is_off(value) &&
                   (strcmp(f->name, "repeat_last_n") != 0 || foreign_has_penalty(object))) {
            return error_field(err, f->name, "%s", f->says);
        }
    }
    return STATUS_OK;
}
