#include "cli/output/progress.h"

#include <stdio.h>

#include "cli/output/console.h"

enum { TERMINAL_EVERY_US = 200 * 1000, LINE_BYTES = 160 };

void run_progress_start(struct run_progress *p, const char *what, uint64_t n_all, uint32_t every_s,
                        const struct env *env)
{
    *p = (struct run_progress){.what = what, .env = env, .n_all = n_all};
    p->start_us = env_now_us(env);
    p->every_us = console_is_fancy() ? TERMINAL_EVERY_US : every_s * 1000 * 1000;
    p->next_us = p->every_us == 0 ? UINT64_MAX : p->start_us + p->every_us;
}

double run_progress_seconds(const struct run_progress *p)
{
    return (double)(env_now_us(p->env) - p->start_us) / 1e6;
}

static void progress_say(const char *line)
{
    if (console_is_fancy())
        console_progress("%s", line);
    else
        console_line("%s", line);
}

void run_progress_tell(struct run_progress *p, uint64_t n_done)
{
    uint64_t now = env_now_us(p->env);
    char line[LINE_BYTES];
    double seconds, rate;

    if (now < p->next_us)
        return;
    p->next_us = now + p->every_us;
    seconds = (double)(now - p->start_us) / 1e6;
    rate = (double)n_done / seconds;
    if (p->n_all == UINT64_MAX || n_done == 0)
        (void)snprintf(line, sizeof(line), "%s: %llu exs, %.1f exs/s", p->what,
                       (unsigned long long)n_done, rate);
    else
        (void)snprintf(line, sizeof(line), "%s: %llu of %llu exs (%.0f %%), %.1f exs/s, ETA %.0f s",
                       p->what, (unsigned long long)n_done, (unsigned long long)p->n_all,
                       100.0 * (double)n_done / (double)p->n_all, rate,
                       (double)(p->n_all - (n_done < p->n_all ? n_done : p->n_all)) / rate);
    progress_say(line);
}

void run_progress_end(struct run_progress *p)
{
    p->next_us = UINT64_MAX;
    console_clear();
}
