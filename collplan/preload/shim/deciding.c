/* Decisions of the table, on which all ranks of a communicator agree. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define LEAST_TAG_SPACES 64

/* Send the helper the placement of a communicator's ranks; collective in the first call. */
static bool introduce(struct cp_comm *comm, char **why) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    size_t n_bytes = sizeof(int64_t[2]) + sizeof(struct cp_facts) * (size_t)comm->size;
    if (!comm->has_facts) {
        comm->facts = calloc((size_t)comm->size, sizeof *comm->facts);
        if (comm->facts == NULL) abort();
        if (cp_real.Allgather(&comm->family->facts, sizeof(struct cp_facts), byte, comm->facts,
                              sizeof(struct cp_facts), byte, comm->comm) != MPI_SUCCESS)
            return false;
        comm->has_facts = true;
    }
    if (comm->id >= 0) return true;
    int64_t *message = malloc(n_bytes);
    if (message == NULL) return false;
    message[0] = comm->rank;
    message[1] = comm->size;
    memcpy(message + 2, comm->facts, n_bytes - sizeof(int64_t[2]));
    struct cp_reply reply = cp_ask(comm->family, CP_COMM, message, (int64_t)n_bytes);
    if (reply.status == 0 && reply.n_bytes == sizeof comm->id)
        memcpy(&comm->id, reply.bytes, sizeof comm->id);
    else if (reply.status != 0) *why = reply.bytes != NULL ? strdup(reply.bytes) : NULL;
    free(reply.bytes);
    free(message);
    return comm->id >= 0;
}

enum { PASSES = 1, SHARES = 2, TRIES = 4, NEEDS = 8 }; /* bits of the helper's decision */
struct verdict {
    int64_t ways, digest, native_calls;
    double native_s, chosen_s;
};

bool cp_ask_table(struct cp_comm *comm, struct cp_route *route, char **waiting, char **why) {
    char text[256];
    struct verdict verdict;
    int n = cp_write_question(comm, &route->signature, text, sizeof text);
    struct cp_reply reply = cp_ask(comm->family, CP_DECIDE, text, n);
    if (reply.status != 0 || reply.n_bytes < (int64_t)sizeof verdict + 3) {
        *why = reply.bytes;
        return false;
    }
    memcpy(&verdict, reply.bytes, sizeof verdict);
    const char *label = reply.bytes + sizeof verdict;
    const char *reason = label + strlen(label) + 1;
    free(route->label);
    free(route->why);
    route->label = strdup(label);
    route->why = strdup(reason);
    *waiting = strdup(reason + strlen(reason) + 1);
    route->is_wanted = verdict.ways & PASSES;
    route->may_share = verdict.ways & SHARES;
    route->is_tried = verdict.ways & TRIES;
    route->is_needed = verdict.ways & NEEDS;
    route->digest = verdict.digest;
    route->native_calls = verdict.native_calls;
    route->native_s = verdict.native_s;
    route->chosen_s = verdict.chosen_s;
    free(reply.bytes);
    return route->label != NULL && route->why != NULL && *waiting != NULL;
}

int64_t cp_signature_digest(const struct cp_signature *signature) {
    char text[192];
    uint64_t found = 0xcbf29ce484222325u;
    cp_write_signature(signature, text, sizeof text);
    for (const char *at = text; *at; at++) found = (found ^ (unsigned char)*at) * 0x100000001b3u;
    return (int64_t)(found >> 1);
}

bool cp_least(const struct cp_comm *comm, const int64_t *mine, int64_t *found, int n) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    MPI_Op least = CP_HANDLE(MPI_Op, 0x58000002, ompi_mpi_op_min);
    return cp_real.Allreduce(mine, found, n, type, least, comm->comm) == MPI_SUCCESS;
}

void cp_decide(struct cp_comm *comm, struct cp_route *route) {
    char *waiting = NULL, *why = NULL;
    bool is_well = introduce(comm, &why) && cp_ask_table(comm, route, &waiting, &why);
    int64_t signature = cp_signature_digest(&route->signature);
    bool has_room = comm->may_plan || cp_n_planning < CP_MOST_COMMS;
    int64_t mine[8] = {is_well,    route->digest,  -route->digest, signature,
                       -signature, comm->n_calls, -comm->n_calls, has_room};
    int64_t found[8] = {0};
    route->is_decided = true;
    if (!cp_least(comm, mine, found, 8) || !found[0]) {
        cp_make_native(comm, route, why != NULL ? why : "another rank cannot ask the table");
    } else if (found[3] != -found[4]) {
        cp_make_native(comm, route, "ranks bring different calls");
    } else if (found[5] != -found[6]) {
        cp_make_native(comm, route, "ranks have made different numbers of calls");
    } else if (found[1] != -found[2]) {
        cp_make_native(comm, route, "ranks' tables say different things");
    } else if (route->is_tried) {
        cp_wait_for_trial(comm, route, waiting);
    } else if (!route->is_wanted) {
        cp_make_native(comm, route, route->why);
    } else if (!found[7]) {
        cp_do_without(comm, route, CP_FULL);
    } else {
        if (!comm->may_plan) __atomic_fetch_add(&cp_n_planning, 1, __ATOMIC_RELAXED);
        comm->may_plan = true;
        route->row = cp_native_row(comm, route, waiting);
    }
    free(waiting);
    free(why);
}

void cp_set_up(struct cp_comm *comm) {
    char *why = NULL;
    bool is_well = introduce(comm, &why), has_room = comm->may_plan || cp_n_planning < CP_MOST_COMMS;
    int64_t n_spaces = ((int64_t)cp_settings.tag_ub + 1) / CP_MAX_TAGS;
    int64_t mine[4] = {is_well, has_room, cp_settings.is_multiple, n_spaces}, found[4] = {0};
    bool has_met = cp_least(comm, mine, found, 4);
    const char *reason = NULL;
    if (!has_met || !found[0]) reason = why != NULL ? why : "another rank cannot ask the table";
    else if (!found[1]) reason = CP_FULL;
    else if (!found[2]) reason = "non-blocking: plans need MPI initialized with MPI_THREAD_MULTIPLE";
    else if (found[3] < LEAST_TAG_SPACES)
        reason = "non-blocking: this MPI has too few tags to keep collectives apart";
    else {
        if (!comm->may_plan) __atomic_fetch_add(&cp_n_planning, 1, __ATOMIC_RELAXED);
        comm->may_plan = true;
        cp_settle(comm);
        if (!cp_make_private(comm)) reason = CP_NO_PRIVATE;
    }
    comm->n_tag_spaces = found[3];
    comm->n_start_spaces = found[3] / 2;
    comm->why_grounded = reason != NULL ? strdup(reason) : NULL;
    if (comm->setup == CP_REQUESTED) __atomic_fetch_sub(&cp_n_requested, 1, __ATOMIC_RELAXED);
    comm->setup = reason != NULL ? CP_GROUNDED : CP_READY;
    free(why);
}
