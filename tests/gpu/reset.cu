/* Does cudaDeviceReset heal a process whose kernel failed, as compute/cuda/device.c has it? Memory,
 * streams and graphs of before are left as they are; another thread uses the device too. Exits with
 * 0 when it does, three times. */
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_ROUNDS = 3, N_LAUNCHES = 3, N_THREADS = 32, ROOM_BYTES = 1 << 20 };

static __global__ void store(int *at)
{
    *at = 1;
}

static __global__ void count(int *n)
{
    atomicAdd(n, 1);
}

static bool is_well(cudaError_t rc, const char *what)
{
    printf("  %-40s %d %s\n", what, (int)rc, cudaGetErrorName(rc));
    return rc == cudaSuccess;
}

/* Whether a graph of a kernel can be made, and counts. */
static bool works(void)
{
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    int *at = NULL, n = -1;

    if (!is_well(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream") ||
        !is_well(cudaMalloc(&at, sizeof(*at)), "take memory") ||
        !is_well(cudaMemsetAsync(at, 0, sizeof(*at), stream), "clear it") ||
        !is_well(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a graph"))
        return false;
    count<<<1, N_THREADS, 0, stream>>>(at);
    if (!is_well(cudaStreamEndCapture(stream, &graph), "end it") ||
        !is_well(cudaGraphInstantiate(&exec, graph, 0), "make it"))
        return false;
    for (int i = 0; i < N_LAUNCHES; i++)
        if (!is_well(cudaGraphLaunch(exec, stream), "launch it"))
            return false;
    if (!is_well(cudaMemcpyAsync(&n, at, sizeof(n), cudaMemcpyDeviceToHost, stream), "copy") ||
        !is_well(cudaStreamSynchronize(stream), "wait"))
        return false;
    printf("  counted %d\n", n);
    return n == N_LAUNCHES * N_THREADS;
}

static void *works_too(void *ret_works)
{
    *(bool *)ret_works = works();
    return NULL;
}

static bool heals(void)
{
    void *registered = aligned_alloc(4096, ROOM_BYTES), *pinned = NULL;
    bool is_healed, is_healed_there = false;
    pthread_t thread;

    if (registered == NULL || !works() ||
        !is_well(cudaHostRegister(registered, ROOM_BYTES, cudaHostRegisterDefault), "register") ||
        !is_well(cudaHostAlloc(&pinned, ROOM_BYTES, cudaHostAllocDefault), "take pinned memory"))
        return false;
    store<<<1, 1>>>((int *)16);
    if (is_well(cudaDeviceSynchronize(), "store to address 16"))
        return false; /* it should have failed */
    is_healed = is_well(cudaDeviceReset(), "reset");
    (void)cudaGetLastError();
    is_healed = works() && is_healed;
    if (pthread_create(&thread, NULL, works_too, &is_healed_there) != 0)
        return false;
    (void)pthread_join(thread, NULL);
    free(registered);
    return is_healed && is_healed_there;
}

int main(void)
{
    int driver = -1, pageable = -1, tables = -1;
    bool is_healed = true;

    (void)cudaDriverGetVersion(&driver);
    (void)cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, 0);
    (void)cudaDeviceGetAttribute(&tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, 0);
    printf("driver %d, pageable memory %d, by the host's page tables %d\n", driver, pageable,
           tables);
    for (int i = 0; i < N_ROUNDS && is_healed; i++)
        is_healed = heals();
    puts(is_healed ? "a reset heals" : "a reset does not heal");
    return is_healed ? EXIT_SUCCESS : EXIT_FAILURE;
}
