/* Plays an environment by commands on standard input, for a comparison with another program: "set
 * NUMBERS" begins an episode in that state, "ACTION" is an action. Each is answered by a line: the
 * observation in full precision, reward, terminated, truncated.
 *
 * usage: environment_trace NAME */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worlds/environment/cartpole.h"
#include "worlds/environment/grid_world.h"
#include "worlds/environment/pendulum.h"

/* False: these are not the numbers of its state. */
static bool set_state(struct environment *e, const char *text)
{
    struct cartpole *c = (struct cartpole *)e;
    struct pendulum *p = (struct pendulum *)e;
    struct grid_world *g = (struct grid_world *)e;

    if (e->type == &cartpole_environment)
        return sscanf(text, "%lf %lf %lf %lf", &c->x, &c->x_dot, &c->theta, &c->theta_dot) == 4;
    if (e->type == &pendulum_environment)
        return sscanf(text, "%lf %lf", &p->theta, &p->theta_dot) == 2;
    return sscanf(text, "%d %d %d %d", &g->agent[0], &g->agent[1], &g->target[0], &g->target[1]) ==
           4;
}

int main(int argc, char **argv)
{
    struct environment *e;
    struct error err;
    char line[256];

    if (argc != 2 || environment_open(&e, argv[1], &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", argc != 2 ? "usage: environment_trace NAME" : err.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct environment_step out = {0};
        float number = strtof(line, NULL);

        if (strncmp(line, "set ", 4) == 0) {
            environment_reset(e, 0, 0, out.observation);
            if (!set_state(e, line + 4))
                return 2;
            (void)printf("set\n");
        } else {
            if (e->type->n_actions > 0)
                environment_step(e, (size_t)number, &out);
            else
                environment_step_numbers(e, &number, &out);
            for (size_t i = 0; i < e->type->n_observation; i++)
                (void)printf("%.9g ", (double)out.observation[i]);
            (void)printf("%.9g %d %d\n", (double)out.reward, out.terminated, out.truncated);
        }
        (void)fflush(stdout);
    }
    environment_close(e);
    return 0;
}
