/* Calls collectives with large counts, and prints how many results were wrong. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    double sent[3], sums[3], all[300];
    MPI_Count counts[100];
    MPI_Aint places[100];
    int rank, size, wrong = 0, all_wrong;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < size; i++) counts[i] = 3, places[i] = 3 * i;
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < 3; i++) sent[i] = rank + i + turn;
        MPI_Allreduce_c(sent, sums, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < 3; i++) wrong += sums[i] != size * (size - 1) / 2 + size * (i + turn);
        MPI_Gather_c(sent, 3, MPI_DOUBLE, all, 3, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
        for (int i = 0; rank == size - 1 && i < 3 * size; i++)
            wrong += all[i] != i / 3 + i % 3 + turn;
        MPI_Allgatherv_c(sent, 3, MPI_DOUBLE, all, counts, places, MPI_DOUBLE, MPI_COMM_WORLD);
        for (int i = 0; i < 3 * size; i++) wrong += all[i] != i / 3 + i % 3 + turn;
    }
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", all_wrong);
    MPI_Finalize();
    return 0;
}
