"""PEER layers of Reef in PyTorch models.

The experts and routers live in a pool, which trains and keeps them; PyTorch sees a module with a gradient. Tensors
are read and written in place: float32, contiguous, on the CPU.

>>> layer = reef.torch.PeerLayer(reef.create_layer("pool", 64))
>>> y = x + layer(x)
>>> loss.backward(); optimizer.step(); layer.step()
"""

import contextlib

import torch
from torch.autograd.function import once_differentiable

from .errors import InvalidError
from .pool import Layer, Tape, check_mask
from .pool import open as open_pool


class PeerLayer(torch.nn.Module):
    """One PEER layer whose experts live in a pool; it adds no residual.

    pool  a ``reef.Layer``, or the path of one, which is then opened for writing

    In training mode (``train()``) the open generation learns: ``backward`` collects its gradients, ``step`` applies
    them with the pool's own optimiser. They are not parameters of the module, so an optimiser of PyTorch leaves them
    alone; its one parameter, ``anchor``, is empty and says by ``requires_grad`` whether the layer learns. In
    evaluation mode, and as of an earlier generation, only the gradient of the input flows.
    """

    def __init__(self, pool):
        super().__init__()
        self.pool = pool if isinstance(pool, Layer) else open_pool(pool, write=True)
        if not isinstance(self.pool, Layer):
            raise InvalidError(f"{self.pool} is not a pool of a layer")
        self.generations = 0  # the first so many take part; 0: all
        self.anchor = torch.nn.Parameter(torch.zeros(0))
        self._tapes = []

    def forward(self, x, mask=None):
        """x of (..., d_model); ``mask`` of (generations, rows) says which generations take part in which row."""
        self._check(x)
        rows = x.numel() // self.pool.d_model
        if mask is not None:
            count = self.generations or self.pool.info.generations
            mask = check_mask(mask.numpy() if isinstance(mask, torch.Tensor) else mask, count, rows)
        if torch.is_grad_enabled() and (x.requires_grad or self.anchor.requires_grad):
            return _Forward.apply(x, self.anchor, self, rows, mask)
        y = torch.empty_like(x)
        self.pool.forward_at(rows, x.data_ptr(), y.data_ptr(), self.generations, mask)
        return y

    def learns(self):
        """Will a forward in this state be learned from?"""
        return self.training and self.anchor.requires_grad and self.generations == 0 and self.pool.writing

    def step(self, learning_rate=0.0):
        """Let the pool's optimiser learn from what was collected; 0: at the pool's own rate."""
        self.pool.step(learning_rate)

    def zero_grad(self, set_to_none=True):
        """As of every module; forgets what was collected."""
        super().zero_grad(set_to_none)
        if self.pool.writing:
            self.pool.discard()

    def seal(self, side=0):
        """Seal the open generation for good and open the next, which adds nothing at first. Commits."""
        self.pool.seal(side)

    @contextlib.contextmanager
    def as_of(self, generation):
        """Within it the layer is what it was when that generation was sealed, to the bit."""
        if generation < 0:
            raise InvalidError(f"generation is {generation}; the first one is 0")
        before, self.generations = self.generations, generation + 1
        try:
            yield self
        finally:
            self.generations = before

    def extra_repr(self):
        return f"{self.pool.d_model}, pool={str(self.pool.path)!r}"

    def _check(self, x):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"x is a {type(x).__name__}; give a tensor")
        if x.dtype != torch.float32:
            raise TypeError(f"x is {x.dtype}; a PeerLayer computes in torch.float32: use x.float()")
        if x.device.type != "cpu":
            raise TypeError(f"x is on {x.device}; a PeerLayer computes on the CPU: use x.cpu()")
        if x.dim() == 0 or x.shape[-1] != self.pool.d_model:
            raise InvalidError(f"x has shape {tuple(x.shape)}; its last dimension must be {self.pool.d_model}")
        if not x.is_contiguous():
            raise InvalidError("x is not contiguous; x.contiguous() makes a copy that is")


class _Forward(torch.autograd.Function):
    """One pass. A tape is back in the layer's stock after its backward."""

    @staticmethod
    def forward(ctx, x, anchor, layer, rows, mask):
        tape = layer._tapes.pop() if layer._tapes else Tape()
        y = torch.empty_like(x)
        layer.pool.forward_at(rows, x.data_ptr(), y.data_ptr(), layer.generations, mask, layer.learns(), tape)
        ctx.save_for_backward(x)
        ctx.layer, ctx.tape = layer, tape
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, d_y):
        (x,) = ctx.saved_tensors
        if ctx.tape is None:
            raise InvalidError("the graph was gone through already; a PeerLayer needs a forward for each backward")
        d_y = d_y.contiguous()  # sums hand down expanded ones
        d_x = torch.empty_like(x)
        ctx.layer.pool.backward_at(ctx.tape, x.data_ptr(), d_y.data_ptr(), d_x.data_ptr())
        ctx.layer._tapes.append(ctx.tape)
        ctx.tape = None
        return d_x, ctx.layer.anchor.new_zeros(0), None, None, None


# ---- all layers of a model -----------------------------------------------------------------------


def layers(model):
    """The PeerLayers of a model, in its order."""
    return [module for module in model.modules() if isinstance(module, PeerLayer)]


def step(model, learning_rate=0.0):
    """``step`` of every PeerLayer; beside the step of an optimiser for the rest."""
    for layer in layers(model):
        layer.step(learning_rate)


def seal(model, side=0):
    """``seal`` of every PeerLayer."""
    for layer in layers(model):
        layer.seal(side)


@contextlib.contextmanager
def as_of(model, generation):
    """``as_of`` of every PeerLayer."""
    with contextlib.ExitStack() as stack:
        for layer in layers(model):
            stack.enter_context(layer.as_of(generation))
        yield model
