/* Times of calls that move nothing, beside those of PMPI: batches of both in turns, in ns per call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH 1000
#define ROUNDS 501

static int compare(const void *one, const void *other) {
    double x = *(const double *)one, y = *(const double *)other;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double ours[ROUNDS], theirs[ROUNDS];
    MPI_Comm comms[2];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    for (int n_comms = 1; n_comms <= 2; n_comms++) {
        for (int round = 0; round < ROUNDS; round++) {
            double begin = MPI_Wtime();
            for (int i = 0; i < BATCH; i++) MPI_Bcast(ours, 0, MPI_DOUBLE, 0, comms[i % n_comms]);
            double middle = MPI_Wtime();
            for (int i = 0; i < BATCH; i++) PMPI_Bcast(ours, 0, MPI_DOUBLE, 0, comms[i % n_comms]);
            ours[round] = (middle - begin) / BATCH * 1e9;
            theirs[round] = (MPI_Wtime() - middle) / BATCH * 1e9;
        }
        qsort(ours, ROUNDS, sizeof *ours, compare);
        qsort(theirs, ROUNDS, sizeof *theirs, compare);
        if (rank == 0)
            printf("%d communicators\t%.1f\t%.1f\t%.1f\t%.1f\n", n_comms, ours[0],
                   ours[ROUNDS / 2], theirs[0], theirs[ROUNDS / 2]);
    }
    MPI_Finalize();
    return 0;
}
