/* Counts the readings of the clock in 1000 small calls, natively and as the library runs them. */
#include <mpi.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALLS 1000

static long n_readings;

/* The definition of the program comes before that of the system, also for libraries. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    n_readings++;
    return (int)syscall(SYS_clock_gettime, clock, now);
}

int main(int argc, char **argv) {
    double in = 1, out = 0;
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 10; i++) MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    long before = n_readings;
    for (int i = 0; i < CALLS; i++)
        PMPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    long between = n_readings;
    for (int i = 0; i < CALLS; i++)
        MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    printf("%ld\n", (n_readings - between - (between - before)) / CALLS);
    MPI_Finalize();
    return 0;
}
