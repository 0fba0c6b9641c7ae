"""The C interface of libllama: only what is used here, through ctypes.

`load_library` opens the shared libraries of a folder, of the version whose structures are declared
here. ctypes releases the GIL during each call, so other threads run while a batch is
computed. A model or context must be used by one thread at a time.
"""

from __future__ import annotations

import ctypes as c
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import wait_without_spinning
from colligate.errors import ServerFailed, WeightsUnavailable
from colligate.models.llama.libraries import LIBRARY, PARTS, VERSION, find_library_file

_logger = logging.getLogger(__name__)

_FLASH_ON = 1  # `llama_flash_attn_type`
_F32, _F16 = 0, 1  # `ggml_type`
_READ = 0  # `llama_load_mode`
# Computed together: more are hardly faster, and a cancelled call waits longer.
BATCH_TOKENS = 256
_BUSY = 0.85  # of the processor time that the threads could have had
_LEAST_SECONDS = 0.01  # a shorter time tells nothing
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds until all threads are tried again

EvalCallback = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_bool, c.c_void_p)
AbortCallback = c.CFUNCTYPE(c.c_bool, c.c_void_p)
LogCallback = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)


def _list_fields(*declared: tuple[Any, str]) -> list[tuple[str, Any]]:
    """Return the fields of a structure, given as in C: a type, then the names of its fields."""
    return [(name, kind) for kind, names in declared for name in names.split()]


class ModelParams(c.Structure):
    """`llama_model_params`."""

    _fields_ = _list_fields(
        (c.c_void_p, "devices tensor_buft_overrides"),
        (c.c_int32, "n_gpu_layers"),
        (c.c_int, "split_mode load_mode lazy_mode"),
        (c.c_int32, "main_gpu"),
        (c.c_void_p, "tensor_split progress_callback progress_callback_user_data kv_overrides"),
        (c.c_bool, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
    )


class ContextParams(c.Structure):
    """`llama_context_params`."""

    _fields_ = _list_fields(
        (c.c_uint32, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max"),
        (c.c_uint32, "n_outputs_max_per_seq"),
        (c.c_int32, "n_threads n_threads_batch"),
        (c.c_int, "ctx_type rope_scaling_type pooling_type attention_type flash_attn_type"),
        (c.c_float, "rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor"),
        (c.c_float, "yarn_beta_fast yarn_beta_slow"),
        (c.c_uint32, "yarn_orig_ctx"),
        (c.c_float, "defrag_thold"),
        (EvalCallback, "cb_eval"),
        (c.c_void_p, "cb_eval_user_data"),
        (c.c_int, "type_k type_v"),
        (AbortCallback, "abort_callback"),
        (c.c_void_p, "abort_callback_data"),
        (c.c_bool, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"),
        (c.c_void_p, "samplers"),
        (c.c_size_t, "n_samplers"),
        (c.c_void_p, "ctx_other"),
    )


class Batch(c.Structure):
    """`llama_batch`."""

    _fields_ = _list_fields(
        (c.c_int32, "n_tokens"), (c.c_void_p, "token embd pos n_seq_id seq_id logits")
    )


class Tensor(c.Structure):
    """`ggml_tensor`, up to its name."""

    _fields_ = _list_fields(
        (c.c_int, "type"),
        (c.c_void_p, "buffer"),
        (c.c_int64 * 4, "ne"),
        (c.c_size_t * 4, "nb"),
        (c.c_int, "op"),
        (c.c_int32 * 16, "op_params"),
        (c.c_int32, "flags"),
        (c.c_void_p * 10, "src"),
        (c.c_void_p, "view_src"),
        (c.c_size_t, "view_offs"),
        (c.c_void_p, "data"),
        (c.c_char * 64, "name"),
    )


_LLAMA: dict[str, tuple[Any, ...]] = {  # function: result, arguments
    "llama_version": (c.c_char_p,),
    "llama_backend_init": (None,),
    "llama_log_set": (None, LogCallback, c.c_void_p),
    "llama_model_default_params": (ModelParams,),
    "llama_context_default_params": (ContextParams,),
    "llama_model_load_from_file": (c.c_void_p, c.c_char_p, ModelParams),
    "llama_model_free": (None, c.c_void_p),
    "llama_model_get_vocab": (c.c_void_p, c.c_void_p),
    "llama_model_chat_template": (c.c_char_p, c.c_void_p, c.c_char_p),
    "llama_model_n_layer": (c.c_int32, c.c_void_p),
    "llama_model_n_swa": (c.c_int32, c.c_void_p),
    "llama_model_is_recurrent": (c.c_bool, c.c_void_p),
    "llama_model_is_hybrid": (c.c_bool, c.c_void_p),
    "llama_vocab_n_tokens": (c.c_int32, c.c_void_p),
    "llama_vocab_bos": (c.c_int32, c.c_void_p),
    "llama_vocab_eos": (c.c_int32, c.c_void_p),
    "llama_vocab_get_add_bos": (c.c_bool, c.c_void_p),
    "llama_vocab_get_attr": (c.c_int, c.c_void_p, c.c_int32),
    "llama_vocab_is_eog": (c.c_bool, c.c_void_p, c.c_int32),
    "llama_tokenize": (
        *(c.c_int32, c.c_void_p, c.c_char_p, c.c_int32),
        *(c.c_void_p, c.c_int32, c.c_bool, c.c_bool),
    ),
    "llama_token_to_piece": (
        *(c.c_int32, c.c_void_p, c.c_int32),
        *(c.c_char_p, c.c_int32, c.c_int32, c.c_bool),
    ),
    "llama_init_from_model": (c.c_void_p, c.c_void_p, ContextParams),
    "llama_free": (None, c.c_void_p),
    "llama_decode": (c.c_int32, c.c_void_p, Batch),
    "llama_set_n_threads": (None, c.c_void_p, c.c_int32, c.c_int32),
    "llama_get_logits_ith": (c.c_void_p, c.c_void_p, c.c_int32),
    "llama_get_memory": (c.c_void_p, c.c_void_p),
    "llama_memory_seq_pos_min": (c.c_int32, c.c_void_p, c.c_int32),
    "llama_memory_seq_rm": (c.c_bool, c.c_void_p, c.c_int32, c.c_int32, c.c_int32),
    "llama_memory_seq_cp": (None, c.c_void_p, c.c_int32, c.c_int32, c.c_int32, c.c_int32),
    "llama_state_seq_get_size": (c.c_size_t, c.c_void_p, c.c_int32),
    "llama_state_seq_get_data": (c.c_size_t, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int32),
    "llama_state_seq_set_data": (c.c_size_t, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int32),
    "llama_adapter_lora_init": (c.c_void_p, c.c_void_p, c.c_char_p),
    "llama_set_adapters_lora": (
        *(c.c_int32, c.c_void_p),
        *(c.POINTER(c.c_void_p), c.c_size_t, c.POINTER(c.c_float)),
    ),
}
_GGML: dict[str, tuple[Any, ...]] = {
    "ggml_backend_load_all_from_path": (None, c.c_char_p),
    "ggml_backend_dev_count": (c.c_size_t,),
    "ggml_backend_dev_get": (c.c_void_p, c.c_size_t),
    "ggml_backend_dev_name": (c.c_char_p, c.c_void_p),
    "ggml_backend_dev_description": (c.c_char_p, c.c_void_p),
    "ggml_backend_tensor_get": (None, c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t),
}


class LlamaLibrary:
    """The functions of libllama, by their names in C."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        opened = [_open(folder, part) for part in PARTS]
        for name, (result, *arguments) in (_GGML | _LLAMA).items():
            function = next((getattr(each, name) for each in opened if hasattr(each, name)), None)
            if function is None:
                raise _unfit(folder, f"it has no function {name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.version: str = self.llama_version().decode()
        if self.version.partition("-")[0] != VERSION.removeprefix("v"):
            raise _unfit(folder, f"it is version {self.version}")
        self._log = LogCallback(_log)
        self.llama_log_set(self._log, None)
        self.ggml_backend_load_all_from_path(os.fsencode(folder))
        self.llama_backend_init()

    def __getattr__(self, name: str) -> Any:  # for mypy: the functions are attributes
        raise AttributeError(name)


@cache
def load_library(folder: Path) -> LlamaLibrary:
    """Load the shared libraries of a folder, once in a process; some builds use OpenMP.

    WeightsUnavailable if they are missing, cannot be loaded, or are of another version.
    """
    wait_without_spinning()
    return LlamaLibrary(folder)


def _open(folder: Path, part: str) -> c.CDLL:
    file = find_library_file(folder, part)
    if file is None:
        raise _unfit(folder, f"it has no lib{part}")
    try:
        return c.CDLL(str(file), mode=c.RTLD_GLOBAL)
    except OSError as error:
        raise _unfit(folder, str(error)) from error


def _unfit(folder: Path, why: str) -> WeightsUnavailable:
    hint = f"name a folder with version {VERSION} in COLLIGATE_LLAMA, or unset it and run "
    hint += f"colligate models pull {LIBRARY}"
    return WeightsUnavailable(f"cannot use the llama.cpp libraries in {folder}", why, hint)


_ERROR = 4  # `ggml_log_level`
_last_error = ""


def _log(level: int, text: bytes, _: object) -> None:
    """Keep the last error for messages; all lines go to Python's debug log."""
    global _last_error
    line = text.decode(errors="replace").strip()
    if level == _ERROR:
        _last_error = line
    if line:
        _logger.debug("%s", line)


def _forget_error() -> None:
    global _last_error
    _last_error = ""


def list_devices(folder: Path) -> list[str]:
    """Load a folder's libraries; return what they compute with. Errors as `load_library`."""
    library, found = load_library(folder), []
    for number in range(library.ggml_backend_dev_count()):
        device = library.ggml_backend_dev_get(number)
        about = library.ggml_backend_dev_description(device).decode().strip()
        found.append(f"{library.ggml_backend_dev_name(device).decode()} ({about})")
    return found


class Model:
    """A GGUF file's weights and vocabulary, or its vocabulary alone.

    `tokenize` and `piece` may be called by any thread. WeightsUnavailable if llama.cpp cannot load
    the file.
    """

    def __init__(self, library: LlamaLibrary, path: Path, *, weights: bool = True) -> None:
        self.library = library
        self.path = path
        _forget_error()
        params = library.llama_model_default_params()
        params.vocab_only = not weights
        # llama.cpp arranges the weights anew for the processor: a mapped file would stay in memory
        # beside that copy.
        params.load_mode = _READ
        handle = library.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            what = f"cannot load {path}"
            why = _last_error or "it is damaged, of an unknown kind, or too large"
            raise WeightsUnavailable(what, why, "download it again, or use another model")
        self.handle = handle
        self._vocab = library.llama_model_get_vocab(handle)
        self.vocabulary_size: int = library.llama_vocab_n_tokens(self._vocab)
        self.bos: int = library.llama_vocab_bos(self._vocab)
        self.eos: int = library.llama_vocab_eos(self._vocab)
        self.adds_bos: bool = library.llama_vocab_get_add_bos(self._vocab)
        self.layers: int = library.llama_model_n_layer(handle)
        self.sliding_window: int = library.llama_model_n_swa(handle)
        self.recurrent: bool = library.llama_model_is_recurrent(
            handle
        ) or library.llama_model_is_hybrid(handle)

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return the tokens of a text; with `special`, marks like <|im_end|> are control tokens."""
        data = text.encode()
        tokens = np.empty(len(data) + 2, np.int32)
        count = self.library.llama_tokenize(
            self._vocab, data, len(data), tokens.ctypes.data, len(tokens), False, special
        )
        if count < 0:
            raise ServerFailed(f"{self.path.name} cannot tokenize a text", f"result {count}")
        return [int(token) for token in tokens[:count]]

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token, which need not be whole characters."""
        buffer = c.create_string_buffer(_LONGEST_PIECE)
        size = self.library.llama_token_to_piece(
            self._vocab, token, buffer, _LONGEST_PIECE, 0, True
        )
        if size < 0:
            buffer = c.create_string_buffer(-size)
            size = self.library.llama_token_to_piece(self._vocab, token, buffer, -size, 0, True)
        return buffer.raw[:size]

    def controls(self) -> set[int]:
        """Return the control tokens: those that are never text."""
        attributes = self.library.llama_vocab_get_attr
        return {t for t in range(self.vocabulary_size) if attributes(self._vocab, t) & _CONTROL}

    def ends(self) -> frozenset[int]:
        """Return the tokens that end an answer."""
        is_end = self.library.llama_vocab_is_eog
        return frozenset(t for t in range(self.vocabulary_size) if is_end(self._vocab, t))

    def template(self) -> str | None:
        """Return the chat template; None if the file has no template."""
        found: bytes | None = self.library.llama_model_chat_template(self.handle, None)
        return None if found is None else found.decode(errors="replace")

    def make_llguidance_tokenizer(self) -> Any:
        """Return llguidance's view of the vocabulary; takes about a second."""
        import llguidance

        controls = self.controls()
        pieces = [
            b"\xff" + self.piece(t) if t in controls else self.piece(t)
            for t in range(self.vocabulary_size)
        ]
        return llguidance.LLTokenizer.from_llamacpp(  # type: ignore[attr-defined]
            tokens=pieces,
            vocab_ptr=self._vocab,
            tokenize_fptr=c.cast(self.library.llama_tokenize, c.c_void_p).value,
            eos_token=self.eos,
        )

    def close(self) -> None:
        """Free the weights; contexts must be closed before."""
        if self.handle:
            self.library.llama_model_free(self.handle)
            self.handle = None


_LONGEST_PIECE = 128
_CONTROL = 1 << 3  # `llama_token_attr`


class Context:
    """Keys and values of up to `sequences` token sequences, in `cells` shared cells.

    `on_tensor` is called with each tensor before it is computed; it returns whether it wants to
    see it, and is then called again with its values.

    A batch is computed by `threads` threads, or by one while other processes want the processor:
    llama.cpp's threads wait for each other after each of a thousand operations, and a thread that
    lost its core to another process keeps all waiting. Two threads on a busy machine can be twenty
    times slower than one.
    """

    def __init__(
        self,
        model: Model,
        *,
        cells: int,
        sequences: int,
        outputs: int,
        threads: int,
        on_tensor: Callable[[int, bool], bool] | None = None,
    ) -> None:
        self.model = model
        self._library = library = model.library
        _forget_error()
        params = library.llama_context_default_params()
        params.n_ctx = cells
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.n_seq_max = sequences
        params.n_outputs_max = params.n_outputs_max_per_seq = outputs
        params.flash_attn_type = _FLASH_ON
        params.kv_unified = True
        if on_tensor is not None:
            self._callback = EvalCallback(lambda tensor, ask, _: on_tensor(tensor, ask))
            params.cb_eval = self._callback
        self._handle = library.llama_init_from_model(model.handle, params)
        if not self._handle:
            what = f"cannot compute with {model.path.name}"
            hint = "choose a smaller context_tokens, or a smaller model"
            raise WeightsUnavailable(what, _last_error or "there may be too little memory", hint)
        self._memory = library.llama_get_memory(self._handle)
        # Each token of a batch points at the number of its sequence.
        self._numbers = np.arange(sequences, dtype=np.int32)
        self._threads = threads
        # By time.perf_counter: time.monotonic stands still for 16 ms on Windows before Python 3.13.
        self._alone_until = -math.inf
        self._pause = _FIRST_PAUSE

    def decode(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[int],
        outputs: Sequence[bool],
    ) -> bool:
        """Compute some tokens, each at a position of a sequence; `outputs` get logits.

        False if too few cells are free; nothing has changed then. ServerFailed if llama.cpp cannot
        compute: the cells of these tokens are then undefined.
        """
        token = np.asarray(tokens, np.int32)
        position = np.asarray(positions, np.int32)
        count = np.ones(len(token), np.int32)
        wanted = np.asarray(outputs, np.int8)
        # Pointers into `_numbers`, which are 4 bytes each.
        number = np.asarray(sequences, np.uint64) * 4 + np.uint64(self._numbers.ctypes.data)
        arrays = (token, position, count, number, wanted)
        pointers = [array.ctypes.data for array in arrays]
        batch = Batch(len(token), pointers[0], None, *pointers[1:])
        start, used = time.perf_counter(), time.process_time()
        threads = self._threads if start >= self._alone_until else 1
        self._library.llama_set_n_threads(self._handle, threads, threads)
        code: int = self._library.llama_decode(self._handle, batch)
        if code not in (0, _NO_ROOM):
            what = f"{self.model.path.name} could not compute a batch"
            raise ServerFailed(what, f"llama.cpp's result {code}")
        end = time.perf_counter()
        share = (time.process_time() - used) / (end - start) / threads
        if threads > 1:
            if share < _BUSY and end - start > _LEAST_SECONDS:
                self._alone_until = end + self._pause
                self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            else:
                self._pause = _FIRST_PAUSE
        return code == 0

    def logits(self, index: int) -> NDArray[np.float32]:
        """Return the logits after a token of the last batch, [vocabulary]; valid until the next."""
        address = self._library.llama_get_logits_ith(self._handle, index)
        pointer = c.cast(address, c.POINTER(c.c_float))
        return np.ctypeslib.as_array(pointer, (self.model.vocabulary_size,))

    def copy(self, source: int, target: int, length: int) -> None:
        """Let a sequence begin as another one does; the cells are shared. See `holds`."""
        self._library.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def cut(self, sequence: int, length: int = 0) -> bool:
        """Remove what follows the first `length` tokens of a sequence.

        False if it has a recurrent state of more tokens, and all must be removed.
        """
        return bool(self._library.llama_memory_seq_rm(self._memory, sequence, length, -1))

    def holds(self, sequence: int, length: int) -> bool:
        """Return whether all is there to go on after `length` tokens of a sequence, not its last.

        It is not where the state is recurrent, nor where other sequences took the cells of tokens
        that the sliding window had left.
        """
        first: int = self._library.llama_memory_seq_pos_min(self._memory, sequence)
        window = self.model.sliding_window
        return first == 0 or 0 < window <= length + 1 - first

    def save(self, sequence: int) -> NDArray[np.uint8]:
        """Return the keys and values of a sequence."""
        size = self._library.llama_state_seq_get_size(self._handle, sequence)
        data = np.empty(size, np.uint8)
        self._library.llama_state_seq_get_data(self._handle, data.ctypes.data, size, sequence)
        return data

    def restore(self, sequence: int, data: NDArray[np.uint8]) -> bool:
        """Make a sequence what was saved; False if it does not fit."""
        read = self._library.llama_state_seq_set_data(
            self._handle, data.ctypes.data, len(data), sequence
        )
        return bool(read)

    def use_adapter(self, adapter: int | None) -> None:
        """Apply a LoRA adapter, loaded by `load_adapter`, to the next batches; None for none."""
        count = int(adapter is not None)
        self._library.llama_set_adapters_lora(
            self._handle, (c.c_void_p * 1)(adapter), count, (c.c_float * 1)(1.0)
        )

    def close(self) -> None:
        """Free the memory. Safe to call twice."""
        if self._handle:
            self._library.llama_free(self._handle)
            self._handle = None


_NO_ROOM = 1  # of `llama_decode`


def load_adapter(model: Model, path: Path) -> int:
    """Load a LoRA adapter in GGUF; it is freed with the model.

    WeightsUnavailable if it is not one, or is made for another model.
    """
    _forget_error()
    handle = model.library.llama_adapter_lora_init(model.handle, os.fsencode(path))
    if not handle:
        what = f"cannot use the adapter {path} with {model.path.name}"
        why = _last_error or "llama.cpp cannot read it"
        raise WeightsUnavailable(what, why, "give an adapter that was made for this model")
    return int(handle)


def read_tensor(library: LlamaLibrary, address: int) -> NDArray[np.float32]:
    """Return the values of a tensor as float32, in its own order of dimensions, slowest first."""
    tensor = Tensor.from_address(address)
    kind = np.dtype({_F32: np.float32, _F16: np.float16}[tensor.type])
    last = sum((n - 1) * step for n, step in zip(tensor.ne, tensor.nb, strict=True)) + kind.itemsize
    data = np.empty(last, np.uint8)
    library.ggml_backend_tensor_get(address, data.ctypes.data, 0, last)
    strided = np.ndarray(tuple(tensor.ne)[::-1], kind, data, 0, tuple(tensor.nb)[::-1])
    return strided.astype(np.float32)
