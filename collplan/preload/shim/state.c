/* State of this process between MPI_Init and MPI_Finalize. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

struct cp_settings cp_settings;

/* Return whether this process is rank 0, also if MPI is not, or is another library than ours. */
static bool is_first(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank != NULL && rank[0] >= '0' && rank[0] <= '9') return atoi(rank) == 0;
    }
    return cp_settings.world_rank == 0;
}

void cp_say(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "collplan: %s\n", text);
}

/* Say on rank 0 why this library does nothing. It fails as a whole in no other way. */
static void stay_native(const char *why) {
    if (is_first()) cp_say("%s; all collectives are native", why);
}

bool cp_needs_threads(void) {
    const char *given = getenv("COLLPLAN_PRELOAD_THREADS");
    return given != NULL && strcmp(given, "1") == 0 && cp_resolve() == NULL;
}

static bool is_prepared, has_begun;

void cp_prepare(void) {
    if (getenv("COLLPLAN_PRELOAD_HELPER") == NULL || is_prepared) return;
    is_prepared = true;
    const char *why = cp_resolve();
    if (why == NULL) cp_publish();
    else stay_native(why); /* MPI_Init may end the job, if the launcher is of another MPI */
}

void cp_begin(void) {
    if (getenv("COLLPLAN_PRELOAD_HELPER") == NULL || has_begun) return;
    has_begun = true;
    const char *expected = getenv("COLLPLAN_EXPECTED_RANKS");
    char text[512];
    if (cp_resolve() != NULL) return;
    cp_real.Comm_rank(cp_COMM_WORLD, &cp_settings.world_rank);
    cp_real.Comm_size(cp_COMM_WORLD, &cp_settings.world_size);
    if (expected != NULL && atoi(expected) != cp_settings.world_size) {
        snprintf(text, sizeof text,
                 "the MPI world has %d ranks where %s were started: the program's MPI is not that "
                 "of the mpiexec", cp_settings.world_size, expected);
        stay_native(text);
        return;
    }
    int missing = cp_missing_rank(cp_settings.world_rank, cp_settings.world_size);
    if (missing < cp_settings.world_size) {
        snprintf(text, sizeof text, "rank %d runs without the preloaded library", missing);
        stay_native(text);
        return;
    }
    if (cp_found(&cp_world, cp_COMM_WORLD, text, sizeof text)) {
        cp_watch_begin();
    } else {
        stay_native(text);
        cp_helper_stop();
    }
}

/* Say that the program has looked up collectives by itself, if no call was seen. */
static void say_unseen(void) {
    const char *name = getenv("COLLPLAN_LOOKED_UP");
    if (name != NULL && cp_settings.world_rank == 0 && (cp_is_watched || cp_world.is_logged) &&
        cp_n_watched() == 0 && !cp_has_rows(&cp_world))
        cp_say("no collective was seen, but the program looks up %s by itself: calls of compiled code are "
               "native and not counted", name);
}

void cp_end(void) {
    if (!cp_settings.is_on) return;
    say_unseen();
    cp_watch_end();
    bool has_landed = cp_land();
    if (!has_landed)
        cp_say("rank %d: non-blocking collectives have not ended before MPI_Finalize",
               cp_settings.world_rank);
    cp_settings.is_on = false;
    if (cp_world.is_logged && cp_settings.world_rank == 0) cp_report(&cp_world);
    if (has_landed) cp_free_all();
    cp_helper_stop();
}

/* Say once that no call was seen: the program looks up the functions of MPI by itself. */
__attribute__((destructor)) static void leave(void) {
    int is_initialized = 0;
    if (has_begun || getenv("COLLPLAN_PRELOAD_HELPER") == NULL) return;
    int (*initialized)(int *) = (int (*)(int *))cp_next("PMPI_Initialized");
    if (initialized != NULL && initialized(&is_initialized) == MPI_SUCCESS && is_initialized)
        stay_native("the program has initialized MPI, but not through a MPI_Init that was seen");
}
