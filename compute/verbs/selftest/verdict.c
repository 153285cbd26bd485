/* Prints the self-test's results, as lines of a table or JSON objects. */
#include <stdio.h>

#include "cli/output/out.h"
#include "compute/verbs/selftest/selftest.h"

void selftest_operator(struct selftest *s, const char *name, const char *type, double error,
                       double bound)
{
    bool holds = error <= bound;

    s->all_hold = s->all_hold && holds;
    if (s->is_json)
        (void)out_json(json_pack("{ss,ss,ss,ss,sf,sf,sb}", "part", "operators", "operator", name,
                                 "type", type, "backend", s->backend, "max_error", error, "bound",
                                 bound, "holds", holds)); /* out_end reports a failure */
    else
        printf("%-17s %-5s %-9.2g at most %-7.0g %s\n", name, type, error, bound,
               holds ? "ok" : "TOO MUCH");
}

void selftest_verdict(struct selftest *s, const char *part, const char *what, const char *of,
                      bool holds)
{
    s->all_hold = s->all_hold && holds;
    if (s->is_json)
        (void)out_json(json_pack("{ss,ss,ss,ss,sb}", "part", part, "what", what, "of", of,
                                 "backend", s->backend, "holds", holds));
    else
        printf("%-10s %-32s %-6s %s\n", part, what, of, holds ? "ok" : "DOES NOT HOLD");
}

void selftest_figure(const struct selftest *s, const char *what, uint32_t batch, double value,
                     const char *unit, double share, const char *of)
{
    json_t *shown;

    if (s->is_json) {
        shown = json_pack("{ss,ss,ss,sI,sf,ss}", "part", "figures", "backend", s->backend, "what",
                          what, "batch", (json_int_t)batch, "value", value, "unit", unit);
        if (share >= 0)
            (void)json_object_set_new(shown, of, json_real(share));
        (void)out_json(shown);
        return;
    }
    printf("%-10s %-8s", "figures", what);
    if (batch > 0)
        printf(" batch %-4u", batch);
    printf(" %.1f %s", value, unit);
    if (share >= 0)
        printf(", %s %.3f", of, share);
    printf("\n");
}

void selftest_left_out(const struct selftest *s, const char *part, const char *why)
{
    if (s->is_json)
        (void)out_json(
            json_pack("{ss,ss,ss}", "part", part, "backend", s->backend, "left_out", why));
    else
        printf("%-10s left out: %s\n", part, why);
}

void selftest_products(const struct selftest *s, const char *how)
{
    if (s->is_json)
        (void)out_json(
            json_pack("{ss,ss,ss}", "part", "products", "backend", s->backend, "how", how));
    else
        printf("%-10s %s\n", "products", how);
}
