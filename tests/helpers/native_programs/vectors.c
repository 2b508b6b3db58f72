/* Calls whose counts differ per rank: rank 0 sends 1 double by Gatherv, 2 by Scatterv, 3 by
 * Allgatherv, and 4 by Alltoallv, which run three times. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *counts = malloc(4 * sizeof(int) * (size_t)size), *places = counts + size;
    int *ones = places + size, *fours = ones + size;
    double *sent = calloc((size_t)(8 * size), sizeof(double));
    double *received = calloc((size_t)(8 * size), sizeof(double));
    for (int i = 0; i < size; i++) {
        places[i] = 8 * i;
        ones[i] = i == 0 ? 1 : 2;
        fours[i] = 0;
    }
    for (int turn = 0; turn < 3; turn++) {
        MPI_Gatherv(sent, ones[rank], MPI_DOUBLE, received, ones, places, MPI_DOUBLE, 0,
                    MPI_COMM_WORLD);
        for (int i = 0; i < size; i++) counts[i] = 2 + i;
        MPI_Scatterv(sent, counts, places, MPI_DOUBLE, received, counts[rank], MPI_DOUBLE, 0,
                     MPI_COMM_WORLD);
        for (int i = 0; i < size; i++) counts[i] = 3 - (i > 0);
        MPI_Allgatherv(sent, counts[rank], MPI_DOUBLE, received, counts, places, MPI_DOUBLE,
                       MPI_COMM_WORLD);
        fours[rank] = 4 - rank; /* only to itself */
        MPI_Alltoallv(sent, fours, places, MPI_DOUBLE, received, fours, places, MPI_DOUBLE,
                      MPI_COMM_WORLD);
    }
    if (rank == 0) printf("passed\n");
    MPI_Finalize();
    return 0;
}
