/* MPI's functions that complete requests, and that free communicators and operations.
 *
 * While calls are in flight, a thread of the program that waits advances them. MPI's own functions
 * decide what is complete, as requests of calls in flight are MPI's. */
#include "wrapping.h"

#define ARE_ANY (__atomic_load_n(&cp_n_flights, __ATOMIC_ACQUIRE) > 0)
#define ARE_OF_INTEREST (ARE_ANY || __atomic_load_n(&cp_n_timings, __ATOMIC_ACQUIRE) > 0)

/* Return after advancing calls in flight until `test`, which sets `is_done`, has completed
 * something or failed: its code, or that of `wait` when no calls are in flight. */
#define AWAIT(test, wait) \
    int is_done = 0, polls = 0, code = MPI_SUCCESS; \
    cp_note_waiting(1); \
    while (code == MPI_SUCCESS && !is_done && ARE_ANY) { \
        code = test; \
        if (code == MPI_SUCCESS && !is_done) cp_pass_time(&polls); \
    } \
    cp_note_waiting(-1); \
    return code != MPI_SUCCESS || is_done ? code : wait;

static int await_one(MPI_Request *request, MPI_Status *status) {
    cp_release_waits(1, request);
    AWAIT(cp_real.Test(request, &is_done, status), cp_real.Wait(request, status))
}

/* Wait until each request is complete, without completing it. MPI_Testall is not used, as that of
 * MPICH 5.0.2 reports an error for persistent collectives. */
static int await_all(int n, MPI_Request *requests, MPI_Status *statuses) {
    int64_t status[(CP_STATUS_BYTES + 7) / 8];
    int polls = 0, code = MPI_SUCCESS;
    cp_release_waits(n, requests);
    cp_note_waiting(1);
    for (int i = 0; i < n && code == MPI_SUCCESS && ARE_ANY; i++) {
        int is_done = requests[i] == cp_REQUEST_NULL;
        while (code == MPI_SUCCESS && !is_done && ARE_ANY) {
            code = cp_real.Request_get_status(requests[i], &is_done, (MPI_Status *)status);
            if (code == MPI_SUCCESS && !is_done) cp_pass_time(&polls);
        }
    }
    cp_note_waiting(-1);
    return cp_real.Waitall(n, requests, statuses);
}

static int await_any(int n, MPI_Request *requests, int *which, MPI_Status *status) {
    cp_release_waits(n, requests);
    AWAIT(cp_real.Testany(n, requests, which, &is_done, status),
          cp_real.Waitany(n, requests, which, status))
}

/* Test for some requests, and set whether any has completed, or none is active. */
static int test_some(int n, MPI_Request *requests, int *n_done, int *places, MPI_Status *statuses,
                     int *is_done) {
    int code = cp_real.Testsome(n, requests, n_done, places, statuses);
    *is_done = code == MPI_SUCCESS && *n_done != 0;
    return code;
}

static int await_some(int n, MPI_Request *requests, int *n_done, int *places,
                      MPI_Status *statuses) {
    cp_release_waits(n, requests);
    AWAIT(test_some(n, requests, n_done, places, statuses, &is_done),
          cp_real.Waitsome(n, requests, n_done, places, statuses))
}

/* Advance all calls in flight once, before a test. */
static int advanced(void) {
    int polls = 0;
    cp_pass_time(&polls);
    return 1;
}

CP_WRAP_AWAIT(Wait, 2, ARE_OF_INTEREST, await_one((MPI_Request *)a1, (MPI_Status *)a2), -1, -1)
CP_WRAP_AWAIT(Waitall, 3, ARE_OF_INTEREST,
              await_all((int)a1, (MPI_Request *)a2, (MPI_Status *)a3), -1, -1)
CP_WRAP_AWAIT(Waitany, 4, ARE_OF_INTEREST,
              await_any((int)a1, (MPI_Request *)a2, (int *)a3, (MPI_Status *)a4), -1, -1)
CP_WRAP_AWAIT(Waitsome, 5, ARE_OF_INTEREST,
              await_some((int)a1, (MPI_Request *)a2, (int *)a3, (int *)a4, (MPI_Status *)a5), -1, -1)
CP_WRAP(Test, 3, ARE_ANY && advanced(),
        cp_real.Test((MPI_Request *)a1, (int *)a2, (MPI_Status *)a3))
CP_WRAP(Testall, 4, ARE_ANY && advanced(),
        cp_real.Testall((int)a1, (MPI_Request *)a2, (int *)a3, (MPI_Status *)a4))
CP_WRAP(Testany, 5, ARE_ANY && advanced(),
        cp_real.Testany((int)a1, (MPI_Request *)a2, (int *)a3, (int *)a4, (MPI_Status *)a5))
CP_WRAP(Testsome, 5, ARE_ANY && advanced(),
        cp_real.Testsome((int)a1, (MPI_Request *)a2, (int *)a3, (int *)a4, (MPI_Status *)a5))
CP_WRAP(Request_get_status, 3, ARE_ANY && advanced(),
        cp_real.Request_get_status((MPI_Request)a1, (int *)a2, (MPI_Status *)a3))

/* Wait for the calls in flight on a communicator, before it is freed. */
static int drained(const MPI_Comm *handle) {
    struct cp_comm *comm = cp_comm_of(*handle);
    if (comm != NULL) cp_drain(comm);
    return 1;
}

CP_WRAP(Comm_free, 1, ARE_ANY && drained((MPI_Comm *)a1), cp_real.Comm_free((MPI_Comm *)a1))
CP_WRAP(Op_free, 1, cp_settings.is_on,
        (cp_forget_operation(*(MPI_Op *)a1), cp_real.Op_free((MPI_Op *)a1)))
CP_WRAP(Comm_disconnect, 1, ARE_ANY && drained((MPI_Comm *)a1),
        cp_real.Comm_disconnect((MPI_Comm *)a1))
