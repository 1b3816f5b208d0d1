"""Several copies of one small model trained at once: their weights stacked, their products batched.

Only the modules that hold weights are replaced. Everything else (attention, positions, masks, activations) sees the
copies' rows as one larger batch, in which no row ever sees another, so that the model's own code runs unchanged. With
rows padded to a width that does not depend on the other copies, each copy computes the same sums in the same order
whether it is alone or not: the weights come out the same to the last bit, which
:func:`davylamp.training.stacked_fit.stackable` tries out.
"""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.func import functional_call, vmap


class _Stacked(nn.Module):
    """A module with the weights of several copies; rows come copy by copy, as many of each."""

    weight: nn.Parameter

    def __init__(self, copies: int, weights: dict[str, nn.Parameter]) -> None:
        super().__init__()
        self.copies = copies
        for name, weight in weights.items():
            self.register_parameter(name, weight)

    def _apart(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(self.copies, values.shape[0] // self.copies, *values.shape[1:])


class _Linear(_Stacked):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        rows = values.reshape(self.copies, -1, values.shape[-1])
        weight = self.weight.transpose(1, 2)
        bias = getattr(self, "bias", None)
        out = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias[:, None], rows, weight)
        return out.reshape(*values.shape[:-1], -1)


class _Embedding(_Stacked):
    padding: int | None = None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        size = self.weight.shape[1]
        first = size * torch.arange(self.copies, device=ids.device)
        places = (self._apart(ids) + first.reshape(-1, *[1] * ids.dim())).reshape(ids.shape)
        found = nn.functional.embedding(places, self.weight.flatten(0, 1))
        if self.padding is None:
            return found
        # The padding token's own row receives no gradient from here.
        return torch.where((ids == self.padding)[..., None], found.detach(), found)


class _Other(_Stacked):
    """Any other module with weights of its own, such as a norm."""

    def __init__(self, copies: int, weights: dict[str, nn.Parameter], module: nn.Module) -> None:
        super().__init__(copies, weights)
        # In a list, so that its own weights are none of this module's.
        self._module = [module]
        self._names = tuple(weights)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        def one(weights: dict[str, torch.Tensor], part: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = functional_call(self._module[0], weights, (part,))
            return out

        weights = {name: getattr(self, name) for name in self._names}
        return vmap(one)(weights, self._apart(values)).flatten(0, 1)


def stacked(model: nn.Module, copies: int) -> nn.Module:
    """A model whose rows belong to several copies of ``model``, a number of rows each, copy by copy.

    Its parameters have the names of the model's, and one more dimension in front, of the copies.

    Args:
        model: the model; it is left as it is.
        copies: how many copies.
    """
    result = copy.deepcopy(model)
    known: dict[int, nn.Parameter] = {}

    def many(weight: nn.Parameter) -> nn.Parameter:
        # Weights that two modules share are shared by what takes their places.
        if id(weight) not in known:
            known[id(weight)] = nn.Parameter(weight.detach().expand(copies, *weight.shape).clone())
        return known[id(weight)]

    for name, module in list(result.named_modules()):
        own = {key: many(weight) for key, weight in module.named_parameters(recurse=False)}
        if not own:
            continue
        new: _Stacked
        if type(module) is nn.Linear:
            new = _Linear(copies, own)
        elif type(module) is nn.Embedding and module.max_norm is None:
            new = _Embedding(copies, own)
            new.padding = module.padding_idx
        else:
            new = _Other(copies, own, module)
        parent, _, leaf = name.rpartition(".")
        setattr(result.get_submodule(parent), leaf, new)
    return result


def unstack(many: nn.Module, which: int, model: nn.Module) -> None:
    """Copy the weights of one of a stack's copies into a plain model."""
    weights = dict(many.named_parameters())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights[name][which])
