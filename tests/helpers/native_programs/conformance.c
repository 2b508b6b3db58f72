/* Intercepted collectives beside MPI's own: results must be the same to the last bit.
 *
 * Runs under mpiexec with the library preloaded. MPI's own results come from PMPI functions.
 * The argument is a file with a line per case: communicator (world, half or dup), collective, type,
 * operation (- for none), count, whether it is in place, whether the last rank is the root, and
 * whether blocks lie apart. Each case runs as often as it takes until a plan runs it. Prints the
 * number of cases. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16384
#define TURNS 3
static _Alignas(16) char sent[MOST], expected[MOST], found[MOST];
static int n_cases, n_wrong, rank_of_world;
static MPI_Comm comm;
static int rank, size;

static char line[128]; /* the case that runs */

static void fail(void) {
    if (n_wrong++ < 10)
        fprintf(stderr, "rank %d, %d ranks: wrong is %s\n", rank_of_world, size, line);
}

struct type {
    const char *name;
    MPI_Datatype type;
    int kind; /* i integer, f float, c complex, b boolean, p pair, - moved only */
};

/* Small numbers, so that sums and products are exact in any order. */
static void fill(const struct type *type, int n) {
    int bytes;
    MPI_Aint lower, extent;
    PMPI_Type_size(type->type, &bytes);
    PMPI_Type_get_extent(type->type, &lower, &extent);
    if (n * extent > MOST) {
        fprintf(stderr, "there is no room for %s", line);
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

/* Run one case: CALL with the prefix of the function, into `expected` and into `found`. */
#define CASE(SETUP, CALL) \
    do { \
        for (int turn = 0; turn < TURNS; turn++) { \
            memset(expected, 0x55, MOST); \
            memset(found, 0x55, MOST); \
            char *into = expected; \
            SETUP; \
            CALL(PMPI_); \
            into = found; \
            SETUP; \
            CALL(MPI_); \
            close_gaps(type, expected); \
            close_gaps(type, found); \
            if (memcmp(expected, found, MOST) != 0) fail(); \
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
#define A(F) F##Allreduce(given, into, count, type->type, op, comm)
    if (IS("allreduce")) CASE(SET, A);
#define S(F) F##Scan(given, into, count, type->type, op, comm)
    else if (IS("scan")) CASE(SET, S);
    /* The first rank's result of an exscan is undefined. */
#define E(F) F##Exscan(given, into, count, type->type, op, comm); \
             if (rank == 0) memset(into, 0, MOST)
    else if (IS("exscan")) CASE(SET, E);
    /* In place, only the first block is defined afterwards. */
#define B(F) F##Reduce_scatter_block(given, into, count, type->type, op, comm); \
             if (in_place) memset(into + extent * count, 0, MOST - (size_t)(extent * count))
    else if (IS("reduce_scatter_block")) CASE(SET, B);
#define R(F) F##Reduce(mine, into, count, type->type, op, root, comm)
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
#define BC(F) F##Bcast(into, count, type->type, root, comm)
    if (IS("bcast")) CASE(if (rank == root) memcpy(into, sent, one), BC);
#define G(F) F##Gather(mine, count, type->type, into, count, type->type, root, comm)
    else if (IS("gather")) CASE(if (is_own) memcpy(into + one * (size_t)rank, sent, one), G);
#define SC(F) F##Scatter(sent, count, type->type, is_own ? MPI_IN_PLACE : into, count, type->type, \
                         root, comm)
    else if (IS("scatter")) CASE(, SC);
#define AG(F) F##Allgather(given, count, type->type, into, count, type->type, comm)
    else if (IS("allgather")) CASE(if (in_place) memcpy(into + one * (size_t)rank, sent, one), AG);
#define AA(F) F##Alltoall(given, count, type->type, into, count, type->type, comm)
    else if (IS("alltoall")) CASE(if (in_place) memcpy(into, sent, all), AA);
}

/* Blocks of most + 1 elements have room for all that ranks send to each other. */
static void alltoallv(const struct type *type, int most, int in_place, int is_apart) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    int *rows = calloc(4 * (size_t)size, sizeof(int)), *columns = rows + size;
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
#define AAV(F) F##Alltoallv(given, rows, from_at, type->type, into, columns, spots, type->type, comm)
    CASE(if (in_place) memcpy(into, sent, (size_t)(extent * (next + most))), AAV);
    free(rows);
}

/* Counts that differ per rank, some of them 0, with gaps between blocks and in reversed order. */
static void vector(const char *kind, const struct type *type, MPI_Op op, int most, int in_place,
                   int root, int is_apart) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    int own = (rank * 5 + most) % (most + 1), *counts = calloc(2 * (size_t)size, sizeof(int));
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
#define GV(F) F##Gatherv(mine, own, type->type, into, counts, places, type->type, root, comm)
    if (IS("gatherv")) CASE(if (is_own) memcpy(into, sent, all), GV);
#define SV(F) F##Scatterv(sent, counts, places, type->type, is_own ? MPI_IN_PLACE : into, own, \
                          type->type, root, comm)
    else if (IS("scatterv")) CASE(, SV);
#define AGV(F) F##Allgatherv(given, own, type->type, into, counts, places, type->type, comm)
    else if (IS("allgatherv")) CASE(if (in_place) memcpy(into, sent, all), AGV);
    /* In place, only the first block is defined afterwards. */
#define RS(F) F##Reduce_scatter(given, into, counts, type->type, op, comm); \
              if (in_place) memset(into + extent * own, 0, MOST - (size_t)(extent * own))
    else if (IS("reduce_scatter")) CASE(if (in_place) memcpy(into, sent, all), RS);
    free(counts);
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

/* Give back the communicator before, and make the next. */
static void change_communicator(const char *name) {
    static char last[16];
    if (strcmp(last, name) == 0) return;
    if (strcmp(last, "world") != 0 && last[0]) MPI_Comm_free(&comm);
    strcpy(last, name);
    if (strcmp(name, "half") == 0)
        MPI_Comm_split(MPI_COMM_WORLD, rank_of_world % 2, -rank_of_world, &comm);
    else if (strcmp(name, "dup") == 0) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    else comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < TURNS; i++) MPI_Barrier(comm);
}

static void run_line(void) {
    char where[16], kind[32], name[16], op[16];
    int count, in_place, is_last, is_apart;
    if (sscanf(line, "%15s %31s %15s %15s %d %d %d %d", where, kind, name, op, &count, &in_place,
               &is_last, &is_apart) != 8)
        MPI_Abort(MPI_COMM_WORLD, 3);
    change_communicator(where);
    const struct type *type = type_of(name);
    int root = is_last ? size - 1 : 0, before = n_cases;
    if (IS("alltoallv")) alltoallv(type, count, in_place, is_apart);
    else if (kind[strlen(kind) - 1] == 'v' || IS("reduce_scatter"))
        vector(kind, type, op_of(op), count, in_place, root, is_apart);
    else if (op[0] != '-') reduction(kind, type, op_of(op), count, in_place, root);
    else move(kind, type, count, in_place, root);
    if (n_cases == before) MPI_Abort(MPI_COMM_WORLD, 4);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_world);
    FILE *cases = fopen(argv[argc - 1], "r");
    if (cases == NULL) MPI_Abort(MPI_COMM_WORLD, 5);
    while (fgets(line, sizeof line, cases) != NULL) run_line();
    int all_wrong = 0;
    MPI_Reduce(&n_wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank_of_world == 0) printf("%d cases, %d wrong\n", n_cases, all_wrong);
    MPI_Finalize();
    return n_wrong != 0;
}
