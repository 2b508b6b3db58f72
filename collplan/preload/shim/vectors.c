/* Collectives whose counts differ per rank.
 *
 * No rank knows the counts of all other ranks, or whether they have changed. Therefore the digests
 * of the counts that each rank knows are summed in every call that may run by a plan. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vectors.h"

#define FREE_MEETINGS 8 /* consecutive meetings in vain before ranks meet in fewer calls */
#define MOST_LEFT 256   /* largest number of native calls between two pairs of meetings */
#define CHANGING "counts change from call to call"
#define OVERLAP "send and receive buffers overlap"
#define ELSEWHERE "another rank has an operation, a datatype or buffers that plans do not take"

int cp_native_vector(const struct cp_vector_call *c) {
    switch (c->kind) {
    case CP_GATHERV:
        return cp_real.Gatherv(c->sent, *c->n_sent, c->sent_type, c->received, c->n_received,
                               c->received_at, c->received_type, c->root, c->comm);
    case CP_SCATTERV:
        return cp_real.Scatterv(c->sent, c->n_sent, c->sent_at, c->sent_type, c->received,
                                *c->n_received, c->received_type, c->root, c->comm);
    case CP_ALLGATHERV:
        return cp_real.Allgatherv(c->sent, *c->n_sent, c->sent_type, c->received, c->n_received,
                                  c->received_at, c->received_type, c->comm);
    case CP_ALLTOALLV:
        return cp_real.Alltoallv(c->sent, c->n_sent, c->sent_at, c->sent_type, c->received,
                                 c->n_received, c->received_at, c->received_type, c->comm);
    default:
        return cp_real.Reduce_scatter(c->sent, c->received, c->n_sent, c->sent_type, c->op,
                                      c->comm);
    }
}

static bool read_blocks(struct cp_blocks *blocks, const void *at, int n, const int *counts,
                        const int *places, MPI_Datatype type, bool is_reduced) {
    struct cp_element room;
    const struct cp_element *element = cp_element_of(type, &room);
    if (element == NULL || counts == NULL || at == MPI_IN_PLACE) return false;
    for (int i = 0; i < n; i++)
        if (counts[i] < 0) return false;
    *blocks = (struct cp_blocks){(char *)at, n, counts, places, type, *element};
    if (is_reduced && element->is_pair) {
        /* Operands are whole structs, including their gaps. */
        blocks->element.size = element->extent;
        blocks->element.is_plain = true;
    }
    return true;
}

static int64_t place_of(const struct cp_blocks *blocks, int block, int64_t before) {
    return blocks->places != NULL ? blocks->places[block] : before;
}

static int64_t total_of(const struct cp_blocks *blocks) {
    int64_t total = 0;
    for (int i = 0; i < blocks->n; i++) total += blocks->counts[i];
    return total * blocks->element.size;
}

/* Store the sizes of all blocks in bytes in a part of the counts. Part 0 has the counts of all
 * blocks, and part 1 the counts that alltoallv receives. */
static void note_counts(struct cp_vector_use *use, int size, int part, const struct cp_blocks *blocks) {
    use->counts[part] = 1;
    for (int i = 0; i < size; i++)
        use->counts[3 + part * size + i] = blocks->counts[i] * blocks->element.size;
}

/* Read the buffers of a call; return false if MPI must report an error. */
static bool read_call(const struct cp_vector_call *c, const struct cp_comm *comm,
                      struct cp_vector_use *use) {
    bool is_root = c->root == comm->rank, is_gather = c->kind == CP_GATHERV;
    bool is_scatter = c->kind == CP_SCATTERV, reduces = c->kind == CP_REDUCE_SCATTER;
    bool sends_blocks = is_scatter || c->kind == CP_ALLTOALLV || reduces;
    bool receives_blocks = is_gather || c->kind == CP_ALLGATHERV || c->kind == CP_ALLTOALLV;
    use->is_in_place = (!is_scatter && (!is_gather || is_root) && c->sent == MPI_IN_PLACE) ||
                       (is_scatter && is_root && c->received == MPI_IN_PLACE);
    use->has_sent = is_scatter ? is_root : !use->is_in_place;
    use->has_received = is_scatter ? !use->is_in_place : (is_root || !is_gather);
    if (c->root < 0 || c->root >= comm->size || (reduces && c->n_sent == NULL)) return false;
    if (use->has_sent && !read_blocks(&use->sent, c->sent, sends_blocks ? comm->size : 1,
                                      c->n_sent, c->sent_at, c->sent_type, reduces))
        return false;
    const int *n_received = reduces ? c->n_sent + comm->rank : c->n_received;
    if (use->has_received &&
        !read_blocks(&use->received, c->received, receives_blocks ? comm->size : 1, n_received,
                     c->received_at, c->received_type, reduces))
        return false;
    if (c->kind == CP_ALLTOALLV) {
        if (use->has_sent) note_counts(use, comm->size, 0, &use->sent);
        note_counts(use, comm->size, 1, &use->received);
        use->n_bytes = total_of(use->has_sent ? &use->sent : &use->received);
        return true;
    }
    struct cp_blocks all = receives_blocks ? use->received : use->sent;
    if (reduces) {
        /* If the call is in place, only the receive buffer gives the datatype of elements. */
        all = use->received;
        all.counts = c->n_sent;
        all.n = comm->size;
        for (int i = 0; i < comm->size; i++)
            if (all.counts[i] < 0) return false;
    }
    bool knows_all = reduces || c->kind == CP_ALLGATHERV || is_root;
    bool has_own = receives_blocks ? use->has_sent : use->has_received;
    if (knows_all) note_counts(use, comm->size, 0, &all);
    if (has_own) use->counts[2] = total_of(receives_blocks ? &use->sent : &use->received);
    use->n_bytes = has_own ? use->counts[2] : use->counts[3 + comm->rank];
    return true;
}

/* Find the first byte and the end of the memory of all blocks, with the gaps between them; both are
 * NULL if the blocks are empty. */
static void span_of(const struct cp_blocks *blocks, const char **begin, const char **end) {
    const struct cp_element *element = &blocks->element;
    int64_t before = 0;
    *begin = *end = NULL;
    for (int i = 0; i < blocks->n; i++) {
        if (blocks->counts[i] == 0) continue;
        const char *at = blocks->at + place_of(blocks, i, before) * element->extent;
        const char *last = at + (blocks->counts[i] - 1) * element->extent + element->end;
        at += element->first;
        if (*begin == NULL || at < *begin) *begin = at;
        if (last > *end) *end = last;
        before += blocks->counts[i];
    }
}

/* Return whether the send and the receive buffer overlap, counting gaps between blocks. */
static bool overlaps(const struct cp_vector_use *use) {
    if (!use->has_sent || !use->has_received) return false;
    const char *begin, *end, *other_begin, *other_end;
    span_of(&use->sent, &begin, &end);
    span_of(&use->received, &other_begin, &other_end);
    return (begin > other_begin ? begin : other_begin) < (end < other_end ? end : other_end);
}

/* Return whether MPI accepts two buffers at the same address; see calls.c. */
static bool may_coincide(const struct cp_vector_call *call, char *at, int n) {
    struct cp_vector_call alone = *call;
    int counts[2] = {n, n}, places[2] = {0, 0};
    alone.sent = alone.received = at;
    alone.comm = cp_COMM_SELF;
    alone.root = 0;
    alone.n_sent = &counts[0];
    alone.n_received = &counts[call->n_received != call->n_sent];
    alone.sent_at = &places[0];
    alone.received_at = &places[call->received_at != call->sent_at];
    MPI_Errhandler handler = cp_silence(cp_COMM_SELF);
    int code = cp_native_vector(&alone);
    cp_restore(cp_COMM_SELF, handler);
    return code == MPI_SUCCESS;
}

/* Return whether MPI accepts the buffers of this rank. If not, MPI returns at once with an error, and
 * other ranks wait for the call. */
static bool is_accepted(const struct cp_vector_call *call, const struct cp_comm *comm,
                        const struct cp_vector_use *use) {
    const struct cp_blocks *sent = &use->sent, *received = &use->received;
    if (use->has_sent && !cp_is_message(&sent->element, sent->at, total_of(sent))) return false;
    if (use->has_received &&
        !cp_is_message(&received->element, received->at, total_of(received)))
        return false;
    const char *op = call->kind == CP_REDUCE_SCATTER ? cp_operation_name(call->op) : NULL;
    const struct cp_element *reduced = use->has_sent ? &sent->element : &received->element;
    if (op != NULL && !(reduced->is_predefined &&
                        (reduced->name == NULL || cp_is_defined(op, reduced->name))))
        return false;
    if (!use->has_sent || !use->has_received || sent->type != received->type) return true;
    /* In a buffer with a block per rank, MPI looks at the rank's own. It counts in sizes. */
    int64_t size = sent->element.size, rank = comm->rank;
    char *from = sent->at, *to = received->at;
    if (call->kind == CP_SCATTERV) from += sent->places[rank] * size;
    else if (call->kind != CP_ALLTOALLV && call->kind != CP_REDUCE_SCATTER)
        to += received->places[rank] * size;
    if (from != to) return true;
    if (call->kind == CP_ALLTOALLV) return may_coincide(call, from, sent->counts[rank]);
    if (call->kind == CP_REDUCE_SCATTER) {
        int64_t n = size > 0 ? total_of(sent) / size : 0;
        return n == 0 || n > INT_MAX || may_coincide(call, from, (int)n);
    }
    int n = sent->counts[sent->n > 1 ? rank : 0];
    return n == 0 || received->counts[received->n > 1 ? rank : 0] == 0 ||
           may_coincide(call, from, n);
}

uint64_t cp_mix(uint64_t found, uint64_t value) {
    found = (found ^ value) * 0x9e3779b97f4a7c15u;
    return found ^ found >> 29;
}

/* Return a digest of the signature and the counts that this rank knows. */
static uint64_t digest_of(const struct cp_signature *signature, const struct cp_comm *comm,
                          const struct cp_vector_use *use, uint64_t seed) {
    uint64_t found = cp_mix(cp_mix(seed, (uint64_t)comm->rank), (uint64_t)signature->kind);
    found = cp_mix(found, (uint64_t)signature->root);
    for (const char *at = signature->op; at != NULL && *at; at++) found = cp_mix(found, (uint64_t)*at);
    for (const char *at = signature->element; at != NULL && *at; at++)
        found = cp_mix(found, (uint64_t)*at + 256);
    for (int64_t i = 0; i < CP_COUNT_WORDS(comm->size); i++)
        found = cp_mix(found, (uint64_t)use->counts[i]);
    return found;
}

/* Agree with all ranks on the signature of a call; return the reason why it is native, or NULL.
 * Collective. */
static const char *meet(const struct cp_vector_call *call, struct cp_comm *comm, struct cp_vector_use *use,
                        struct cp_signature *signature) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083e, ompi_mpi_uint64_t);
    MPI_Op sum = CP_HANDLE(MPI_Op, 0x58000003, ompi_mpi_op_sum);
    const char *why = use->why != NULL ? use->why : overlaps(use) ? OVERLAP : NULL;
    *signature = (struct cp_signature){.kind = call->kind, .root = call->root};
    if (call->kind == CP_REDUCE_SCATTER && why == NULL) {
        signature->op = cp_operation_name(call->op);
        signature->element = use->received.element.name;
        if (signature->op == NULL) why = "the operation is not one that plans know";
        else if (signature->element == NULL) why = "the datatype is not one that plans reduce";
    }
    uint64_t mine[4] = {0, 0, 0, 1}, found[4] = {0, 0, 0, 0};
    if (why == NULL) {
        mine[0] = digest_of(signature, comm, use, 1);
        mine[1] = digest_of(signature, comm, use, 2);
        mine[2] = (uint64_t)use->n_bytes;
        mine[3] = 0;
    }
    if (cp_real.Allreduce(mine, found, 4, type, sum, comm->comm) != MPI_SUCCESS)
        return "ranks cannot meet";
    if (found[3] > 0) return why != NULL ? why : ELSEWHERE;
    uint64_t n_blocks = (uint64_t)comm->size;
    if (call->kind == CP_ALLTOALLV) n_blocks *= n_blocks;
    signature->n_bytes = (int64_t)((found[2] + n_blocks - 1) / n_blocks);
    signature->digest[0] = found[0];
    signature->digest[1] = found[1];
    return NULL;
}

static struct cp_row *native_row(const struct cp_comm *comm, enum cp_kind kind, const char *why,
                                 int64_t n_bytes) {
    return cp_row(comm->family, cp_kind_names[kind], "native", why, comm->size, n_bytes, false, -1, -1);
}

static void note_in_vain(struct cp_backoff *backoff, const char *why) {
    int64_t more = ++backoff->n_in_vain - FREE_MEETINGS;
    backoff->why = why;
    if (more < 2 || more % 2 == 1) return;
    backoff->n_left = more / 2 < 8 ? 1 << more / 2 : MOST_LEFT;
}

/* Return the route of a call, or NULL if it is native, and set the row in which it is counted;
 * collective. */
static struct cp_route *find(const struct cp_vector_call *call, struct cp_comm *comm,
                             struct cp_vector_use *use, struct cp_row **row) {
    struct cp_backoff *backoff = &comm->backoffs[call->kind - CP_GATHERV];
    struct cp_signature signature;
    if (backoff->n_left > 0) {
        backoff->n_left--;
        *row = cp_settings.is_logged ? native_row(comm, call->kind, backoff->why, use->n_bytes) : NULL;
        return NULL;
    }
    const char *why = meet(call, comm, use, &signature);
    if (why != NULL) {
        note_in_vain(backoff, why);
        backoff->has_met = true;
        *row = native_row(comm, call->kind, why, use->n_bytes);
        return NULL;
    }
    bool is_new = !cp_is_known(comm, &signature);
    struct cp_route *route = cp_route_of(comm, &signature);
    cp_advance(comm, route, use->counts);
    *row = route->row;
    if (route->way == CP_COUNTING && is_new && backoff->has_met)
        *row = native_row(comm, call->kind, CHANGING, signature.n_bytes);
    bool is_vain = route->way == CP_NATIVE || (is_new && backoff->has_met);
    if (route->way != CP_PLANNED && is_vain)
        note_in_vain(backoff, (*row)->why != NULL ? (*row)->why : CHANGING);
    else backoff->n_in_vain = 0;
    backoff->has_met = true;
    use->n_bytes = signature.n_bytes;
    return route->way == CP_PLANNED ? route : NULL;
}

/* Copy between blocks and memory in which they are contiguous. */
static int move_blocks(const struct cp_blocks *blocks, char *packed, bool is_into_blocks,
                       MPI_Comm comm) {
    struct cp_side side = {.at = blocks->at, .type = blocks->type, .element = blocks->element};
    int64_t before = 0;
    int code = MPI_SUCCESS;
    for (int i = 0; i < blocks->n && code == MPI_SUCCESS; i++) {
        code = cp_move_side(&side, place_of(blocks, i, before), blocks->counts[i], packed,
                            is_into_blocks, comm);
        before += blocks->counts[i];
        packed += blocks->counts[i] * blocks->element.size;
    }
    return code;
}

/* Return the address of the first block if a plan can use all blocks directly, otherwise NULL. */
static char *whole_of(const struct cp_plan *plan, const struct cp_blocks *blocks) {
    int64_t before = 0, first = 0;
    bool is_first = true;
    for (int i = 0; i < blocks->n; i++) {
        if (blocks->counts[i] == 0) continue;
        int64_t place = place_of(blocks, i, before);
        if (is_first) first = place;
        else if (place - before != first) return NULL;
        is_first = false;
        before += blocks->counts[i];
    }
    char *at = blocks->at + first * blocks->element.extent;
    return blocks->element.is_plain && cp_plan_takes(plan, at) ? at : NULL;
}

/* Return the blocks of the receive buffer that are the input of a call in place. */
static struct cp_blocks input_in_place(const struct cp_vector_call *call, const struct cp_comm *comm,
                                    const struct cp_blocks *received) {
    struct cp_blocks found = *received;
    if (call->kind == CP_REDUCE_SCATTER) {
        found.counts = call->n_sent;
        found.n = comm->size;
    } else if (call->kind != CP_ALLTOALLV) {
        found.at += (int64_t)(received->places != NULL ? received->places[comm->rank] : 0) *
                    received->element.extent;
        found.counts += comm->rank;
        found.places = NULL;
        found.n = 1;
    }
    return found;
}

int cp_vector_places(struct cp_plan *plan, const struct cp_vector_call *call,
                     const struct cp_comm *comm, const struct cp_vector_use *use, MPI_Comm by,
                     struct cp_places *places) {
    bool reads_place = use->is_in_place && call->kind != CP_SCATTERV;
    *places = (struct cp_places){NULL, NULL, false};
    if (use->has_sent && !reads_place) places->sent_at = whole_of(plan, &use->sent);
    if (reads_place || (use->has_sent && places->sent_at == NULL)) {
        struct cp_blocks input =
            reads_place ? input_in_place(call, comm, &use->received) : use->sent;
        places->sent_at = cp_stage(plan, false);
        int code = move_blocks(&input, places->sent_at, false, by);
        if (code != MPI_SUCCESS) return code;
    }
    if (use->has_received) places->received_at = whole_of(plan, &use->received);
    if (call->kind == CP_SCATTERV && use->is_in_place) {
        places->received_at = cp_stage(plan, true);
    } else if (use->has_received &&
               (places->received_at == NULL ||
                cp_plan_overlaps(plan, places->sent_at, places->received_at))) {
        places->received_at = cp_stage(plan, true);
        places->gives_back = true;
    }
    return MPI_SUCCESS;
}

int cp_vector_give_back(struct cp_plan *plan, const struct cp_vector_use *use, MPI_Comm by) {
    return move_blocks(&use->received, plan->received_stage, true, by);
}

static int run_plan(struct cp_plan *plan, const struct cp_vector_call *call,
                    const struct cp_comm *comm, const struct cp_vector_use *use) {
    struct cp_places places;
    int code = cp_vector_places(plan, call, comm, use, call->comm, &places);
    if (code != MPI_SUCCESS) return code;
    code = cp_start_plan(plan, places.sent_at, places.received_at, call->comm);
    if (code == MPI_SUCCESS && places.gives_back) code = cp_vector_give_back(plan, use, call->comm);
    return code;
}

bool cp_read_vector(const struct cp_vector_call *call, const struct cp_comm *comm,
                    struct cp_vector_use *use) {
    return read_call(call, comm, use) && is_accepted(call, comm, use);
}

int64_t cp_vector_bytes(const struct cp_vector_call *call) {
    struct cp_comm *comm = cp_comm_of(call->comm);
    struct cp_vector_use use = {.n_bytes = 0};
    if (comm == NULL || comm->is_inter) return 0;
    use.counts = calloc((size_t)CP_COUNT_WORDS(comm->size), sizeof(int64_t));
    if (use.counts == NULL) return 0;
    bool is_read = read_call(call, comm, &use);
    free(use.counts);
    return is_read ? use.n_bytes : 0;
}

void cp_refuse_vector(const struct cp_vector_call *call, const char *why) {
    struct cp_comm *comm = cp_comm_of(call->comm);
    struct cp_vector_use use = {.why = why};
    struct cp_row *row;
    if (comm == NULL || comm->is_inter || comm->is_foreign) return;
    if (comm->setup == CP_REQUESTED) cp_set_up(comm);
    if (comm->family->kinds >> call->kind & 1) find(call, comm, &use, &row);
}

/* Copy numbers that fit into int; return whether all of them do. */
static bool copy_small(int *to, const int64_t *from, int n) {
    for (int i = 0; i < n; i++) {
        if (from[i] < INT_MIN || from[i] > INT_MAX) return false;
        to[i] = (int)from[i];
    }
    return true;
}

bool cp_narrow(struct cp_vector_call *call, int **room) {
    const struct cp_comm *comm = cp_comm_of(call->comm);
    if (comm == NULL || comm->is_inter) return false;
    bool is_root = call->root == comm->rank;
    bool sends = call->kind == CP_SCATTERV ? is_root
                 : call->kind == CP_ALLTOALLV ? call->sent != MPI_IN_PLACE
                                              : call->kind == CP_REDUCE_SCATTER;
    bool receives = call->kind == CP_GATHERV ? is_root
                                             : call->kind == CP_ALLGATHERV || call->kind == CP_ALLTOALLV;
    const int **arrays[4] = {&call->n_sent, &call->sent_at, &call->n_received, &call->received_at};
    *room = malloc(4 * (size_t)comm->size * sizeof(int));
    if (*room == NULL) return false;
    for (int i = 0; i < 4; i++) {
        int *to = *room + (size_t)i * (size_t)comm->size;
        if (!(i < 2 ? sends : receives) || *arrays[i] == NULL) continue;
        if (!copy_small(to, (const int64_t *)*arrays[i], comm->size)) return false;
        *arrays[i] = to;
    }
    return true;
}

/* Run a call in which ranks do not meet. A call that MPI rejects is not counted, as other ranks wait
 * for it. */
static int run_left(const struct cp_vector_call *call, struct cp_backoff *backoff) {
    backoff->n_left--;
    int code = cp_native_vector(call);
    if (code != MPI_SUCCESS && cp_is_rejected(code)) backoff->n_left++;
    return code;
}

static int run(const struct cp_vector_call *call) {
    bool is_logged = cp_settings.is_logged, may_plan = cp_settings.kinds >> call->kind & 1;
    bool may_set_up = __atomic_load_n(&cp_n_requested, __ATOMIC_RELAXED) > 0;
    if (!is_logged && !may_plan && !may_set_up) return cp_native_vector(call);
    struct cp_comm *comm = cp_comm_of(call->comm);
    if (comm == NULL || comm->is_inter) return cp_native_vector(call);
    struct cp_backoff *backoff = &comm->backoffs[call->kind - CP_GATHERV];
    if (backoff->n_left > 0 && !is_logged && !may_set_up) return run_left(call, backoff);
    int64_t *making_ns = &comm->family->making_ns;
    int64_t begin = is_logged ? cp_now_ns() - *making_ns : 0;
    struct cp_vector_use use = {.n_bytes = 0};
    struct cp_route *route = NULL;
    struct cp_row *row = NULL;
    use.counts = calloc((size_t)CP_COUNT_WORDS(comm->size), sizeof(int64_t));
    if (use.counts == NULL) abort(); /* as other ranks would wait for this one */
    use.counts[2] = -1;
    if (!cp_read_vector(call, comm, &use)) {
        free(use.counts);
        return cp_native_vector(call);
    }
    if (may_set_up) cp_make_requested(comm);
    may_plan = comm->family->kinds >> call->kind & 1;
    if (comm->is_foreign) {
        row = native_row(comm, call->kind, CP_FOREIGN, use.n_bytes);
    } else if (may_plan) {
        route = find(call, comm, &use, &row);
    } else {
        char why[64];
        snprintf(why, sizeof why, CP_NO_PLAN, cp_regular_names[call->kind - CP_GATHERV]);
        row = native_row(comm, call->kind, why, use.n_bytes);
    }
    int code = route != NULL ? run_plan(route->plan, call, comm, &use) : cp_native_vector(call);
    if (is_logged && row != NULL) cp_count(row, use.n_bytes, cp_now_ns() - *making_ns - begin);
    free(use.counts);
    return code;
}

int cp_run_vector(const struct cp_vector_call *call) {
    if (!cp_is_watched) return run(call);
    struct cp_mark mark = cp_enter_vector(call);
    int code = run(call);
    cp_leave_with(mark, code);
    return code;
}
