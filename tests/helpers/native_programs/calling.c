/* Calls an allreduce for as long as its argument says, then ends as that says.
 *
 * calling N: N calls, then the sum is printed. calling abort|kill|leave: rank 1 ends the job.
 * calling wait: rank 0 says that it is running, waits for a line of input, and goes on with
 * messages of other sizes. A further argument makes it ignore the ends of its children. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double sent[4000], received[4000];

static double call(int count) {
    for (int i = 0; i < count; i++) sent[i] = i + 1;
    MPI_Allreduce(sent, received, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return received[count - 1];
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "10";
    int rank, n = atoi(what), provided;
    double total = 0;
    if (argc > 2) signal(SIGCHLD, SIG_IGN);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < n; i++) total += call(1000);
    if (n == 0) {
        for (int i = 0; i < 50; i++) total += call(1000);
        if (rank == 1 && strcmp(what, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
        if (rank == 1 && strcmp(what, "kill") == 0) kill(getpid(), SIGKILL);
        if (rank == 1 && strcmp(what, "leave") == 0) _exit(3);
        if (strcmp(what, "wait") == 0) {
            if (rank == 0) {
                printf("running %d\n", (int)getpid());
                fflush(stdout);
                if (getchar() == EOF) fprintf(stderr, "no input\n");
            }
            MPI_Barrier(MPI_COMM_WORLD);
            for (int i = 0; i < 10; i++) total += call(2000) + call(1000);
        } else {
            for (;;) total += call(1000);
        }
    }
    if (rank == 0) printf("total %.1f\n", total);
    MPI_Finalize();
    return 0;
}
