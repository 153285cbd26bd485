/* Whether the module has kernels for the device: a launch says so. */
#include "compute/cuda/launch.h"

static __global__ void probe(int)
{
}

extern "C" void cuda_probe(struct CUstream_st *stream)
{
    LAUNCH(probe, 1, 1, 0, stream, 0);
}
