/* The collectives of MPI in C, which run natively or by a plan. */
#include "collectives.h"

const char *const cp_kind_names[CP_N_KINDS] = {
    "barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather",
    "alltoall", "reduce_scatter_block", "scan", "exscan",
    "gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter",
};
const char *const cp_started_names[CP_N_KINDS] = {
    "Ibarrier", "Ibcast", "Ireduce", "Iallreduce", "Igather", "Iscatter", "Iallgather",
    "Ialltoall", "Ireduce_scatter_block", "Iscan", "Iexscan",
    "Igatherv", "Iscatterv", "Iallgatherv", "Ialltoallv", "Ireduce_scatter",
};
const char *const cp_repeated_names[CP_GATHERV] = {
    "Barrier_init", "Bcast_init", "Reduce_init", "Allreduce_init", "Gather_init", "Scatter_init",
    "Allgather_init", "Alltoall_init", "Reduce_scatter_block_init", "Scan_init", "Exscan_init",
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

struct cp_signature cp_signature_of(const struct cp_call *call, const struct cp_use *use) {
    struct cp_signature found = {.kind = call->kind, .root = call->root};
    const struct cp_side *one = use->has_sent ? &use->sent : &use->received;
    if (use->has_sent || use->has_received) found.n_bytes = one->count * one->element.size;
    if (traits[call->kind].reduces) {
        found.op = cp_operation_name(call->op);
        found.element = one->element.name;
    }
    return found;
}

bool cp_read_call(const struct cp_call *call, const struct cp_comm *comm, struct cp_use *use) {
    return read_call(call, comm, use) && is_accepted(call, use, comm->rank);
}

int64_t cp_call_bytes(const struct cp_call *call) {
    struct cp_comm *comm = cp_comm_of(call->comm);
    struct cp_use use;
    if (comm == NULL || comm->is_inter || !read_call(call, comm, &use)) return 0;
    return cp_signature_of(call, &use).n_bytes;
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

bool cp_look_up(struct cp_latest *latest, const struct cp_call *call, struct cp_comm *comm,
                enum cp_form form) {
    struct cp_use *use = &latest->use;
    if (latest->is_kept && is_like(call, &latest->call)) {
        if (use->has_sent) use->sent.at = (char *)call->sent;
        if (use->has_received) use->received.at = call->received;
        return is_accepted(call, use, comm->rank);
    }
    latest->is_kept = false;
    if (!cp_read_call(call, comm, use)) return false;
    struct cp_signature signature = cp_signature_of(call, use);
    signature.form = form;
    latest->route = cp_route_of(comm, &signature);
    if (is_predefined(use)) {
        latest->call = *call;
        latest->is_kept = true;
    }
    return true;
}

static int run(const struct cp_call *call) {
    bool is_logged = cp_settings.is_logged;
    bool may_set_up = __atomic_load_n(&cp_n_requested, __ATOMIC_RELAXED) > 0;
    if (!is_logged && !may_set_up && !(cp_settings.kinds >> call->kind & 1))
        return cp_native(call);
    struct cp_comm *comm = cp_comm_of(call->comm);
    if (comm == NULL || comm->is_inter) return cp_native(call);
    struct cp_latest *latest = &comm->latest[call->kind];
    if (!cp_look_up(latest, call, comm, CP_BLOCKS)) return cp_native(call);
    struct cp_route *route = latest->route;
    if (may_set_up) cp_make_requested(comm);
    cp_advance(comm, route, NULL);
    struct cp_row *row = route->row;
    struct cp_plan *plan = route->plan;
    bool is_tried = route->way == CP_TRYING;
    if (is_tried) plan = cp_tried_plan(route);
    int64_t begin = is_logged || is_tried ? cp_now_ns() : 0;
    int code = plan != NULL ? cp_run_plan(plan, call, &latest->use) : cp_native(call);
    int64_t ns = is_logged || is_tried ? cp_now_ns() - begin : 0;
    if (is_tried) cp_note_tried(route, code, ns);
    if (code != MPI_SUCCESS) cp_take_back(comm, route, code);
    else if (is_logged) cp_count(row, route->signature.n_bytes, ns);
    return code;
}

int cp_run(const struct cp_call *call) {
    if (!cp_is_watched) return run(call);
    struct cp_mark mark = cp_enter_call(call, false);
    int code = run(call);
    cp_leave_with(mark, code);
    return code;
}

/* Define a collective, given its name, the number of its arguments, the function that runs it, and
 * the fields of the call. */
#define COLLECTIVE(name, n, run, type, ...) \
    static int run_##name(CP_L##n) { \
        struct type call = {.comm = (MPI_Comm)a##n, __VA_ARGS__}; \
        return run(&call); \
    } \
    CP_WRAP(name, n, cp_settings.is_on, run_##name(CP_A##n))
#ifdef COLLPLAN_LARGE
#define LARGE(name, n, is_small, n_bytes) \
    CP_WRAP_LARGE(name##_c, n, is_small, run_##name(CP_A##n), #name "_c", a##n, n_bytes)
#else
#define LARGE(name, n, is_small, n_bytes)
#endif
#define EQUAL(name, lower, n, n1, n2, is_small, n_bytes, ...) \
    COLLECTIVE(name, n, cp_run, cp_call, __VA_ARGS__) \
    LARGE(name, n, is_small, n_bytes)
#define DIFFERENT(name, lower, n, n1, n2, single, n_bytes, ...) \
    COLLECTIVE(name, n, cp_run_vector, cp_vector_call, __VA_ARGS__)

COLLECTIVE(Barrier, 1, cp_run, cp_call, .kind = CP_BARRIER)
CP_EQUAL(EQUAL)
CP_DIFFERENT(DIFFERENT)

/* Define a function that begins: it initializes MPI. A tool calls its PMPI function. If plans may be in
 * flight, MPI is asked to let several threads call it at a time. */
#define BEGINNING(name, parameters, arguments, with_threads) \
    static struct cp_links name##_links; \
    CP_EXPORT int MPI_##name parameters { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        cp_prepare(); \
        bool needs_threads = !name##_links.is_tool && cp_needs_threads(); \
        int code = needs_threads ? with_threads : ((int (*) parameters)name##_links.next)arguments; \
        if (code == MPI_SUCCESS) cp_begin(); \
        return code; \
    } \
    CP_EXPORT int PMPI_##name parameters { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        cp_prepare(); \
        int code = cp_needs_threads() ? with_threads \
                                      : ((int (*) parameters)name##_links.own)arguments; \
        if (code == MPI_SUCCESS) cp_begin(); \
        return code; \
    }
BEGINNING(Init, (int *argc, char ***argv), (argc, argv),
          cp_real.Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &(int){0}))
BEGINNING(Init_thread, (int *argc, char ***argv, int required, int *provided),
          (argc, argv, required, provided),
          cp_real.Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided))

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
