/* The program parley-compile: compiles constraints for a parleyd, which starts it, one after the
 * other. A process of its own because a constraint of a few bytes may take minutes and gigabytes,
 * and nothing in the engine stops it: this process has limits, and can be killed. It ends when
 * parleyd closes its end or dies. Plain C without a library of ours, so that it starts in a
 * millisecond.
 *
 * usage: parley-compile MODULE PARENT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "agents/lm/grammar/module.h"
#include "agents/lm/grammar/vocab_file.h"
#include "server/compile/protocol.h"

enum {
    EXIT_OVER = 0,    /* there is nothing more to do */
    EXIT_WRONG = 1,   /* it was started wrongly, or its parleyd is gone */
    RETIRE_MIB = 192, /* with more than this it ends, and a new one starts */
    NICE = 5,
};

static bool program_read(void *to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = read(COMPILE_SOCKET_FD, (char *)to + at, n - at);

        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        at += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool program_write(const void *from, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = write(COMPILE_SOCKET_FD, (const char *)from + at, n - at);

        if (put < 0 && errno != EINTR)
            return false;
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* What fails here would only protect others from this process. */
static void be_humble(void)
{
    const struct rlimit none = {0, 0};
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, "1000", 4); /* where memory ends, this process is the one to go */
        (void)close(fd);
    }
    (void)!setpriority(PRIO_PROCESS, 0, NICE);
    (void)!setrlimit(RLIMIT_CORE, &none);
    (void)!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)signal(SIGTERM, SIG_IGN); /* a stop of the unit is meant for parleyd, which drains */
    (void)signal(SIGINT, SIG_IGN);
}

static const struct grammar_module *load_module(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct grammar_module *module =
        library != NULL ? dlsym(library, "parley_grammar_module") : NULL;

    if (module == NULL || strcmp(module->version, PARLEY_VERSION) != 0 ||
        module->size_bytes != sizeof(*module))
        return NULL;
    return module;
}

/* Of the file that parleyd has written: its parts have the sizes that its head says. */
static void *program_vocab(const struct grammar_module *module)
{
    const struct vocab_file_head *head;
    const uint32_t *short_lens;
    const int32_t *ends;
    const char **texts, *bytes;
    void *vocab = NULL, *file;
    char why[COMPILE_MAX_WHY];
    struct stat at;
    size_t *lens;

    if (fstat(COMPILE_VOCAB_FD, &at) != 0 || at.st_size < (off_t)sizeof(*head))
        return NULL;
    file = mmap(NULL, (size_t)at.st_size, PROT_READ, MAP_PRIVATE, COMPILE_VOCAB_FD, 0);
    if (file == MAP_FAILED)
        return NULL;
    head = file;
    ends = (const int32_t *)(head + 1);
    short_lens = (const uint32_t *)(ends + head->n_ends);
    bytes = (const char *)(short_lens + head->n);
    texts = calloc(head->n, sizeof(*texts));
    lens = calloc(head->n, sizeof(*lens));
    if (texts != NULL && lens != NULL) {
        for (size_t i = 0; i < head->n; i++) {
            texts[i] = bytes;
            lens[i] = short_lens[i];
            bytes += lens[i];
        }
        vocab = module->vocab_open(texts, lens, head->n, ends, head->n_ends, why, sizeof(why));
    }
    free(texts);
    free(lens);
    (void)munmap(file, (size_t)at.st_size); /* cannot fail for what was mapped */
    (void)close(COMPILE_VOCAB_FD);
    return vocab;
}

/* The memory of this process: as RLIMIT_AS counts it, and what of it is resident. Both are 0 where
 * that is unknown. */
struct memory {
    unsigned long long n_bytes, n_resident_bytes;
};

static struct memory memory_of_self(void)
{
    const unsigned long long page = (unsigned long long)sysconf(_SC_PAGESIZE);
    struct memory m = {0, 0};
    FILE *f = fopen("/proc/self/statm", "re");

    if (f == NULL || fscanf(f, "%llu %llu", &m.n_bytes, &m.n_resident_bytes) != 2)
        m = (struct memory){0, 0};
    if (f != NULL)
        (void)fclose(f); /* it was only read */
    return (struct memory){m.n_bytes * page, m.n_resident_bytes * page};
}

/* Ends the process by SIGPROF where it computes for longer; 0: any time. */
static void limit_work(uint32_t budget_ms)
{
    const struct itimerval budget = {
        .it_value = {.tv_sec = budget_ms / 1000,
                     .tv_usec = (suseconds_t)(budget_ms % 1000) * 1000}};

    (void)!setitimer(ITIMER_PROF, &budget, NULL); /* fails only for a wrong time */
}

static bool limit_memory(uint32_t memory_mib)
{
    const rlim_t now = memory_of_self().n_bytes;
    const struct rlimit limit = {now + ((rlim_t)memory_mib << 20), RLIM_INFINITY};

    return now != 0 && setrlimit(RLIMIT_AS, &limit) == 0;
}

static bool answer(enum compile_verdict verdict, const char *bytes, size_t n)
{
    const struct compile_answer_head head = {COMPILE_MAGIC, verdict, (uint32_t)n};

    return program_write(&head, sizeof(head)) && program_write(bytes, n);
}

static bool answer_why(enum compile_verdict verdict, const char *why)
{
    return answer(verdict, why, strlen(why));
}

/* arg: whether it was written */
static bool put_compiled(void *arg, const char *bytes, size_t len)
{
    bool *is_answered = arg;

    limit_work(0); /* what is left waits for parleyd */
    *is_answered = true;
    if (len > COMPILE_MAX_BYTES)
        return answer_why(COMPILE_TOO_LARGE, "");
    return answer(COMPILE_DONE, bytes, len);
}

/* False where parleyd cannot be answered. */
static bool serve_one(const struct grammar_module *module, void *vocab,
                      const struct compile_request *request, const char *text)
{
    char why[COMPILE_MAX_WHY] = "";
    bool no_memory = false, is_answered = false, is_well = true;
    void *compiled;

    if (!limit_memory(request->memory_mib))
        return false;
    limit_work(request->budget_ms);
    compiled = module->compile(vocab, (int)request->form, text, request->n_bytes, &no_memory, why,
                               sizeof(why));
    if (compiled == NULL)
        is_well = answer_why(no_memory ? COMPILE_NO_MEMORY : COMPILE_INVALID, why);
    else if (!module->compiled_save(compiled, put_compiled, &is_answered, why, sizeof(why)))
        is_well = !is_answered && answer_why(COMPILE_INVALID, why);
    limit_work(0);
    if (compiled != NULL)
        module->compiled_close(compiled);
    return is_well && !no_memory; /* after that its memory is in pieces */
}

static bool is_worn(void)
{
    return memory_of_self().n_resident_bytes > (unsigned long long)RETIRE_MIB << 20;
}

int main(int argc, char **argv)
{
    const struct grammar_module *module;
    struct compile_request request;
    void *vocab;

    if (argc != 3 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ||
        getppid() != (pid_t)strtol(argv[2], NULL, 10))
        return EXIT_WRONG; /* the parent may have died before prctl */
    be_humble();
    module = load_module(argv[1]);
    vocab = module != NULL ? program_vocab(module) : NULL;
    if (vocab == NULL)
        return EXIT_WRONG;
    while (program_read(&request, sizeof(request)) && request.magic == COMPILE_MAGIC) {
        char *text = malloc((size_t)request.n_bytes + 1);
        bool is_well = text != NULL && program_read(text, request.n_bytes) &&
                       serve_one(module, vocab, &request, text);

        free(text);
        if (!is_well || is_worn())
            break;
    }
    return EXIT_OVER;
}
