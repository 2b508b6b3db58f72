/* Makes each call again until MPI does not reject its count: as many reductions as the argument says. Prints
 * the numbers of wrong results and of rejected calls on rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, n_wrong = 0, n_rejected = 0, n_calls = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < n_calls; i++) {
        int in = rank + i, out = -1;
        while (MPI_Reduce(&in, &out, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD) == MPI_ERR_COUNT)
            n_rejected++;
        n_wrong += rank == 0 && out != size * i + size * (size - 1) / 2;
    }
    if (rank == 0) printf("%d wrong, %d rejected\n", n_wrong, n_rejected);
    MPI_Finalize();
    return n_wrong != 0;
}
