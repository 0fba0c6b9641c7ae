from colligate.readers.compress import *  # noqa: F403
from colligate.readers.compress import (
    CompressedPassage,
    compress,
    keep_above_percentile,
    locate_quote,
    visible_text,
)  # noqa: F401
