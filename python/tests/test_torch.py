"""PeerLayer against a plain PyTorch layer of the same weights, and as a part of models that learn and keep."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="python3-torch is not installed")

import reef  # noqa: E402
import reef.torch  # noqa: E402
from plain_peer import PlainPeer  # noqa: E402

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SIZES = dict(heads=2, topk=4, d_key=8, side=6, seed=5, threads=2)


def error(mine, right):
    """The largest difference, relative to the scale of what is right."""
    return float((mine - right).abs().max() / right.abs().max())


@pytest.mark.parametrize("batch_norm", [False, True])
def test_gradients_are_those_of_autograd(tmp_path, batch_norm):
    torch.manual_seed(1)
    layer = reef.torch.PeerLayer(reef.create_layer(tmp_path / "pool", 12, batch_norm=batch_norm, **SIZES))
    plain = PlainPeer(layer.pool, batch_norm)
    x = torch.randn(150, 12, requires_grad=True)
    weights = torch.randn(150, 12)
    same = x.detach().clone().requires_grad_()
    y, right = layer(x), plain(same)
    assert error(y, right) < 1e-4
    (torch.tanh(y) * weights).sum().backward()
    (torch.tanh(right) * weights).sum().backward()
    assert error(x.grad, same.grad) < 1e-4
    for name in plain.names:
        gradient = torch.from_numpy(layer.pool.gradient(name))
        assert error(gradient, getattr(plain, name).grad) < 1e-4, name


def test_a_step_takes_the_loss_down_as_adam_does(tmp_path):
    torch.manual_seed(2)
    layer = reef.torch.PeerLayer(
        reef.create_layer(tmp_path / "pool", 12, batch_norm=False, learning_rate=0.01, expert_rate=1, beta2=0.99,
                          clip=-1, **SIZES))
    plain = PlainPeer(layer.pool, False)
    adam = torch.optim.Adam(plain.parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-8)
    x, target = torch.randn(100, 12), torch.randn(100, 12)
    before = {name: layer.pool.read(name) for name in plain.names}
    for module in layer, plain:
        ((module(x) - target) ** 2).mean().backward()
    gradients = {name: layer.pool.gradient(name) for name in plain.names}
    layer.step()
    adam.step()
    # The first step of Adam is of the size of its rate where there is a gradient at all.
    for name in plain.names:
        mine, right = layer.pool.read(name), getattr(plain, name).detach().numpy()
        clear = np.abs(gradients[name]) > 1e-5
        assert clear.any() and np.abs((mine - right)[clear]).max() < 1e-4, name
        assert np.array_equal(mine[gradients[name] == 0], before[name][gradients[name] == 0])


def test_a_layer_that_is_used_twice_gets_both_gradients(tmp_path):
    torch.manual_seed(3)
    layer = reef.torch.PeerLayer(reef.create_layer(tmp_path / "pool", 12, batch_norm=False, **SIZES))
    plain = PlainPeer(layer.pool, False)
    x = torch.randn(2, 40, 12)
    for module in layer, plain:
        h = x.clone()
        for _ in range(2):
            h = h + 0.1 * module(h.view(-1, 12)).view_as(h)
        (h ** 2).sum().backward()
    for name in plain.names:
        gradient = torch.from_numpy(layer.pool.gradient(name))
        assert error(gradient, getattr(plain, name).grad) < 1e-3, name
    assert layer.pool.info.collected == 160


def test_what_does_not_learn_only_hands_the_gradient_down(tmp_path):
    layer = reef.torch.PeerLayer(reef.create_layer(tmp_path / "pool", 12, **SIZES))
    x = torch.randn(10, 12, requires_grad=True)
    layer(x).sum().backward()
    assert layer.pool.info.collected == 10
    layer.zero_grad()
    assert layer.pool.info.collected == 0
    layer.eval()
    layer(x).sum().backward()
    layer.train()
    layer.anchor.requires_grad_(False)
    layer(x).sum().backward()
    with layer.as_of(0):
        layer(x).sum().backward()
    with torch.no_grad():
        assert not layer(x).requires_grad
    assert layer.pool.info.collected == 0 and x.grad.abs().sum() > 0
    assert not layer(x.detach()).requires_grad


def test_no_generation_is_before_the_first(tmp_path):
    layer = reef.torch.PeerLayer(reef.create_layer(tmp_path / "pool", 12, **SIZES))
    for enter in layer.as_of, lambda generation: reef.torch.as_of(torch.nn.Sequential(layer), generation):
        with pytest.raises(reef.InvalidError, match="generation is -1"), enter(-1):
            layer(torch.randn(10, 12)).sum().backward()
    assert layer.pool.info.collected == 0 and layer.generations == 0


def test_tensors_are_read_and_written_in_place(tmp_path):
    layer = reef.torch.PeerLayer(reef.create_layer(tmp_path / "pool", 12, **SIZES))
    x = torch.randn(8, 3, 12)
    with torch.no_grad():
        y = layer(x)
    assert y.shape == x.shape
    assert np.array_equal(y.numpy().reshape(-1, 12), layer.pool.forward(x.numpy().reshape(-1, 12)))
    for wrong, kind, words in ((x.double(), TypeError, "float32"), (x[..., :6], reef.InvalidError, "last dimension"),
                               (x.transpose(0, 1), reef.InvalidError, "contiguous"), (x.numpy(), TypeError, "tensor"),
                               (x.to("meta"), TypeError, "CPU")):
        with pytest.raises(kind, match=words):
            layer(wrong)
    y = layer(x.requires_grad_())
    layer.discarded = y.sum()
    layer.discarded.backward(retain_graph=True)
    with pytest.raises(reef.InvalidError, match="gone through"):
        layer.discarded.backward()


def test_the_threads_of_the_process_stay_as_they_were(tmp_path):
    """PyTorch may use the same BLAS: the library asks for one thread only while it computes."""
    code = """if True:
        import ctypes, sys, numpy as np, reef
        blas = ctypes.CDLL("libopenblas.so.0")
        blas.openblas_set_num_threads(2)
        with reef.create_layer(sys.argv[1], 12, topk=4, side=6) as layer:
            layer.forward(np.ones((100, 12), np.float32))
        print(blas.openblas_get_num_threads())"""
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path / "pool")], capture_output=True, text=True,
                         check=True, env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)})
    assert out.stdout.strip() == "2"


def test_a_model_keeps_task_one_to_the_bit_while_it_learns_task_two(tmp_path, data):
    """The example: a two-layer model on Split-MNIST."""
    out = subprocess.run(
        [sys.executable, str(EXAMPLES / "split_mnist.py"), str(data / "mnist"), str(tmp_path / "pools"), "--images",
         "1500", "--epochs", "3"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)})
    assert out.returncode == 0, out.stderr
    lines = out.stdout.splitlines()
    assert "task 1 as of generation 0, after task 2: identical to the bit" in lines
    accuracy = {line.split(":")[0]: float(line.split()[-2]) for line in lines if line.endswith("%")}
    assert accuracy["task 1"] > 95 and accuracy["task 2, all generations"] > 80
