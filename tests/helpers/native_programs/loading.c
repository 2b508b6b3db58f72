/* Loads the MPI library that its argument names, as programs of other languages do. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 1;
    int (*init)(int *, char ***) = dlsym(library, "MPI_Init");
    int (*finalize)(void) = dlsym(library, "MPI_Finalize");
    init(&argc, &argv);
    printf("initialized\n");
    finalize();
    return 0;
}
