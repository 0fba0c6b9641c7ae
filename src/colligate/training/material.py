"""What a training works with: its samples as tokens of its base, and how it is computed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from colligate.errors import MissingPath, UnknownModel, UsageError
from colligate.evaluation.identity import file_digest
from colligate.models import weights
from colligate.models.hf.loading import Source, facts, find, load_tokenizer
from colligate.models.hf.prompts import Prompts
from colligate.models.name_parts import parts, split_adapter
from colligate.opening import pull_listener
from colligate.strategies.trace import Event, Listener, Noted, Trace
from colligate.training import sft
from colligate.training.encoding import Encoder, Encodings
from colligate.training.launch import Place, configurations, place
from colligate.training.recipe import Recipe
from colligate.training.samples import HELD_OUT, TRAIN, read_samples


@dataclass(frozen=True)
class Material:
    """All that a training begins with. `digests` are those of the files of samples, by name."""

    recipe: Recipe
    base: str
    source: Source
    prompts: Prompts
    cutoff: int
    train: Encodings
    held_out: Encodings
    digests: Mapping[str, str]
    how: sft.How
    place: Place
    libraries: sft.Libraries
    emit: Listener


def material(recipe: Recipe, data: Path, base: str, on_event: Listener) -> Material:
    """What a recipe needs for its training, read and said. Blocks.

    Raises:
        UsageError: there are no samples, or the base is none that can be trained.
        FaultyRecord: a line is no sample.
        MissingExtra: what trains is not installed.
        ModelError: the base's tokenizer cannot be loaded, or refuses the messages.
    """
    here = place()
    emit = on_event if here.first else _silent
    if not (data / TRAIN).is_file():
        mend = "give a folder that colligate train curate made"
        raise MissingPath(f"there is no {data / TRAIN}", "", mend)
    libraries = sft.libraries()
    source = find(_target(base, emit))
    prompts = Prompts(load_tokenizer(source), base)
    if not prompts.has_template:
        text = f"{base} has no chat template: messages are joined as paragraphs, as at inference"
        emit(Noted(text, warning=True))
    cutoff = _cutoff(recipe, base, source, emit)
    train, held_out = _read(recipe, data, Encoder(prompts, base), cutoff, emit)

    def packs() -> int:
        return len(sft.dataset(train.fitting, cutoff, True, libraries))

    how = sft.how(recipe, len(train.fitting), packs, here, libraries)
    _say(recipe, how, here, train, libraries, emit)
    files = [data / name for name in (TRAIN, HELD_OUT) if (data / name).is_file()]
    return Material(
        recipe=recipe,
        base=base,
        source=source,
        prompts=prompts,
        cutoff=cutoff,
        train=train,
        held_out=held_out,
        digests={file.name: file_digest(file) for file in files},
        how=how,
        place=here,
        libraries=libraries,
        emit=emit,
    )


def _target(base: str, emit: Listener) -> str:
    """Where the base is: a folder, a GGUF file or a hub name; pinned weights are pulled."""
    plain, adapter = split_adapter(base)
    kind, rest = parts(plain)
    if kind != "hf" or not rest:
        why = "only models that transformers loads can be trained"
        raise UnknownModel(f"cannot train {base}", why, "give --base hf:NAME-OR-PATH")
    if adapter is not None:
        why = "it names an adapter, and a new one is trained on a base alone"
        raise UnknownModel(f"cannot train {base}", why, f"give --base {plain}")
    if rest in weights.PINNED and not Path(rest).exists():
        return str(weights.pull(rest, pull_listener(Trace([emit])))["model"])
    return rest


def _cutoff(recipe: Recipe, base: str, source: Source, emit: Listener) -> int:
    length = facts(source)[0]
    if length is None or length >= recipe.cutoff:
        return recipe.cutoff
    text = f"cutoff {length:,} in place of {recipe.cutoff:,}: {base} was made for no more"
    emit(Noted(text, warning=True))
    return length


def _read(
    recipe: Recipe, data: Path, encoder: Encoder, cutoff: int, emit: Listener
) -> tuple[Encodings, Encodings]:
    """The samples of the recipe's tasks, to train on and kept aside, without those too long."""
    samples = list(read_samples(data / TRAIN, recipe.tasks))
    if not samples:
        there = Counter(sample.task for sample in read_samples(data / TRAIN))
        why = f"there are {', '.join(f'{n:,} of {task}' for task, n in there.items()) or 'none'}"
        what = f"{data / TRAIN} has no sample of {' or '.join(recipe.tasks)}"
        raise UsageError(what, why, "take another recipe or another --data")
    train = encoder.encode_all(samples, cutoff)
    if not train.fitting:
        why = (
            f"the shortest of {len(samples):,} samples has {min(train.too_long.values()):,} tokens"
        )
        mend = "take a larger --set cutoff, or a base with a larger window"
        raise UsageError(f"no sample has at most {cutoff:,} tokens", why, mend)
    if train.too_long:
        longest = max(train.too_long.values())
        text = (
            f"{len(train.too_long):,} of {len(samples):,} samples are left out: they have more "
            f"than {cutoff:,} tokens, the longest {longest:,} (--set cutoff=...)"
        )
        emit(Noted(text, warning=True))
    if not (data / HELD_OUT).is_file() or not recipe.held_out:
        return train, Encodings()
    kept = islice(read_samples(data / HELD_OUT, recipe.tasks), recipe.held_out)
    return train, encoder.encode_all(kept, cutoff)


def _say(
    recipe: Recipe,
    how: sft.How,
    here: Place,
    train: Encodings,
    libraries: sft.Libraries,
    emit: Listener,
) -> None:
    """What is going to be done, and what of the recipe cannot be."""
    passes = f"{recipe.steps:,} steps" if recipe.steps else f"{recipe.epochs:g} passes"
    method = f"LoRA of rank {recipe.rank}" if recipe.method == "lora" else "all parameters"
    emit(
        Noted(
            f"{method} on {len(train.fitting):,} samples ({train.tokens:,} tokens), {passes}, "
            f"{recipe.global_batch} samples a step, {how.precision}, {how.attention}"
        )
    )
    if recipe.packing and not how.packing:
        emit(Noted("samples are not packed: on a processor that saves nothing"))
    gpus = libraries.torch.cuda.device_count()
    if gpus > 1 and here.world == 1:
        file = configurations()["multi-gpu"]
        text = (
            f"one of {gpus} GPUs is used; all are with accelerate launch --config_file {file} "
            f"--num_processes {gpus} -m colligate train fit ..."
        )
        emit(Noted(text, warning=True))


def _silent(event: Event) -> None:
    pass
