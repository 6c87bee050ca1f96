// SPDX-License-Identifier: MIT OR Apache-2.0
// A map's descriptor goes to another number in every way that there is, by libc's functions and by `syscall`, and is closed in every
// way. Says of each whether the map is known by the new number, and no more when that is closed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
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

/* One descriptor, or with -1 none, in a message with room for one. */
struct message {
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec part;
	struct msghdr header;
};

static struct msghdr *message(struct message *m, int fd)
{
	struct cmsghdr *first;

	memset(m, 0, sizeof(*m));
	m->part.iov_base = &m->byte;
	m->part.iov_len = 1;
	m->header.msg_iov = &m->part;
	m->header.msg_iovlen = 1;
	m->header.msg_control = m->control;
	m->header.msg_controllen = sizeof(m->control);
	if (fd >= 0) {
		first = CMSG_FIRSTHDR(&m->header);
		first->cmsg_level = SOL_SOCKET;
		first->cmsg_type = SCM_RIGHTS;
		first->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(first), &fd, sizeof(fd));
	}
	return &m->header;
}

static int got(struct message *m)
{
	int fd = -1;
	struct cmsghdr *first = CMSG_FIRSTHDR(&m->header);

	if (first && first->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(first), sizeof(fd));
	return fd;
}

static int by_message(int fd)
{
	int ends[2], copy = dup(fd);
	struct message m;

	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
	sendmsg(ends[0], message(&m, copy), 0);
	close(copy);
	recvmsg(ends[1], message(&m, -1), MSG_CMSG_CLOEXEC);
	close(ends[0]);
	close(ends[1]);
	return got(&m);
}

static int by_number_messages(int fd)
{
	int ends[2];
	struct message m;
	struct mmsghdr all;

	socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends);
	memset(&all, 0, sizeof(all));
	all.msg_hdr = *message(&m, fd);
	syscall(SYS_sendmmsg, ends[0], &all, 1, 0);
	memset(&all, 0, sizeof(all));
	all.msg_hdr = *message(&m, -1);
	syscall(SYS_recvmmsg, ends[1], &all, 1, 0, NULL);
	m.header = all.msg_hdr;
	close(ends[0]);
	close(ends[1]);
	return got(&m);
}

/* To a child, which knows no maps: whether it knows this one. */
static int by_child(int fd)
{
	int ends[2], status = -1;
	struct message m;
	pid_t child;

	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
	child = fork();
	if (child == 0) {
		recvmsg(ends[1], message(&m, -1), 0);
		_exit(got(&m) < 0 ? 2 : is_known(got(&m)));
	}
	sendmsg(ends[0], message(&m, fd), 0);
	waitpid(child, &status, 0);
	close(ends[0]);
	close(ends[1]);
	return status;
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
		{ "SCM_RIGHTS", by_message }, { "SYS_recvmmsg", by_number_messages },
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
	printf("in a child: %d\n", by_child(make()));
	/* A ring of no entries is refused: that it was asked for is what is told, once. */
	for (int times = 0; times < 2; times++)
		if (syscall(SYS_io_uring_setup, 0, NULL) != -1)
			printf("a ring\n");
	printf("%s\n", "done");
	return 0;
}
