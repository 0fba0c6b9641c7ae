"""What OCR needs: Tesseract's language data on this machine, and pictures as pages of a PDF.

Tesseract itself is in liteparse. It would fetch missing data from GitHub, so it is started only
with a folder that has them: nothing is downloaded.
"""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

from colligate.documents.reading.formats import PICTURES
from colligate.errors import MissingExtra, UsageError

NO_TEXT = "no text (blank, or scanned: --ocr reads scans)"
"""The beginning of the warning about pages that OCR may read."""

_FOLDERS = (
    "/usr/share/tesseract-ocr/5/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
    "/usr/share/tessdata",
    "/usr/local/share/tessdata",
    "/opt/homebrew/share/tessdata",
)
_LANGUAGES = re.compile(r"\w{3,}(\+\w{3,})*")
_DOTS_PER_INCH = 200.0  # taken for a picture that does not say, or says the screen's
_FEWEST_DOTS = 100


def find_language_data(languages: str) -> Path:
    """Return the first folder with Tesseract's data of all `languages`, such as "eng+deu".

    They are looked for in TESSDATA_PREFIX, where the packages `tessdata.*` put them, and where the
    packages of Debian, Fedora, Arch and Homebrew do.

    Raises:
        UsageError: `languages` is not a list of languages.
        MissingExtra: no folder has them all.
    """
    if not _LANGUAGES.fullmatch(languages):
        why = f"expected languages as Tesseract names them, got {languages!r}"
        raise UsageError("cannot read by OCR", why, "write eng, or eng+deu")
    own = os.environ.get("TESSDATA_PREFIX")
    folders = [Path(own)] if own else []
    folders += [Path(sys.prefix, "share", "tessdata"), *map(Path, _FOLDERS)]
    names = [f"{language}.traineddata" for language in languages.split("+")]
    for folder in folders:
        if all((folder / name).is_file() for name in names):
            return folder
    missing = [n for n in names if not any((each / n).is_file() for each in folders)] or names
    why = f"no folder of Tesseract's language data has {' and '.join(missing)}"
    hint = "pip install 'colligate[ocr]' brings eng; TESSDATA_PREFIX names a folder with others"
    raise MissingExtra("cannot read by OCR", why, hint)


def as_pdf(data: bytes) -> bytes:
    """Return a picture as a PDF with a page for each of its frames; other data as they are.

    Raises:
        MissingExtra: Pillow is not installed.
        ValueError: the picture is damaged, or too large.
    """
    if not data.startswith(tuple(PICTURES)):
        return data
    try:
        from PIL import Image, ImageOps, ImageSequence
    except ImportError as error:
        hint = "pip install 'colligate[ocr]'"
        raise MissingExtra("cannot read a picture", "Pillow is not installed", hint) from error
    try:
        with Image.open(io.BytesIO(data)) as picture:
            dots = float(picture.info.get("dpi", (0, 0))[0])
            turned = map(ImageOps.exif_transpose, ImageSequence.Iterator(picture))
            frames = [each.convert("L" if each.mode in ("1", "L") else "RGB") for each in turned]
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(str(error)) from error
    written = io.BytesIO()
    resolution = dots if dots >= _FEWEST_DOTS else _DOTS_PER_INCH
    options = {"save_all": True, "append_images": frames[1:], "quality": 90}
    unsaid = dict.fromkeys(("title", "creationDate", "modDate"))
    frames[0].save(written, "PDF", resolution=resolution, **options, **unsaid)
    return written.getvalue()
