#include "client/cli/chat/turn_json.h"

static json_t *timings_json(const struct cli_turn *x)
{
    const struct parley_timings *t = &x->timings;
    double rate = cli_turn_rate(x);
    json_t *timings =
        json_pack("{sI,sI,sI,sI,sI,sf}", "queue_us", (json_int_t)t->queue_us, "prefill_us",
                  (json_int_t)t->prefill_us, "decode_us", (json_int_t)t->decode_us, "total_us",
                  (json_int_t)t->total_us, "steps", (json_int_t)t->steps, "ttft_ms",
                  (double)x->first_us / 1e3);

    (void)json_object_set_new(timings, "tok_s", rate > 0.0 ? json_real(rate) : json_null());
    return timings;
}

json_t *turn_json(const struct cli_turn *x, const char *model, const char *version)
{
    json_t *usage = json_pack("{sI,sI,sI}", "prompt_tokens", (json_int_t)x->usage.prompt_tokens,
                              "cached_tokens", (json_int_t)x->usage.cached_tokens,
                              "completion_tokens", (json_int_t)x->usage.completion_tokens);
    json_t *result =
        json_pack("{ss%,sO,ss,so,so,ss,ss}", "reply", x->reply.data == NULL ? "" : x->reply.data,
                  x->reply.len, "token_ids", x->token_ids, "finish_reason", x->finish_reason,
                  "usage", usage, "timings", timings_json(x), "model", model, "version", version);

    if (x->turn->want_logprobs > 0)
        (void)json_object_set(result, "logprobs", x->logprobs);
    return result;
}
