/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_backend.c - the CUDA plug-in as users choose it, by `tern` on the stand-in driver (tests/stand_ins/cuda).
 *
 *     choice      by number, name, UUID, PCI address, and CUDA_VISIBLE_DEVICES
 *     compiler    NVIDIA's own NVRTC, where installed: its cubins reach the driver, a cache of another's does not
 *
 * Not the single entries (tests/conformance.c asks those, test_cuda_faults fails them), nor training
 * (test_train_stand_ins). A report of the stand-in ends the process with status 86, so each run that is wanted to end
 * with 0 shows that there was none. */
#include <glob.h>
#include <stdlib.h>

#include "tests/command.h"
#include "tests/cuda_stand_in.h"
#include "tests/test.h"

#define SHAPE "--seed 7 --layers 2 --width 32 --heads 2 --context 32 --batch 2 --data " TERN_SOURCE_DIR "/LICENSE "

/* ------------------------------------------------------------------ choice */

/* Fails unless `which` is this card, or, with title NULL, none. */
static void expect_choice(const char *which, const char *title)
{
    const command_result *r = command_runf("train " SHAPE "--steps 1 --backend cuda --device %s", which);
    if (title) {
        if (r->code != 0 || !strstr(r->err, title)) fail_msg("--device %s: %d: %s", which, r->code, r->err);
    } else {
        assert_int_not_equal(r->code, 0);
        if (!strstr(r->err, "cuda has no device")) fail_msg("--device %s: %s", which, r->err);
    }
}

static void test_choice(void **state)
{
    (void)state;
    CUuuid uuid;
    char text[40], *at = text, told[48];
    int second = 0;
    NEED_STAND_IN();
    command_environment("TERN_STANDIN_CUDA_DEVICES", "2");
    command_environment("TERN_STANDIN_CUDA_CAPABILITY", "80,90");
    expect_choice("0", "cuda: stand-in sm_80");
    expect_choice("1", "cuda: stand-in sm_90");
    expect_choice("2", NULL);
    expect_choice("sm_90", "cuda: stand-in sm_90");
    expect_choice("sm_75", NULL);
    expect_choice("0000:02:00.0", "cuda: stand-in sm_90");
    expect_choice("02:00.0", "cuda: stand-in sm_90");
    expect_choice("00000000:02:00.0", "cuda: stand-in sm_90"); /* as nvidia-smi has it */
    expect_choice("00000001:02:00.0", NULL);
    expect_choice("02:00.01", NULL);
    (void)setenv("TERN_STANDIN_CUDA_DEVICES", "2", 1);
    assert_int_equal(cu->init(0), 0);
    assert_int_equal(cu->device_get(&second, 1), 0);
    assert_int_equal(cu->device_uuid(&uuid, second), 0);
    for (size_t i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", (unsigned char)uuid.bytes[i]);
    expect_choice(text, "cuda: stand-in sm_90");
    (void)snprintf(told, sizeof told, "GPU-%s", text); /* as `nvidia-smi -L` has it */
    expect_choice(told, "cuda: stand-in sm_90");
    command_environment("TERN_STANDIN_CUDA_MIG", "1"); /* a part of a card has a UUID of its own */
    expect_choice(text, NULL);
    text[0] = '4', text[1] = 'd';
    expect_choice(text, "cuda: stand-in sm_90");
    command_environment("TERN_STANDIN_CUDA_MIG", NULL);
    command_environment("CUDA_VISIBLE_DEVICES", "1");
    expect_choice("0", "cuda: stand-in sm_90");
    expect_choice("1", NULL);
    command_environment("CUDA_VISIBLE_DEVICES", NULL);
    command_environment("TERN_STANDIN_CUDA_DEVICES", NULL);
    command_environment("TERN_STANDIN_CUDA_CAPABILITY", NULL);
}

/* ---------------------------------------------------------------- compiler */

/* NVIDIA's compiler compiles the first kernel, whose cubin the stand-in driver knows for none of its own: so the error
 * is the driver's, of the call after the compiler, and no cubin of the stand-in's NVRTC, which says that it is of the
 * same version, was taken from the cache. A card that this NVRTC has dropped is refused before, in one sentence. */
static void test_nvidias_compiler(void **state)
{
    (void)state;
    glob_t found = {0};
    NEED_STAND_IN();
    if (glob("/usr/local/cuda*/lib*/libnvrtc.so", 0, NULL, &found) != 0)
        TEST_SKIP("no libnvrtc in /usr/local/cuda*/lib*; install a CUDA toolkit");
    expect_choice("0", "cuda: stand-in sm_80"); /* fills the cache */
    command_environment("TERN_NVRTC_LIBRARY", found.gl_pathv[0]);
    const command_result *r = command_run("devices");
    assert_int_equal(r->code, 0);
    if (!strstr(r->out, found.gl_pathv[0])) fail_msg("no note of %s: %s", found.gl_pathv[0], r->out);
    command_refuses("train " SHAPE "--steps 1 --backend cuda", 1, "cuModuleLoadData: CUDA_ERROR_");
    command_environment("TERN_STANDIN_CUDA_CAPABILITY", "35");
    command_refuses("train " SHAPE "--steps 1 --backend cuda", 1, "which does not know sm_35");
    command_environment("TERN_STANDIN_CUDA_CAPABILITY", NULL);
    command_environment("TERN_NVRTC_LIBRARY", CUDA_STAND_IN_NVRTC);
    globfree(&found);
}

static int set_up(void **state)
{
    (void)state;
    cu = cuda_stand_in_find();
    return 0;
}

int main(void)
{
    command_environment("TERN_CUDA_LIBRARY", CUDA_STAND_IN_DRIVER);
    command_environment("TERN_NVRTC_LIBRARY", CUDA_STAND_IN_NVRTC);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_nvidias_compiler),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
