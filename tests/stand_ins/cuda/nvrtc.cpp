/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.cpp - a libnvrtc.so that compiles CUDA C++ with g++ for the stand-in driver.
 *
 *     kernel_abi.h + kernel_words.h + text + one TERN_STAND_IN_KERNEL per kernel --g++ -shared--> "cubin" (cubin.h)
 *
 * What it keeps of the real one: results, the log of errors with the text's own lines, the architectures of a version
 * (TERN_STANDIN_NVRTC_VERSION, default 13.0), contraction to fma unless --fmad=false, unknown options refused. What it
 * is not: a check of CUDA's grammar or of PTX. Kernels are found by "__global__ void name(" or tern's KERNEL(name. */
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cubin.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

extern char **environ;

/* The two headers, word for word. */
__asm__(".section .rodata\n"
        "tern_headers: .incbin \"" TERN_STAND_IN_SOURCE "/kernel_abi.h\"\n"
        ".incbin \"" TERN_STAND_IN_SOURCE "/kernel_words.h\"\n.byte 0\n.previous\n");
extern "C" __attribute__((visibility("hidden"))) const char tern_headers[];

enum {
    NVRTC_OK = 0,
    NVRTC_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_INVALID_INPUT = 3,
    NVRTC_INVALID_PROGRAM = 4,
    NVRTC_INVALID_OPTION = 5,
    NVRTC_COMPILATION = 6,
    NVRTC_INTERNAL_ERROR = 11
};

namespace
{

struct Program {
    std::string text, name, log, cubin;
};

struct Options {
    int architecture = 52; /* NVRTC's default of old */
    bool is_virtual = false, contract = true;
    std::vector<std::string> defines;
};

int version_of(int part)
{
    int parts[2] = {13, 0};
    const char *text = getenv("TERN_STANDIN_NVRTC_VERSION");
    if (text) (void)sscanf(text, "%d.%d", &parts[0], &parts[1]);
    return parts[part];
}

/* The architectures that each version brought; 13.0 left out what is older than sm_75. */
std::vector<int> architectures()
{
    static const struct {
        int version, architecture;
    } table[] = {{900, 52},  {900, 60},  {900, 70},   {1000, 75},  {1100, 80},  {1110, 86},
                 {1180, 89}, {1180, 90}, {1280, 100}, {1280, 120}, {1290, 103}, {1290, 121}};
    const int version = version_of(0) * 100 + version_of(1) * 10;
    std::vector<int> result;
    for (const auto &row : table)
        if (row.version <= version && !(version >= 1300 && row.architecture < 75)) result.push_back(row.architecture);
    return result;
}

bool set_architecture(const std::string &value, Options *options)
{
    int number = 0;
    char kind[9] = "", suffix = 0;
    if (sscanf(value.c_str(), "%8[a-z]_%d%c", kind, &number, &suffix) < 2) return false;
    options->is_virtual = strcmp(kind, "compute") == 0;
    options->architecture = number;
    if (!options->is_virtual && strcmp(kind, "sm") != 0) return false;
    for (int known : architectures())
        if (known == number) return suffix == 0 || ((suffix == 'a' || suffix == 'f') && number >= 90);
    return false;
}

/* One option; false: not known. Both of NVRTC's ways of joining a value are taken where tern may use them. */
bool set_option(const std::string &option, Options *options)
{
    static const char *const ignored[] = {"--std=",
                                          "-std=",
                                          "--ptxas-options=",
                                          "-lineinfo",
                                          "--generate-line-info",
                                          "-default-device",
                                          "--device-as-default-execution-space",
                                          "-w",
                                          "--disable-warnings",
                                          "--restrict",
                                          "--extra-device-vectorization",
                                          "-I",
                                          "--diag-suppress=",
                                          "--ftz=false",
                                          "--prec-div=true",
                                          "--prec-sqrt=true"};
    const size_t equals = option.find('=');
    const std::string name = option.substr(0, equals), value = equals == option.npos ? "" : option.substr(equals + 1);
    if (name == "--gpu-architecture" || name == "-arch") return set_architecture(value, options);
    if (name == "--fmad" || name == "-fmad")
        return options->contract = value == "true", value == "true" || value == "false";
    if (name == "--define-macro") return options->defines.push_back("-D" + value), true;
    if (option.compare(0, 2, "-D") == 0) return options->defines.push_back(option), true;
    for (const char *known : ignored)
        if (option.compare(0, strlen(known), known) == 0) return true;
    return false;
}

bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The word at text[at] after blanks. */
std::string word_at(const std::string &text, size_t at)
{
    while (at < text.size() && isspace((unsigned char)text[at])) at++;
    size_t end = at;
    while (end < text.size() && is_word(text[end])) end++;
    return text.substr(at, end - at);
}

/* Behind __global__: void, perhaps __launch_bounds__(...), the name. */
std::string name_after_global(const std::string &text, size_t at)
{
    for (;;) {
        const std::string word = word_at(text, at);
        if (word != "void" && word != "__launch_bounds__") return word;
        at = text.find(word, at) + word.size();
        if (word == "__launch_bounds__") at = text.find(')', at) + 1;
    }
}

/* Kernels of the text, macro definitions (and their continued lines) aside. */
std::set<std::string> kernels_of(const std::string &text)
{
    std::set<std::string> names;
    bool in_macro = false;
    for (size_t line = 0; line < text.size();) {
        size_t end = text.find('\n', line);
        if (end == text.npos) end = text.size();
        const size_t first = text.find_first_not_of(" \t", line);
        in_macro = in_macro || (first < end && text[first] == '#');
        for (const char *mark : {"__global__", "KERNEL("}) {
            const size_t at = text.find(mark, line);
            if (in_macro || at >= end || (at > 0 && is_word(text[at - 1]))) continue;
            const size_t behind = at + strlen(mark);
            const std::string name = mark[0] == '_' ? name_after_global(text, behind) : word_at(text, behind);
            if (!name.empty()) names.insert(name);
        }
        in_macro = in_macro && end > line && text[end - 1] == '\\';
        line = end + 1;
    }
    return names;
}

std::string read_file(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

/* Runs the compiler with its messages in a file; its exit status, -1 where it could not be started. */
int run(const std::vector<std::string> &words, const std::string &messages)
{
    std::vector<char *> arguments;
    posix_spawn_file_actions_t actions;
    pid_t child;
    int result = 0;
    for (const std::string &word : words) arguments.push_back((char *)word.c_str());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return -1;
    while (waitpid(child, &result, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

/* CUDA's arithmetic: integers wrap, any pointer may be followed, nothing is reassociated. No vectoriser: it costs time
 * and finds nothing in the text of one thread. r15 is kernel_abi.h's. */
const char FLAGS[] = "-std=gnu++17 -O2 -w -shared -fPIC -fvisibility=hidden -nostdlib -ffixed-r15 -fwrapv "
                     "-fno-delete-null-pointer-checks -fno-strict-aliasing -fno-exceptions -fno-rtti "
                     "-fno-stack-protector -fno-trapping-math -fno-math-errno -fno-tree-vectorize "
                     "-fno-asynchronous-unwind-tables";

int compile(Program *program, const Options &options, const std::string &folder)
{
    const std::string source = folder + "/kernel.cpp", object = folder + "/kernel.so", messages = folder + "/log";
    const char *compiler = getenv("TERN_STANDIN_CXX");
    const bool fma = __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx2");
    std::vector<std::string> words = {compiler ? compiler : TERN_STAND_IN_CXX};
    std::istringstream flags(FLAGS);
    words.insert(words.end(), std::istream_iterator<std::string>(flags), std::istream_iterator<std::string>());
    words.push_back(options.contract ? "-ffp-contract=fast" : "-ffp-contract=off");
    words.push_back("-D__CUDA_ARCH__=" + std::to_string(options.architecture * 10));
    if (fma) words.insert(words.end(), {"-mavx2", "-mfma", "-mf16c"});
    words.insert(words.end(), options.defines.begin(), options.defines.end());
    words.insert(words.end(), {"-o", object, source, "-lm", "-lgcc"});
    {
        std::ofstream file(source, std::ios::binary);
        file << tern_headers << "\n#line 1 \"" << program->name << "\"\n" << program->text << "\n#line 1 \"kernels\"\n";
        for (const std::string &name : kernels_of(program->text)) file << "TERN_STAND_IN_KERNEL(" << name << ")\n";
        if (!file.flush()) return program->log = "cannot write " + source, NVRTC_INTERNAL_ERROR;
    }
    const int result = run(words, messages);
    program->log = result < 0 ? "cannot start " + words[0] : read_file(messages);
    if (result != 0) return result < 0 ? NVRTC_INTERNAL_ERROR : NVRTC_COMPILATION;
    if (options.is_virtual) return NVRTC_OK; /* PTX only: no cubin */
    const std::string image = read_file(object);
    const tern_cubin_header header = {TERN_CUBIN_MAGIC, (uint32_t)options.architecture, fma ? 1u : 0u, image.size()};
    program->cubin = std::string((const char *)&header, sizeof header) + image;
    return NVRTC_OK;
}

} // namespace

EXPORT const char *nvrtcGetErrorString(int result)
{
    static const char *const names[] = {"NVRTC_SUCCESS",
                                        "NVRTC_ERROR_OUT_OF_MEMORY",
                                        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                        "NVRTC_ERROR_INVALID_INPUT",
                                        "NVRTC_ERROR_INVALID_PROGRAM",
                                        "NVRTC_ERROR_INVALID_OPTION",
                                        "NVRTC_ERROR_COMPILATION",
                                        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"};
    return result >= 0 && result < 8 ? names[result] : "NVRTC_ERROR_INTERNAL_ERROR";
}

EXPORT int nvrtcVersion(int *major, int *minor)
{
    if (!major || !minor) return NVRTC_INVALID_INPUT;
    *major = version_of(0), *minor = version_of(1);
    return NVRTC_OK;
}

EXPORT int nvrtcCreateProgram(void **out_program, const char *text, const char *name, int header_count,
                              const char *const *, const char *const *)
{
    if (!out_program || !text || header_count != 0) return NVRTC_INVALID_INPUT;
    *out_program = new Program{text, name && *name ? name : "default_program", "", ""};
    return NVRTC_OK;
}

EXPORT int nvrtcDestroyProgram(void **program)
{
    if (!program || !*program) return NVRTC_INVALID_PROGRAM;
    delete (Program *)*program;
    *program = nullptr;
    return NVRTC_OK;
}

EXPORT int nvrtcCompileProgram(void *handle, int option_count, const char *const *options)
{
    Program *program = (Program *)handle;
    Options chosen;
    if (!program) return NVRTC_INVALID_PROGRAM;
    program->cubin.clear();
    for (int i = 0; i < option_count; i++)
        if (!set_option(options[i], &chosen)) {
            program->log = std::string("nvrtc: error: invalid or unknown option ") + options[i];
            return NVRTC_INVALID_OPTION;
        }
    const char *base = getenv("TMPDIR");
    std::string folder = std::string(base && *base ? base : "/tmp") + "/tern_nvrtc_XXXXXX";
    if (!mkdtemp(&folder[0])) return program->log = "cannot make " + folder, NVRTC_INTERNAL_ERROR;
    const int result = compile(program, chosen, folder);
    for (const char *file : {"/kernel.cpp", "/kernel.so", "/log"}) (void)unlink((folder + file).c_str());
    (void)rmdir(folder.c_str());
    return result;
}

EXPORT int nvrtcGetProgramLogSize(void *program, size_t *bytes)
{
    if (!program || !bytes) return NVRTC_INVALID_INPUT;
    *bytes = ((Program *)program)->log.size() + 1;
    return NVRTC_OK;
}

EXPORT int nvrtcGetProgramLog(void *program, char *log)
{
    if (!program || !log) return NVRTC_INVALID_INPUT;
    memcpy(log, ((Program *)program)->log.c_str(), ((Program *)program)->log.size() + 1);
    return NVRTC_OK;
}

#ifndef TERN_STAND_IN_OLD /* 10.x had no cubin and did not say what it supports */
EXPORT int nvrtcGetNumSupportedArchs(int *count)
{
    if (!count) return NVRTC_INVALID_INPUT;
    *count = (int)architectures().size();
    return NVRTC_OK;
}

EXPORT int nvrtcGetSupportedArchs(int *list)
{
    if (!list) return NVRTC_INVALID_INPUT;
    for (int architecture : architectures()) *list++ = architecture;
    return NVRTC_OK;
}

EXPORT int nvrtcGetCUBINSize(void *program, size_t *bytes)
{
    if (!program || !bytes) return NVRTC_INVALID_INPUT;
    *bytes = ((Program *)program)->cubin.size();
    return NVRTC_OK;
}

EXPORT int nvrtcGetCUBIN(void *program, char *cubin)
{
    if (!program || !cubin) return NVRTC_INVALID_INPUT;
    memcpy(cubin, ((Program *)program)->cubin.data(), ((Program *)program)->cubin.size());
    return NVRTC_OK;
}
#endif
