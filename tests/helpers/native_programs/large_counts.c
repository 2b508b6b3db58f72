/* Calls collectives with large counts, and prints how many results were wrong. */
#include <mpi.h>
#include <stdio.h>

#define LARGE ((MPI_Count)3000000000)

int main(int argc, char **argv) {
    double sent[3], sums[3], all[300], blocks[300], part[3];
    MPI_Count counts[100];
    MPI_Aint places[100];
    MPI_Datatype empty;
    MPI_Request request;
    int rank, size, wrong = 0, all_wrong;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_contiguous(0, MPI_DOUBLE, &empty);
    MPI_Type_commit(&empty);
    for (int i = 0; i < size; i++) counts[i] = 3, places[i] = 3 * i;
    MPI_Allreduce_init_c(sent, sums, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < 3; i++) sent[i] = rank + i + turn;
        for (int form = 0; form < 2; form++) {
            for (int i = 0; i < 3; i++) sums[i] = -1;
            if (form == 0) {
                MPI_Allreduce_c(sent, sums, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            } else {
                MPI_Start(&request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            }
            for (int i = 0; i < 3; i++) wrong += sums[i] != size * (size - 1) / 2 + size * (i + turn);
        }
        MPI_Gather_c(sent, 3, MPI_DOUBLE, all, 3, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
        for (int i = 0; rank == size - 1 && i < 3 * size; i++)
            wrong += all[i] != i / 3 + i % 3 + turn;
        MPI_Allgatherv_c(sent, 3, MPI_DOUBLE, all, counts, places, MPI_DOUBLE, MPI_COMM_WORLD);
        for (int i = 0; i < 3 * size; i++) wrong += all[i] != i / 3 + i % 3 + turn;
        MPI_Alltoallv_c(all, counts, places, MPI_DOUBLE, blocks, counts, places, MPI_DOUBLE,
                        MPI_COMM_WORLD);
        for (int i = 0; i < 3 * size; i++) wrong += blocks[i] != rank + i % 3 + turn;
        MPI_Reduce_scatter_c(all, part, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < 3; i++) wrong += part[i] != size * (rank + i + turn);
        MPI_Scatterv_c(all, counts, places, MPI_DOUBLE, part, 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        for (int i = 0; i < 3; i++) wrong += part[i] != rank + i + turn;
        /* The root alone has a count that no int has; its elements are empty. */
        counts[0] = turn % 2 ? 0 : 3;
        if (turn % 2 && rank == 0)
            MPI_Gatherv_c(sent, LARGE, empty, blocks, counts, places, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        else
            MPI_Gatherv_c(sent, 3, MPI_DOUBLE, blocks, counts, places, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        for (int i = 3 * (turn % 2); rank == 0 && i < 3 * size; i++)
            wrong += blocks[i] != i / 3 + i % 3 + turn;
        counts[0] = 3;
    }
    MPI_Request_free(&request);
    MPI_Type_free(&empty);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", all_wrong);
    MPI_Finalize();
    return 0;
}
