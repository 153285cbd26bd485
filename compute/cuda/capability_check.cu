/* A kernel that does nothing: its launch fails where the module has no kernels for the device. */
#include "compute/cuda/launch.h"

static __global__ void capability_check(int)
{
}

extern "C" void cuda_check_capability(struct CUstream_st *stream)
{
    LAUNCH(capability_check, 1, 1, 0, stream, 0);
}
