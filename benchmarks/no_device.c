/* A CUDA runtime without a device: memory is the host's, and kernels are not launched.
 *
 * onnxruntime registers its kernels and assigns the nodes of a graph when a session is created, before it computes
 * anything; for that it needs a device that exists, not one that computes. Functions that are not defined here are
 * generated and return success.
 */
#include <stdlib.h>
#include <string.h>

typedef struct { char bytes[4096]; } handle_t;

static int create(void **handle) { *handle = calloc(1, sizeof(handle_t)); return 0; }

static int allocate(void **memory, size_t size) { *memory = calloc(1, size ? size : 1); return 0; }

int cudaGetDeviceCount(int *count) { *count = 1; return 0; }

int cudaGetDevice(int *device) { *device = 0; return 0; }

/* struct cudaDeviceProp of CUDA 13: an NVIDIA A100's compute capability and sizes. */
int cudaGetDeviceProperties(char *properties, int device)
{
    (void)device;
    strcpy(properties, "no device");
    *(size_t *)(properties + 288) = (size_t)16 << 30; /* totalGlobalMem */
    *(size_t *)(properties + 296) = 48 << 10;         /* sharedMemPerBlock */
    *(int *)(properties + 304) = 65536;               /* regsPerBlock */
    *(int *)(properties + 308) = 32;                  /* warpSize */
    *(int *)(properties + 320) = 1024;                /* maxThreadsPerBlock */
    *(int *)(properties + 360) = 8;                   /* major */
    *(int *)(properties + 364) = 0;                   /* minor */
    *(int *)(properties + 384) = 108;                 /* multiProcessorCount */
    return 0;
}

int cudaMemGetInfo(size_t *available, size_t *total) { *available = *total = (size_t)16 << 30; return 0; }

int cudaDriverGetVersion(int *version) { *version = 13000; return 0; }

int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }

const char *cudaGetErrorName(int error) { (void)error; return "error"; }

const char *cudaGetErrorString(int error) { (void)error; return "error"; }

int cudaMalloc(void **memory, size_t size) { return allocate(memory, size); }

int cudaMallocHost(void **memory, size_t size) { return allocate(memory, size); }

int cudaHostAlloc(void **memory, size_t size, unsigned flags) { (void)flags; return allocate(memory, size); }

int cudaFree(void *memory) { free(memory); return 0; }

int cudaFreeHost(void *memory) { free(memory); return 0; }

int cudaMemcpy(void *to, const void *from, size_t size, int kind) { (void)kind; memmove(to, from, size); return 0; }

int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind) { return cudaMemcpy(to, from, size, kind); }

int cudaMemset(void *memory, int value, size_t size) { memset(memory, value, size); return 0; }

int cudaMemsetAsync(void *memory, int value, size_t size) { return cudaMemset(memory, value, size); }

int cudaStreamCreate(void **stream) { return create(stream); }

int cudaStreamCreateWithFlags(void **stream, unsigned flags) { (void)flags; return create(stream); }

int cudaEventCreate(void **event) { return create(event); }

int cudaEventCreateWithFlags(void **event, unsigned flags) { (void)flags; return create(event); }

int cublasCreate_v2(void **handle) { return create(handle); }

int cublasLtCreate(void **handle) { return create(handle); }

int cudnnCreate(void **handle) { return create(handle); }

size_t cudnnGetVersion(void) { return 91400; }

int cudnnGetRNNWeightSpaceSize(void *handle, void *network, size_t *size)
{
    (void)handle, (void)network;
    *size = 1 << 20;
    return 0;
}

int cudnnGetRNNTempSpaceSizes(void *handle, void *network, int mode, void *data, size_t *work, size_t *reserve)
{
    (void)handle, (void)network, (void)mode, (void)data;
    *work = 0;
    if (reserve)
        *reserve = 0;
    return 0;
}

int cudnnGetTensorNdDescriptor(void *tensor, int wanted, int *type, int *count, int sizes[], int strides[])
{
    (void)tensor;
    *type = *count = 0;
    memset(sizes, 0, wanted * sizeof(int));
    memset(strides, 0, wanted * sizeof(int));
    return 0;
}

int cudnnGetRNNWeightParams(void *handle, void *network, int layer, size_t size, char *space, int number, void *matrix,
                            void **weights, void *bias, void **biases)
{
    (void)handle, (void)network, (void)layer, (void)size, (void)number, (void)matrix, (void)bias;
    *weights = *biases = space;
    return 0;
}

int cudnnDropoutGetStatesSize(void *handle, size_t *size)
{
    (void)handle;
    *size = 0;
    return 0;
}
