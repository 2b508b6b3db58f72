/* Calls of MPI's own collectives inside of plans.
 *
 * Each call has a communicator of its own. Therefore calls can start in any order, as long as all ranks
 * start the plan equally often. */
#include <stdlib.h>
#include <string.h>

#include "plans.h"

/* A call on this rank, whose arguments are filled in one after another. */
struct filling {
    struct cp_native_row *row;
    const struct cp_native_call *call;
    MPI_Comm comm;
    MPI_Datatype element;
    int64_t op;
    int64_t *blocks; /* number of elements of the block of every position */
    int64_t n_arguments;
};

static void pass(struct filling *filling, int64_t word) {
    (&filling->row->a0)[filling->n_arguments++] = word;
}

/* Pass the address of the send buffer or the receive buffer, which is known when the call starts. */
static void pass_sent(struct filling *filling) {
    if (filling->call->has_sent) filling->row->sent_at = filling->n_arguments;
    pass(filling, 0);
}

static void pass_received(struct filling *filling) {
    if (filling->call->has_received) filling->row->received_at = filling->n_arguments;
    pass(filling, 0);
}

static void pass_elements(struct filling *filling, int64_t n) {
    pass(filling, n);
    pass(filling, (int64_t)(intptr_t)filling->element);
}

/* Pass the root if there is one, the communicator, and the request. */
static void pass_end(struct filling *filling) {
    if (filling->call->root >= 0) pass(filling, filling->call->root);
    pass(filling, (int64_t)(intptr_t)filling->comm);
    filling->row->request_at = filling->n_arguments;
    pass(filling, 0);
}

/* Pass sizes of all blocks, and their displacements if `has_places`. The plan keeps the arrays. */
static bool pass_blocks(struct cp_plan *plan, struct filling *filling, bool has_places) {
    int64_t n = filling->call->n_members;
    int *sizes = malloc(2 * (size_t)n * sizeof *sizes), at = 0;
    if (sizes == NULL) return false;
    for (int64_t i = 0; i < n; i++) {
        sizes[i] = (int)filling->blocks[i];
        sizes[n + i] = at;
        at += sizes[i];
    }
    plan->kept[plan->n_kept++] = sizes;
    pass(filling, (int64_t)(intptr_t)sizes);
    if (has_places) pass(filling, (int64_t)(intptr_t)(sizes + n));
    return true;
}

static bool are_equal(const struct filling *filling) {
    for (int64_t i = 1; i < filling->call->n_members; i++)
        if (filling->blocks[i] != filling->blocks[0]) return false;
    return true;
}

/* Fill in a call that reduces. */
static bool fill_reduction(struct cp_plan *plan, struct filling *filling) {
    const struct cp_native_call *call = filling->call;
    struct cp_native_row *row = filling->row;
    int64_t n = call->n_read;
    bool is_spread = call->kind == CP_REDUCE_SCATTER_BLOCK;
    pass_sent(filling);
    if (call->kind == CP_EXSCAN && !call->has_received) {
        /* The first rank has no result, but MPI requires memory. */
        void *unused = malloc((size_t)(n * plan->head.item_bytes) + 1);
        if (unused == NULL) return false;
        plan->kept[plan->n_kept++] = unused;
        pass(filling, (int64_t)(intptr_t)unused);
    } else {
        pass_received(filling);
    }
    if (is_spread && !are_equal(filling)) {
        row->function = (int64_t)(intptr_t)cp_real.Ireduce_scatter;
        if (!pass_blocks(plan, filling, false)) return false;
        pass(filling, (int64_t)(intptr_t)filling->element);
    } else {
        row->function = call->kind == CP_REDUCE      ? (int64_t)(intptr_t)cp_real.Ireduce
                        : call->kind == CP_ALLREDUCE ? (int64_t)(intptr_t)cp_real.Iallreduce
                        : call->kind == CP_SCAN      ? (int64_t)(intptr_t)cp_real.Iscan
                        : call->kind == CP_EXSCAN
                            ? (int64_t)(intptr_t)cp_real.Iexscan
                            : (int64_t)(intptr_t)cp_real.Ireduce_scatter_block;
        pass_elements(filling, is_spread ? call->n_written : n);
    }
    pass(filling, filling->op);
    pass_end(filling);
    return true;
}

static bool fill_scatter(struct cp_plan *plan, struct filling *filling, int rank) {
    bool is_even = are_equal(filling);
    int64_t n = filling->blocks[rank];
    filling->row->function = is_even ? (int64_t)(intptr_t)cp_real.Iscatter
                                     : (int64_t)(intptr_t)cp_real.Iscatterv;
    pass_sent(filling);
    if (is_even) pass_elements(filling, n);
    else if (!pass_blocks(plan, filling, true)) return false;
    else pass(filling, (int64_t)(intptr_t)filling->element);
    if (rank == filling->call->root) pass(filling, (int64_t)(intptr_t)MPI_IN_PLACE);
    else pass_received(filling);
    pass_elements(filling, n);
    pass_end(filling);
    return true;
}

static bool fill_gather(struct cp_plan *plan, struct filling *filling) {
    bool is_even = are_equal(filling), has_root = filling->call->kind == CP_GATHER;
    int64_t n = filling->call->n_read;
    void *even = has_root ? (void *)cp_real.Igather : (void *)cp_real.Iallgather;
    void *uneven = has_root ? (void *)cp_real.Igatherv : (void *)cp_real.Iallgatherv;
    filling->row->function = (int64_t)(intptr_t)(is_even ? even : uneven);
    pass_sent(filling);
    pass_elements(filling, n);
    pass_received(filling);
    if (is_even) pass_elements(filling, n);
    else if (!pass_blocks(plan, filling, true)) return false;
    else pass(filling, (int64_t)(intptr_t)filling->element);
    pass_end(filling);
    return true;
}

static bool fill(struct cp_plan *plan, struct filling *filling, int rank) {
    const struct cp_native_call *call = filling->call;
    int64_t n;
    switch (call->kind) {
    case CP_BARRIER:
        filling->row->function = (int64_t)(intptr_t)cp_real.Ibarrier;
        pass_end(filling);
        return true;
    case CP_BCAST:
        filling->row->function = (int64_t)(intptr_t)cp_real.Ibcast;
        if (rank == call->root) pass_sent(filling);
        else pass_received(filling);
        pass_elements(filling, rank == call->root ? call->n_read : call->n_written);
        pass_end(filling);
        return true;
    case CP_ALLTOALL:
        n = call->n_read / call->n_members;
        filling->row->function = (int64_t)(intptr_t)cp_real.Ialltoall;
        pass_sent(filling);
        pass_elements(filling, n);
        pass_received(filling);
        pass_elements(filling, n);
        pass_end(filling);
        return true;
    case CP_SCATTER: return fill_scatter(plan, filling, rank);
    case CP_GATHER: case CP_ALLGATHER: return fill_gather(plan, filling);
    default: return fill_reduction(plan, filling);
    }
}

/* Make the communicator of a call's group; collective over the group. */
static bool make_group(const struct cp_plan *plan, const struct cp_native_call *call, MPI_Comm all,
                       MPI_Comm *made) {
    MPI_Group everybody, group;
    int *members = malloc((size_t)call->n_members * sizeof *members);
    if (members == NULL) abort(); /* as other ranks would wait for this one */
    for (int64_t i = 0; i < call->n_members; i++)
        members[i] = (int)plan->members[call->first_member + i];
    cp_real.Comm_group(all, &everybody);
    cp_real.Group_incl(everybody, (int)call->n_members, members, &group);
    int code = cp_real.Comm_create_group(all, group, 0, made);
    cp_real.Group_free(&group);
    cp_real.Group_free(&everybody);
    free(members);
    if (code != MPI_SUCCESS) return false;
    cp_real.Comm_set_errhandler(*made, cp_ERRORS_RETURN);
    return true;
}

/* Exchange the sizes of the blocks of a call; collective over the group. */
static bool exchange(const struct cp_native_call *call, MPI_Comm comm, int64_t *blocks) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    bool is_read = call->kind == CP_GATHER || call->kind == CP_ALLGATHER;
    int64_t mine = is_read ? call->n_read : call->n_written, total = call->n_read;
    if (cp_real.Allgather(&mine, 1, type, blocks, 1, type, comm) != MPI_SUCCESS) return false;
    if (call->kind != CP_SCATTER) return true;
    /* The root keeps its own block in its send buffer. */
    if (cp_real.Bcast(&total, 1, type, (int)call->root, comm) != MPI_SUCCESS) return false;
    for (int64_t i = 0; i < call->n_members; i++) total -= blocks[i];
    blocks[call->root] = total;
    return true;
}

char *cp_make_native_calls(struct cp_plan *plan, MPI_Comm all) {
    struct cp_native_row *rows = (struct cp_native_row *)(intptr_t)state_of(plan)->calls;
    MPI_Op op = 0;
    struct filling filling = {.element = plan->element};
    int64_t n = plan->head.n_calls;
    bool is_well = true;
    if (n == 0) return NULL;
    plan->comms = calloc((size_t)n, sizeof *plan->comms);
    plan->kept = calloc((size_t)n, sizeof *plan->kept);
    if (plan->comms == NULL || plan->kept == NULL) abort(); /* as other ranks would wait */
    if (plan->combined_op[0] != '\0') {
        is_well = cp_find_operands(plan->combined_op, plan->combined_element, &op, &filling.element);
        filling.op = (int64_t)(intptr_t)op;
    }
    for (int64_t i = 0; i < n; i++) {
        const struct cp_native_call *call = &plan->calls[i];
        int rank = 0;
        filling.call = call;
        filling.row = &rows[call->row];
        filling.n_arguments = 0;
        if (!make_group(plan, call, all, &filling.comm)) return cp_text_of(CP_NO_PRIVATE);
        filling.blocks = calloc((size_t)call->n_members, sizeof *filling.blocks);
        if (filling.blocks == NULL) abort(); /* as other ranks would wait for this one */
        plan->comms[plan->n_comms++] = filling.comm;
        cp_real.Comm_rank(filling.comm, &rank);
        is_well = exchange(call, filling.comm, filling.blocks) && is_well;
        is_well = is_well && fill(plan, &filling, rank);
        free(filling.blocks);
    }
    return is_well ? NULL : cp_text_of("calls of MPI's own collectives cannot be prepared");
}

void cp_free_native_calls(struct cp_plan *plan) {
    /* Before MPI_Finalize, ranks may free plans in different orders. */
    for (int64_t i = 0; i < plan->n_comms && cp_settings.is_on; i++)
        cp_real.Comm_free(&plan->comms[i]);
    for (int64_t i = 0; i < plan->n_kept; i++) free(plan->kept[i]);
    free(plan->comms);
    free(plan->kept);
    free(plan->calls);
    free(plan->members);
}
