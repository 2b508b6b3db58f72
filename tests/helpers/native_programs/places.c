/* Prints the processors on which each rank may run, and those of the thread that advances its
 * non-blocking collectives. */
#define _GNU_SOURCE
#include <dirent.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_processors(const char *of, int thread, int rank) {
    cpu_set_t set;
    char text[4096] = "";
    if (sched_getaffinity(thread, sizeof set, &set) != 0) return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set)) sprintf(text + strlen(text), " %d", i);
    printf("%s of rank %d:%s\n", of, rank, text);
}

static void print_thread(int rank) {
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *one; threads != NULL && (one = readdir(threads)) != NULL;) {
        char path[300], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", one->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL) continue;
        if (fgets(name, sizeof name, file) != NULL && strcmp(name, "collplan\n") == 0)
            print_processors("thread", atoi(one->d_name), rank);
        fclose(file);
    }
    if (threads != NULL) closedir(threads);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 40; i++) {
        double sent[500] = {rank}, received[500];
        MPI_Request request;
        MPI_Iallreduce(sent, received, 500, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    print_processors("program", 0, rank);
    print_thread(rank);
    MPI_Finalize();
    return 0;
}
