// A clock of its own for one program: LD_PRELOAD this library, with CLOCK_AHEAD in seconds.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead;
__attribute__((constructor)) static void read_ahead(void) { ahead = atol(getenv("CLOCK_AHEAD")); }

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, id, t);
	if (!failed && id == CLOCK_REALTIME) t->tv_sec += ahead;
	return failed;
}

int gettimeofday(struct timeval *t, void *zone) {
	struct timespec now;
	int failed = clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return failed;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}
