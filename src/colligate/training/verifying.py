"""Train colligate's verifier: `colligate train verifier`. Needs the extra `train`.

Claims about sentences (`claims.py`), cross-entropy over supports, contradicts and neither, then
int8 weights as ONNX with a tokenizer. Steps, checkpoints and export are the reranker's.

    python -m colligate.training.verifying OUT/model.onnx

writes a trained verifier into the package, beside the reranker, without the first layers and word
embeddings that both have: 17 of 24 MB. It then points at bytes of the reranker's file. Before that
file is replaced, write the verifier whole (`onnx.save(onnx.load("verifier.onnx"), ...)`), and share
it with the new one.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from colligate.core.events import Listener, Noted
from colligate.core.parameters import require_min, set_parameters
from colligate.errors import UsageError
from colligate.jobs.files import lock_folder, make_folder
from colligate.models.pairs import join_title
from colligate.models.weights import OnProgress, pull
from colligate.training.claims import (
    CONTRADICTS,
    SUPPORTS,
    WRITTEN,
    Claim,
    is_kept,
    make_claims,
    read_claims,
    read_sentences,
    read_written,
    write_claims,
)
from colligate.training.reranking import (
    BASE,
    HeadFit,
    check_record,
    closed_at,
    export,
    train_head,
)

import onnx  # isort: skip  # reranking says what is missing
import torch  # isort: skip
from onnx.external_data_helper import set_external_data  # isort: skip
from torch.nn import functional as F  # isort: skip

from colligate.training.pair_head import ClaimHead, StateStore, load_head, read_tokenizer

CLAIMS = "claims.jsonl"

_SORTED = 16  # batches whose pairs are sorted by length: less padding
_SMOOTH = 0.05
_AT_ONCE = 32  # claims that are judged together
_LEAST = 1024  # bytes of a tensor that is worth a pointer


@dataclass(frozen=True)
class VerifierFit(HeadFit):
    """The numbers of a training of the verifier.

    `sentences` of each data set are drawn; those with written claims come `times` times. A step has
    `pairs` pairs of claim and source.
    """

    sets: str = (
        "2wikimultihopqa,asqa,financebench,hotpotqa,loong_en,musique,nq20,popqa,sotu,triviaqa"
    )
    steps: int = 800
    tokens: int = 80
    sentences: int = 1500
    times: int = 8
    pairs: int = 64
    rate: float = 1e-4
    head_rate: float = 8e-4
    opening: float = 0.1
    save_every: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require_min(self, sentences=1, times=1, pairs=1)


async def train_verifier(
    data: Path,
    out: Path,
    settings: Sequence[str],
    on_event: Listener,
    on_pull: OnProgress | None = None,
    *,
    without: Path | None = None,
    base: Path | None = None,
) -> Path:
    """Train on sentences of the data sets in the folder `data`; write the verifier into `out`.

    `settings` are `NAME=VALUE` of `VerifierFit`. The documents that the file `without` names, and
    others with their titles, are left out. `base` is as for the reranker.

    Raises:
        UsageError: a setting is wrong, or `out` holds another training.
        MissingPath: a data set is missing.
        WeightsUnavailable: the base cannot be pulled.
    """
    numbers = set_parameters(VerifierFit, settings)
    folder = base or pull(BASE, on_pull)["model"].parent
    make_folder(out)
    with lock_folder(out):
        if not (out / CLAIMS).exists():
            write_claims(out / CLAIMS, _collect(data, numbers, without, on_event))
        claims = read_claims(out / CLAIMS)
        counts = Counter(f"{each.set} {each.kind}" for each in claims)
        check_record(folder, out / CLAIMS, dict(sorted(counts.items())), numbers, out, without)
        return _fit(folder, claims, numbers, out, on_event)


def _collect(
    data: Path, numbers: VerifierFit, without: Path | None, on_event: Listener
) -> list[Claim]:
    on_event(Noted("making claims"))
    apart: set[str] = set()
    if without is not None:
        lines = without.read_text("utf-8").splitlines()
        apart |= {json.loads(line)["document"] for line in lines}
        apart |= {sentence.title for sentence, _ in read_written(without, data)}
    sets = numbers.sets.split(",")
    sentences = read_sentences(data, sets, apart, numbers.sentences, numbers.seed)
    written = read_written(WRITTEN, data, sets, apart)
    return make_claims(sentences, written, numbers.seed, numbers.times)


def _fit(
    base: Path, claims: Sequence[Claim], numbers: VerifierFit, out: Path, on_event: Listener
) -> Path:
    torch.manual_seed(numbers.seed)
    head, tokenizer = load_head(base, ClaimHead), read_tokenizer(base)
    store = StateStore(head, tokenizer, numbers.tokens)
    train = [each for each in claims if not is_kept(each.document)]
    check = [each for each in claims if is_kept(each.document)]

    def learn(batch: Sequence[Claim], step: int) -> torch.Tensor:
        logits = store.score(list(map(_pair, batch)), closed_at(step, numbers))
        labels = torch.tensor([each.label for each in batch])
        return F.cross_entropy(logits, labels, label_smoothing=_SMOOTH)

    train_head(head, numbers, _iterate_batches(train, numbers), learn, out, on_event)
    right, caught, false = _judge(head, store, check)
    on_event(
        Noted(
            f"of {len(check)} held-out claims {right:.2f} are judged correctly; {caught:.2f} of "
            f"the wrong ones are found, and {false:.2f} of the true ones are judged wrong"
        )
    )
    export(head, base, out)
    return out


def _pair(claim: Claim) -> tuple[str, str]:
    return claim.claim, join_title(claim.title, claim.source)


def _iterate_batches(train: Sequence[Claim], numbers: VerifierFit) -> Iterator[list[Claim]]:
    """Yield batches without end, of pairs of like length."""
    if len(train) < numbers.pairs:
        raise UsageError("too few claims to train on", f"there are {len(train)}", "give more sets")
    passes = 0
    while True:
        passes += 1
        drawn = random.Random(f"{numbers.seed} {passes}")
        order = drawn.sample(train, len(train))
        batches = []
        for start in range(0, len(order), _SORTED * numbers.pairs):
            part = sorted(
                order[start : start + _SORTED * numbers.pairs],
                key=lambda each: len(each.source) + len(each.claim),
            )
            batches += [part[at : at + numbers.pairs] for at in range(0, len(part), numbers.pairs)]
        drawn.shuffle(batches)
        yield from batches


def _judge(
    head: ClaimHead, store: StateStore, claims: Sequence[Claim]
) -> tuple[float, float, float]:
    """Return the shares told rightly, of wrong claims found, and of true ones taken for wrong."""
    head.eval()
    told: list[int] = []
    with torch.no_grad():
        for start in range(0, len(claims), _AT_ONCE):
            logits = store.score(list(map(_pair, claims[start : start + _AT_ONCE])))
            told += logits.argmax(-1).tolist()
    both = list(zip(told, (each.label for each in claims), strict=True))
    return (
        _share([one == two for one, two in both]),
        _share([one == CONTRADICTS for one, two in both if two == CONTRADICTS]),
        _share([one == CONTRADICTS for one, two in both if two == SUPPORTS]),
    )


def _share(found: Sequence[bool]) -> float:
    return sum(found) / max(1, len(found))


def save_sharing(model: Path, other: Path, out: Path) -> int:
    """Write `model` as `out`, which reads from `other` the tensors that are the same there.

    `out` and `other` are in one folder. Return the number of bytes that are shared.
    """
    whole, loaded = other.read_bytes(), onnx.load(model)
    shared = 0
    for tensor in loaded.graph.initializer:
        start = whole.find(tensor.raw_data) if len(tensor.raw_data) >= _LEAST else -1
        if start >= 0:
            length = len(tensor.raw_data)
            set_external_data(tensor, other.name, start, length)
            tensor.ClearField("raw_data")
            shared += length
    out.write_bytes(loaded.SerializeToString())
    return shared


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    package = Path(__file__).parent.parent / "models" / "minilm"
    save_sharing(Path(sys.argv[1]), package / "reranker.onnx", package / "verifier.onnx")
