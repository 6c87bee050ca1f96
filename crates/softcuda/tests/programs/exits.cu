// Calls as late as possible: from destructors of thread-local and static objects, of pthread keys, and from exit handlers.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <thread>

static int *count;
__global__ void add() {}
__global__ void add_to(int *count) { atomicAdd(count, 1); }

static void launch(const char *where)
{
	int value = -1, device = -1;
	cudaStream_t stream;
	cudaGraph_t graph;
	add_to<<<2, 32>>>(count);
	cudaError_t launched = cudaGetLastError();
	cudaError_t waited = cudaDeviceSynchronize();
	// What a thread is in the middle of: a device, a capture.
	cudaSetDevice(0);
	cudaGetDevice(&device);
	cudaStreamCreate(&stream);
	cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
	add<<<1, 1, 0, stream>>>();
	cudaError_t captured = cudaStreamEndCapture(stream, &graph);
	cudaError_t copied = cudaMemcpy(&value, count, sizeof value, cudaMemcpyDeviceToHost);
	printf("%s: %d %d %d %d, device %d, %d\n", where, launched, waited, captured, copied, device, value);
	fflush(stdout);
}

struct Late {
	const char *where = nullptr;
	~Late()
	{
		if (where)
			launch(where);
	}
};
static Late of_static;
static thread_local Late of_thread;
static pthread_key_t key;

int main()
{
	cudaMalloc(&count, sizeof *count);
	cudaMemset(count, 0, sizeof *count);
	launch("main");
	of_static.where = "static object";
	of_thread.where = "thread-local object of the first thread";
	atexit([] { launch("exit handler"); });
	pthread_key_create(&key, [](void *times) {
		launch("key");
		// Once more, when everything else of the thread is gone.
		if (times == &key)
			pthread_setspecific(key, &count);
	});
	std::thread([] {
		of_thread.where = "thread-local object";
		pthread_setspecific(key, &key);
		launch("thread");
	}).join();
	return 0;
}
