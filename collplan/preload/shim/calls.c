/* The collectives of MPI in C, which run natively or by a plan. */
#include <limits.h>

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

/* Return whether MPI accepts two buffers at the same address. MPI forbids them, but libraries and
 * their settings differ in what they reject. On one rank, such a call only copies a buffer onto
 * itself. */
static bool may_coincide(const struct cp_call *call, char *at) {
    struct cp_call alone = *call;
    alone.sent = alone.received = at;
    alone.comm = cp_COMM_SELF;
    alone.root = 0;
    MPI_Errhandler handler = cp_silence(cp_COMM_SELF);
    int code = cp_native(&alone);
    cp_restore(cp_COMM_SELF, handler);
    return code == MPI_SUCCESS;
}

/* Return whether MPI accepts the buffers of this rank. If not, MPI returns at once with an error, and
 * other ranks wait for the call. */
static bool is_accepted(const struct cp_call *call, const struct cp_use *use, int rank) {
    const struct cp_side *sent = &use->sent, *received = &use->received;
    if (use->has_sent && !cp_is_message(&sent->element, sent->at, sent->count)) return false;
    if (use->has_received && !cp_is_message(&received->element, received->at, received->count))
        return false;
    if (!use->has_sent || !use->has_received || sent->count == 0 ||
        sent->count != received->count || sent->type != received->type)
        return true;
    /* In a buffer with a block per rank, MPI looks at the rank's own. It counts in sizes. */
    int64_t own_at = rank * sent->count * sent->element.size;
    char *from = sent->at + (call->kind == CP_SCATTER ? own_at : 0);
    bool has_own = call->kind == CP_GATHER || call->kind == CP_ALLGATHER;
    return from != received->at + (has_own ? own_at : 0) || may_coincide(call, from);
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

/* Return whether a call differs from an earlier one in nothing but the addresses of its buffers. */
static bool is_like(const struct cp_call *one, const struct cp_call *other) {
    return one->n_sent == other->n_sent && one->n_received == other->n_received &&
           one->sent_type == other->sent_type && one->received_type == other->received_type &&
           one->op == other->op && one->root == other->root &&
           (one->sent == MPI_IN_PLACE) == (other->sent == MPI_IN_PLACE) &&
           (one->received == MPI_IN_PLACE) == (other->received == MPI_IN_PLACE);
}

/* Return whether the datatypes of all buffers are predefined, so that their handles never get
 * another meaning. */
static bool is_predefined(const struct cp_use *use) {
    return (!use->has_sent || use->sent.element.is_predefined) &&
           (!use->has_received || use->received.element.is_predefined);
}

/* Return the route of a call, and find out how it uses its buffers; NULL if MPI must report an
 * error. Most calls are like the latest call of their kind. */
static struct cp_route *look_up(const struct cp_call *call, struct cp_comm *comm,
                                struct cp_use *use) {
    struct cp_latest *latest = &comm->latest[call->kind];
    struct cp_route *route = latest->route;
    if (route != NULL && is_like(call, &latest->call)) {
        if (use->has_sent) use->sent.at = (char *)call->sent;
        if (use->has_received) use->received.at = call->received;
        return is_accepted(call, use, comm->rank) ? route : NULL;
    }
    latest->route = NULL;
    if (!read_call(call, comm, use) || !is_accepted(call, use, comm->rank)) return NULL;
    struct cp_signature signature = signature_of(call, use);
    route = cp_route_of(comm, &signature);
    if (is_predefined(use)) {
        latest->call = *call;
        latest->route = route;
    }
    return route;
}

int cp_run(const struct cp_call *call) {
    bool is_logged = cp_settings.is_logged;
    if (!is_logged && !(cp_settings.kinds >> call->kind & 1)) return cp_native(call);
    struct cp_comm *comm = cp_comm_of(call->comm);
    if (comm == NULL || comm->is_inter) return cp_native(call);
    struct cp_use *use = &comm->latest[call->kind].use;
    struct cp_route *route = look_up(call, comm, use);
    if (route == NULL) return cp_native(call);
    cp_advance(comm, route, NULL);
    int64_t begin = is_logged ? cp_now_ns() : 0;
    struct cp_row *row = route->row;
    int code = route->way == CP_PLANNED ? cp_run_plan(route->plan, call, use) : cp_native(call);
    if (code != MPI_SUCCESS) cp_take_back(comm, route, code);
    else if (is_logged) cp_count(row, route->signature.n_bytes, cp_now_ns() - begin);
    return code;
}

/* Define a collective, given its name, the number of its arguments, and the fields of the call.
 *
 * If there is a tool, it sees the call first, and then calls the PMPI function. Without plans no
 * argument is read, because handles may be those of another MPI. */
#define COLLECTIVE(name, n, run, type, ...) \
    static struct cp_links name##_links; \
    static int run_##name(CP_L##n) { \
        struct type call = {__VA_ARGS__}; \
        return run(&call); \
    } \
    CP_EXPORT int MPI_##name(CP_L##n) { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        if (cp_settings.is_on && !name##_links.is_tool) return run_##name(CP_A##n); \
        return ((int (*)(CP_L##n))name##_links.next)(CP_A##n); \
    } \
    CP_EXPORT int PMPI_##name(CP_L##n) { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        if (cp_settings.is_on && name##_links.is_wrapped) return run_##name(CP_A##n); \
        return ((int (*)(CP_L##n))name##_links.own)(CP_A##n); \
    }
/* Define a collective and its form with large counts, given also whether the counts are small. */
#define CALL(name, n, KIND, is_small, ...) \
    COLLECTIVE(name, n, cp_run, cp_call, .kind = KIND, .comm = (MPI_Comm)a##n, __VA_ARGS__) \
    LARGE(name, n, is_small)
#ifdef COLLPLAN_LARGE
#define LARGE(name, n, is_small) \
    static struct cp_links name##_c_links; \
    CP_EXPORT int MPI_##name##_c(CP_L##n) { \
        CP_FIND_LINKS(&name##_c_links, "PMPI_" #name "_c"); \
        if (cp_settings.is_on && !name##_c_links.is_tool) { \
            if (is_small) return run_##name(CP_A##n); \
            if (cp_settings.is_logged) \
                cp_note(#name "_c", CP_LARGE, (MPI_Comm)a##n, cp_now_ns()); \
        } \
        return ((int (*)(CP_L##n))name##_c_links.next)(CP_A##n); \
    } \
    CP_EXPORT int PMPI_##name##_c(CP_L##n) { \
        CP_FIND_LINKS(&name##_c_links, "PMPI_" #name "_c"); \
        if (cp_settings.is_on && name##_c_links.is_wrapped && is_small) \
            return run_##name(CP_A##n); \
        return ((int (*)(CP_L##n))name##_c_links.own)(CP_A##n); \
    }
#else
#define LARGE(name, n, is_small)
#endif
#define IS_INT(count) (count >= INT_MIN && count <= INT_MAX)
#define SENT(at, n, t) .sent = (const void *)at, .n_sent = (int)n, .sent_type = (MPI_Datatype)t
#define RECEIVED(at, n, t) \
    .received = (void *)at, .n_received = (int)n, .received_type = (MPI_Datatype)t
#define REDUCED() SENT(a1, a3, a4), RECEIVED(a2, a3, a4), .op = (MPI_Op)a5

COLLECTIVE(Barrier, 1, cp_run, cp_call, .kind = CP_BARRIER, .comm = (MPI_Comm)a1)
CALL(Bcast, 5, CP_BCAST, IS_INT(a2), RECEIVED(a1, a2, a3), .root = (int)a4)
CALL(Reduce, 7, CP_REDUCE, IS_INT(a3), REDUCED(), .root = (int)a6)
CALL(Allreduce, 6, CP_ALLREDUCE, IS_INT(a3), REDUCED())
CALL(Scan, 6, CP_SCAN, IS_INT(a3), REDUCED())
CALL(Exscan, 6, CP_EXSCAN, IS_INT(a3), REDUCED())
CALL(Reduce_scatter_block, 6, CP_REDUCE_SCATTER_BLOCK, IS_INT(a3), REDUCED())
CALL(Gather, 8, CP_GATHER, IS_INT(a2) && IS_INT(a5), SENT(a1, a2, a3),
     RECEIVED(a4, a5, a6), .root = (int)a7)
CALL(Scatter, 8, CP_SCATTER, IS_INT(a2) && IS_INT(a5), SENT(a1, a2, a3),
     RECEIVED(a4, a5, a6), .root = (int)a7)
CALL(Allgather, 7, CP_ALLGATHER, IS_INT(a2) && IS_INT(a5), SENT(a1, a2, a3),
     RECEIVED(a4, a5, a6))
CALL(Alltoall, 7, CP_ALLTOALL, IS_INT(a2) && IS_INT(a5), SENT(a1, a2, a3),
     RECEIVED(a4, a5, a6))

/* Counts and displacements of a call whose counts differ per rank are arrays. A single count becomes
 * an array of length one. */
#define VECTOR(name, n, KIND, ...) \
    COLLECTIVE(name, n, cp_run_vector, cp_vector_call, .kind = KIND, .comm = (MPI_Comm)a##n, \
               __VA_ARGS__)
#define ONE(count) (const int[]){(int)count}
#define MANY(counts) (const int *)counts
#define SENT_V(at, n, places, t) \
    .sent = (const void *)at, .n_sent = n, .sent_at = places, .sent_type = (MPI_Datatype)t
#define RECEIVED_V(at, n, places, t) \
    .received = (void *)at, .n_received = n, .received_at = places, \
    .received_type = (MPI_Datatype)t

VECTOR(Gatherv, 9, CP_GATHERV, SENT_V(a1, ONE(a2), NULL, a3),
       RECEIVED_V(a4, MANY(a5), MANY(a6), a7), .root = (int)a8)
VECTOR(Scatterv, 9, CP_SCATTERV, SENT_V(a1, MANY(a2), MANY(a3), a4),
       RECEIVED_V(a5, ONE(a6), NULL, a7), .root = (int)a8)
VECTOR(Allgatherv, 8, CP_ALLGATHERV, SENT_V(a1, ONE(a2), NULL, a3),
       RECEIVED_V(a4, MANY(a5), MANY(a6), a7))
VECTOR(Alltoallv, 9, CP_ALLTOALLV, SENT_V(a1, MANY(a2), MANY(a3), a4),
       RECEIVED_V(a5, MANY(a6), MANY(a7), a8))
VECTOR(Reduce_scatter, 6, CP_REDUCE_SCATTER, SENT_V(a1, MANY(a3), NULL, a4),
       RECEIVED_V(a2, NULL, NULL, a4), .op = (MPI_Op)a5)

/* Define a function that begins: it initializes MPI. A tool calls its PMPI function. */
#define BEGINNING(name, parameters, arguments) \
    static struct cp_links name##_links; \
    CP_EXPORT int MPI_##name parameters { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        cp_prepare(); \
        int code = ((int (*) parameters)name##_links.next)arguments; \
        if (code == MPI_SUCCESS) cp_begin(); \
        return code; \
    } \
    CP_EXPORT int PMPI_##name parameters { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        cp_prepare(); \
        int code = ((int (*) parameters)name##_links.own)arguments; \
        if (code == MPI_SUCCESS) cp_begin(); \
        return code; \
    }
BEGINNING(Init, (int *argc, char ***argv), (argc, argv))
BEGINNING(Init_thread, (int *argc, char ***argv, int required, int *provided),
          (argc, argv, required, provided))

static struct cp_links finalize_links;

CP_EXPORT int MPI_Finalize(void) {
    CP_FIND_LINKS(&finalize_links, "PMPI_Finalize");
    if (!finalize_links.is_tool) cp_end();
    return ((int (*)(void))finalize_links.next)();
}

CP_EXPORT int PMPI_Finalize(void) {
    CP_FIND_LINKS(&finalize_links, "PMPI_Finalize");
    cp_end();
    return ((int (*)(void))finalize_links.own)();
}
