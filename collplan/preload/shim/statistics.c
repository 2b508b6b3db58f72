/* Rows of calls that ran by the same plan, or natively, for the same reason. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int64_t cp_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Return the class of a size. Sizes of a class share a row: those with equal numbers of bits, unless
 * each size has a row, as in trials. The helper can merge rows, but cannot split them. */
static int64_t class_of(const struct cp_family *family, int64_t n_bytes, const char *why) {
    int64_t n_bits = 0;
    if (family->is_by_size || strcmp(why, CP_TRIED) == 0) return n_bytes;
    for (; n_bytes > 0; n_bytes >>= 1) n_bits++;
    return n_bits;
}

static unsigned chain_of(const char *collective, const char *ran, const char *why, int64_t ranks,
                         int64_t size_class) {
    unsigned found = (unsigned)ranks + 1009 * (unsigned)size_class;
    for (; *collective; collective++) found = found * 31 + (unsigned char)*collective;
    for (; *ran; ran++) found = found * 31 + (unsigned char)*ran;
    for (; *why; why++) found = found * 31 + (unsigned char)*why;
    return found % CP_N_CHAINS;
}

struct cp_row *cp_row(struct cp_family *family, const char *collective, const char *ran,
                      const char *why, int64_t ranks, int64_t n_bytes, bool planned,
                      double native_s, double chosen_s) {
    static struct cp_row lost;
    int64_t size_class = class_of(family, n_bytes, why);
    unsigned chain = chain_of(collective, ran, why, ranks, size_class);
    pthread_mutex_lock(&lock);
    struct cp_row *row = family->chains[chain];
    while (row != NULL && (row->ranks != ranks || strcmp(row->collective, collective) != 0 ||
                           strcmp(row->ran, ran) != 0 || strcmp(row->why, why) != 0 ||
                           class_of(family, row->first_bytes, why) != size_class))
        row = row->next;
    if (row == NULL && (row = calloc(1, sizeof *row)) != NULL) {
        row->collective = strdup(collective);
        row->ran = strdup(ran);
        row->why = strdup(why);
        row->ranks = ranks;
        row->first_bytes = row->least_bytes = row->most_bytes = n_bytes;
        row->planned = planned;
        row->native_s = native_s;
        row->chosen_s = chosen_s;
        row->next = family->chains[chain];
        if (row->collective != NULL && row->ran != NULL && row->why != NULL) family->chains[chain] = row;
        else row = NULL;
    }
    pthread_mutex_unlock(&lock);
    return row != NULL ? row : &lost;
}

void cp_count(struct cp_row *row, int64_t n_bytes, int64_t ns) {
    /* Several threads may count in one row. Only the number and the time of calls must be exact. */
    __atomic_fetch_add(&row->calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&row->ns, ns, __ATOMIC_RELAXED);
    if (n_bytes < row->least_bytes) row->least_bytes = n_bytes;
    if (n_bytes > row->most_bytes) row->most_bytes = n_bytes;
}

bool cp_has_rows(const struct cp_family *family) {
    bool found = false;
    for (int chain = 0; chain < CP_N_CHAINS; chain++) found = found || family->chains[chain] != NULL;
    return found;
}

char *cp_write_rows(const struct cp_family *family, size_t *n_bytes) {
    char *text = NULL;
    FILE *stream = open_memstream(&text, n_bytes);
    if (stream == NULL) return NULL;
    fprintf(stream, "%lld\n", (long long)family->making_ns);
    for (int chain = 0; chain < CP_N_CHAINS; chain++)
        for (const struct cp_row *row = family->chains[chain]; row != NULL; row = row->next) {
            if (row->calls == 0) continue;
            fprintf(stream, "%s\t%s\t%s\t%lld\t%d\t%.17g\t%.17g\t%lld\t%lld\t%lld\t%lld\n",
                    row->collective, row->ran, row->why, (long long)row->ranks, row->planned,
                    row->native_s, row->chosen_s, (long long)row->least_bytes,
                    (long long)row->most_bytes, (long long)row->calls, (long long)row->ns);
        }
    fclose(stream);
    return text;
}

void cp_report(struct cp_family *family) {
    size_t n_bytes = 0;
    long long n_planned = 0, n_native = 0;
    char *text = cp_write_rows(family, &n_bytes);
    if (text == NULL) return;
    for (int chain = 0; chain < CP_N_CHAINS; chain++)
        for (const struct cp_row *row = family->chains[chain]; row != NULL; row = row->next)
            *(row->planned ? &n_planned : &n_native) += row->calls;
    struct cp_reply reply = cp_ask(family, CP_STATISTICS, text, (int64_t)n_bytes);
    if (reply.status == 0) fwrite(reply.bytes, 1, (size_t)reply.n_bytes, stderr);
    else
        cp_say("rank 0: %lld collectives by plans, %lld native; further statistics are lost: %s",
               n_planned, n_native, reply.bytes != NULL ? reply.bytes : "there is no memory");
    free(reply.bytes);
    free(text);
}
