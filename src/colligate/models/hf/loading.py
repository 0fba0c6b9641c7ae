"""Finding a model by folder, GGUF file or hub name, and loading it. Blocks.

What is on this machine is used as it is, without asking the hub; only a hub name whose files are
not here is fetched. Code that comes with weights is never run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

from colligate.concurrency import wait_without_spinning
from colligate.errors import (
    ContextTooSmall,
    MissingCapability,
    MissingExtra,
    ServerFailed,
    UnknownModel,
    UsageError,
    WeightsUnavailable,
)
from colligate.models.gguf import read_header
from colligate.models.hf.prefix_cache import Layers, PrefixCache
from colligate.models.weights import hash_file

DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Source:
    """Where the weights are: a folder or a hub name, and the GGUF file in it if it is one."""

    place: str
    gguf_file: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What every `from_pretrained` is given."""
        gguf = {"gguf_file": self.gguf_file} if self.gguf_file else {}
        return {"pretrained_model_name_or_path": self.place, "trust_remote_code": False, **gguf}

    @property
    def version(self) -> str:
        """Another one when the files are others: their sizes and times; empty for a hub name."""
        folder = Path(self.place)
        if not folder.is_dir():
            return ""
        files = [folder / self.gguf_file] if self.gguf_file else sorted(folder.iterdir())
        stats = [file.stat() for file in files if file.is_file()]
        return f"{sum(s.st_size for s in stats)}-{max((s.st_mtime_ns for s in stats), default=0)}"


def find(target: str) -> Source:
    """The source that a name stands for: a folder, a .gguf file, or else a hub name.

    Raises:
        UnknownModel: it looks like a path and nothing is there, or it cannot be a hub name.
        WeightsUnavailable: the folder holds no model.
    """
    path = Path(target).expanduser()
    if path.is_file():
        read_header(path)  # says what is wrong with it
        return Source(str(path.parent), path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise WeightsUnavailable(
                f"cannot load {target}",
                "the folder has no config.json",
                "give a folder that save_pretrained wrote, or a .gguf file",
            )
        return Source(str(path))
    if target.count("/") > 1 or target.startswith((".", "/", "~")) or target.endswith(".gguf"):
        raise UnknownModel(
            f"no model at {target}", "there is no such file or folder", "check the path after hf:"
        )
    return Source(target)


def transformers() -> Any:
    """The transformers library, quiet.

    Raises:
        MissingExtra: if it or torch is not installed.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    wait_without_spinning()
    try:
        import_module("torch")
        library = import_module("transformers")
    except ImportError as error:
        raise MissingExtra(
            "hf: models need torch and transformers",
            f"{error.name or 'one of them'} is not installed",
            "pip install 'colligate[local]'",
        ) from error
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library


def facts(source: Source) -> tuple[int | None, int | None]:
    """The trained context length and the bytes of keys and values a token takes in 16 bits.

    None where the model does not say. A hub name's config is fetched if it is not here.
    """
    if source.gguf_file:
        header = read_header(Path(source.place) / source.gguf_file)
        return header.context_tokens, header.kv_bytes_per_token
    config = pretrained(transformers().AutoConfig, source).get_text_config()
    length = getattr(config, "max_position_embeddings", None)
    heads = getattr(config, "num_attention_heads", 0)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0)
    return length, 4 * getattr(config, "num_hidden_layers", 0) * kv_heads * width or None


def load_tokenizer(source: Source) -> Any:
    """The fast tokenizer.

    Raises:
        WeightsUnavailable: there is none, or it has no fast form.
    """
    tokenizer = pretrained(transformers().AutoTokenizer, source)
    if not getattr(tokenizer, "is_fast", False):
        raise WeightsUnavailable(
            f"cannot load the tokenizer of {source.place}",
            "it has no tokenizer.json",
            "convert it to a fast tokenizer",
        )
    return tokenizer


def load_model(
    source: Source,
    *,
    device: str = "auto",
    dtype: str = "auto",
    kind: str = "AutoModelForCausalLM",
) -> Any:
    """The causal language model, or another `kind` of model, ready for inference.

    `device` is one that torch knows ("cpu", "cuda:1", "mps") or "auto": all GPUs together if
    there are any, else the processor. `dtype` "auto" is the checkpoint's 16-bit type on a GPU,
    else bfloat16 where the hardware computes in it, else float32.

    Raises:
        UsageError: no such dtype, or torch has no such device.
        WeightsUnavailable: the weights cannot be had, are damaged, or too large.
    """
    library, torch = transformers(), import_module("torch")
    if dtype not in DTYPES:
        raise UsageError(f"no dtype {dtype!r}", f"there are {', '.join(DTYPES)}")
    place = _device(torch, device)
    options: dict[str, Any] = {"dtype": _dtype(torch, place, dtype)}
    if device == "auto" and place == "cuda":
        options["device_map"] = "auto"
    if source.gguf_file:
        # The one progress bar that transformers shows whatever it is told.
        bars: Any = import_module("transformers.modeling_gguf_pytorch_utils")
        bars.tqdm = lambda tensors, **_: tensors
    model = pretrained(getattr(library, kind), source, **options)
    if model._is_stateful:
        raise WeightsUnavailable(
            f"cannot use {source.place}",
            "it keeps a recurrent state, which cannot be cut back to a shared beginning",
            "take a model with attention in every layer",
        )
    return (model if "device_map" in options else model.to(place)).eval()


def _device(torch: Any, named: str) -> str:
    if named == "auto":
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return found.type if found is not None else "cpu"
    try:
        torch.empty(0, device=named)
    except Exception as error:  # torch raises as it likes: RuntimeError, AssertionError, ...
        raise UsageError(f"no device {named!r}", _first_line(error), "use cpu, or auto") from error
    return named


def _dtype(torch: Any, place: str, named: str) -> Any:
    if named != "auto":
        return getattr(torch, named)
    if place.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if place == "cpu":
        return torch.bfloat16 if bfloat16_on_processor(torch) else torch.float32
    return torch.float16


def bfloat16_on_processor(torch: Any) -> bool:
    """Whether the processor computes in bfloat16, which is then quicker than float32."""
    can: Mapping[str, Any] = torch.cpu.get_capabilities()
    return bool(can.get("avx512_bf16") or can.get("amx_bf16"))


def pretrained(kind: Any, source: Source, **options: Any) -> Any:
    """What an Auto class makes of the files that are here, else of what the hub has.

    Raises:
        WeightsUnavailable: the files cannot be had, or are damaged.
    """
    arguments = {**source.arguments, **options}
    local = Path(source.place).is_dir()
    try:
        if not local:
            with suppress(OSError):
                return kind.from_pretrained(**arguments, local_files_only=True)
        return kind.from_pretrained(**arguments, local_files_only=local)
    except Exception as error:  # transformers, torch, safetensors and the hub raise as they like.
        hint = "check the files" if local else "check the name and the connection, or give a folder"
        raise WeightsUnavailable(
            f"cannot load {source.place}" + (f"/{source.gguf_file}" if source.gguf_file else ""),
            _reason(error),
            hint,
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return "there is not enough memory for it"
    if isinstance(error, json.JSONDecodeError):
        return f"a JSON file of it is damaged ({error})"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300].rstrip(".") if lines else type(error).__name__


# LoRA adapters over one base model, through peft.
#
# Only plain LoRA is taken: matrices that are added beside the base's own. What else peft can do
# (train biases or whole layers, begin from the base's singular vectors) writes into the base,
# which
# other adapters and the base alone share.

_CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")

# What the forward pass of plain LoRA is made of.
_FORWARD = frozenset(
    "r lora_alpha target_modules exclude_modules layers_to_transform layers_pattern rank_pattern"
    " alpha_pattern fan_in_fan_out use_rslora use_dora lora_bias".split()
)
# What matters for training alone, or not at all.
_ELSEWHERE = frozenset(
    "peft_type peft_version task_type auto_mapping base_model_name_or_path revision inference_mode"
    " lora_dropout init_lora_weights loftq_config eva_config corda_config lora_ga_config"
    " megatron_config megatron_core runtime_config qalora_group_size".split()
)
# Ways to begin training that leave the base as it is.
_BEGINNINGS = (None, True, False, "gaussian", "orthogonal", "eva")
_MATRIX = re.compile(r"\.lora_(A|B|embedding_A|embedding_B|magnitude_vector)(\.weight|\.bias)?$")


class Adapters:
    """The adapters loaded into a model; one, or none, is in force at a time.

    For the model's thread alone. Nothing is ever merged: the base computes the same bits before,
    between and after.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        self._loaded: set[str] = set()
        self._layers: list[Any] = []
        self._used = ""

    def load(self, adapter: str | Path) -> str:
        """Load a folder, or what a hub name stands for, and say by which key to `use` it.

        The key is made from the files' content: one adapter is loaded once, wherever it lies,
        and results kept under its key are its own.

        Raises:
            MissingExtra: peft is not installed.
            WeightsUnavailable: there is no such adapter, its files are damaged, it is not plain
                LoRA, or it is made for another model.
        """
        transformers()  # quiet from here on
        peft = _peft()
        folder = _folder(adapter)
        config, weights = _files(folder, adapter)
        try:
            content = f"{hash_file(config)} {hash_file(weights)}"
        except OSError as error:
            raise _unavailable(adapter, str(error), "check the files") from error
        key = hashlib.sha256(content.encode()).hexdigest()[:16]
        if key not in self._loaded:
            settings = _settings(config, adapter)
            matrices = _matrices(weights, adapter)
            try:
                self._inject(peft, key, settings, matrices, adapter)
            finally:
                kind = import_module("peft.tuners.tuners_utils").BaseTunerLayer
                self._layers = [m for m in self._model.modules() if isinstance(m, kind)]
                self._apply()
            self._loaded.add(key)
        return key

    def use(self, adapter: str = "") -> None:
        """Compute with the adapter of this key from now on; "" is the base model alone."""
        if adapter == self._used:
            return
        if adapter and adapter not in self._loaded:
            raise WeightsUnavailable(f"no adapter {adapter} in {self._name}", "it was not loaded")
        self._used = adapter
        self._apply()

    def _inject(
        self, peft: Any, key: str, settings: dict[str, Any], matrices: dict[str, Any], adapter: Any
    ) -> None:
        """Put the matrices beside the base's own, or leave nothing of them behind."""
        model = self._model
        cast = {name: matrix.to(model.dtype) for name, matrix in matrices.items()}
        with warnings.catch_warnings():
            # peft warns of several adapters in one model; what matters is checked below.
            warnings.simplefilter("ignore")
            try:
                config = peft.LoraConfig(**settings)
                peft.inject_adapter_in_model(config, model, key, low_cpu_mem_usage=True)
                found = peft.set_peft_model_state_dict(
                    model, cast, adapter_name=key, low_cpu_mem_usage=True
                )
                lacking = [name for name in found.missing_keys if f".{key}" in name]
                if lacking or found.unexpected_keys:
                    example = [*lacking, *found.unexpected_keys][0].replace(f".{key}", "")
                    raise ValueError(f"they differ in {example}")
            except Exception as error:  # peft and torch raise as they like.
                peft.functional.delete_adapter(model, key, prefix="lora_")
                getattr(model, "peft_config", {}).pop(key, None)
                raise WeightsUnavailable(
                    f"the adapter {adapter} does not fit {self._name}",
                    _adapter_reason(error),
                    "give one that was trained on this model",
                ) from error
        model.eval()  # new modules come in training mode, where dropout is at work

    def _apply(self) -> None:
        # What set_adapter and enable_adapters do, less which parameters are trained: none is, and
        # seeing to it takes a third of the time of a decoding step, to be spent at each switch.
        for layer in self._layers:
            layer._active_adapter = [self._used] if self._used else []
            layer._disable_adapters = not self._used


def _peft() -> Any:
    try:
        import_module("peft.functional")
        return import_module("peft")
    except ImportError as error:
        raise MissingExtra(
            "adapters need peft",
            f"{error.name or 'it'} is not installed",
            "pip install 'colligate[local]'",
        ) from error


def _folder(adapter: str | Path) -> Path:
    """Where its files are: as they are here, else fetched from the hub."""
    path, name = Path(adapter).expanduser(), str(adapter)
    if path.is_dir():
        return path
    if isinstance(adapter, Path) or name.count("/") != 1 or name[:1] in "./~":
        raise _unavailable(adapter, "there is no such folder", "check the path")
    hub = import_module("huggingface_hub")
    for local in (True, False):
        try:
            found = Path(
                hub.snapshot_download(
                    name, allow_patterns=[_CONFIG, *_WEIGHTS], local_files_only=local
                )
            )
        except Exception as error:  # The hub raises as it likes.
            if not local:
                hint = "check the name and the connection, or give a folder"
                raise _unavailable(adapter, _adapter_reason(error), hint) from error
        else:
            if not local or any((found / weights).is_file() for weights in _WEIGHTS):
                return found
    raise AssertionError  # the second turn returns or raises


def _files(folder: Path, adapter: str | Path) -> tuple[Path, Path]:
    """Its configuration and its weights; safetensors where there are both forms."""
    config = folder / _CONFIG
    weights = [folder / name for name in _WEIGHTS if (folder / name).is_file()]
    if not config.is_file() or not weights:
        missing = " or ".join(_WEIGHTS) if config.is_file() else _CONFIG
        raise _unavailable(adapter, f"it has no {missing}", "give a folder that peft wrote")
    return config, weights[0]


def _settings(config: Path, adapter: str | Path) -> dict[str, Any]:
    """What peft has to know of it."""
    try:
        said = json.loads(config.read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = f"its {_CONFIG} is damaged ({error})"
        raise _unavailable(adapter, why, "fetch or save it again") from error
    if not isinstance(said, Mapping) or said.get("peft_type") != "LORA":
        kind = said.get("peft_type") if isinstance(said, Mapping) else None
        raise _unavailable(adapter, f"its type is {kind or 'unknown'}", "give a LoRA adapter")
    more = [
        name
        for name, value in said.items()
        if name not in _FORWARD | _ELSEWHERE and value and (name, value) != ("bias", "none")
    ]
    if said.get("init_lora_weights") not in _BEGINNINGS:
        more.append(f"init_lora_weights={said['init_lora_weights']}")
    if more:
        raise _unavailable(
            adapter, f"it is more than plain LoRA: {', '.join(more)}", "convert it with peft"
        )
    return {name: said[name] for name in _FORWARD if name in said}


def _matrices(weights: Path, adapter: str | Path) -> dict[str, Any]:
    """Its tensors by name, on the processor. Nothing in the file is run."""
    try:
        if weights.suffix == ".safetensors":
            read = import_module("safetensors.torch").load_file(weights)
        else:
            read = import_module("torch").load(weights, map_location="cpu", weights_only=True)
        matrices = dict(read)
    except Exception as error:  # safetensors and torch raise as they like.
        why = f"its {weights.name} is damaged ({_adapter_reason(error)})"
        raise _unavailable(adapter, why, "fetch or save it again") from error
    if other := [name for name in matrices if not _MATRIX.search(name)]:
        # They would be written over the base's own.
        why = f"it is more than plain LoRA: it holds {other[0]}"
        raise _unavailable(adapter, why, "save it without the base's weights")
    return matrices


def _unavailable(adapter: str | Path, why: str, hint: str) -> WeightsUnavailable:
    return WeightsUnavailable(f"cannot load the adapter {adapter}", why, hint)


def _adapter_reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


# The loaded model, and the forward passes that generation, scoring and attention share.
#
# All of it runs in one thread; only the events that stop a pass are set from others.

_REMEMBERED_BYTES = 1 << 30
_PIECE = 8192  # tokens in one forward pass: bounds what the layers in between take


class Stopped(Exception):
    """The caller gave up; the forward pass was left between two layers."""


class Runtime:
    """A causal language model of transformers, loaded when made."""

    def __init__(
        self, source: Source, name: str, *, context: int, device: str = "auto", dtype: str = "auto"
    ) -> None:
        self.name = name
        self.context = context
        self.torch = import_module("torch")
        self.model = load_model(source, device=device, dtype=dtype)
        self.remembered = PrefixCache(_REMEMBERED_BYTES)
        self.adapters = Adapters(self.model, name)
        self._stop: Event | None = None
        for layer in getattr(self.model.get_decoder(), "layers", ()):
            layer.register_forward_pre_hook(self._check)

    def must_fit(self, tokens: int) -> None:
        """Raise ContextTooSmall if so many tokens do not fit the window."""
        if tokens > self.context:
            raise ContextTooSmall(
                f"the prompt does not fit {self.name}",
                f"it has {tokens} tokens and the window {self.context}",
                "give fewer or shorter passages, or a model with a larger window",
            )

    @contextmanager
    def working(self, stop: Event | None = None, adapter: str = "") -> Iterator[None]:
        """Compute with an adapter, without gradients, until done or stopped.

        Raises:
            Stopped: `stop` was set; within one layer's time.
            ServerFailed: memory ran out, or torch failed otherwise.
        """
        before, self._stop = self._stop, stop
        try:
            with self.torch.inference_mode():
                self.adapters.use(adapter)
                yield
        except (RuntimeError, MemoryError) as error:
            memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
            hint = "ask over less text, or use a smaller model" if memory else ""
            raise ServerFailed(
                f"{self.name} could not compute", str(error).split("\n")[0][:300], hint
            ) from error
        finally:
            self._stop = before

    def prefill(
        self, ids: Sequence[int], *, adapter: str = "", keep: bool = True
    ) -> tuple[Any, Any]:
        """A cache of the keys and values of all `ids`, and the logits [vocabulary] after the last.

        What an earlier prompt began with is not computed again. To be called while `working`.
        With `keep` the prompt is remembered in turn.

        Raises:
            ContextTooSmall: if there are more than the window holds.
        """
        self.must_fit(len(ids))
        layers, known = self.remembered.longest(ids[:-1], adapter)
        cache = self.cache(layers)
        logits = None
        for start in range(known, len(ids), _PIECE):
            logits = self.forward(ids[start : min(start + _PIECE, len(ids))], cache).logits[0, -1]
        if keep:
            self.remembered.keep(ids, self.layers_of(cache), adapter)
        return cache, logits

    def forward(self, ids: Sequence[int], cache: Any = None, **options: Any) -> Any:
        """One pass over tokens that follow what the cache holds; logits of the last one only."""
        given = self.torch.tensor([list(ids)], device=self.model.device)
        return self.model(
            input_ids=given, past_key_values=cache, use_cache=cache is not None,
            **{"logits_to_keep": 1, **options},
        )  # fmt: skip

    def cache(self, layers: Layers = ()) -> Any:
        """A cache that holds these keys and values and grows with each pass.

        Every layer keeps all its tokens, those with a sliding window too: so that any beginning
        of it can be cut out.
        """
        made = import_module("transformers").DynamicCache()
        for index, (keys, values) in enumerate(layers):
            made.update(keys, values, index)
        return made

    def layers_of(self, cache: Any) -> Layers:
        """A cache's keys and values."""
        return [(layer.keys, layer.values) for layer in cache.layers]

    @contextmanager
    def attending(self, implementation: str) -> Iterator[None]:
        """Compute attention in another way (`eager` returns its probabilities).

        Raises:
            MissingCapability: the model cannot.
        """
        before = self.model.config._attn_implementation
        try:
            self.model.set_attn_implementation(implementation)
        except (ValueError, ImportError) as error:
            raise MissingCapability(
                f"{self.name} cannot compute its attention as {implementation}",
                str(error),
                "take a model of another architecture",
            ) from error
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    def _check(self, *_: object) -> None:
        if self._stop is not None and self._stop.is_set():
            raise Stopped
