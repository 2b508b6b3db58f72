/* Times of intercepted calls beside those of PMPI: batches of both in turns, in ns per call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 1000
#define ROUNDS 301

static double a[16], b[16];
static MPI_Op own;

static void add(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((double *)inout)[i] += ((double *)in)[i];
}

static int compare(const void *one, const void *other) {
    double x = *(const double *)one, y = *(const double *)other;
    return (x > y) - (x < y);
}

#define MEASURE(what, CALL) \
    do { \
        static double ours[ROUNDS], theirs[ROUNDS]; \
        for (int i = 0; i < 10; i++) CALL(MPI_); \
        for (int round = 0; round < ROUNDS; round++) { \
            double begin = MPI_Wtime(); \
            for (int i = 0; i < BATCH; i++) CALL(MPI_); \
            double middle = MPI_Wtime(); \
            for (int i = 0; i < BATCH; i++) CALL(PMPI_); \
            ours[round] = (middle - begin) / BATCH * 1e9; \
            theirs[round] = (MPI_Wtime() - middle) / BATCH * 1e9; \
        } \
        qsort(ours, ROUNDS, sizeof *ours, compare); \
        qsort(theirs, ROUNDS, sizeof *theirs, compare); \
        printf("%s\t%.0f\t%.0f\t%.0f\t%.0f\n", what, ours[0], ours[ROUNDS / 2], theirs[0], \
               theirs[ROUNDS / 2]); \
    } while (0)

int main(int argc, char **argv) {
    int rank;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Op_create(add, 1, &own);
#define A(F) F##Allreduce(a, b, 16, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD)
#define I(F) F##Allreduce(MPI_IN_PLACE, b, 16, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD)
#define G(F) F##Allgather(a, 16, MPI_DOUBLE, b, 16, MPI_DOUBLE, MPI_COMM_WORLD)
#define B(F) F##Bcast(a, 16, MPI_DOUBLE, 0, MPI_COMM_WORLD)
#define U(F) F##Allreduce(a, b, 16, MPI_DOUBLE, own, MPI_COMM_WORLD)
#define S(F) F##Scan(a, b, 16, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD)
#define W(F) \
    (F##Iallreduce(a, b, 16, MPI_DOUBLE, own, MPI_COMM_WORLD, &request), \
     F##Wait(&request, MPI_STATUS_IGNORE))
#define J(F) (F##Iscan(a, b, 16, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request), \
              F##Wait(&request, MPI_STATUS_IGNORE))
#define P(F) \
    (F##Irecv(a, 16, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, &request), \
     F##Send(b, 16, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD), F##Wait(&request, MPI_STATUS_IGNORE))
#define N(F) (F##Iallreduce(a, b, 16, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request), \
              F##Wait(&request, MPI_STATUS_IGNORE))
    MEASURE("native iallreduce by an own operation, and wait", W);
    MEASURE("native iscan without a sweep, and wait", J);
    MEASURE("message to oneself, and wait", P);
    MEASURE("planned allreduce", A);
    MEASURE("planned allreduce in place", I);
    MEASURE("planned allgather", G);
    MEASURE("planned bcast", B);
    MEASURE("native allreduce by an own operation", U);
    MEASURE("native scan without a sweep", S);
    MEASURE("planned iallreduce, and wait", N);
    MPI_Finalize();
    return 0;
}
