/* The times of all blocking calls of this rank, which are written to a file when the program ends. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

#define CHUNK 8192
#define MOST_CHUNKS 256 /* two million calls; further ones are only counted */

bool cp_is_traced;
static const char *folder;
static struct cp_traced *chunks[MOST_CHUNKS];
static int64_t n_traced;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool cp_trace_begin(void) {
    folder = getenv("COLLPLAN_TRACE");
    cp_is_traced = folder != NULL && folder[0] != '\0';
    return cp_is_traced;
}

struct cp_traced *cp_trace(void) {
    int64_t number = __atomic_fetch_add(&n_traced, 1, __ATOMIC_RELAXED), chunk = number / CHUNK;
    if (chunk >= MOST_CHUNKS) return NULL;
    if (__atomic_load_n(&chunks[chunk], __ATOMIC_ACQUIRE) == NULL) {
        pthread_mutex_lock(&lock);
        if (chunks[chunk] == NULL)
            __atomic_store_n(&chunks[chunk], calloc(CHUNK, sizeof **chunks), __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
    }
    return chunks[chunk] != NULL ? &chunks[chunk][number % CHUNK] : NULL;
}

/* Copy the list of the files that this process has mapped, by which call sites are found. */
static void copy_mappings(int rank) {
    char path[4096], bytes[4096];
    size_t n;
    snprintf(path, sizeof path, "%s/%d.maps", folder, rank);
    FILE *from = fopen("/proc/self/maps", "r"), *to = fopen(path, "w");
    if (from != NULL && to != NULL)
        while ((n = fread(bytes, 1, sizeof bytes, from)) > 0) fwrite(bytes, 1, n, to);
    if (from != NULL) fclose(from);
    if (to != NULL) fclose(to);
}

/* Copy the processors that this thread may use, as the system lists them. */
static void copy_processors(char *text, size_t n_bytes) {
    static const char field[] = "Cpus_allowed_list:";
    char line[4096];
    FILE *file = fopen("/proc/thread-self/status", "r");
    text[0] = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, field, sizeof field - 1) == 0)
            snprintf(text, n_bytes, "%s", line + sizeof field - 1 + strspn(line + sizeof field - 1, " \t"));
    if (file != NULL) fclose(file);
    text[strcspn(text, "\n")] = '\0';
}

void cp_trace_end(int rank) {
    char path[4096], host[256] = "", processors[4096];
    if (!cp_is_traced) return;
    cp_is_traced = false;
    copy_mappings(rank);
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/%d.calls", folder, rank);
    FILE *file = fopen(path, "w");
    if (file == NULL) return; /* the command that reads the files says that they are missing */
    copy_processors(processors, sizeof processors);
    fprintf(file, "%s\t%" PRId64 "\t%s\n", host, n_traced, processors);
    for (int64_t i = 0; i < n_traced && i < (int64_t)CHUNK * MOST_CHUNKS; i++) {
        const struct cp_traced *one = chunks[i / CHUNK] ? &chunks[i / CHUNK][i % CHUNK] : NULL;
        if (one == NULL || one->leave_ns == 0) continue;
        fprintf(file, "%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%s\t%" PRId64 "\t%" PRId64 "\t",
                one->key, one->size, one->member, one->order, one->name, one->root, one->n_bytes);
        if (one->place != NULL) fprintf(file, "%s", one->place);
        else fprintf(file, "%" PRId64, one->site);
        fprintf(file, "\t%" PRId64 "\t%" PRId64 "\n", one->enter_ns, one->leave_ns);
    }
    fclose(file);
}
