/* Calls on a Cartesian communicator that leaves out the last rank. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Comm grid;
    int size, n_right = 0, period = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size--;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &period, 0, &grid);
    for (int i = 0; i < 6 && grid != MPI_COMM_NULL; i++) {
        int rank, sum, sums[2];
        MPI_Request request;
        MPI_Comm_rank(grid, &rank);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, grid);
        int pair[2] = {rank + i, 1};
        MPI_Iallreduce(pair, sums, 2, MPI_INT, MPI_SUM, grid, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        n_right += sum == size * (size - 1) / 2 && sums[0] == sum + size * i && sums[1] == size;
    }
    if (n_right) printf("%d of 6 right\n", n_right);
    MPI_Finalize();
    return 0;
}
