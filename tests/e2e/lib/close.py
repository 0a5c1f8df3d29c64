"""Asks a window to close, as the button on its frame does: close.py WINDOW_ID"""

import ctypes
import sys

CLIENT_MESSAGE = 33


class Message(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("serial", ctypes.c_ulong),
        ("send_event", ctypes.c_int),
        ("display", ctypes.c_void_p),
        ("window", ctypes.c_ulong),
        ("message_type", ctypes.c_ulong),
        ("format", ctypes.c_int),
        ("data", ctypes.c_long * 5),
    ]


class Event(ctypes.Union):
    _fields_ = [("message", Message), ("pad", ctypes.c_long * 24)]


window = int(sys.argv[1])
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
x.XInternAtom.restype = ctypes.c_ulong
display = ctypes.c_void_p(x.XOpenDisplay(None))
atom = lambda name: x.XInternAtom(display, name, 0)  # noqa: E731
event = Event()
event.message.type = CLIENT_MESSAGE
event.message.window = window
event.message.message_type = atom(b"WM_PROTOCOLS")
event.message.format = 32
event.message.data[0] = atom(b"WM_DELETE_WINDOW")
x.XSendEvent(display, ctypes.c_ulong(window), 0, ctypes.c_long(0), ctypes.byref(event))
x.XSync(display, 0)
