/* Plays CartPole by commands on standard input, for a comparison with another program: "set X XDOT
 * THETA THETADOT" begins an episode in that state, "A" is an action. Each is answered by a line:
 * the observation in full precision, reward, terminated, truncated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worlds/environment/cartpole.h"

int main(void)
{
    struct environment *e;
    struct error err;
    char line[256];

    if (environment_open(&e, "cartpole", &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        struct cartpole *c = (struct cartpole *)e;
        struct environment_step out = {0};

        if (strncmp(line, "set ", 4) == 0) {
            environment_reset(e, 0, 0, out.observation);
            if (sscanf(line + 4, "%lf %lf %lf %lf", &c->x, &c->x_dot, &c->theta, &c->theta_dot) !=
                4)
                return 2;
            (void)printf("set\n");
        } else {
            environment_step(e, line[0] == '1', &out);
            (void)printf("%.9g %.9g %.9g %.9g %g %d %d\n", (double)out.observation[0],
                         (double)out.observation[1], (double)out.observation[2],
                         (double)out.observation[3], (double)out.reward, out.terminated,
                         out.truncated);
        }
        (void)fflush(stdout);
    }
    environment_close(e);
    return 0;
}
