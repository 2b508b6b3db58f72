/* The collectives of MPI in C, which run natively or by a plan. */
#include <stdlib.h>

#include "shim.h"

const char *const cp_kind_names[CP_N_KINDS] = {
    "barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather",
    "alltoall", "reduce_scatter_block", "scan", "exscan",
    "gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter",
};
const char *const cp_regular_names[CP_N_VECTORS] = {
    "gather", "scatter", "allgather", "alltoall", "reduce_scatter_block",
};

/* Ranks that send or receive: none, the root only, or all. */
enum who { NOBODY, ROOT, EVERYBODY };
static const struct {
    enum who sends, receives;
    bool sends_blocks, receives_blocks, reduces;
} traits[CP_GATHERV] = {
    [CP_BARRIER] = {NOBODY, NOBODY, false, false, false},
    [CP_BCAST] = {NOBODY, EVERYBODY, false, false, false},
    [CP_REDUCE] = {EVERYBODY, ROOT, false, false, true},
    [CP_ALLREDUCE] = {EVERYBODY, EVERYBODY, false, false, true},
    [CP_GATHER] = {EVERYBODY, ROOT, false, true, false},
    [CP_SCATTER] = {ROOT, EVERYBODY, true, false, false},
    [CP_ALLGATHER] = {EVERYBODY, EVERYBODY, false, true, false},
    [CP_ALLTOALL] = {EVERYBODY, EVERYBODY, true, true, false},
    [CP_REDUCE_SCATTER_BLOCK] = {EVERYBODY, EVERYBODY, true, false, true},
    [CP_SCAN] = {EVERYBODY, EVERYBODY, false, false, true},
    [CP_EXSCAN] = {EVERYBODY, EVERYBODY, false, false, true},
};

int cp_native(const struct cp_call *c) {
    switch (c->kind) {
    case CP_BARRIER: return cp_real.Barrier(c->comm);
    case CP_BCAST:
        return cp_real.Bcast(c->received, c->n_received, c->received_type, c->root, c->comm);
    case CP_REDUCE:
        return cp_real.Reduce(c->sent, c->received, c->n_sent, c->sent_type, c->op, c->root,
                              c->comm);
    case CP_ALLREDUCE:
        return cp_real.Allreduce(c->sent, c->received, c->n_sent, c->sent_type, c->op, c->comm);
    case CP_SCAN:
        return cp_real.Scan(c->sent, c->received, c->n_sent, c->sent_type, c->op, c->comm);
    case CP_EXSCAN:
        return cp_real.Exscan(c->sent, c->received, c->n_sent, c->sent_type, c->op, c->comm);
    case CP_REDUCE_SCATTER_BLOCK:
        return cp_real.Reduce_scatter_block(c->sent, c->received, c->n_sent, c->sent_type, c->op,
                                            c->comm);
    case CP_GATHER:
        return cp_real.Gather(c->sent, c->n_sent, c->sent_type, c->received, c->n_received,
                              c->received_type, c->root, c->comm);
    case CP_SCATTER:
        return cp_real.Scatter(c->sent, c->n_sent, c->sent_type, c->received, c->n_received,
                               c->received_type, c->root, c->comm);
    case CP_ALLGATHER:
        return cp_real.Allgather(c->sent, c->n_sent, c->sent_type, c->received, c->n_received,
                                 c->received_type, c->comm);
    default:
        return cp_real.Alltoall(c->sent, c->n_sent, c->sent_type, c->received, c->n_received,
                                c->received_type, c->comm);
    }
}

static bool read_side(struct cp_side *side, const void *at, int count, MPI_Datatype type,
                      int64_t blocks, bool is_reduced) {
    struct cp_element room;
    const struct cp_element *element = cp_element_of(type, &room);
    if (element == NULL || count < 0) return false;
    side->at = (char *)at;
    side->count = count;
    side->blocks = blocks;
    side->type = type;
    side->element = *element;
    if (is_reduced && element->is_pair) {
        /* Operands are whole structs, including their gaps. */
        side->element.size = element->extent;
        side->element.is_plain = true;
    }
    return true;
}

/* Read the buffers that this rank uses in a call; return false if MPI must report an error. */
static bool read_call(const struct cp_call *call, const struct cp_comm *comm, struct cp_use *use) {
    enum cp_kind kind = call->kind;
    bool is_root = call->root == comm->rank, reduces = traits[kind].reduces;
    bool sends = traits[kind].sends == EVERYBODY || (traits[kind].sends == ROOT && is_root);
    bool receives =
        traits[kind].receives == EVERYBODY || (traits[kind].receives == ROOT && is_root);
    bool may_give = traits[kind].receives == ROOT ? is_root : traits[kind].sends != ROOT;
    use->is_root = is_root;
    use->gives_in_place = sends && may_give && call->sent == MPI_IN_PLACE;
    use->takes_in_place = traits[kind].sends == ROOT && is_root && call->received == MPI_IN_PLACE;
    use->has_sent = sends && !use->gives_in_place;
    use->has_received = receives && !use->takes_in_place;
    use->sent.at = use->received.at = NULL;
    use->received.count = use->received.element.size = 0;
    if (call->root < 0 || call->root >= comm->size) return false;
    if (use->has_sent) {
        int64_t blocks = traits[kind].sends_blocks ? comm->size : 1;
        if (call->sent == MPI_IN_PLACE) return false;
        if (!read_side(&use->sent, call->sent, call->n_sent, call->sent_type, blocks, reduces))
            return false;
    }
    if (use->has_received) {
        bool has_blocks = traits[kind].receives_blocks ||
                          (use->gives_in_place && traits[kind].sends_blocks);
        int64_t blocks = has_blocks ? comm->size : 1;
        if (call->received == MPI_IN_PLACE) return false;
        if (!read_side(&use->received, call->received, call->n_received, call->received_type,
                       blocks, reduces))
            return false;
    }
    return true;
}

static struct cp_signature signature_of(const struct cp_call *call, const struct cp_use *use) {
    struct cp_signature found = {.kind = call->kind, .root = call->root};
    const struct cp_side *one = use->has_sent ? &use->sent : &use->received;
    if (use->has_sent || use->has_received) found.n_bytes = one->count * one->element.size;
    if (traits[call->kind].reduces) {
        found.op = cp_operation_name(call->op);
        found.element = one->element.name;
    }
    return found;
}

int cp_run(const struct cp_call *call) {
    bool is_logged = cp_settings.is_logged;
    if (!is_logged && !(cp_settings.kinds >> call->kind & 1)) return cp_native(call);
    struct cp_comm *comm = cp_comm_of(call->comm);
    struct cp_use use;
    if (comm == NULL || comm->is_inter || !read_call(call, comm, &use)) return cp_native(call);
    struct cp_signature signature = signature_of(call, &use);
    struct cp_route *route = cp_route_of(comm, &signature, NULL);
    int64_t begin = is_logged ? cp_now_ns() : 0;
    struct cp_row *row = route->row;
    int code = route->way == CP_PLANNED ? cp_run_plan(route->plan, call, &use) : cp_native(call);
    if (is_logged) cp_count(row, signature.n_bytes, cp_now_ns() - begin);
    return code;
}

#define EXPORT __attribute__((visibility("default")))
#define RUN(...) \
    struct cp_call call = {__VA_ARGS__}; \
    if (!cp_settings.is_on) { \
        cp_resolve(); \
        return cp_native(&call); \
    } \
    return cp_run(&call)

EXPORT int MPI_Init(int *argc, char ***argv) {
    cp_resolve();
    int code = cp_real.Init(argc, argv);
    if (code == MPI_SUCCESS) cp_begin();
    return code;
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    cp_resolve();
    int code = cp_real.Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) cp_begin();
    return code;
}

EXPORT int MPI_Finalize(void) {
    cp_resolve();
    cp_end();
    return cp_real.Finalize();
}

EXPORT int MPI_Barrier(MPI_Comm comm) {
    RUN(.kind = CP_BARRIER, .comm = comm);
}

EXPORT int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    RUN(.kind = CP_BCAST, .received = buffer, .n_received = count, .received_type = type,
        .root = root, .comm = comm);
}

#define REDUCTION(name, KIND) \
    EXPORT int MPI_##name(const void *sent, void *received, int count, MPI_Datatype type, \
                          MPI_Op op, MPI_Comm comm) { \
        RUN(.kind = KIND, .sent = sent, .n_sent = count, .sent_type = type, \
            .received = received, .n_received = count, .received_type = type, .op = op, \
            .comm = comm); \
    }
REDUCTION(Allreduce, CP_ALLREDUCE)
REDUCTION(Scan, CP_SCAN)
REDUCTION(Exscan, CP_EXSCAN)
REDUCTION(Reduce_scatter_block, CP_REDUCE_SCATTER_BLOCK)

EXPORT int MPI_Reduce(const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op,
                      int root, MPI_Comm comm) {
    RUN(.kind = CP_REDUCE, .sent = sent, .n_sent = count, .sent_type = type,
        .received = received, .n_received = count, .received_type = type, .op = op, .root = root,
        .comm = comm);
}

#define ROOTED(name, KIND) \
    EXPORT int MPI_##name(const void *sent, int n_sent, MPI_Datatype sent_type, void *received, \
                          int n_received, MPI_Datatype received_type, int root, MPI_Comm comm) { \
        RUN(.kind = KIND, .sent = sent, .n_sent = n_sent, .sent_type = sent_type, \
            .received = received, .n_received = n_received, .received_type = received_type, \
            .root = root, .comm = comm); \
    }
ROOTED(Gather, CP_GATHER)
ROOTED(Scatter, CP_SCATTER)

#define UNROOTED(name, KIND) \
    EXPORT int MPI_##name(const void *sent, int n_sent, MPI_Datatype sent_type, void *received, \
                          int n_received, MPI_Datatype received_type, MPI_Comm comm) { \
        RUN(.kind = KIND, .sent = sent, .n_sent = n_sent, .sent_type = sent_type, \
            .received = received, .n_received = n_received, .received_type = received_type, \
            .comm = comm); \
    }
UNROOTED(Allgather, CP_ALLGATHER)
UNROOTED(Alltoall, CP_ALLTOALL)
