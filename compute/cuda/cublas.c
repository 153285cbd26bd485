#include "compute/cuda/cublas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const struct cublas_entry {
    const char *name;
    size_t at; /* offset of the pointer in struct cublas */
} entries[] = {
    {"cublasLtGetVersion", offsetof(struct cublas, get_version)},
    {"cublasLtGetStatusName", offsetof(struct cublas, get_status_name)},
    {"cublasLtCreate", offsetof(struct cublas, create)},
    {"cublasLtDestroy", offsetof(struct cublas, destroy)},
    {"cublasLtMatmulDescCreate", offsetof(struct cublas, matmul_desc_create)},
    {"cublasLtMatmulDescSetAttribute", offsetof(struct cublas, matmul_desc_set_attribute)},
    {"cublasLtMatmulDescDestroy", offsetof(struct cublas, matmul_desc_destroy)},
    {"cublasLtMatrixLayoutCreate", offsetof(struct cublas, matrix_layout_create)},
    {"cublasLtMatrixLayoutDestroy", offsetof(struct cublas, matrix_layout_destroy)},
    {"cublasLtMatmulPreferenceCreate", offsetof(struct cublas, matmul_preference_create)},
    {"cublasLtMatmulPreferenceSetAttribute",
     offsetof(struct cublas, matmul_preference_set_attribute)},
    {"cublasLtMatmulPreferenceDestroy", offsetof(struct cublas, matmul_preference_destroy)},
    {"cublasLtMatmulAlgoGetHeuristic", offsetof(struct cublas, matmul_algo_get_heuristic)},
    {"cublasLtMatmul", offsetof(struct cublas, matmul)},
};

/* Guarded by lock until it is found; then it never changes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cublas *loaded;

static enum status cublas_open_file(const char *path, struct error *err)
{
    struct cublas found = {0};
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    const char *slash = strrchr(path, '/');

    if (library == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s", dlerror());
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *at = dlsym(library, entries[i].name);

        if (at == NULL) {
            (void)dlclose(library);
            return error_set(err, STATUS_NOT_FOUND, "%.160s has no %s", path, entries[i].name);
        }
        memcpy((char *)&found + entries[i].at, &at, sizeof(at));
    }
    found.file = xstrdup(slash != NULL ? slash + 1 : path);
    loaded = xalloc(sizeof(*loaded));
    *loaded = found;
    return STATUS_OK;
}

static enum status open_any(struct error *err)
{
    static const char *const places[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                         "/usr/local/cuda/lib64/libcublasLt.so.13",
                                         "/usr/local/cuda/lib64/libcublasLt.so.12"};
    const char *given = getenv("PARLEY_CUBLAS");

    if (given != NULL && given[0] != '\0')
        return cublas_open_file(given, err);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (cublas_open_file(places[i], err) == STATUS_OK)
            return STATUS_OK;
    return error_set(err, STATUS_NOT_FOUND,
                     "there is neither libcublasLt.so.13 nor libcublasLt.so.12");
}

enum status cublas_load(const struct cublas **out, struct error *err)
{
    enum status rc = STATUS_OK;

    (void)pthread_mutex_lock(&lock);
    if (loaded == NULL)
        rc = open_any(err);
    if (rc == STATUS_OK)
        *out = loaded;
    (void)pthread_mutex_unlock(&lock);
    return rc;
}
