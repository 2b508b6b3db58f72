/* Three threads that make communicators, call collectives on them, and free them. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

static int n_right[3];

static void *work(void *argument) {
    int which = *(int *)argument;
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    for (int i = 0; i < 5; i++) {
        MPI_Comm comm;
        int rank, size, sum;
        MPI_Comm_create_group(MPI_COMM_WORLD, all, which, &comm);
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        for (int j = 0; j < 3; j++) {
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
            n_right[which] += sum == size * (size - 1) / 2;
        }
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&all);
    return NULL;
}

int main(int argc, char **argv) {
    int provided, rank, numbers[] = {0, 1, 2};
    pthread_t threads[3];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, &numbers[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    if (rank == 0) printf("%d of 45 right\n", n_right[0] + n_right[1] + n_right[2]);
    MPI_Finalize();
    return 0;
}
