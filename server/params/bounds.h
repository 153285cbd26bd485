/* Bounds on sets of parameters. A checkpoint that exceeds a bound is refused, too. */
#ifndef SERVER_PARAMS_BOUNDS_H
#define SERVER_PARAMS_BOUNDS_H

enum {
    PARAMS_MAX_SETS = 64,
    PARAMS_MAX_CONTRIBUTORS = 4096, /* contributors that a set remembers; for one more, the least
                                       recently seen one without a waiting update is forgotten */
    PARAMS_MAX_CLIENT = 128,        /* bytes of a client's id */
};

#endif
