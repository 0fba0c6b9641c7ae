from support.films import sources  # noqa: F401
from support.tiny_models import one_thread, tiny_folder  # noqa: F401
