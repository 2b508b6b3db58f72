/* Two threads with a communicator each, under MPI_THREAD_MULTIPLE; prints how many sums are wrong. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

#define N 500
static MPI_Comm comms[2];
static MPI_Datatype column;
static int n_wrong[2];

static void *work(void *argument) {
    int which = *(int *)argument, rank, size;
    static double sent[2][N], received[2][N];
    static short blocks[2][64], all[2][512];
    MPI_Comm_rank(comms[which], &rank);
    MPI_Comm_size(comms[which], &size);
    for (int turn = 0; turn < 300; turn++) {
        int count = turn % 3 == 0 ? N : 10;
        for (int i = 0; i < count; i++) sent[which][i] = rank + which + turn + i;
        MPI_Allreduce(sent[which], received[which], count, MPI_DOUBLE, MPI_SUM, comms[which]);
        for (int i = 0; i < count; i++)
            n_wrong[which] += received[which][i] !=
                              size * (which + turn + i) + size * (size - 1) / 2.0;
        for (int i = 0; i < 64; i++) blocks[which][i] = (short)(rank + i);
        MPI_Allgather(blocks[which], 1, column, all[which], 1, column, comms[which]);
        for (int i = 0; i < size; i++) n_wrong[which] += all[which][i * 5 + 4] != i + 4;
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided, rank, numbers[2] = {0, 1}, mine, total;
    pthread_t threads[2];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_vector(3, 1, 2, MPI_SHORT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 2; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    if (provided == MPI_THREAD_MULTIPLE) {
        for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &numbers[i]);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    }
    mine = n_wrong[0] + n_wrong[1];
    MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong, threads %d\n", total, provided == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < 2; i++) MPI_Comm_free(&comms[i]);
    MPI_Type_free(&column);
    MPI_Finalize();
    return total != 0;
}
