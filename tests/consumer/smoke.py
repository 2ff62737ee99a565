# SPDX-License-Identifier: Apache-2.0
"""smoke.py LIBTERN: trains 20 steps on cpu through ctypes, as another language binds to the library.

It knows the header's functions and structures by hand and uses the standard library only; numpy, where it is there,
reads a weight and feeds a batch through DLPack. Any difference ends it with a traceback.
"""
import ctypes as c
import random
import sys

tern = c.CDLL(sys.argv[1])
tern.tern_error_message.restype = c.c_char_p
tern.tern_version.restype = c.c_char_p
for name in ("input_2d", "input_1d", "linear", "gelu", "cross_entropy"):
    getattr(tern, "tern_" + name).restype = c.c_void_p
F32, I32 = 1, 4
BATCH, WIDTH, CLASSES = 16, 8, 3


class Options(c.Structure):
    _fields_ = [("struct_bytes", c.c_uint32), ("precision", c.c_int32), ("optimizer", c.c_char_p),
                ("schedule", c.c_char_p), ("seed", c.c_uint64), ("lr", c.c_double), ("rest", c.c_ubyte * 256)]


class Feed(c.Structure):
    _fields_ = [("name", c.c_char_p), ("data", c.c_void_p), ("bytes", c.c_size_t)]


class Report(c.Structure):
    _fields_ = [("struct_bytes", c.c_uint32), ("updated", c.c_int32), ("step", c.c_int64), ("examples", c.c_int64),
                ("reported", c.c_int64), ("loss", c.c_double), ("weight", c.c_double), ("grad_norm", c.c_double),
                ("lr", c.c_double), ("loss_scale", c.c_double), ("skipped", c.c_int32), ("ended", c.c_int32),
                ("skips", c.c_int64), ("skips_in_row", c.c_int64)]


def check(status):
    if status < 0:
        raise RuntimeError(tern.tern_error_message().decode())


def make_graph():
    graph = c.c_void_p()
    check(tern.tern_graph_create(c.byref(graph)))
    i64 = c.c_int64
    x = c.c_void_p(tern.tern_input_2d(graph, b"x", F32, i64(BATCH), i64(WIDTH)))
    y = c.c_void_p(tern.tern_input_1d(graph, b"y", I32, i64(BATCH)))
    h = c.c_void_p(tern.tern_gelu(c.c_void_p(tern.tern_linear(x, b"fc1", i64(32)))))
    z = c.c_void_p(tern.tern_linear(h, b"fc2", i64(CLASSES)))
    tern.tern_output(x, b"seen")
    tern.tern_loss(c.c_void_p(tern.tern_cross_entropy(z, y, i64(-1))), None)
    return graph


def read_through_numpy(trainer, name, expected):
    try:
        import numpy
    except ImportError:
        print("numpy is not there: DLPack is not read through it")
        return
    tensor = c.c_void_p()
    check(tern.tern_dlpack_export(trainer, name, c.byref(tensor)))
    new = c.pythonapi.PyCapsule_New
    new.restype, new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]

    class Holder:  # what numpy.from_dlpack asks for
        def __dlpack__(self, **_):
            return new(tensor, b"dltensor", None)

        def __dlpack_device__(self):
            return (1, 0)

    array = numpy.from_dlpack(Holder())
    assert array.shape == (32, WIDTH) and array.dtype == numpy.float32
    assert array.reshape(-1).tolist() == list(expected)
    print("numpy read", array.shape)


def feed_from_numpy(trainer, labels):
    """A transposed array, whose strides are not the input's, in one step."""
    try:
        import numpy
    except ImportError:
        return
    array = numpy.arange(BATCH * WIDTH, dtype=numpy.float32).reshape(WIDTH, BATCH).T / 100
    capsule = array.__dlpack__()
    pointer = c.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
    check(tern.tern_dlpack_stage(trainer, b"x", c.c_void_p(pointer(capsule, b"dltensor"))))
    feeds = (Feed * 2)(Feed(b"x", None, 0), Feed(b"y", c.addressof(labels), c.sizeof(labels)))
    check(tern.tern_trainer_step(trainer, feeds, c.c_size_t(2), c.c_int64(BATCH), None))
    seen = (c.c_float * (BATCH * WIDTH))()
    check(tern.tern_trainer_read(trainer, b"seen", F32, seen, c.c_size_t(c.sizeof(seen))))
    assert list(seen) == array.reshape(-1).tolist()
    print("numpy fed", array.shape, array.strides)


def main():
    device, trainer, options, report = c.c_void_p(), c.c_void_p(), Options(), Report()
    check(tern.tern_device_open(b"cpu", c.byref(device)))
    graph = make_graph()
    tern.tern_train_options_init(c.byref(options), c.c_size_t(c.sizeof(options)))
    assert options.struct_bytes == c.sizeof(options) and options.optimizer == b"adamw"
    options.lr = 0.02
    check(tern.tern_trainer_create(device, graph, c.byref(options), c.byref(trainer)))
    tern.tern_graph_destroy(graph)
    random.seed(1)
    losses = []
    for _ in range(20):
        rows = [[random.random() for _ in range(WIDTH)] for _ in range(BATCH)]
        labels = [max(range(CLASSES), key=lambda k: row[k]) for row in rows]
        x = (c.c_float * (BATCH * WIDTH))(*[v for row in rows for v in row])
        y = (c.c_int32 * BATCH)(*labels)
        feeds = (Feed * 2)(Feed(b"x", c.addressof(x), c.sizeof(x)), Feed(b"y", c.addressof(y), c.sizeof(y)))
        report.struct_bytes = c.sizeof(report)
        check(tern.tern_trainer_step(trainer, feeds, c.c_size_t(2), c.c_int64(BATCH), c.byref(report)))
        if report.reported:
            losses.append(report.loss)
    check(tern.tern_trainer_finish(trainer, c.byref(report)))
    losses.append(report.loss)
    assert report.step == report.reported == len(losses) == 20 and report.examples == 20 * BATCH
    assert losses[-1] < losses[0], losses
    weight = (c.c_float * (32 * WIDTH))()
    check(tern.tern_trainer_read(trainer, b"fc1.weight", F32, weight, c.c_size_t(c.sizeof(weight))))
    assert any(weight)
    assert tern.tern_trainer_read(trainer, b"none", F32, weight, c.c_size_t(4)) == -5
    assert b'"none"' in tern.tern_error_message()
    read_through_numpy(trainer, b"fc1.weight", weight)
    feed_from_numpy(trainer, y)
    tern.tern_trainer_destroy(trainer)
    tern.tern_device_close(device)
    print("tern", tern.tern_version().decode(), "loss", round(losses[0], 3), "to", round(losses[-1], 3))


main()
