/* How fast a model is loaded from files in the page cache, until it could answer: when its hash is
 * not known, and when it is. Beside it, of the same bytes in the same round, by as many threads:
 * reading them; touching as much memory for the first time, in large pages, which a virtual machine
 * may have to get from its host; and, by one, their sha256, which is a single chain and runs beside
 * the packing of the weights. Then processor time, and the greatest memory over what stays.
 *
 *     bench_load [MODEL.gguf [ROUNDS [THREADS]]]
 *
 * Without MODEL: PARLEY_MODEL. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents/agent.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "compute/gguf/hash.h"

enum { READ_BYTES = 256 << 10, MAX_THREADS = 64, MAX_ROUNDS = 31, KV_BYTES = 64 << 20 };

struct bench {
    const char *path;
    size_t n_threads;
    double size_bytes;
};

/* What one load took. */
struct load {
    double wall_s, processor_s;
    double peak_bytes, resident_bytes; /* of the whole process */
};

enum what { READ, TOUCH, SHA256, LOAD_HASHED, LOAD_KNOWN, N_WHATS };

static const char *const names[N_WHATS] = {"read", "first touch", "sha256", "load, hash unknown",
                                           "load, hash known"};

/* A thread's part of the file, or of as much memory. */
struct part {
    pthread_t thread;
    int fd;
    uint8_t *memory;
    size_t begin, end;
};

static void *read_part(void *arg)
{
    struct part *p = arg;
    uint8_t *room = xalloc(READ_BYTES);

    while (p->begin < p->end) {
        ssize_t n = pread(p->fd, room, READ_BYTES, (off_t)p->begin);

        if (n <= 0)
            abort();
        p->begin += (size_t)n;
    }
    free(room);
    return NULL;
}

static void *touch_part(void *arg)
{
    struct part *p = arg;
    size_t step = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t i = p->begin; i < p->end; i += step)
        p->memory[i] = 1;
    return NULL;
}

/* Seconds that all threads take for their parts. */
static double time_parts(const struct bench *b, void *(*work)(void *), int fd, uint8_t *memory)
{
    struct part parts[MAX_THREADS];
    size_t size = (size_t)b->size_bytes, n = b->n_threads;
    double start = clock_s();

    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct part){
            .fd = fd, .memory = memory, .begin = size / n * i, .end = size / n * (i + 1)};
        if (pthread_create(&parts[i].thread, NULL, work, &parts[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < n; i++)
        (void)pthread_join(parts[i].thread, NULL);
    return clock_s() - start;
}

static double time_touch(const struct bench *b)
{
    size_t size = (size_t)b->size_bytes;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double took;

    if (memory == MAP_FAILED)
        abort();
    (void)madvise(memory, size, MADV_HUGEPAGE); /* a wish */
    took = time_parts(b, touch_part, -1, memory);
    (void)munmap(memory, size);
    return took;
}

/* A figure of /proc/self/status, in bytes. */
static double status_bytes(const char *name)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");
    unsigned long kb = 0;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kb = strtoul(line + strlen(name), NULL, 10);
    if (f != NULL)
        (void)fclose(f);
    return (double)kb * 1024.0;
}

static void open_model(const struct bench *b, struct load *out)
{
    const struct agent_config config = {.name = "bench",
                                        .path = b->path,
                                        .options.backend = "cpu",
                                        .options.n_threads = b->n_threads,
                                        .options.kv_bytes = KV_BYTES,
                                        .env = &env_real};
    double start = clock_s();
    struct agent *a = NULL;
    struct rusage usage;
    struct error err;

    if (agent_open(&a, "lm", &config, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    out->wall_s = clock_s() - start;
    (void)getrusage(RUSAGE_SELF, &usage);
    out->processor_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    out->peak_bytes = status_bytes("VmHWM:");
    out->resident_bytes = status_bytes("VmRSS:");
}

/* In a process of its own, whose peak is the load's. */
static struct load load_model(const struct bench *b)
{
    struct load l;
    int ends[2], status;
    pid_t child;

    if (pipe(ends) != 0 || (child = fork()) < 0)
        abort();
    if (child == 0) {
        open_model(b, &l);
        _exit(write(ends[1], &l, sizeof(l)) == (ssize_t)sizeof(l) ? 0 : 1);
    }
    (void)close(ends[1]);
    if (read(ends[0], &l, sizeof(l)) != (ssize_t)sizeof(l) || waitpid(child, &status, 0) != child ||
        status != 0)
        exit(1);
    (void)close(ends[0]);
    return l;
}

/* Nothing is known: what a load stores is in a folder of its own. */
static void forget_hash(void)
{
    char folder[] = "/tmp/parley-bench-load-XXXXXX", command[128];
    const char *before = getenv("XDG_CACHE_HOME");

    if (before != NULL && strncmp(before, folder, strlen("/tmp/parley-bench-load-")) == 0) {
        (void)snprintf(command, sizeof(command), "rm -r %s", before);
        if (system(command) != 0)
            abort();
    }
    if (mkdtemp(folder) == NULL || setenv("XDG_CACHE_HOME", folder, 1) != 0)
        abort();
}

static void run_round(const struct bench *b, int fd, size_t round,
                      double took_s[N_WHATS][MAX_ROUNDS], struct load *ret_hashed,
                      struct load *ret_known)
{
    char hash[MODEL_HASH_SIZE];
    struct error err;
    double start;

    took_s[READ][round] = time_parts(b, read_part, fd, NULL);
    took_s[TOUCH][round] = time_touch(b);
    start = clock_s();
    if (model_hash(hash, fd, &err) != STATUS_OK)
        abort();
    took_s[SHA256][round] = clock_s() - start;
    forget_hash();
    *ret_hashed = load_model(b);
    took_s[LOAD_HASHED][round] = ret_hashed->wall_s;
    *ret_known = load_model(b);
    took_s[LOAD_KNOWN][round] = ret_known->wall_s;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_load(const char *name, const struct load *l, double size_bytes)
{
    printf("%-18s %6.2f s of processors a GB, memory: %.2f GB stay, %.2f of the file, peak %.3f of "
           "them\n",
           name, l->processor_s / size_bytes * 1e9, l->resident_bytes / 1e9,
           l->resident_bytes / size_bytes, l->peak_bytes / l->resident_bytes);
}

int main(int argc, char **argv)
{
    struct bench b = {.path = argc > 1 ? argv[1] : getenv("PARLEY_MODEL"),
                      .n_threads = argc > 3 ? strtoul(argv[3], NULL, 10)
                                            : (size_t)sysconf(_SC_NPROCESSORS_ONLN)};
    size_t n_rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 3;
    double took_s[N_WHATS][MAX_ROUNDS];
    struct load hashed, known;
    struct stat st;
    int fd;

    if (b.path == NULL || n_rounds < 1 || n_rounds > MAX_ROUNDS || b.n_threads < 1 ||
        b.n_threads > MAX_THREADS || (fd = open(b.path, O_RDONLY | O_CLOEXEC)) < 0 ||
        fstat(fd, &st) != 0) {
        (void)fprintf(stderr, "usage: bench_load MODEL.gguf [ROUNDS [THREADS]]\n");
        return 2;
    }
    b.size_bytes = (double)st.st_size;
    (void)time_parts(&b, read_part, fd, NULL); /* into the page cache */
    for (size_t i = 0; i < n_rounds; i++)
        run_round(&b, fd, i, took_s, &hashed, &known);
    forget_hash();
    (void)rmdir(getenv("XDG_CACHE_HOME"));
    printf("%.2f GB, %zu threads, median (least, most) of %zu rounds\n", b.size_bytes / 1e9,
           b.n_threads, n_rounds);
    for (size_t i = 0; i < N_WHATS; i++) {
        qsort(took_s[i], n_rounds, sizeof(took_s[i][0]), compare);
        printf("%-18s %7.3f s (%.3f, %.3f), %6.2f GB/s, %5.2f x sha256\n", names[i],
               took_s[i][n_rounds / 2], took_s[i][0], took_s[i][n_rounds - 1],
               b.size_bytes / took_s[i][n_rounds / 2] / 1e9,
               took_s[SHA256][n_rounds / 2] / took_s[i][n_rounds / 2]);
    }
    print_load(names[LOAD_HASHED], &hashed, b.size_bytes);
    print_load(names[LOAD_KNOWN], &known, b.size_bytes);
    return 0;
}
