/* Every intercepted collective beside MPI's own: results must be the same to the last bit.
 *
 * Runs under mpiexec with the library preloaded. MPI's own results come from PMPI functions.
 * Each case runs as often as it takes until a plan runs it. Prints the number of cases. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 200000
#define TURNS 4
static char *sent, *kept, *expected, *found;
static int n_cases, n_wrong, rank_of_world;
static MPI_Comm comm;
static int rank, size;

static void fail(const char *what, int count, const char *type) {
    if (n_wrong++ < 10)
        fprintf(stderr, "rank %d: %s of %d %s on %d ranks is wrong\n", rank_of_world, what, count,
                type, size);
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

/* Run one case: STATEMENT with F the prefix of the function, in `kept` and `found`. */
#define CASE(what, count, type, in_place, SETUP, CALL) \
    do { \
        for (int turn = 0; turn < TURNS; turn++) { \
            memset(expected, 0x55, MOST); \
            memset(found, 0x55, MOST); \
            char *into = expected; \
            const void *from = sent; \
            (void)from; \
            SETUP; \
            CALL(PMPI_); \
            into = found; \
            SETUP; \
            CALL(MPI_); \
            close_gaps(type, expected); \
            close_gaps(type, found); \
            if (memcmp(expected, found, MOST) != 0) fail(what, count, (type)->name); \
        } \
        n_cases++; \
    } while (0)

static void reductions(const struct type *type, MPI_Op op, const char *name, int count) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    size_t all = (size_t)(extent * count * size);
    if (all > MOST) return;
    fill(type, count * size);
    for (int in_place = 0; in_place < 2; in_place++) {
        const void *given = in_place ? MPI_IN_PLACE : sent;
        char what[64];
#define NAMED(text) (snprintf(what, sizeof what, "%s %s%s", text, name, in_place ? " in place" : ""), what)
#define SET if (in_place) memcpy(into, sent, all)
#define A(F) F##Allreduce(given, into, count, type->type, op, comm)
        CASE(NAMED("allreduce"), count, type, in_place, SET, A);
#define S(F) F##Scan(given, into, count, type->type, op, comm)
        CASE(NAMED("scan"), count, type, in_place, SET, S);
        /* The first rank's result of an exscan is undefined. */
#define E(F) F##Exscan(given, into, count, type->type, op, comm); \
             if (rank == 0) memset(into, 0, MOST)
        CASE(NAMED("exscan"), count, type, in_place, SET, E);
        /* In place, only the first block is defined afterwards. */
#define B(F) F##Reduce_scatter_block(given, into, count, type->type, op, comm); \
             if (in_place) memset(into + extent * count, 0, MOST - (size_t)(extent * count))
        CASE(NAMED("reduce_scatter_block"), count, type, in_place, SET, B);
        for (int root = 0; root < size; root += size > 1 ? size - 1 : 1) {
            const void *mine = in_place && rank == root ? MPI_IN_PLACE : sent;
#define R(F) F##Reduce(mine, into, count, type->type, op, root, comm)
#define SETR if (in_place && rank == root) memcpy(into, sent, all)
            CASE(NAMED("reduce"), count, type, in_place, SETR, R);
        }
    }
}

static void moves(const struct type *type, int count) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    size_t one = (size_t)(extent * count), all = one * (size_t)size;
    if (all > MOST) return;
    fill(type, count * size);
    for (int root = 0; root < size; root += size > 1 ? size - 1 : 1) {
#define BC(F) F##Bcast(into, count, type->type, root, comm)
        CASE("bcast", count, type, 0, if (rank == root) memcpy(into, sent, one), BC);
        for (int in_place = 0; in_place < 2; in_place++) {
            int is_own = in_place && rank == root;
            const void *given = is_own ? MPI_IN_PLACE : sent;
#define G(F) F##Gather(given, count, type->type, into, count, type->type, root, comm)
            CASE(in_place ? "gather in place" : "gather", count, type, in_place,
                 if (is_own) memcpy(into + one * (size_t)rank, sent, one), G);
#define SC(F) F##Scatter(sent, count, type->type, is_own ? MPI_IN_PLACE : into, count, \
                         type->type, root, comm)
            CASE(in_place ? "scatter in place" : "scatter", count, type, in_place, , SC);
        }
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        const void *given = in_place ? MPI_IN_PLACE : sent;
#define AG(F) F##Allgather(given, count, type->type, into, count, type->type, comm)
        CASE(in_place ? "allgather in place" : "allgather", count, type, in_place,
             if (in_place) memcpy(into + one * (size_t)rank, sent, one), AG);
#define AA(F) F##Alltoall(given, count, type->type, into, count, type->type, comm)
        CASE(in_place ? "alltoall in place" : "alltoall", count, type, in_place,
             if (in_place) memcpy(into, sent, all), AA);
    }
}

/* Counts that differ per rank, some of them 0, with gaps between blocks and in reversed order. */
static void vectors(const struct type *type, int most, int is_apart) {
    MPI_Aint lower, extent;
    int bytes, own = (rank * 5 + most) % (most + 1), *counts = calloc(4 * (size_t)size, sizeof(int));
    int *places = counts + size, *rows = counts + 2 * size, *columns = counts + 3 * size, at = 0;
    PMPI_Type_get_extent(type->type, &lower, &extent);
    PMPI_Type_size(type->type, &bytes);
    for (int i = 0; i < size; i++) {
        int block = is_apart ? size - 1 - i : i;
        counts[block] = (block * 5 + most) % (most + 1);
        rows[block] = (rank * 3 + block + most) % (most + 1);
        columns[block] = (block * 3 + rank + most) % (most + 1);
        places[block] = at;
        at += is_apart ? most + 2 : counts[block];
    }
    if ((at + size * (most + 2)) * extent > MOST) {
        free(counts);
        return;
    }
    fill(type, at + size * (most + 2));
    size_t all = (size_t)(extent * (at + most));
    const char *how = is_apart ? "apart" : "packed";
    char what[64];
#define WHAT(text) (snprintf(what, sizeof what, "%s %s%s", text, how, in_place ? " in place" : ""), what)
    for (int in_place = 0; in_place < 2; in_place++) {
        const void *given = in_place ? MPI_IN_PLACE : sent;
        for (int root = 0; root < size; root += size > 1 ? size - 1 : 1) {
            int is_own = in_place && rank == root;
            const void *mine = is_own ? MPI_IN_PLACE : sent;
#define GV(F) F##Gatherv(mine, own, type->type, into, counts, places, type->type, root, comm)
            CASE(WHAT("gatherv"), most, type, in_place, if (is_own) memcpy(into, sent, all), GV);
#define SV(F) F##Scatterv(sent, counts, places, type->type, is_own ? MPI_IN_PLACE : into, own, \
                          type->type, root, comm)
            CASE(WHAT("scatterv"), most, type, in_place, , SV);
        }
#define AGV(F) F##Allgatherv(given, own, type->type, into, counts, places, type->type, comm)
        CASE(WHAT("allgatherv"), most, type, in_place, if (in_place) memcpy(into, sent, all), AGV);
        /* Blocks of most + 1 elements have room for all that ranks send to each other. */
        int *spots = calloc((size_t)size, sizeof(int)), next = 0;
        for (int i = 0; i < size; i++) {
            spots[i] = next;
            next += is_apart ? most + 1 : in_place ? (rank + i) % (most + 1) : columns[i];
        }
        int *into_counts = columns, *from_counts = rows, *from_at = calloc((size_t)size, sizeof(int));
        for (int i = 0, before = 0; i < size; before += rows[i++]) from_at[i] = before;
        if (in_place)
            for (int i = 0; i < size; i++) into_counts[i] = (rank + i) % (most + 1);
#define AAV(F) F##Alltoallv(given, from_counts, from_at, type->type, into, into_counts, spots, \
                            type->type, comm)
        CASE(WHAT("alltoallv"), most, type, in_place,
             if (in_place) memcpy(into, sent, (size_t)(extent * (next + most))), AAV);
        free(spots);
        free(from_at);
        if (strchr("ifc", type->kind) == NULL) continue;
        /* In place, only the first block is defined afterwards. */
#define RS(F) F##Reduce_scatter(given, into, counts, type->type, MPI_SUM, comm); \
              if (in_place) memset(into + extent * own, 0, MOST - (size_t)(extent * own))
        CASE(WHAT("reduce_scatter"), most, type, in_place,
             if (in_place) memcpy(into, sent, all), RS);
    }
    free(counts);
}

static void least(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++)
        if (((int *)in)[i] < ((int *)inout)[i]) ((int *)inout)[i] = ((int *)in)[i];
}

static int is_quick;

static void on_communicator(MPI_Comm which, int is_whole) {
    static const struct { MPI_Op op; const char *name, *kinds; } ops[] = {
        {MPI_SUM, "sum", "ifc"}, {MPI_PROD, "prod", "ifc"}, {MPI_MIN, "min", "if"},
        {MPI_MAX, "max", "if"}, {MPI_LAND, "land", "ib"}, {MPI_LOR, "lor", "ib"},
        {MPI_LXOR, "lxor", "ib"}, {MPI_BAND, "band", "i"}, {MPI_BOR, "bor", "i"},
        {MPI_BXOR, "bxor", "i"}, {MPI_MINLOC, "minloc", "p"}, {MPI_MAXLOC, "maxloc", "p"},
    };
    struct type types[] = {
        {"int", MPI_INT, 'i'}, {"double", MPI_DOUBLE, 'f'}, {"int8", MPI_INT8_T, 'i'},
        {"uint16", MPI_UINT16_T, 'i'}, {"int64", MPI_INT64_T, 'i'}, {"float", MPI_FLOAT, 'f'},
        {"unsigned", MPI_UNSIGNED, 'i'}, {"long long", MPI_LONG_LONG, 'i'},
        {"complex64", MPI_C_FLOAT_COMPLEX, 'c'}, {"complex128", MPI_C_DOUBLE_COMPLEX, 'c'},
        {"bool", MPI_C_BOOL, 'b'}, {"double_int", MPI_DOUBLE_INT, 'p'},
        {"float_int", MPI_FLOAT_INT, 'p'}, {"2int", MPI_2INT, 'p'},
        {"short_int", MPI_SHORT_INT, 'p'}, {"long_int", MPI_LONG_INT, 'p'},
        {"byte", MPI_BYTE, '-'}, {"char", MPI_CHAR, '-'},
        {"row", MPI_DATATYPE_NULL, '-'}, {"column", MPI_DATATYPE_NULL, '-'},
    };
    int n_types = (int)(sizeof types / sizeof *types);
    static const int counts[] = {0, 1, 5, 67};
    PMPI_Type_contiguous(3, MPI_INT, &types[n_types - 2].type);
    MPI_Type_commit(&types[n_types - 2].type);
    PMPI_Type_vector(3, 1, 2, MPI_SHORT, &types[n_types - 1].type);
    MPI_Type_commit(&types[n_types - 1].type);
    comm = which;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int t = 0; t < n_types; t++)
        for (int c = 0; c < 4; c++) {
            if (!is_whole && (t % 3 != 1 || c < 1)) continue;
            if (is_quick && (t % 2 || c == 1) && t < n_types - 1) continue;
            moves(&types[t], counts[c]);
            vectors(&types[t], counts[c], 0);
            if (!is_quick || t % 4 == 0 || t == n_types - 1) vectors(&types[t], counts[c], 1);
            for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
                if (strchr(ops[o].kinds, types[t].kind) != NULL && (is_whole || o < 3) &&
                    (!is_quick || (t + (int)o) % 3 == 0))
                    reductions(&types[t], ops[o].op, ops[o].name, counts[c]);
        }
    MPI_Op own;
    MPI_Op_create(least, 1, &own);
    reductions(&types[0], own, "own", 5);
    MPI_Op_free(&own);
    for (int i = 0; i < TURNS; i++) MPI_Barrier(comm);
    MPI_Type_free(&types[n_types - 2].type);
    MPI_Type_free(&types[n_types - 1].type);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_world);
    is_quick = argc > 1; /* any argument: a part of the cases */
    sent = malloc(MOST), kept = malloc(MOST), expected = malloc(MOST), found = malloc(MOST);
    on_communicator(MPI_COMM_WORLD, 1);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank_of_world % 2, -rank_of_world, &half);
    on_communicator(half, 0);
    MPI_Comm_free(&half);
    /* A communicator that is freed and made again. */
    MPI_Comm_dup(MPI_COMM_WORLD, &half);
    on_communicator(half, 0);
    MPI_Comm_free(&half);
    int all_wrong = 0;
    MPI_Reduce(&n_wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank_of_world == 0) printf("%d cases, %d wrong\n", n_cases, all_wrong);
    MPI_Finalize();
    return n_wrong != 0;
}
