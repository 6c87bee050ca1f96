// SPDX-License-Identifier: MIT OR Apache-2.0
// A map's descriptor goes to another number in every way that there is, by libc's functions and by `syscall`, and is closed in every
// way. Says of each whether the map is known by the new number, and no more when that is closed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define LATER 4 /* CLOSE_RANGE_CLOEXEC */

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int make(void)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = 4;
	attr.value_size = 8;
	attr.max_entries = 1;
	return bpf(BPF_MAP_CREATE, &attr);
}

static int is_known(int map)
{
	unsigned int key = 0;
	unsigned long long value = 7;
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_fd = map;
	attr.key = (unsigned long)&key;
	attr.value = (unsigned long)&value;
	return bpf(BPF_MAP_UPDATE_ELEM, &attr) == 0;
}

static int place(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int by_dup(int fd) { return dup(fd); }
static int by_dup2(int fd) { return dup2(fd, place()); }
static int by_dup3(int fd) { return dup3(fd, place(), O_CLOEXEC); }
static int by_fcntl(int fd) { return fcntl(fd, F_DUPFD, 50); }
static int by_fcntl_cloexec(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 50); }
static int by_number_dup(int fd) { return syscall(SYS_dup, fd); }
static int by_number_dup3(int fd) { return syscall(SYS_dup3, fd, place(), O_CLOEXEC); }
static int by_number_fcntl(int fd) { return syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 50); }
static int by_number_getfd(int fd)
{
	int self = syscall(SYS_pidfd_open, getpid(), 0), made = syscall(SYS_pidfd_getfd, self, fd, 0);

	close(self);
	return made;
}

static void by_close(int fd) { close(fd); }
static void by_range(int fd) { close_range(fd, fd, 0); }
static void by_number_close(int fd) { syscall(SYS_close, fd); }
static void by_number_range(int fd) { syscall(SYS_close_range, fd, fd, 0); }
static void by_another(int fd) { dup2(place(), fd); }

int main(void)
{
	const struct { const char *name; int (*move)(int); } moves[] = {
		{ "dup", by_dup }, { "dup2", by_dup2 }, { "dup3", by_dup3 }, { "F_DUPFD", by_fcntl },
		{ "F_DUPFD_CLOEXEC", by_fcntl_cloexec }, { "SYS_dup", by_number_dup }, { "SYS_dup3", by_number_dup3 },
		{ "SYS_fcntl", by_number_fcntl }, { "SYS_pidfd_getfd", by_number_getfd },
	};
	const struct { const char *name; void (*end)(int); } ends[] = {
		{ "close", by_close }, { "close_range", by_range }, { "SYS_close", by_number_close },
		{ "SYS_close_range", by_number_range }, { "another file", by_another },
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned int m = 0; m < sizeof(moves) / sizeof(*moves); m++) {
		for (unsigned int e = 0; e < sizeof(ends) / sizeof(*ends); e++) {
			int map = make(), moved = moves[m].move(map), before, alone, after;

			before = moved >= 0 && moved != map && is_known(map) && is_known(moved);
			ends[e].end(map);
			close_range(moved, moved, LATER);
			alone = !is_known(map) && is_known(moved);
			ends[e].end(moved);
			after = is_known(moved);
			if (!before || !alone || after)
				printf("%s, %s: %s\n", moves[m].name, ends[e].name,
				       after ? "still there" : before ? "lost" : strerror(errno));
			for (int fd = 3; fd < 60; fd++)
				if (fd == map || fd == moved)
					close(fd);
		}
	}
	printf("%s\n", "done");
	return 0;
}
