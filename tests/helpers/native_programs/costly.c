/* Programs whose collectives take time for one cause each, whose name is the argument. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 65536

static double values[N], sums[N];
static int rank, size;

static void compute(double seconds) {
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end) continue;
}

/* The last rank always comes late. */
static void late_rank(void) {
    for (int turn = 0; turn < 20; turn++) {
        usleep(rank == size - 1 ? 30000 : 10000);
        MPI_Allreduce(values, sums, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void many_small(void) {
    for (int turn = 0; turn < 50; turn++) {
        compute(0.001);
        for (int i = 0; i < 200; i++)
            MPI_Allreduce(&values[i], &sums[i], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

/* Each rank broadcasts its part; the parts do not depend on each other. */
static void serialized(void) {
    for (int turn = 0; turn < 100; turn++) {
        for (int root = 0; root < size; root++)
            MPI_Bcast(values, N / 2, MPI_DOUBLE, root, MPI_COMM_WORLD);
        compute(0.005);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && strcmp(argv[1], "late_rank") == 0) late_rank();
    if (argc > 1 && strcmp(argv[1], "many_small") == 0) many_small();
    if (argc > 1 && strcmp(argv[1], "serialized") == 0) serialized();
    MPI_Finalize();
    return 0;
}
