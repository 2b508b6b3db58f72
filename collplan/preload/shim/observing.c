/* Times that the program computes between the start of a call and the wait for it.
 *
 * Each rank observes its first planned calls of a signature. Then ranks start an allreduce of the
 * median, and later calls look whether it has ended. The helper tells how trees are split for the
 * longest of these times. The messages of a plan do not depend on that, so ranks may split at
 * different calls. */
#include <stdlib.h>
#include <string.h>

#include "flights.h"

#define N_OBSERVED 6 /* number of observed calls, as in observation.py */
#define NO_REQUEST ((MPI_Request)0)
#define N_TIMINGS 64 /* largest number of calls of this rank whose waits are awaited at a time */

struct cp_observation {
    int64_t first; /* index of the first observed call */
    double times[N_OBSERVED], mine, longest;
    int n_times;
    bool is_agreeing, is_over;
    MPI_Request request;
};

/* A call whose wait is awaited. An unused one has no request. */
struct cp_timing {
    MPI_Request request;
    int64_t start_ns;
    struct cp_observation *of;
};

static struct cp_timing timings[N_TIMINGS];
int cp_n_timings;

struct cp_observation *cp_new_observation(int64_t first) {
    struct cp_observation *made = calloc(1, sizeof *made);
    if (made == NULL) abort(); /* as other ranks would wait for this one */
    made->first = first;
    return made;
}

/* A communicator is freed when all ranks have started its allreduces. */
void cp_free_observation(struct cp_observation *observation) {
    int64_t status[(CP_STATUS_BYTES + 7) / 8];
    cp_lock_flights();
    for (int i = 0; i < N_TIMINGS; i++)
        if (timings[i].of == observation) cp_forget_timing(&timings[i], timings[i].request);
    cp_unlock_flights();
    if (observation->is_agreeing) cp_real.Wait(&observation->request, (MPI_Status *)status);
    free(observation);
}

bool cp_is_agreeing_on_time(const struct cp_route *route, int64_t index) {
    return route->observation != NULL && index == route->observation->first + N_OBSERVED;
}

struct cp_timing *cp_new_timing(const struct cp_route *route, int64_t index, MPI_Request request) {
    struct cp_observation *of = route->observation;
    if (of == NULL || index < of->first || index >= of->first + N_OBSERVED) return NULL;
    for (int i = 0; i < N_TIMINGS; i++)
        if (__atomic_load_n(&timings[i].request, __ATOMIC_ACQUIRE) == NO_REQUEST) {
            timings[i].of = of;
            timings[i].start_ns = cp_now_ns();
            __atomic_store_n(&timings[i].request, request, __ATOMIC_RELEASE);
            __atomic_fetch_add(&cp_n_timings, 1, __ATOMIC_ACQ_REL);
            return &timings[i];
        }
    return NULL;
}

void cp_forget_timing(struct cp_timing *timing, MPI_Request request) {
    if (timing == NULL || request == NO_REQUEST) return;
    if (__atomic_compare_exchange_n(&timing->request, &request, NO_REQUEST, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED))
        __atomic_fetch_sub(&cp_n_timings, 1, __ATOMIC_ACQ_REL);
}

void cp_note_waits(int n, const MPI_Request *requests) {
    if (__atomic_load_n(&cp_n_timings, __ATOMIC_ACQUIRE) == 0) return;
    cp_lock_flights();
    int64_t now = cp_now_ns();
    for (int i = 0; i < N_TIMINGS; i++) {
        struct cp_observation *of = timings[i].of;
        MPI_Request request = __atomic_load_n(&timings[i].request, __ATOMIC_ACQUIRE);
        for (int k = 0; k < n && request != NO_REQUEST; k++) {
            if (requests[k] != request) continue;
            if (!of->is_agreeing && of->n_times < N_OBSERVED)
                of->times[of->n_times++] = 1e-9 * (double)(now - timings[i].start_ns);
            cp_forget_timing(&timings[i], request);
            break;
        }
    }
    cp_unlock_flights();
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Return the median time, or -1 if there is none. */
static double median_of(struct cp_observation *observation) {
    int n = observation->n_times;
    double *times = observation->times;
    qsort(times, (size_t)n, sizeof *times, compare);
    if (n == 0) return -1;
    return n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
}

void cp_agree_on_time(struct cp_flight *flight) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00080b, ompi_mpi_double);
    MPI_Op most = CP_HANDLE(MPI_Op, 0x58000001, ompi_mpi_op_max);
    struct cp_observation *observation = flight->route->observation;
    if (!cp_is_agreeing_on_time(flight->route, flight->index)) return;
    observation->mine = median_of(observation);
    observation->is_agreeing =
        cp_real.Iallreduce(&observation->mine, &observation->longest, 1, type, most,
                           flight->comm->private_comm, &observation->request) == MPI_SUCCESS;
}

/* Return whether ranks have just agreed on the time; needs the lock. */
static bool is_agreed(struct cp_observation *observation) {
    int64_t status[(CP_STATUS_BYTES + 7) / 8];
    int is_done = 0;
    if (!observation->is_agreeing) return false;
    int code = cp_real.Test(&observation->request, &is_done, (MPI_Status *)status);
    if (code == MPI_SUCCESS && !is_done) return false;
    observation->is_agreeing = false;
    observation->is_over = true;
    return code == MPI_SUCCESS;
}

void cp_split_trees(struct cp_comm *comm, struct cp_route *route) {
    struct cp_observation *observation = route->observation;
    char *why = NULL;
    if (observation == NULL || observation->is_over) return;
    if (route->sharing != NULL && route->sharing->plan != NULL) return;
    cp_lock_flights();
    bool is_known = is_agreed(observation);
    cp_unlock_flights();
    if (!is_known) return;
    int64_t begin_ns = cp_now_ns();
    struct cp_program *split = cp_load_program(comm, route, &observation->longest,
                                               sizeof observation->longest, &why);
    free(why);
    if (split != NULL) {
        cp_lock_flights();
        cp_free_program(route->program);
        route->program = split;
        route->row = cp_row(comm->family, cp_name_of(&route->signature), route->label, split->why,
                            comm->size, route->signature.n_bytes, true, route->native_s,
                            route->chosen_s);
        cp_unlock_flights();
    }
    __atomic_fetch_add(&comm->family->making_ns, cp_now_ns() - begin_ns, __ATOMIC_RELAXED);
}
