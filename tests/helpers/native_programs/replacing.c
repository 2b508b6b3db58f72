/* Calls allreduces of as many sizes as its first argument says, each as often as its second argument
 * says, then those of the smallest two sizes once more. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int sent[1000], received[1000], n_ranks, n_wrong;

static void call(int count) {
    for (int i = 0; i < count; i++) sent[i] = count + i;
    MPI_Allreduce(sent, received, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) n_wrong += received[i] != n_ranks * (count + i);
}

int main(int argc, char **argv) {
    int rank, n_sizes = atoi(argv[1]), n_calls = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    for (int turn = 0; turn < n_calls; turn++)
        for (int count = 1; count <= n_sizes; count++) call(count);
    call(1);
    call(2);
    if (rank == 0) printf("%d wrong\n", n_wrong);
    MPI_Finalize();
    return n_wrong != 0;
}
