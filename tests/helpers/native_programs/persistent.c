/* Makes persistent collectives, starts each several times, and prints how many results were wrong. */
#include <mpi.h>
#include <stdio.h>

#define COUNT 100
#define STARTS 5

int main(int argc, char **argv) {
    double sent[COUNT], sums[COUNT], told[COUNT];
    int rank, size, wrong = 0, all_wrong;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce_init(sent, sums, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &requests[0]);
    MPI_Bcast_init(told, COUNT, MPI_DOUBLE, size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    for (int turn = 0; turn < STARTS; turn++) {
        for (int i = 0; i < COUNT; i++) {
            sent[i] = rank + i + turn;
            told[i] = rank + 2 * i - turn;
        }
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < COUNT; i++) {
            wrong += sums[i] != size * (size - 1) / 2 + size * (i + turn);
            wrong += told[i] != size - 1 + 2 * i - turn;
        }
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d starts, %d wrong\n", 2 * STARTS, all_wrong);
    MPI_Finalize();
    return 0;
}
