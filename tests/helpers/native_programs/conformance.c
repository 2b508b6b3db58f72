/* Intercepted collectives beside MPI's own: results must be the same to the last bit.
 *
 * conformance FILE [TURNS]
 *
 * Runs under mpiexec with the library preloaded. MPI's own results come from PMPI functions.
 * The file has a line per case: communicator (world, half, dup or turned), collective, type,
 * operation (- for none), count, whether it is in place, whether the last rank is the root, whether
 * blocks lie apart, and the form: blocking, started (non-blocking) or persistent. The collective
 * "free" frees the communicator; the next case makes it again. Each case runs TURNS times, \
        by default
 * as often as it takes until a plan runs it. Requests end later, \
        in another order on each rank. Prints
 * the number of cases. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
#define HAS_PERSISTENT 1
#else
#define HAS_PERSISTENT 0
#endif
#define MOST 16384
#define MOST_RANKS 64
#define N_CALLS 6
static int n_cases, n_wrong, rank_of_world, n_turns = 3;
static MPI_Comm comm;
static int rank, size;

struct type {
    const char *name;
    MPI_Datatype type;
    int kind; /* i integer, f float, c complex, b boolean, p pair, - moved only */
};

/* Calls under way; the first is the blocking one. What is undefined is not compared. */
static struct call {
    _Alignas(16) char sent[MOST], expected[MOST], found[MOST];
    char line[128];
    const struct type *type;
    int counts[4 * MOST_RANKS];
    size_t undefined_from, undefined_to;
    MPI_Request request;
    int is_under_way, is_persistent, size;
} calls[N_CALLS], *now = calls;
static char *sent = calls[0].sent;

/* Small numbers, so that sums and products are exact in any order. */
static void fill(const struct type *type, int n) {
    int bytes;
    MPI_Aint lower, extent;
    PMPI_Type_size(type->type, &bytes);
    PMPI_Type_get_extent(type->type, &lower, &extent);
    if (n * extent > MOST) {
        fprintf(stderr, "there is no room for %s", now->line);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(sent, 0, MOST);
    for (int i = 0; i < n; i++) {
        char *at = sent + i * extent;
        long value = 1 + (rank * 7 + i * 3) % 2;
        switch (type->kind) {
        case 'i': memcpy(at, &value, (size_t)bytes); break;
        case 'b': *at = (char)(value - 1); break;
        case 'f':
            if (bytes == 4) *(float *)at = (float)value;
            else *(double *)at = (double)value;
            break;
        case 'c':
            if (bytes == 8) ((float *)at)[0] = (float)value, ((float *)at)[1] = 0;
            else ((double *)at)[0] = (double)value, ((double *)at)[1] = 0;
            break;
        case 'p':
            if (type->type == MPI_DOUBLE_INT) *(double *)at = (double)value;
            else if (type->type == MPI_FLOAT_INT) *(float *)at = (float)value;
            else if (type->type == MPI_2INT) *(int *)at = (int)value;
            else if (type->type == MPI_LONG_INT) *(long *)at = value;
            else *(short *)at = (short)value;
            *(int *)(at + (type->type == MPI_SHORT_INT ? 4 : type->type == MPI_2INT ||
                           type->type == MPI_FLOAT_INT ? 4 : 8)) = rank;
            break;
        default:
            for (int j = 0; j < bytes; j++) at[j] = (char)(rank * 31 + i * 7 + j);
        }
    }
}

/* Gaps inside of pairs hold no values: MPI leaves them alone, plans copy them. */
static void close_gaps(const struct type *type, char *at) {
    int is_short = type->type == MPI_SHORT_INT;
    if (!is_short && type->type != MPI_DOUBLE_INT && type->type != MPI_LONG_INT) return;
    for (int i = 0; i + 16 <= MOST; i += is_short ? 8 : 16)
        memset(at + i + (is_short ? 2 : 12), 0, is_short ? 2 : 4);
}

static void compare(struct call *call) {
    size_t n_undefined = call->undefined_to - call->undefined_from;
    memset(call->expected + call->undefined_from, 0, n_undefined);
    memset(call->found + call->undefined_from, 0, n_undefined);
    close_gaps(call->type, call->expected);
    close_gaps(call->type, call->found);
    if (memcmp(call->expected, call->found, MOST) != 0 && n_wrong++ < 10)
        fprintf(stderr, "rank %d, %d ranks: wrong is %s\n", rank_of_world, call->size, call->line);
    call->undefined_from = call->undefined_to = 0;
}

static unsigned draw(unsigned n) { /* other numbers on each rank */
    static unsigned state;
    state = (state ? state : 77 + (unsigned)rank_of_world) * 1103515245 + 12345;
    return (state >> 16) % n;
}

static void end_call(struct call *call) {
    if (call->is_persistent) MPI_Request_free(&call->request);
    call->is_under_way = 0;
    compare(call);
}

/* Complete at least one of `n` requests in a way that is drawn, with all functions of MPI that can;
 * return the number of those that are complete, and their places. */
static int complete_some(int n, MPI_Request *requests, int *done) {
    int which = (int)draw((unsigned)n), is_done = 0, n_done = 1, way = (int)draw(8);
    done[0] = which;
    /* MPI_Testall of MPICH 5.0.2 reports an error for persistent collectives. */
    for (int i = 1; way == 7 && i < N_CALLS; i++)
        if (calls[i].is_under_way && calls[i].is_persistent) way = 0;
    switch (way) {
    case 0: MPI_Waitany(n, requests, done, MPI_STATUS_IGNORE); break;
    case 1: MPI_Waitsome(n, requests, &n_done, done, MPI_STATUSES_IGNORE); break;
    case 2: MPI_Wait(&requests[which], MPI_STATUS_IGNORE); break;
    case 3:
        while (!is_done) MPI_Test(&requests[which], &is_done, MPI_STATUS_IGNORE);
        break;
    case 4:
        while (!is_done) MPI_Testany(n, requests, done, &is_done, MPI_STATUS_IGNORE);
        break;
    case 5:
        for (n_done = 0; n_done == 0;)
            MPI_Testsome(n, requests, &n_done, done, MPI_STATUSES_IGNORE);
        break;
    case 6:
        while (!is_done) MPI_Request_get_status(requests[which], &is_done, MPI_STATUS_IGNORE);
        MPI_Wait(&requests[which], MPI_STATUS_IGNORE);
        break;
    default:
        while (!is_done) MPI_Testall(n, requests, &is_done, MPI_STATUSES_IGNORE);
        for (n_done = 0; n_done < n; n_done++) done[n_done] = n_done;
    }
    return n_done;
}

/* End some calls under way, or all of them, if there are any. */
static void end_calls(int all) {
    MPI_Request requests[N_CALLS];
    int places[N_CALLS], done[N_CALLS], n = 0;
    for (int i = 1; i < N_CALLS; i++)
        if (calls[i].is_under_way) places[n] = i, requests[n++] = calls[i].request;
    if (n == 0) return;
    int n_done = all ? n : complete_some(n, requests, done);
    if (all) MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < n_done; i++) end_call(&calls[places[all ? i : done[i]]]);
}

/* Names of functions, given a collective's in both ways. */
#define NATIVE(UPPER, lower) PMPI_##UPPER
#define BLOCKING(UPPER, lower) MPI_##UPPER
#define STARTED(UPPER, lower) MPI_I##lower
#define PERSISTENT(UPPER, lower) MPI_##UPPER##_init
#if HAS_PERSISTENT
#define PERSISTENT_CALL(CALL) CALL(PERSISTENT, MPI_INFO_NULL, &now->request)
#else
#define PERSISTENT_CALL(CALL)
#endif

/* Run one case: CALL with what names the function, into `expected` and into `found`. */
#define CASE(SETUP, CALL) \
    do { \
        for (int turn = 0; turn < n_turns; turn++) { \
            memset(now->expected, 0x55, MOST); \
            memset(now->found, 0x55, MOST); \
            now->type = type; \
            now->size = size; \
            char *into = now->expected; \
            (void)into; \
            SETUP; \
            CALL(NATIVE); \
            into = now->found; \
            SETUP; \
            if (now == calls) { \
                CALL(BLOCKING); \
                compare(now); \
            } else { \
                now->is_under_way = 1; \
                if (now->is_persistent) { \
                    PERSISTENT_CALL(CALL); \
                    MPI_Start(&now->request); \
                } else CALL(STARTED, &now->request); \
                if (turn + 1 < n_turns) end_calls(1); \
            } \
        } \
        n_cases++; \
    } while (0)

#define IS(text) (strcmp(kind, text) == 0)

static void reduction(const char *kind, const struct type *type, MPI_Op op, int count, int in_place,
                      int root) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    size_t all = (size_t)(extent * count * size);
    fill(type, count * size);
    int is_own = in_place && rank == root;
    const void *given = in_place ? MPI_IN_PLACE : sent, *mine = is_own ? MPI_IN_PLACE : sent;
#define SET if (in_place) memcpy(into, sent, all)
#define A(F, ...) F(Allreduce, allreduce)(given, into, count, type->type, op, comm, ##__VA_ARGS__)
    if (IS("allreduce")) CASE(SET, A);
#define S(F, ...) F(Scan, scan)(given, into, count, type->type, op, comm, ##__VA_ARGS__)
    else if (IS("scan")) CASE(SET, S);
    /* The first rank's result of an exscan is undefined. */
#define E(F, ...) F(Exscan, exscan)(given, into, count, type->type, op, comm, ##__VA_ARGS__)
    else if (IS("exscan")) {
        if (rank == 0) now->undefined_to = MOST;
        CASE(SET, E);
    }
    /* In place, only the first block is defined afterwards. */
#define B(F, ...) \
    F(Reduce_scatter_block, reduce_scatter_block)(given, into, count, type->type, op, comm, \
        ##__VA_ARGS__)
    else if (IS("reduce_scatter_block")) {
        if (in_place) now->undefined_from = (size_t)(extent * count), now->undefined_to = MOST;
        CASE(SET, B);
    }
#define R(F, ...) F(Reduce, reduce)(mine, into, count, type->type, op, root, comm, ##__VA_ARGS__)
#define SETR if (is_own) memcpy(into, sent, all)
    else if (IS("reduce")) CASE(SETR, R);
}

static void move(const char *kind, const struct type *type, int count, int in_place, int root) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    size_t one = (size_t)(extent * count), all = one * (size_t)size;
    fill(type, count * size);
    int is_own = in_place && rank == root;
    const void *given = in_place ? MPI_IN_PLACE : sent, *mine = is_own ? MPI_IN_PLACE : sent;
#define BC(F, ...) F(Bcast, bcast)(into, count, type->type, root, comm, ##__VA_ARGS__)
    if (IS("bcast")) CASE(if (rank == root) memcpy(into, sent, one), BC);
#define G(F, ...) \
    F(Gather, gather)(mine, count, type->type, into, count, type->type, root, comm, ##__VA_ARGS__)
    else if (IS("gather")) CASE(if (is_own) memcpy(into + one * (size_t)rank, sent, one), G);
#define SC(F, ...) \
    F(Scatter, scatter)(sent, count, type->type, is_own ? MPI_IN_PLACE : into, count, type->type, \
        root, comm, ##__VA_ARGS__)
    else if (IS("scatter")) CASE(, SC);
#define AG(F, ...) \
    F(Allgather, allgather)(given, count, type->type, into, count, type->type, comm, ##__VA_ARGS__)
    else if (IS("allgather")) CASE(if (in_place) memcpy(into + one * (size_t)rank, sent, one), AG);
#define AA(F, ...) \
    F(Alltoall, alltoall)(given, count, type->type, into, count, type->type, comm, ##__VA_ARGS__)
    else if (IS("alltoall")) CASE(if (in_place) memcpy(into, sent, all), AA);
#define BA(F, ...) F(Barrier, barrier)(comm, ##__VA_ARGS__)
    else if (IS("barrier")) CASE(, BA);
}

/* Blocks of most + 1 elements have room for all that ranks send to each other. */
static void alltoallv(const struct type *type, int most, int in_place, int is_apart) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    int *rows = now->counts, *columns = rows + size;
    int *from_at = columns + size, *spots = from_at + size, next = 0, before = 0;
    for (int i = 0; i < size; i++) {
        rows[i] = (rank * 3 + i + most) % (most + 1);
        columns[i] = in_place ? (rank + i) % (most + 1) : (i * 3 + rank + most) % (most + 1);
        from_at[i] = before;
        before += rows[i];
        spots[i] = next;
        next += is_apart ? most + 1 : columns[i];
    }
    fill(type, size * (most + 2));
    const void *given = in_place ? MPI_IN_PLACE : sent;
#define AAV(F, ...) \
    F(Alltoallv, alltoallv)(given, rows, from_at, type->type, into, columns, spots, type->type, \
        comm, ##__VA_ARGS__)
    CASE(if (in_place) memcpy(into, sent, (size_t)(extent * (next + most))), AAV);
}

/* Counts that differ per rank, some of them 0, with gaps between blocks and in reversed order. */
static void vector(const char *kind, const struct type *type, MPI_Op op, int most, int in_place,
                   int root, int is_apart) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    int own = (rank * 5 + most) % (most + 1), *counts = now->counts;
    int *places = counts + size, at = 0, is_own = in_place && rank == root;
    for (int i = 0; i < size; i++) {
        int block = is_apart ? size - 1 - i : i;
        counts[block] = (block * 5 + most) % (most + 1);
        places[block] = at;
        at += is_apart ? most + 2 : counts[block];
    }
    fill(type, at + size * (most + 2));
    size_t all = (size_t)(extent * (at + most));
    const void *given = in_place ? MPI_IN_PLACE : sent, *mine = is_own ? MPI_IN_PLACE : sent;
#define GV(F, ...) \
    F(Gatherv, gatherv)(mine, own, type->type, into, counts, places, type->type, root, comm, \
        ##__VA_ARGS__)
    if (IS("gatherv")) CASE(if (is_own) memcpy(into, sent, all), GV);
#define SV(F, ...) \
    F(Scatterv, scatterv)(sent, counts, places, type->type, is_own ? MPI_IN_PLACE : into, own, \
        type->type, root, comm, ##__VA_ARGS__)
    else if (IS("scatterv")) CASE(, SV);
#define AGV(F, ...) \
    F(Allgatherv, allgatherv)(given, own, type->type, into, counts, places, type->type, comm, \
        ##__VA_ARGS__)
    else if (IS("allgatherv")) CASE(if (in_place) memcpy(into, sent, all), AGV);
    /* In place, only the first block is defined afterwards. */
#define RS(F, ...) \
    F(Reduce_scatter, reduce_scatter)(given, into, counts, type->type, op, comm, ##__VA_ARGS__)
    else if (IS("reduce_scatter")) {
        if (in_place) now->undefined_from = (size_t)(extent * own), now->undefined_to = MOST;
        CASE(if (in_place) memcpy(into, sent, all), RS);
    }
}

static void least(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++)
        if (((int *)in)[i] < ((int *)inout)[i]) ((int *)inout)[i] = ((int *)in)[i];
}

static const struct type *type_of(const char *name) {
    static struct type types[] = {
        {"int", MPI_INT, 'i'}, {"double", MPI_DOUBLE, 'f'}, {"int8", MPI_INT8_T, 'i'},
        {"uint16", MPI_UINT16_T, 'i'}, {"int64", MPI_INT64_T, 'i'}, {"float", MPI_FLOAT, 'f'},
        {"unsigned", MPI_UNSIGNED, 'i'}, {"longlong", MPI_LONG_LONG, 'i'},
        {"complex64", MPI_C_FLOAT_COMPLEX, 'c'}, {"complex128", MPI_C_DOUBLE_COMPLEX, 'c'},
        {"bool", MPI_C_BOOL, 'b'}, {"double_int", MPI_DOUBLE_INT, 'p'},
        {"float_int", MPI_FLOAT_INT, 'p'}, {"2int", MPI_2INT, 'p'},
        {"short_int", MPI_SHORT_INT, 'p'}, {"long_int", MPI_LONG_INT, 'p'},
        {"byte", MPI_BYTE, '-'}, {"char", MPI_CHAR, '-'},
        {"row", MPI_DATATYPE_NULL, '-'}, {"column", MPI_DATATYPE_NULL, '-'},
    };
    int n = (int)(sizeof types / sizeof *types);
    if (types[n - 1].type == MPI_DATATYPE_NULL) {
        PMPI_Type_contiguous(3, MPI_INT, &types[n - 2].type);
        MPI_Type_commit(&types[n - 2].type);
        PMPI_Type_vector(3, 1, 2, MPI_SHORT, &types[n - 1].type);
        MPI_Type_commit(&types[n - 1].type);
    }
    for (int i = 0; i < n; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

static MPI_Op op_of(const char *name) {
    static MPI_Op own = MPI_OP_NULL;
    const struct { const char *name; MPI_Op op; } ops[] = {
        {"-", MPI_SUM}, {"sum", MPI_SUM}, {"prod", MPI_PROD}, {"min", MPI_MIN}, {"max", MPI_MAX},
        {"land", MPI_LAND}, {"lor", MPI_LOR}, {"lxor", MPI_LXOR}, {"band", MPI_BAND},
        {"bor", MPI_BOR}, {"bxor", MPI_BXOR}, {"minloc", MPI_MINLOC}, {"maxloc", MPI_MAXLOC},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].name, name) == 0) return ops[i].op;
    if (own == MPI_OP_NULL) MPI_Op_create(least, 1, &own);
    return own;
}

/* Use a communicator, which is made if there is none of that name. */
static void use_communicator(const char *name, int is_last_use) {
    static struct { const char *name; MPI_Comm comm; } made[] = {
        {"world", MPI_COMM_NULL}, {"half", MPI_COMM_NULL}, {"dup", MPI_COMM_NULL},
        {"turned", MPI_COMM_NULL},
    };
    int i = 0, color = rank_of_world % 2;
    while (i < 3 && strcmp(made[i].name, name) != 0) i++;
    if (is_last_use) {
        end_calls(1);
        if (i > 0 && made[i].comm != MPI_COMM_NULL) MPI_Comm_free(&made[i].comm);
        return;
    }
    int is_new = made[i].comm == MPI_COMM_NULL;
    if (is_new && i == 0) made[i].comm = MPI_COMM_WORLD;
    else if (is_new && i == 2) MPI_Comm_dup(MPI_COMM_WORLD, &made[i].comm);
    else if (is_new)
        MPI_Comm_split(MPI_COMM_WORLD, i == 1 ? color : 0, -rank_of_world, &made[i].comm);
    comm = made[i].comm;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int turn = 0; is_new && turn < n_turns; turn++) MPI_Barrier(comm);
}

/* Choose where the next call keeps its memory: the first place if it is blocking, or a free one. */
static void choose_place(const char *form) {
    int i = 1;
    if (form[0] == 'b') i = 0;
    while (calls[i].is_under_way)
        if (++i == N_CALLS) end_calls(0), i = 1;
    now = &calls[i];
    now->is_persistent = HAS_PERSISTENT && form[0] == 'p';
    sent = now->sent;
}

static void run_line(const char *line) {
    char where[16], kind[32], name[16], op[16], form[16];
    int count, in_place, is_last, is_apart;
    if (sscanf(line, "%15s %31s %15s %15s %d %d %d %d %15s", where, kind, name, op, &count,
               &in_place, &is_last, &is_apart, form) != 9)
        MPI_Abort(MPI_COMM_WORLD, 3);
    use_communicator(where, IS("free"));
    if (IS("free")) return;
    choose_place(form);
    strcpy(now->line, line);
    const struct type *type = type_of(name);
    int root = is_last ? size - 1 : 0, before = n_cases;
    if (IS("alltoallv")) alltoallv(type, count, in_place, is_apart);
    else if (kind[strlen(kind) - 1] == 'v' || IS("reduce_scatter"))
        vector(kind, type, op_of(op), count, in_place, root, is_apart);
    else if (op[0] != '-') reduction(kind, type, op_of(op), count, in_place, root);
    else move(kind, type, count, in_place, root);
    if (n_cases == before) MPI_Abort(MPI_COMM_WORLD, 4);
    if (draw(3) == 0) end_calls(0);
}

int main(int argc, char **argv) {
    char line[sizeof now->line];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_world);
    if (argc > 2) n_turns = atoi(argv[2]);
    FILE *cases = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (cases == NULL) MPI_Abort(MPI_COMM_WORLD, 5);
    while (fgets(line, sizeof line, cases) != NULL) run_line(line);
    end_calls(1);
    int all_wrong = 0;
    MPI_Reduce(&n_wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank_of_world == 0) printf("%d cases, %d wrong\n", n_cases, all_wrong);
    MPI_Finalize();
    return n_wrong != 0;
}
