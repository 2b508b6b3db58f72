/* Calls that MPI rejects: their errors are those of PMPI in each call, and later results are right.
 * Then calls that differ little from those before, and more communicators, and more signatures in turn, than may have plans. */
#include <mpi.h>
#include <stdio.h>

#define TIMES 6

static int rank, size, n_wrong;

static void expect(int is_right, const char *what, int i) {
    if (is_right) return;
    n_wrong++;
    fprintf(stderr, "rank %d: %s, call %d is wrong\n", rank, what, i);
}

static int class_of(int code) {
    int found = -1;
    MPI_Error_class(code, &found);
    return found;
}

static void errors_are_the_same_in_all_calls(MPI_Datatype uncommitted) {
    int buf[64] = {0}, counts[64], places[64], apart[64];
    for (int i = 0; i < 64; i++) counts[i] = 1, places[i] = 0, apart[i] = i;
    for (int i = 0; i < TIMES; i++) {
        int own = class_of(MPI_Allreduce(buf, buf, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        int mpis = class_of(PMPI_Allreduce(buf, buf, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        expect(own == mpis, "allreduce of one buffer", i);
        own = class_of(MPI_Bcast(buf, 2, uncommitted, 0, MPI_COMM_WORLD));
        mpis = class_of(PMPI_Bcast(buf, 2, uncommitted, 0, MPI_COMM_WORLD));
        expect(own == mpis && own != MPI_SUCCESS, "bcast of an uncommitted datatype", i);
        own = class_of(MPI_Allgather(buf + rank, 1, MPI_INT, buf, 1, MPI_INT, MPI_COMM_WORLD));
        mpis = class_of(PMPI_Allgather(buf + rank, 1, MPI_INT, buf, 1, MPI_INT, MPI_COMM_WORLD));
        expect(own == mpis, "allgather of the own block", i);
        own = class_of(MPI_Allgatherv(buf + rank, 1, MPI_INT, buf, counts, apart, MPI_INT,
                                      MPI_COMM_WORLD));
        mpis = class_of(PMPI_Allgatherv(buf + rank, 1, MPI_INT, buf, counts, apart, MPI_INT,
                                        MPI_COMM_WORLD));
        expect(own == mpis, "allgatherv of the own block", i);
        own = class_of(MPI_Allgatherv(buf, 1, uncommitted, buf + 4, counts, places, MPI_INT,
                                      MPI_COMM_WORLD));
        expect(own != MPI_SUCCESS, "allgatherv of an uncommitted datatype", i);
    }
}

static void calls_of_one_rank_return(MPI_Datatype uncommitted) {
    double in = 0, out;
    int buf[128] = {0}, counts[64], places[64] = {0};
    for (int i = 0; i < 64; i++) counts[i] = -1;
    for (int i = 0; i < TIMES && rank == 0; i++) {
        int code = MPI_Gather(buf, 1, uncommitted, buf + 2, 1, uncommitted, 0, MPI_COMM_WORLD);
        expect(code != MPI_SUCCESS, "gather of an uncommitted datatype", i);
        code = MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD);
        expect(code != MPI_SUCCESS, "allreduce by an operation of integers", i);
        code = MPI_Gatherv(buf, 1, MPI_INT, buf + 2, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
        expect(code != MPI_SUCCESS, "gatherv of negative counts", i);
#ifndef OPEN_MPI /* which accepts these */
        code = MPI_Gather(buf, 2, MPI_INT, buf, 2, MPI_INT, 0, MPI_COMM_WORLD);
        expect(code != MPI_SUCCESS, "gather of one buffer", i);
        code = MPI_Bcast(NULL, 16, MPI_INT, 0, MPI_COMM_WORLD);
        expect(code != MPI_SUCCESS, "bcast of no buffer", i);
#endif
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Counts differ per rank, and send and receive buffers overlap: MPI gets the calls. Those with another
 * buffer run by plans. */
static void overlapping_buffers_are_left_to_mpi(void) {
    int counts[64], places[64], other[64];
    for (int i = 0; i < 64; i++) counts[i] = 2, places[i] = 2 * i;
    for (int i = 0; i < 2 * TIMES; i++) {
        int buf[200], n_blocks = 2 * size, right = 1;
#ifndef OPEN_MPI /* which accepts these */
        if (rank == 0 && i % 2 == 0) {
            int code = MPI_Gatherv(buf, 2, MPI_INT, buf, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
            expect(code != MPI_SUCCESS, "gatherv of the own block", i);
            code = MPI_Scatterv(buf, counts, places, MPI_INT, buf, 2, MPI_INT, 0, MPI_COMM_WORLD);
            expect(code != MPI_SUCCESS, "scatterv of the own block", i);
            code = MPI_Reduce_scatter(buf, buf, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            expect(code != MPI_SUCCESS, "reduce_scatter of one buffer", i);
        }
#endif
        for (int j = 0; j < 200; j++) buf[j] = 100 * rank + i;
        /* Only the last rank's buffers overlap. Own blocks do not, as MPICH copies them by memcpy. */
        int *to = rank == size - 1 ? buf : other;
        MPI_Allgatherv(buf, 2, MPI_INT, to, counts, places, MPI_INT, MPI_COMM_WORLD);
        for (int j = 0; j < n_blocks && to == other; j++) right &= to[j] == j / 2 * 100 + i;
        MPI_Alltoallv(buf + 20, counts, places, MPI_INT, buf + 18 + n_blocks, counts, places,
                      MPI_INT, MPI_COMM_WORLD);
        right &= buf[18 + n_blocks] == i;
        MPI_Reduce_scatter(buf + 100, other, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        right &= other[1] == 50 * size * (size - 1) + size * i;
        expect(right, "a call with counts", i);
    }
}

/* The root makes a wrong call before each of the first right ones. */
static void a_call_may_be_made_again(MPI_Datatype uncommitted) {
    for (int i = 0; i < 2 * TIMES; i++) {
        int in[2] = {i, 2 * i}, out[2] = {0, 0}, code = MPI_SUCCESS;
        if (rank == 0 && i < TIMES) {
            code = MPI_Reduce(in, out, 1, uncommitted, MPI_SUM, 0, MPI_COMM_WORLD);
            expect(code != MPI_SUCCESS, "reduce of an uncommitted datatype", i);
#ifndef OPEN_MPI
            code = MPI_Reduce(in, in, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
            expect(code != MPI_SUCCESS, "reduce of one buffer", i);
#endif
        }
        MPI_Reduce(in, out, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
        expect(rank != 0 || (out[0] == size * i && out[1] == 2 * size * i), "reduce", i);
    }
}

/* Calls by handles of datatypes that were freed, by other operations, in place, and of no buffer. */
static void calls_that_differ_little_work(void) {
    for (int i = 0; i < 4 * TIMES; i++) {
        int n = 2 + i % 2, in[3] = {rank, i, 2 * i}, out[3 * 64] = {0}, sum = rank, most = -1;
        MPI_Datatype type;
        MPI_Type_contiguous(n, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Allgather(in, 1, type, out, 1, type, MPI_COMM_WORLD);
        expect(out[(size - 1) * n] == size - 1 && out[size * n - 1] == (n - 1) * i, "allgather", i);
        MPI_Type_free(&type);
        MPI_Scan(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Scan(&rank, &most, 1, MPI_INT, i % 3 ? MPI_MAX : MPI_MIN, MPI_COMM_WORLD);
        expect(sum == rank * (rank + 1) / 2 && most == (i % 3 ? rank : 0), "scan", i);
        MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
        expect(out[size - 1] == (rank == 0 ? size - 1 : rank == 1 ? i : 2 * i), "alltoall", i);
#ifndef OPEN_MPI
        int code = MPI_Alltoall(NULL, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
        expect(class_of(code) == MPI_ERR_BUFFER, "alltoall of no buffer", i);
#endif
    }
}

static void many_communicators_work(void) {
    MPI_Comm comms[80];
    for (int i = 0; i < 80; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        for (int j = 0; j < 4; j++) {
            int in = i + rank, out = -1;
            MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comms[i]);
            expect(out == size * i + size * (size - 1) / 2, "allreduce of a communicator", i);
        }
    }
    for (int i = 0; i < 80; i++) MPI_Comm_free(&comms[i]);
}

static void many_signatures_work(void) {
    int buf[141];
    for (int i = 0; i < 12; i++)
        for (int n = 102; n <= 141; n++) {
            for (int j = 0; j < n; j++) buf[j] = rank == 1 ? i + j : -1;
            MPI_Bcast(buf, n, MPI_INT, 1, MPI_COMM_WORLD);
            expect(buf[0] == i && buf[n - 1] == i + n - 1, "bcast", n);
        }
}

int main(int argc, char **argv) {
    MPI_Datatype uncommitted;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Type_contiguous(2, MPI_INT, &uncommitted);
    errors_are_the_same_in_all_calls(uncommitted);
    calls_of_one_rank_return(uncommitted);
    a_call_may_be_made_again(uncommitted);
    overlapping_buffers_are_left_to_mpi();
    calls_that_differ_little_work();
    many_communicators_work();
    many_signatures_work();
    int all = 0;
    MPI_Reduce(&n_wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", all);
    MPI_Finalize();
    return 0;
}
