"""TRL's trainer as it is used here: quiet, without work for nothing, and with losses of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from colligate.training.encoding import IGNORED


def trainer_class(trl: Any) -> Any:
    """The class of trainers; TRL is imported when training begins."""

    class Trainer(trl.SFTTrainer):  # type: ignore[misc]
        """Tells nobody of itself and writes no card."""

        _nats = 0.0  # of the samples kept aside, and the tokens learnt in them
        _tokens = 0

        def _send_telemetry(self) -> None:
            pass

        def create_model_card(self, *_: Any, **__: Any) -> None:
            pass

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.args.use_cpu or "shift_labels" in inputs:
                return super().compute_loss(model, inputs, *args, **kwargs)
            with replies_alone(self.accelerator.unwrap_model(model), inputs) as fewer:
                return super().compute_loss(model, fewer, *args, **kwargs)

        def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss, *rest = super().prediction_step(model, inputs, *args, **kwargs)
            learnt = int((inputs["labels"][:, 1:] != IGNORED).sum())
            self._nats += float(loss) * learnt
            self._tokens += learnt
            return loss, *rest

        def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
            # The trainer's own is the mean over batches: a reply of three tokens would count as
            # much as one of three hundred, and not as it does in the loss that is trained.
            self._nats, self._tokens = 0.0, 0
            found = super().evaluation_loop(*args, **kwargs)
            sums = self.accelerator.gather(_pair(self._nats, self._tokens, self.args.device))
            nats, tokens = sums.view(-1, 2).sum(dim=0).tolist()
            found.metrics["eval_loss"] = nats / tokens
            return found

    return Trainer


@contextmanager
def replies_alone(model: Any, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A batch so that only where something is learnt the vocabulary's odds are computed.

    On a GPU TRL leaves the other places out itself. On a processor it does not, and the prompts,
    nine tenths of the tokens, would cost a quarter of the time for nothing.
    """
    labels = inputs["labels"][:, 1:]
    learnt = (labels != IGNORED).any(dim=0).nonzero().flatten()

    def keep(module: Any, args: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[:, learnt]
        return output

    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    with causal.base_model.register_forward_hook(keep):
        yield {
            **{name: value for name, value in inputs.items() if name != "labels"},
            "shift_labels": labels[:, learnt],
        }


def _pair(nats: float, tokens: int, device: Any) -> Any:
    import torch

    return torch.tensor([nats, float(tokens)], device=device)
