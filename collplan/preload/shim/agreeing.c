/* Agreements of the ranks on the route of a signature, in calls that do not block.
 *
 * Such a call must not wait for other ranks. Therefore each rank asks its helper by itself, ranks
 * start a small allreduce, and the call begins when its result has come. Until then, the calls of the
 * signature wait in a queue. */
#include <stdlib.h>
#include <string.h>

#include "flights.h"

#define FULL_MEMORY "the communicator has as many plans through shared memory as it may have"

/* Return the reason why later calls are native although ranks have the same decision, or NULL. */
static char *why_native(const struct cp_flight *flight) {
    const struct cp_route *route = flight->route;
    if (!route->is_wanted && !route->may_share) return cp_text_of("%s", route->why);
    if (!flight->makes) return NULL;
    if (!route->is_wanted && route->sharing == NULL) return cp_text_of(FULL_MEMORY);
    if (!route->is_wanted)
        return cp_text_of("non-blocking: %s needs shared memory, which the next blocking call "
                          "allocates", route->label);
    if (flight->found[9]) return NULL;
    return cp_text_of("%s cannot run here: %s", route->label,
                      flight->why != NULL ? flight->why : "another rank cannot make it");
}

/* Use what the ranks have agreed on. */
static void resolve(struct cp_flight *flight, bool has_met) {
    struct cp_comm *comm = flight->comm;
    struct cp_route *route = flight->route;
    const int64_t *found = flight->found;
    const char *why = NULL;
    char *text = NULL;
    if (!has_met || !found[0])
        why = flight->why != NULL ? flight->why : "another rank cannot ask the table";
    else if (found[1] != -found[2]) why = "ranks bring different calls";
    else if (found[3] != -found[4]) why = "ranks have made different numbers of calls";
    else if (found[5] != -found[6] || found[7] != -found[8])
        why = "ranks' tables say different things";
    if (why == NULL && found[11] && route->sharing == NULL && cp_has_room_to_share(comm))
        cp_request_sharing(comm, route);
    if (why == NULL) why = text = why_native(flight);
    route->early_row = why == NULL ? cp_native_row(comm, route, flight->waiting) : NULL;
    if (why != NULL) {
        cp_make_native(comm, route, why);
    } else if (flight->makes) {
        route->program = flight->program;
        flight->program = NULL;
        if (found[10]) {
            int64_t first = route->native_calls;
            route->observation = cp_new_observation(first > flight->index ? first : flight->index);
        }
        route->row = cp_planned_row(comm, route);
        route->way = CP_PLANNED;
    } else {
        route->row = route->early_row;
    }
    if (flight->program != NULL) cp_free_program(flight->program);
    flight->program = NULL;
    free(text);
    __atomic_store_n(&route->is_resolved, true, __ATOMIC_RELEASE);
}

bool cp_advance_agreement(struct cp_flight *flight) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    MPI_Op least = CP_HANDLE(MPI_Op, 0x58000002, ompi_mpi_op_min);
    int64_t status[(CP_STATUS_BYTES + 7) / 8];
    /* Calls that wait behind an agreement of their signature begin after it. */
    if (!flight->opens) return true;
    int is_done = 0, code = MPI_SUCCESS;
    if (!flight->has_asked) {
        code = cp_real.Iallreduce(flight->mine, flight->found, CP_N_WORDS, type, least,
                                  flight->comm->private_comm, &flight->native);
        flight->has_asked = true;
    }
    if (code == MPI_SUCCESS)
        code = cp_real.Test(&flight->native, &is_done, (MPI_Status *)status);
    if (code == MPI_SUCCESS && !is_done) return false;
    resolve(flight, code == MPI_SUCCESS);
    flight->opens = false;
    return true;
}
