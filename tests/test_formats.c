/* SPDX-License-Identifier: Apache-2.0 */
/* test_formats.c - safetensors files, whole and damaged, and the text corpus. */
#include "tests/test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/dtype.h"
#include "core/formats/safetensors.h"
#include "core/formats/text.h"

static char folder[] = "/tmp/tern-formats-XXXXXX";

static const char *at(const char *name)
{
    static char path[4][256];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static void put(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* A file with this header text and `data_bytes` of data, 0, 1, 2, ... */
static void put_tensors(const char *name, const char *header, size_t data_bytes)
{
    unsigned char bytes[1024] = {0};
    size_t length = strlen(header);
    assert_true(8 + length + data_bytes <= sizeof bytes);
    bytes[0] = (unsigned char)length;
    bytes[1] = (unsigned char)(length >> 8);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++) bytes[8 + length + i] = (unsigned char)i;
    put(name, bytes, 8 + length + data_bytes);
}

/* ---------------------------------------------------------------- round trip */

static tern_status source(void *context, uint32_t index, void *out, uint64_t bytes)
{
    const void *const *arrays = context;
    memcpy(out, arrays[index], bytes);
    return TERN_OK;
}

static void test_round_trip(void **state)
{
    (void)state;
    const float a[6] = {1.5f, -0.0f, 3e-41f, 4, 5, INFINITY}, b[1] = {7}, *arrays[2] = {a, b};
    const tern_safetensors_entry entries[2] = {{"h.0.\"quoted\".weight", TERN_F32, 2, {2, 3}},
                                               {"scalar", TERN_F32, 0, {0}}};
    tern_safetensors *file = NULL;
    TEST_OK(tern_safetensors_write(at("round.safetensors"), entries, 2, source, arrays));
    TEST_OK(tern_safetensors_open(at("round.safetensors"), &file));
    assert_int_equal(file->count, 2);
    assert_int_equal((uintptr_t)file->data % 8, 0);
    const tern_safetensor *tensor = tern_safetensors_find(file, entries[0].name);
    assert_non_null(tensor);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->shape[1], 3);
    float read[6];
    TEST_OK(tern_safetensors_read(file, tensor, read, 6));
    assert_memory_equal(read, a, sizeof a);
    TEST_OK(tern_safetensors_read(file, tern_safetensors_find(file, "scalar"), read, 1));
    assert_memory_equal(read, b, sizeof b);
    assert_null(tern_safetensors_find(file, "absent"));
    TEST_ERROR(tern_safetensors_read(file, tensor, read, 5), TERN_ERROR_INVALID, "5 elements");
    tern_safetensors_close(file);
}

/* What a sidecar of a checkpoint holds: other types than f32, and sizes that no word divides. */
static void test_all_dtypes(void **state)
{
    (void)state;
    static const int32_t dtypes[] = {TERN_U8, TERN_F16, TERN_BF16, TERN_U16, TERN_U32, TERN_I32, TERN_F32};
    enum { COUNT = sizeof dtypes / sizeof *dtypes };
    unsigned char bytes[COUNT][12];
    const void *arrays[COUNT];
    char names[COUNT][8];
    tern_safetensors_entry entries[COUNT];
    tern_safetensors *file = NULL;
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < 12; j++) bytes[i][j] = (unsigned char)(31 * i + 7 * j);
        snprintf(names[i], sizeof names[i], "t%d", i);
        arrays[i] = bytes[i];
        entries[i] = (tern_safetensors_entry){names[i], dtypes[i], 1, {3}};
    }
    TEST_OK(tern_safetensors_write(at("all.safetensors"), entries, COUNT, source, (void *)arrays));
    TEST_OK(tern_safetensors_open(at("all.safetensors"), &file));
    for (int i = 0; i < COUNT; i++) {
        const tern_safetensor *tensor = tern_safetensors_find(file, names[i]);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, dtypes[i]);
        assert_int_equal(tensor->bytes, tern_dtype_bytes(dtypes[i], 3));
        assert_memory_equal(file->data + tensor->offset, bytes[i], tensor->bytes);
    }
    tern_safetensors_close(file);
    entries[2].dtype = 99;
    TEST_ERROR(tern_safetensors_write(at("all.safetensors"), entries, COUNT, source, (void *)arrays),
               TERN_ERROR_INVALID, "tensor \"t2\" has dtype 99");
}

static tern_status failing_source(void *context, uint32_t index, void *out, uint64_t bytes)
{
    (void)context, (void)out, (void)bytes;
    return index == 1 ? tern_error(TERN_ERROR_DEVICE_LOST, "the device is gone") : TERN_OK;
}

static void test_failed_write_changes_nothing(void **state)
{
    (void)state;
    const tern_safetensors_entry entries[2] = {{"a", TERN_F32, 1, {4}}, {"b", TERN_F32, 1, {4}}};
    put("old.safetensors", "old", 3);
    TEST_ERROR(tern_safetensors_write(at("old.safetensors"), entries, 2, failing_source, NULL), TERN_ERROR_DEVICE_LOST,
               "gone");
    char content[8] = "";
    FILE *file = fopen(at("old.safetensors"), "rb");
    assert_non_null(file);
    assert_int_equal(fread(content, 1, sizeof content, file), 3);
    fclose(file);
    assert_string_equal(content, "old");
    char command[300];
    snprintf(command, sizeof command, "test -z \"$(find %s -name '*.tmp*')\"", folder);
    assert_int_equal(system(command), 0);
    TEST_ERROR(tern_safetensors_write("/nonexistent-folder/x", entries, 2, failing_source, NULL), TERN_ERROR_IO,
               "/nonexistent-folder");
}

static void test_half_precision(void **state)
{
    (void)state;
    uint16_t halves[4] = {0x3c00, 0xc000, 0x7c00,
                          0x0001}; /* f16: 1, -2, inf, 2^-24; the bytes 0 .. 7 are overwritten below */
    const char *header = "{\"h\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                         "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[8,12]}}";
    unsigned char bytes[512] = {0};
    size_t length = strlen(header);
    bytes[0] = (unsigned char)length;
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, halves, 8);
    memcpy(bytes + 16 + length, (uint16_t[]){0x3f80, 0xbf00}, 4); /* bf16: 1, -0.5 */
    put("half.safetensors", bytes, 8 + length + 12);
    tern_safetensors *file = NULL;
    float out[4];
    TEST_OK(tern_safetensors_open(at("half.safetensors"), &file));
    TEST_OK(tern_safetensors_read(file, tern_safetensors_find(file, "h"), out, 4));
    assert_true(out[0] == 1 && out[1] == -2 && isinf(out[2]) && out[3] == 0x1p-24f);
    TEST_OK(tern_safetensors_read(file, tern_safetensors_find(file, "b"), out, 2));
    assert_true(out[0] == 1 && out[1] == -0.5f);
    tern_safetensors_close(file);
}

/* ------------------------------------------------------------------- damage */

#define T(offsets, rest) "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" offsets "}" rest "}"

static void test_malformed_files(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *sentence;
    } cases[] = {
        {T("[0,8]", ""), 4, "truncated: tensor \"a\" ends at byte 8"},
        {T("[0,8]", ""), 12, "end at byte 8 of the data, but 12"},
        {T("[0,4]", ""), 4, "takes 8 bytes, but its data_offsets hold 4"},
        {T("[8,0]", ""), 8, "no valid data_offsets"},
        {T("[0.5,8]", ""), 8, "no valid data_offsets"},
        {T("[0,8]", ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"), 8,
         "\"a\" and \"b\" overlap at byte 4"},
        {T("[0,8]", ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}"), 16,
         "4 bytes before tensor \"b\""},
        {T("[0,8]", ",\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}"), 12, "\"a\" is there twice"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "dtype \"F64\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,8]}}", 8, "axis 0 of tensor \"a\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "has 7 axes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
         "more elements"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "has no shape"},
        {"{\"a\":7}", 0, "has no dtype"},
        {"[1, 2]", 0, "not a JSON object"},
        {"{\"a\":", 0, "not a JSON object"},
        {"", 16, "not a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_safetensors *file = (tern_safetensors *)&file;
        put_tensors("bad.safetensors", cases[i].header, cases[i].data);
        TEST_ERROR(tern_safetensors_open(at("bad.safetensors"), &file), TERN_ERROR_FORMAT, cases[i].sentence);
        assert_non_null(strstr(tern_error_message(), "bad.safetensors"));
        assert_null(file);
    }
}

static void test_foreign_files(void **state)
{
    (void)state;
    tern_safetensors *file = NULL;
    put("short.safetensors", "abc", 3);
    TEST_ERROR(tern_safetensors_open(at("short.safetensors"), &file), TERN_ERROR_FORMAT, "3 bytes");
    put("text.safetensors", "This is a text and no tensors.", 30);
    TEST_ERROR(tern_safetensors_open(at("text.safetensors"), &file), TERN_ERROR_FORMAT, "at most 100000000");
    put("cut.safetensors", "\x40\0\0\0\0\0\0\0{\"a\"", 12);
    TEST_ERROR(tern_safetensors_open(at("cut.safetensors"), &file), TERN_ERROR_FORMAT,
               "should have 64 bytes, but the file has 12");
    TEST_ERROR(tern_safetensors_open(at("absent.safetensors"), &file), TERN_ERROR_IO, "absent.safetensors");
    TEST_ERROR(tern_safetensors_open(folder, &file), TERN_ERROR_IO, "not a regular file");
}

/* --------------------------------------------------------------------- text */

static void test_text_folder(void **state)
{
    (void)state;
    static const char *const folders[] = {"text", "text/b", "text/build", "text/.git", "text/run"};
    for (size_t i = 0; i < 5; i++) assert_int_equal(mkdir(at(folders[i]), 0777), 0);
    put("text/c.txt", "CCC", 3);
    put("text/a.txt", "AA", 2);
    put("text/b/inner.md", "B", 1);
    put("text/empty", "", 0);
    put("text/binary", "x\0y", 3);
    put("text/.hidden", "no", 2);
    put("text/build/object.c", "no", 2);
    put("text/.git/config", "no", 2);
    put("text/run/metrics.jsonl", "no", 2);
    assert_int_equal(symlink("a.txt", at("text/link")), 0);
    const char *path = at("text"), *twice[2] = {at("text/c.txt"), at("text/b")};
    tern_text *text = NULL, *other = NULL;
    TEST_OK(tern_text_load(&path, 1, &text));
    assert_int_equal(text->byte_count, 6);
    assert_memory_equal(text->bytes, "AABCCC", 6);
    assert_int_equal(text->file_count, 3);
    assert_int_equal(text->skipped_count, 1);
    TEST_OK(tern_text_load(twice, 2, &other));
    assert_memory_equal(other->bytes, "CCCB", 4);
    assert_true(other->fingerprint != text->fingerprint);
    tern_text_destroy(text);
    tern_text_destroy(other);
}

static void test_text_errors(void **state)
{
    (void)state;
    tern_text *text = (tern_text *)&text;
    const char *absent = at("nowhere"), *binary = at("bin"), *empty = at("none"), *device = "/dev/null";
    put("bin", "a\0", 2);
    assert_int_equal(mkdir(empty, 0777), 0);
    TEST_ERROR(tern_text_load(&absent, 1, &text), TERN_ERROR_IO, "nowhere");
    assert_null(text);
    TEST_ERROR(tern_text_load(&binary, 1, &text), TERN_ERROR_INVALID, "is a binary file");
    TEST_ERROR(tern_text_load(&empty, 1, &text), TERN_ERROR_INVALID, "are empty");
    TEST_ERROR(tern_text_load(&device, 1, &text), TERN_ERROR_INVALID, "neither a file nor a folder");
    if (geteuid() == 0) {
        print_message("not tried: an unreadable file, since root reads everything\n");
        return;
    }
    const char *closed = at("closed");
    put("closed", "a", 1);
    assert_int_equal(chmod(closed, 0), 0);
    TEST_ERROR(tern_text_load(&closed, 1, &text), TERN_ERROR_IO, "closed");
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_all_dtypes),
        cmocka_unit_test(test_failed_write_changes_nothing),
        cmocka_unit_test(test_half_precision),
        cmocka_unit_test(test_malformed_files),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_text_folder),
        cmocka_unit_test(test_text_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
