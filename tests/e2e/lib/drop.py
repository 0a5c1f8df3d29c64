"""Offers files for a drag as a file manager does, and has xdotool drag them: drop.py SOURCE_X TO_X TO_Y PATH…"""

import pathlib
import subprocess
import sys

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk  # noqa: E402

SIZE = 120
source_x, to_x, to_y = map(int, sys.argv[1:4])
uris = [pathlib.Path(path).resolve().as_uri() for path in sys.argv[4:]]

window = Gtk.Window(type=Gtk.WindowType.POPUP)
window.set_default_size(SIZE, SIZE)
window.move(source_x, 0)
box = Gtk.EventBox()
window.add(box)
box.drag_source_set(Gdk.ModifierType.BUTTON1_MASK, [], Gdk.DragAction.COPY)
box.drag_source_add_uri_targets()
box.connect("drag-data-get", lambda _box, _context, data, _info, _time: data.set_uris(uris))


# Without a taker the window would show nothing, and the test would wait in vain.
box.connect("drag-failed", lambda *_: sys.exit("The window did not take the drop."))
box.connect("drag-end", lambda *_: sys.exit(0))
window.show_all()


def drag():
    steps = ["mousemove", source_x + SIZE // 2, SIZE // 2, "mousedown", 1]
    # The window learns of the drag while it moves, and answers before it can be dropped.
    for share in (0.1, 0.3, 0.6, 0.9, 1, 1.005, 1):
        x = round(source_x + (to_x - source_x) * share)
        y = round(SIZE // 2 + (to_y - SIZE // 2) * share)
        steps += ["mousemove", x, y, "sleep", "0.1"]
    steps += ["sleep", "0.3", "mouseup", 1]
    subprocess.Popen(["xdotool", *map(str, steps)])
    return GLib.SOURCE_REMOVE


GLib.timeout_add(200, drag)
GLib.timeout_add_seconds(20, lambda: sys.exit("The drag never ended."))
Gtk.main()
