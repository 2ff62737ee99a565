/* SPDX-License-Identifier: Apache-2.0 */
/* module.cpp - "cubins" loaded, functions found, launches checked and made into work.
 *
 * What the driver refuses is refused here with the same result: a real cubin (ELF for another machine), text, garbage,
 * another architecture, blocks and grids out of range. Pointers among the arguments are translated when the kernel
 * runs; one that is in no allocation is an illegal address. */
#include "driver.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

#include "block.h"
#include "cubin.h"

namespace stand_in
{

struct Function {
    Module *module;
    const tern_kernel_record *kernel;
    unsigned max_dynamic_shared = 0; /* 0: what is left of 48 KiB */
};

struct Module {
    Context *context;
    void *library;
    std::map<std::string, Function *> functions;
};

namespace
{

constexpr unsigned DEFAULT_SHARED = 48 << 10;

unsigned static_shared(const Function &f) { return (unsigned)(f.kernel->shared_end - f.kernel->shared_begin); }

/* dlopen from a file of its own: a name that was opened before would give the older module. */
void *open_library(const char *image, size_t bytes)
{
    const char *base = getenv("TMPDIR");
    std::string path = std::string(base && *base ? base : "/tmp") + "/tern_cubin_XXXXXX";
    const int file = mkstemp(&path[0]);
    if (file < 0) return nullptr;
    size_t done = 0;
    while (done < bytes) {
        const ssize_t part = write(file, image + done, bytes - done);
        if (part <= 0) break;
        done += (size_t)part;
    }
    (void)close(file);
    void *library = done == bytes ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library && done == bytes) fprintf(stderr, "stand-in libcuda: %s\n", dlerror());
    (void)unlink(path.c_str());
    return library;
}

int load(const void *image, Module **out_module)
{
    const unsigned char *bytes = (const unsigned char *)image;
    const tern_cubin_header *header = (const tern_cubin_header *)image;
    const char magic[8] = TERN_CUBIN_MAGIC;
    const int capability = current_context->device->capability;
    if (memcmp(bytes, "\177ELF", 4) == 0) return bytes[18] == 190 ? CU_NO_BINARY_FOR_GPU : CU_INVALID_IMAGE;
    if (memcmp(bytes, "//", 2) == 0 || memcmp(bytes, ".version", 8) == 0) return CU_INVALID_PTX;
    if (memcmp(bytes, magic, sizeof magic) != 0) return CU_INVALID_IMAGE;
    const int architecture = (int)header->architecture;
    if (architecture / 10 != capability / 10 || architecture > capability) return CU_NO_BINARY_FOR_GPU;
    if (header->needs_fma && !__builtin_cpu_supports("fma")) return CU_NO_BINARY_FOR_GPU;
    void *library = open_library((const char *)image + sizeof *header, header->bytes);
    if (!library) return CU_INVALID_IMAGE;
    *out_module = new Module{current_context, library, {}};
    current_context->modules.insert(*out_module);
    return CU_OK;
}

void unload(Module *module)
{
    for (auto &function : module->functions) delete function.second;
    (void)dlclose(module->library);
    delete module;
}

Function *function_of(void *handle)
{
    Function *function = (Function *)handle;
    for (const Module *module : current_context->modules)
        for (const auto &entry : module->functions)
            if (entry.second == function) return function;
    return nullptr;
}

/* Copied argument bytes with the offset of each. */
struct Arguments {
    std::vector<size_t> offsets;
    std::string bytes;
};

int copy_arguments(const tern_kernel_record &kernel, void **parameters, void **extra, Arguments *out)
{
    const char *packed = nullptr;
    size_t packed_bytes = 0;
    for (void **e = extra; e && *e; e += 2) { /* pairs of key and value: 1 buffer, 2 its size, 0 end */
        if (*e == (void *)1) packed = (const char *)e[1];
        if (*e == (void *)2) packed_bytes = *(const size_t *)e[1];
    }
    if ((parameters && packed) || (!parameters && !packed && kernel.parameter_count > 0)) return CU_INVALID_VALUE;
    size_t end = 0;
    for (unsigned i = 0; i < kernel.parameter_count; i++) {
        const tern_parameter &p = kernel.parameters[i];
        const size_t at = (end + p.alignment - 1) / p.alignment * p.alignment;
        end = at + p.bytes;
        if (packed && end > packed_bytes) return CU_INVALID_VALUE;
        if (!packed && !parameters[i]) return CU_INVALID_VALUE;
        out->bytes.resize(end);
        memcpy(&out->bytes[at], packed ? packed + at : (const char *)parameters[i], p.bytes);
        out->offsets.push_back(at);
    }
    return CU_OK;
}

int run_launch(const tern_kernel_record *kernel, tern_uint3 grid, tern_uint3 block, unsigned shared,
               const Arguments &given)
{
    alignas(64) char bytes[4096];
    void *pointers[256];
    int result = CU_OK;
    if (given.bytes.size() > sizeof bytes || given.offsets.size() > 256) return CU_LAUNCH_OUT_OF_RESOURCES;
    memcpy(bytes, given.bytes.data(), given.bytes.size());
    {
        std::unique_lock<std::mutex> lock(state.lock);
        for (size_t i = 0; i < given.offsets.size(); i++) {
            pointers[i] = bytes + given.offsets[i];
            if (!kernel->parameters[i].is_pointer) continue;
            uint64_t address, host;
            memcpy(&address, pointers[i], 8);
            if (!resolve_pointer(address, &host))
                return report(format("kernel %s: argument %zu, %#llx, is in no allocation", kernel->name, i,
                                     (unsigned long long)address)),
                       CU_ILLEGAL_ADDRESS;
            memcpy(pointers[i], &host, 8);
        }
    }
    const std::string wrong = run_kernel({kernel, grid, block, shared, pointers}, &result);
    if (wrong.empty()) return CU_OK;
    std::unique_lock<std::mutex> lock(state.lock);
    report(wrong);
    return result;
}

} // namespace

int launch_work(void *handle, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, void **parameters,
                void **extra, std::function<int()> *out_work)
{
    const Function *f = function_of(handle);
    Arguments arguments;
    if (!f) return CU_INVALID_HANDLE;
    if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2]) return CU_INVALID_VALUE;
    if (grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535) return CU_INVALID_VALUE;
    if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || (uint64_t)block[0] * block[1] * block[2] > 1024)
        return CU_INVALID_VALUE;
    const unsigned most = f->max_dynamic_shared ? f->max_dynamic_shared : DEFAULT_SHARED;
    if (static_shared(*f) > DEFAULT_SHARED || shared_bytes > most ||
        (!f->max_dynamic_shared && static_shared(*f) + shared_bytes > DEFAULT_SHARED))
        return CU_INVALID_VALUE;
    if (const int wrong = copy_arguments(*f->kernel, parameters, extra, &arguments)) return wrong;
    const tern_kernel_record *kernel = f->kernel;
    const tern_uint3 g = {grid[0], grid[1], grid[2]}, b = {block[0], block[1], block[2]};
    *out_work = [=]() { return run_launch(kernel, g, b, shared_bytes, arguments); };
    return CU_OK;
}

void sweep_modules(Context *context)
{
    for (Module *module : context->modules) unload(module);
    context->modules.clear();
}

} // namespace stand_in

using namespace stand_in;

EXPORT CUresult cuModuleLoadData(Module **out_module, const void *image)
{
    ENTRY("cuModuleLoadData", context);
    return out_module && image ? load(image, out_module) : CU_INVALID_VALUE;
}

EXPORT CUresult cuModuleLoadDataEx(Module **out_module, const void *image, unsigned, int *, void **)
{
    ENTRY("cuModuleLoadDataEx", context);
    return out_module && image ? load(image, out_module) : CU_INVALID_VALUE;
}

EXPORT CUresult cuModuleUnload(Module *module)
{
    ENTRY_DESTROY("cuModuleUnload");
    if (!current_context->modules.count(module)) return CU_INVALID_HANDLE;
    if (const int wrong = finish_all(call, current_context, "cuModuleUnload")) return wrong;
    current_context->modules.erase(module);
    unload(module);
    return call.error;
}

EXPORT CUresult cuModuleGetFunction(Function **out_function, Module *module, const char *name)
{
    ENTRY("cuModuleGetFunction", context);
    if (!out_function || !name) return CU_INVALID_VALUE;
    if (!current_context->modules.count(module)) return CU_INVALID_HANDLE;
    const std::string symbol = std::string("tern_stand_in_kernel_") + name;
    const tern_kernel_record *kernel = (const tern_kernel_record *)dlsym(module->library, symbol.c_str());
    if (!kernel) return CU_NOT_FOUND;
    Function *&function = module->functions[name];
    if (!function) function = new Function{module, kernel};
    *out_function = function;
    return CU_OK;
}

EXPORT CUresult cuFuncSetAttribute(void *handle, int attribute, int value)
{
    ENTRY("cuFuncSetAttribute", context);
    Function *f = function_of(handle);
    int most = 0;
    if (!f) return CU_INVALID_HANDLE;
    if (attribute == CU_FUNC_CARVEOUT) return CU_OK;
    if (attribute != CU_FUNC_MAX_DYNAMIC_SHARED) return CU_INVALID_VALUE;
    const int capability = current_context->device->capability;
    most = (capability == 80 || capability == 87 ? 163 : capability >= 90 && capability < 120 ? 227 : 99) << 10;
    if (value < 0 || (unsigned)value + static_shared(*f) > (unsigned)most) return CU_INVALID_VALUE;
    f->max_dynamic_shared = (unsigned)value;
    return CU_OK;
}

EXPORT CUresult cuFuncGetAttribute(int *out_value, int attribute, void *handle)
{
    ENTRY("cuFuncGetAttribute", context);
    const Function *f = function_of(handle);
    if (!f) return CU_INVALID_HANDLE;
    if (!out_value) return CU_INVALID_VALUE;
    switch (attribute) {
    case CU_FUNC_MAX_THREADS_PER_BLOCK: *out_value = 1024; return CU_OK;
    case CU_FUNC_SHARED_BYTES: *out_value = (int)static_shared(*f); return CU_OK;
    case CU_FUNC_REGISTERS: *out_value = 32; return CU_OK;
    case CU_FUNC_BINARY_VERSION: *out_value = current_context->device->capability; return CU_OK;
    case CU_FUNC_MAX_DYNAMIC_SHARED: *out_value = (int)f->max_dynamic_shared; return CU_OK;
    case CU_FUNC_CONST_BYTES:
    case CU_FUNC_LOCAL_BYTES:
    case CU_FUNC_PTX_VERSION: *out_value = 0; return CU_OK;
    default: return CU_INVALID_VALUE;
    }
}

EXPORT CUresult cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, void *handle,
                               void **parameters, void **extra)
{
    ENTRY("cuLaunchKernel", context);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    std::function<int()> work;
    Stream *stream = stream_of(handle);
    if (!stream) return CU_INVALID_HANDLE;
    if (const int wrong = launch_work(function, grid, block, shared_bytes, parameters, extra, &work)) return wrong;
    (void)enqueue(stream, work);
    return CU_OK;
}
