"""A film as it is being written."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dvdrl import files
from dvdrl.errors import DvdrlError

MOST = 2**36
"""The most bytes of a film: 64 GiB."""


class Movie:
    """An MP4 that any browser plays."""

    def __init__(self, path: Path, rate: Fraction):
        import av

        self._path, self._rate = path, rate
        self._container = av.open(path, "w", format="mp4", options={"movflags": "faststart"})
        self._stream: Any = None

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append a picture; all are of one size."""
        import av

        if self._stream is None:
            self._stream = self._container.add_stream("libx264", self._rate, options={"preset": "fast", "crf": "23"})
            self._stream.height, self._stream.width = picture.shape[:2]
            self._stream.pix_fmt = "yuv420p"
        self._container.mux(self._stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))

    def finish(self) -> bytes:
        """The film."""
        self._container.mux(self._stream.encode())
        self._container.close()
        return files.read(self._path, most=MOST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failed: object) -> None:
        with suppress(OSError, ValueError):  # what is not finished cannot always be closed well, as on a full disk
            self._container.close()


@contextmanager
def writing(videos: Path) -> Iterator[None]:
    """What goes wrong while films are written, as an error that says where."""
    try:
        yield
    except OSError as error:
        said = f"cannot write to {videos}: {error.strerror or error}; films are made in {gettempdir()} first"
        raise DvdrlError(said) from error
