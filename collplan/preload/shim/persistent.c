/* Persistent collectives, which are native, and counted at their starts if statistics are
 * requested. */
#include <pthread.h>
#include <stdlib.h>

#include "wrapping.h"

#define N_CHAINS 64

/* A request that the program can start. */
struct expected {
    struct expected *next;
    MPI_Request request;
    struct cp_row *row;
    int64_t n_bytes;
};

int cp_n_persistent;
static struct expected *chains[N_CHAINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct expected **place_of(MPI_Request request) {
    uint64_t word = (uint64_t)(intptr_t)request;
    struct expected **at = &chains[(word ^ word >> 6 ^ word >> 12) % N_CHAINS];
    while (*at != NULL && (*at)->request != request) at = &(*at)->next;
    return at;
}

void cp_expect_starts(MPI_Request request, const char *name, const char *why, MPI_Comm comm,
                      int64_t n_bytes) {
    int size = 0;
    cp_real.Comm_size(comm, &size);
    struct expected *one = calloc(1, sizeof *one);
    if (one == NULL) return;
    one->request = request;
    one->row = cp_row(name, "native", why, size, n_bytes, false, -1, -1);
    one->n_bytes = n_bytes;
    pthread_mutex_lock(&lock);
    *place_of(request) = one;
    pthread_mutex_unlock(&lock);
    __atomic_fetch_add(&cp_n_persistent, 1, __ATOMIC_RELAXED);
}

void cp_count_starts(const MPI_Request *requests, int n, int64_t ns) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        const struct expected *one = *place_of(requests[i]);
        if (one != NULL) cp_count(one->row, one->n_bytes, ns / n);
    }
    pthread_mutex_unlock(&lock);
}

void cp_forget_starts(MPI_Request request) {
    pthread_mutex_lock(&lock);
    struct expected **at = place_of(request), *one = *at;
    if (one != NULL) *at = one->next;
    pthread_mutex_unlock(&lock);
    if (one == NULL) return;
    free(one);
    __atomic_fetch_sub(&cp_n_persistent, 1, __ATOMIC_RELAXED);
}

static int start(MPI_Request *request) {
    int64_t begin = cp_now_ns();
    int code = cp_real.Start(request);
    if (code == MPI_SUCCESS) cp_count_starts(request, 1, cp_now_ns() - begin);
    return code;
}

static int start_all(int n, MPI_Request *requests) {
    int64_t begin = cp_now_ns();
    int code = cp_real.Startall(n, requests);
    if (code == MPI_SUCCESS) cp_count_starts(requests, n, cp_now_ns() - begin);
    return code;
}

static int free_request(MPI_Request *request) {
    cp_forget_starts(*request);
    return cp_real.Request_free(request);
}

#define ARE_ANY (__atomic_load_n(&cp_n_persistent, __ATOMIC_RELAXED) > 0)
CP_WRAP(Start, 1, ARE_ANY, start((MPI_Request *)a1))
CP_WRAP(Startall, 2, ARE_ANY, start_all((int)a1, (MPI_Request *)a2))
CP_WRAP(Request_free, 1, ARE_ANY, free_request((MPI_Request *)a1))
