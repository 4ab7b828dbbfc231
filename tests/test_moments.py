"""Real second moments: what AdamW keeps against averages taken independently, and the pictures of them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from course_lib import figures, moments
from course_lib.diagrams import build_up
from course_lib.diagrams import moments as pictures


class Tiny(nn.Module):
    """A classifier that takes batches as transformers' models do, and remembers all its gradients."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.linear = nn.Linear(4, 3)
        self.gradients = {name: [] for name, _ in self.named_parameters()}
        self.seen = []
        self.modes = []
        for name, parameter in self.named_parameters():
            parameter.register_hook(lambda g, name=name: self.gradients[name].append(g.double().clone()))

    def forward(self, token, labels):
        self.seen.append(token.tolist())
        self.modes.append(self.training)
        return SimpleNamespace(loss=nn.functional.cross_entropy(self.linear(self.embedding(token)), labels))


def tiny_model(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Tiny().eval()


def batches(count=3):
    return [{"token": torch.tensor([i, i + 1]), "labels": torch.tensor([i, 0])} for i in range(count)]


def expected(gradients, beta2):
    """Worked out weight by weight: the gradient of age a (0 for the newest) weighs (1 - beta2) * beta2**a."""
    ages = range(len(gradients) - 1, -1, -1)
    return sum((1 - beta2) * beta2**age * g * g for age, g in zip(ages, gradients, strict=True)).float()


def test_second_moments_are_the_average_of_squares_and_what_adamw_keeps():
    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.9, 0.8))
    moments.train(model, optimizer, batches(), steps=7)
    V = moments.second_moments(model, optimizer)
    assert list(V) == ["embedding.weight", "linear.weight"]  # matrices only
    assert V["linear.weight"].shape == (3, 4)
    for name, parameter in model.named_parameters():
        assert len(model.gradients[name]) == 7
        if parameter.ndim == 2:
            torch.testing.assert_close(V[name], expected(model.gradients[name], 0.8))
            assert torch.equal(V[name], optimizer.state[parameter]["exp_avg_sq"])


def test_second_moments_are_copies():
    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters())
    moments.train(model, optimizer, batches(), steps=1)
    before = moments.second_moments(model, optimizer)
    kept = {name: V.clone() for name, V in before.items()}
    moments.train(model, optimizer, batches(), steps=1)
    assert all(torch.equal(before[name], kept[name]) for name in kept)


def test_no_step_no_second_moment():
    model = tiny_model()
    with pytest.raises(KeyError):
        moments.second_moments(model, torch.optim.AdamW(model.parameters()))


def test_training_goes_through_the_batches_again_in_training_mode():
    model = tiny_model()
    moments.train(model, torch.optim.AdamW(model.parameters()), batches(3), steps=5)
    assert model.seen == [[0, 1], [1, 2], [2, 3], [0, 1], [1, 2]]
    assert model.modes == [True] * 5
    assert all(p.grad is None for p in model.parameters())


@pytest.fixture
def tiny_task(monkeypatch):
    """A made-up small tier in place of the real one; the list of its models as (seed, model)."""
    made = []

    def model(seed):
        made.append((seed, tiny_model(seed)))
        return made[-1][1]

    def collate(rows):
        return {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}

    rows = [{"token": i % 5, "labels": i % 3} for i in range(11)]
    task = SimpleNamespace(train=rows, model=model, collator=collate, batch_size=2, learning_rate=0.1)
    monkeypatch.setattr(moments.tasks, "load", {"small": task}.__getitem__)
    return made


@pytest.mark.parametrize("beta2", [0.99, 0.5])
def test_train_and_collect_returns_uncorrected_averages(tiny_task, beta2):
    V = moments.train_and_collect(steps=6, beta2=beta2)
    ((_, model),) = tiny_task
    assert len(model.seen) == 6
    assert all(len(batch) == 2 for batch in model.seen)  # the eleventh row would make a batch of one
    for name in ("embedding.weight", "linear.weight"):
        torch.testing.assert_close(V[name], expected(model.gradients[name], beta2))


def test_the_seed_decides_on_weights_and_order(tiny_task):
    for seed in (3, 3, 4):
        moments.train_and_collect(steps=5, seed=seed)
    assert [seed for seed, _ in tiny_task] == [3, 3, 4]
    once, again, other = (model.seen for _, model in tiny_task)
    assert once == again != other


def test_train_and_collect_leaves_the_callers_torch_alone(tiny_task):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.manual_seed(123)
        generator = torch.random.get_rng_state()
        moments.train_and_collect(steps=2)
        assert torch.equal(torch.random.get_rng_state(), generator)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_real_matrices_are_the_same_for_the_same_seed():
    once, again, other = (moments.train_and_collect(steps=4, seed=seed) for seed in (0, 0, 1))
    assert len(once) == 16
    assert once["classifier.weight"].shape == (6, 128)
    assert all(torch.equal(once[name], again[name]) for name in once)
    assert not torch.equal(once["classifier.weight"], other["classifier.weight"])
    tokens = once["distilbert.embeddings.word_embeddings.weight"]
    assert 0 < (tokens.sum(dim=1) == 0).sum() < len(tokens)  # tokens that have not come up yet


@pytest.mark.parametrize(
    ("parameter", "short"),
    [
        ("distilbert.embeddings.word_embeddings.weight", "word embeddings"),
        ("distilbert.transformer.layer.0.attention.q_lin.weight", "layer 0 attention q"),
        ("distilbert.transformer.layer.1.ffn.lin1.weight", "layer 1 ffn lin1"),
        ("pre_classifier.weight", "pre classifier"),
    ],
)
def test_short_names(parameter, short):
    assert pictures.short_name(parameter) == short


def test_memory_bars_add_up():
    fig, alt = pictures.memory_bars(100.0, {"SGD": "", "RMSProp": "V", "AdamW": "MV"})
    for said in ("SGD 200.0 MiB, of which state 0.0", "RMSProp 300.0 MiB, of which state 100.0", "AdamW 400.0 MiB"):
        assert said in alt
    assert len(fig.axes[0].patches) == 2 + 3 + 4


def test_two_entries_are_described_by_their_last_values():
    G = torch.tensor([[1.0, 4.0], [2.0, -4.0]])
    _, alt = pictures.two_entries(G, M=G / 2, V=G**2)
    assert "one entry M ends at 1.00 and √V at 2.00; for another entry M ends at -2.00 and √V at 4.00" in alt


def test_matrix_view_shuffles_the_same_numbers_and_keeps_its_figure():
    view = pictures.MatrixView()
    V = torch.rand(70, 8, generator=torch.Generator().manual_seed(0)) + 0.1
    fig, alt = view.update("one", V)
    assert view.update("one", V)[0] is fig
    assert view.update("other", V)[0] is not fig
    left, right = (torch.tensor(ax.images[0].get_array().data) for ax in fig.axes[:2])
    assert torch.equal(left, V[:64])
    assert not torch.equal(left, right)
    assert torch.equal(left.flatten().sort().values, right.flatten().sort().values)
    assert "first 64 rows and 8 columns" in alt


def test_zeros_are_left_out_of_the_log_scale():
    V = torch.full((10, 10), 2.0)
    V[0] = 0.0
    V[1] = 8.0
    fig, alt = pictures.real_moments({name: V for name in ("token embeddings", "b", "c", "d")}, list("0123456789"))
    norm = fig.axes[0].images[0].norm
    assert (norm.vmin, norm.vmax) == (2.0, 8.0)
    assert "between 2e+00 and 8e+00" in alt
    assert len(figures.png(fig, dpi=20)) > 1000


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("SGD", []),
        ("momentum", ["first moment"]),
        ("RMSProp", ["second moment"]),
        ("Adam", ["first moment", "second moment"]),
    ],
)
def test_the_build_up_marks_what_each_optimizer_keeps(name, marks):
    fig, alt = build_up.flow(name)
    drawn = [text.get_text() for text in fig.axes[0].texts]
    assert [mark for mark in ("first moment", "second moment") if mark in drawn] == marks
    assert [mark for mark in ("first moment", "second moment") if mark in alt] == marks
    assert name in drawn
