"""What knows numpy: arrays as bytes with a description, and back. Imported when first needed."""

import ast


def _numpy():
    try:
        import numpy
    except ImportError:
        raise ImportError(
            "arrays need numpy (pip install numpy); put_bytes() and view() need nothing"
        ) from None
    return numpy


def describe(array):
    """The array's bytes in C order, its descr (as in .npy files) and its shape."""
    numpy = _numpy()
    array = numpy.asarray(array, order="C")
    if array.dtype.hasobject:
        raise TypeError(
            f"an array of {array.dtype} holds Python objects, which mean nothing in another "
            "process: convert it to numbers or fixed-length text first (astype)"
        )
    descr = repr(numpy.lib.format.dtype_to_descr(array.dtype))
    flat = array.reshape(-1).view(numpy.uint8) if array.nbytes else b""
    return flat, descr, array.shape


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
