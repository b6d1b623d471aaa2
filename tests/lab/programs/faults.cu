// Mistakes that programs make on a GPU, one by its name: each ends as such a program does.
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    cudaError_t status = (call);                                                                      \
    if (status != cudaSuccess) {                                                                      \
      fprintf(stderr, "CUDA error at %s:%d code=%d(%s) \"%s\"\n", __FILE__, __LINE__, (int)status,    \
              cudaGetErrorName(status), #call);                                                       \
      exit(1);                                                                                        \
    }                                                                                                 \
  } while (0)

__global__ void store(float *at, long offset) { at[threadIdx.x + offset] = 1.0f; }
__global__ void misaligned(char *at) { *(float *)(at + 4 * threadIdx.x + 1) = 1.0f; }
__global__ void fails_assertion(int n) { assert((int)threadIdx.x < n); }
__global__ void traps() { __trap(); }
__device__ __noinline__ float deeper(float x, int n) {
  volatile float frame[64];
  for (int i = 0; i < 64; i++) frame[i] = x + i;
  return n ? deeper(frame[n % 64] + 1, n - 1) + frame[(n + 7) % 64] : x;
}
__global__ void recurses(float *at, int n) { at[threadIdx.x] = deeper(threadIdx.x, n); }

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "nothing";
  int blocks = count > 2 ? atoi(words[2]) : 1;
  char *memory;
  CHECK(cudaMalloc(&memory, 1 << 20));
  store<<<1, 64>>>((float *)memory, 0);
  CHECK(cudaDeviceSynchronize());
  printf("step 0 done\n");
  fflush(stdout);
  if (!strcmp(what, "address")) store<<<blocks, 64>>>((float *)memory, 1l << 40);
  if (!strcmp(what, "misaligned")) misaligned<<<blocks, 64>>>(memory);
  if (!strcmp(what, "assertion")) fails_assertion<<<blocks, 64>>>(32);
  if (!strcmp(what, "trap")) traps<<<blocks, 64>>>();
  if (!strcmp(what, "stack")) recurses<<<blocks, 64>>>((float *)memory, 1 << 24);
  CHECK(cudaDeviceSynchronize());
  printf("step 1 done\n");
  return 0;
}
