/* Calls allreduces of new sizes and of a known one, and checks the results.
 *
 * lasting N: N new sizes with five calls each, so that plans are made all the time, on the world and on
 * half of it, and five calls of a known size between them. Prints "passed" if all results are right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int n_wrong;

static void call(int count, MPI_Comm comm) {
    static double sent[4096], received[4096];
    int size;
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < count; i++) sent[i] = i, received[i] = -1;
    MPI_Allreduce(sent, received, count, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < count; i++) n_wrong += received[i] != (double)i * size;
}

int main(int argc, char **argv) {
    int rank, all_wrong = 0, n = argc > 1 ? atoi(argv[1]) : 50;
    MPI_Comm half;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < 5; j++) {
            call(1000 + i, MPI_COMM_WORLD);
            call(100 + i, half);
            call(500, MPI_COMM_WORLD);
        }
        usleep(10000);
    }
    MPI_Allreduce(&n_wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf(all_wrong == 0 ? "passed\n" : "%d wrong\n", all_wrong);
    MPI_Finalize();
    return all_wrong != 0;
}
