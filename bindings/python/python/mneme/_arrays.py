"""What knows numpy: arrays as bytes with a description, and back. Imported when first needed."""

import ast


class Raw:
    """Bytes that are to become an array of bytes, without numpy."""

    def __init__(self, length, data):
        self.length = length
        self.data = data


def _numpy():
    try:
        import numpy
    except ImportError:
        raise ImportError(
            "arrays need numpy (pip install numpy); put_bytes() and view() need nothing"
        ) from None
    return numpy


def describe(array):
    """The array in C order, its descr (as in .npy files), its shape and its bytes."""
    if isinstance(array, Raw):
        return array, repr("|u1"), (array.length,), array.length
    numpy = _numpy()
    array = numpy.asarray(array)
    if array.dtype.hasobject:
        raise TypeError(
            f"an array of {array.dtype} holds Python objects, which mean nothing in another "
            "process: convert it to numbers or fixed-length text first (astype)"
        )
    descr = repr(numpy.lib.format.dtype_to_descr(array.dtype))
    return array, descr, array.shape, array.nbytes


def as_array(view, descr, shape):
    """An array on the bytes of a memoryview."""
    numpy = _numpy()
    try:
        dtype = numpy.lib.format.descr_to_dtype(ast.literal_eval(descr))
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        return numpy.ndarray(shape, dtype, view)
    except (ValueError, TypeError, LookupError, SyntaxError, MemoryError, RecursionError) as error:
        from . import Damaged

        raise Damaged(f"an array of {descr} and shape {shape} cannot be: {error}") from None


def fill(view, descr, shape, source, is_seen):
    """Copy an array's bytes into their place, of which there may be other views."""
    if isinstance(source, Raw):
        view[:] = source.data
        return
    if is_seen:
        # The source may be one. Views for reading and for writing have different addresses, so
        # numpy does not see that it changes what it has yet to copy.
        source = source.copy()
    as_array(view, descr, shape)[...] = source
