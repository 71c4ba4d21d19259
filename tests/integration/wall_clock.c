/* A wall clock that is set twice while a program runs: by the seconds of WALL_CLOCK_SET_BY, once the
   monotonic clock has come to those of WALL_CLOCK_SET_AT. To be preloaded; waits of the kernel go on
   by the real one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static int (*real_gettime)(clockid_t, struct timespec *);
static double set_at[2] = {1e18, 1e18};
static long set_by[2];

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("WALL_CLOCK_SET_AT"), *by = getenv("WALL_CLOCK_SET_BY");
    real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (at && by) {
        sscanf(at, "%lf %lf", &set_at[0], &set_at[1]);
        sscanf(by, "%ld %ld", &set_by[0], &set_by[1]);
    }
}

static long shift(void) {
    struct timespec now;
    double seconds;
    real_gettime(CLOCK_MONOTONIC, &now);
    seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    return (seconds > set_at[0] ? set_by[0] : 0) + (seconds > set_at[1] ? set_by[1] : 0);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    int failed;
    if (!real_gettime)
        begin();
    failed = real_gettime(clock, found);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        found->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found)
        *found = now.tv_sec;
    return now.tv_sec;
}
