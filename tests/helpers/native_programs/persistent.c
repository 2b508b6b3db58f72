/* Makes persistent collectives, starts each several times, and prints how many results were wrong.
 *
 * persistent [plain]: ranks start them in different orders, together with persistent messages, and end
 * them by several functions. A datatype is freed as soon as the requests are made. With the word, all
 * is in order, as native calls of some libraries fail otherwise. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define COUNT 100
#define STARTS 5
#define N 5

int main(int argc, char **argv) {
    static double sent[COUNT], sums[COUNT], told[COUNT];
    static short columns[2 * COUNT], gathered[2 * COUNT * 8];
    int rank, size, wrong = 0, all_wrong, left = -1, places[N], n_done;
    MPI_Request requests[N], turned[N];
    MPI_Comm comm;
    MPI_Datatype column;
    int is_plain = argc > 1 && strcmp(argv[1], "plain") == 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_vector(COUNT, 1, 2, MPI_SHORT, &column);
    MPI_Type_create_resized(column, 0, 2 * COUNT * sizeof(short), &column);
    MPI_Type_commit(&column);
    MPI_Allreduce_init(sent, sums, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &requests[0]);
    MPI_Bcast_init(told, COUNT, MPI_DOUBLE, size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Allgather_init(columns, 1, column, gathered, 1, column, comm, MPI_INFO_NULL, &requests[2]);
    MPI_Send_init(&rank, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD, &requests[3]);
    MPI_Recv_init(&left, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, &requests[4]);
    if (!is_plain) MPI_Type_free(&column);
    for (int turn = 0; turn < STARTS; turn++) {
        for (int i = 0; i < COUNT; i++) {
            sent[i] = rank + i + turn;
            told[i] = rank + 2 * i - turn;
            columns[2 * i] = (short)(rank + i + turn);
        }
        memset(gathered, 0, sizeof gathered);
        for (int i = 0; i < N; i++) turned[i] = requests[rank % 2 && !is_plain ? N - 1 - i : i];
        if (turn % 2) {
            MPI_Startall(N, turned);
        } else {
            for (int i = 0; i < N; i++) MPI_Start(&turned[i]);
        }
        if (turn < 3 || is_plain) {
            MPI_Waitall(N, turned, MPI_STATUSES_IGNORE);
        } else {
            for (int left_over = N; left_over > 0; left_over -= n_done)
                MPI_Waitsome(N, turned, &n_done, places, MPI_STATUSES_IGNORE);
        }
        for (int i = 0; i < COUNT; i++) {
            wrong += sums[i] != size * (size - 1) / 2 + size * (i + turn);
            wrong += told[i] != size - 1 + 2 * i - turn;
        }
        for (int i = 0; i < COUNT * size; i++)
            wrong += gathered[2 * i] != i / COUNT + i % COUNT + turn || gathered[2 * i + 1] != 0;
        wrong += left != (rank + size - 1) % size;
    }
    for (int i = 0; i < N; i++) MPI_Request_free(&requests[i]);
    if (is_plain) MPI_Type_free(&column);
    MPI_Comm_free(&comm);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d starts, %d wrong\n", 3 * STARTS, all_wrong);
    MPI_Finalize();
    return all_wrong != 0;
}
