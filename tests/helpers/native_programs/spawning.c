/* Equal calls on a communicator with processes of another world. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Comm parent, inter, all;
    int rank, size, n_right = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    inter = parent;
    if (parent == MPI_COMM_NULL)
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                       MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(inter, parent != MPI_COMM_NULL, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    for (int i = 0; i < 6; i++) {
        int in = rank + i, counts[8] = {1, 1, 1, 1, 1, 1, 1, 1}, places[8], sum, ranks[8];
        for (int j = 0; j < 8; j++) places[j] = j;
        MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, all);
        MPI_Allgatherv(&in, 1, MPI_INT, ranks, counts, places, MPI_INT, all);
        n_right += sum == size * (size - 1) / 2 + size * i && ranks[size - 1] == size - 1 + i;
    }
    if (rank == 0) printf("%d of 6 right\n", n_right);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&inter);
    MPI_Finalize();
    return 0;
}
