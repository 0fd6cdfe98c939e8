"""For modules in C that make many named tuples."""

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t count)


cdef inline object named_tuple(type kind, tuple fields):
    """A named tuple of all its fields, without the Python code of its constructor."""
    cdef Py_ssize_t i, count = len(fields)
    made = PyType_GenericAlloc(<PyTypeObject *>kind, count)
    for i in range(count):
        field = <object>PyTuple_GET_ITEM(fields, i)
        Py_INCREF(field)
        PyTuple_SET_ITEM(made, i, field)
    return made
