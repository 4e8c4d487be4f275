"""An Arrow table that two processes share: neither copies it.

    python arrow_table.py          needs pyarrow and numpy

The first process writes the table once, in Arrow's own format, into an array of a segment. The
second one maps it. Its columns lie in the segment's memory, and its resident memory shows it.
"""

import subprocess
import sys

import mneme

try:
    import numpy
    import pyarrow as arrow
except ImportError as missing:
    sys.exit(f"skipped: {missing}")


def write(segment, name, table):
    """Put a table into a segment: as long as its stream, written in place."""
    size = arrow.MockOutputStream()
    with arrow.ipc.new_stream(size, table.schema) as stream:
        stream.write_table(table)
    segment.put_array(name, numpy.zeros(size.size(), "u1"))
    with segment.write() as w:
        target = arrow.FixedSizeBufferWriter(arrow.py_buffer(w.array(name)))
        with arrow.ipc.new_stream(target, table.schema) as stream:
            stream.write_table(table)
        target.close()
        del target, stream


def read(segment, name):
    """A table on the segment's own bytes."""
    return arrow.ipc.open_stream(arrow.py_buffer(segment.array(name))).read_all()


def main():
    if sys.argv[1:] == ["read"]:
        with mneme.Segment.open("tables", writable=False) as segment:
            table = read(segment, "trips")
            print(table.num_rows, arrow.compute.sum(table["price"]).as_py())
            print("copied:", arrow.total_allocated_bytes() > table.nbytes // 10)
            del table
        return
    numbers = numpy.arange(1_000_000)
    table = arrow.table({"id": numbers, "price": numbers % 100 / 4})
    with mneme.Segment.create("tables", "256MiB") as segment:
        write(segment, "trips", table)
        read_by_another = [sys.executable, __file__, "read"]
        said = subprocess.run(read_by_another, check=True, capture_output=True, text=True).stdout
        assert said.split() == ["1000000", "12375000.0", "copied:", "False"], said
        print(said, end="")
    mneme.Segment.remove("tables")


if __name__ == "__main__":
    import pyarrow.compute

    main()
