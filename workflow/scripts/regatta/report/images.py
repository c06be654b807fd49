"""How a drawn figure becomes bytes: as vectors, or as a bitmap where the page has so many that it would grow too large.

200 figures as vectors are 25 MB and a minute of work, as bitmaps of 32 colours 4 MB and half a minute.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

PNG_START = b"\x89PNG"
BITMAP_DPI = 150  # three dots for two pixels of the page, where 3.9 inches are 390
BITMAP_COLOURS = 32

_is_bitmap: ContextVar[bool] = ContextVar("is_bitmap", default=False)


@contextmanager
def bitmaps(is_wanted: bool) -> Iterator[None]:
    """Draw bitmaps within this block if they are wanted."""
    token = _is_bitmap.set(is_wanted)
    try:
        yield
    finally:
        _is_bitmap.reset(token)


def image_of(figure: Figure) -> bytes:
    """Return a figure as SVG or PNG, the same bytes for the same figure."""
    buffer = io.BytesIO()
    if not _is_bitmap.get():
        figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
        return buffer.getvalue()
    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(BITMAP_DPI)
    canvas.draw()
    picture = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    picture.quantize(BITMAP_COLOURS, method=Image.Quantize.FASTOCTREE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def mime_of(image: bytes) -> str:
    return "image/png" if image.startswith(PNG_START) else "image/svg+xml"
