"""Solutions of the exercises on debugging: tests as readers write them, good ones and weak ones."""

import torch

from exercises import Solutions

solutions = Solutions()
RIGHT, WRONG = solutions.right, solutions.wrong
right, wrong = solutions.is_right, solutions.is_wrong

# --------------------------------------------------------------------- leaks_future(run, x)


@right("leaks_future")
def leaks_at_any_cut(run, x):
    before = run(x)
    for cut in range(1, x.shape[1]):
        changed = x.clone()
        changed[:, cut:] = torch.randn_like(changed[:, cut:])
        if not torch.allclose(run(changed)[:, :cut], before[:, :cut], rtol=1e-4, atol=1e-5):
            return True
    return False


@right("leaks_future")
def leaks_token_by_token(run, x):
    before, worst = run(x), 0.0
    for j in range(x.shape[1]):
        changed = x.clone()
        changed[:, j] = torch.rand(x.shape[0], x.shape[2]) * 4 - 2
        gap = (run(changed) - before).abs()[:, :j]
        worst = max([worst, *gap.flatten().tolist()])
    return worst > 1e-5


@right("leaks_future")
def leaks_by_cropping(run, x):
    whole = run(x)
    gaps = [(run(x[:, :n]) - whole[:, :n]).abs().max() for n in range(1, x.shape[1])]
    return bool(torch.stack(gaps).max() > 1e-5 * whole.abs().max())


@right("leaks_future")
def leaks_by_gradient(run, x):
    x = x.clone().requires_grad_()
    y = run(x)
    for i in range(x.shape[1] - 1):
        direction = torch.randn_like(y[:, i])
        (gradient,) = torch.autograd.grad((y[:, i] * direction).sum(), x, retain_graph=True)
        if gradient[:, i + 1 :].abs().max() > 1e-5:
            return True
    return False


def moved_before(run, x, cut, new):
    changed = torch.cat([x[:, :cut], new[:, cut:]], dim=1)
    return (run(changed) - run(x)).abs()


@wrong("leaks_future", "last-token-only")
def leaks_of_last_token(run, x):
    changed = x.clone()
    changed[:, -1] = torch.randn(x.shape[0], x.shape[2])
    return bool((run(changed) - run(x))[:, :-1].abs().max() > 1e-5)


@wrong("leaks_future", "one-cut")
def leaks_at_the_middle(run, x):
    cut = x.shape[1] // 2
    return bool(moved_before(run, x, cut, torch.randn_like(x))[:, :cut].max() > 1e-5)


@wrong("leaks_future", "first-output-only")
def leaks_into_first_output(run, x):
    return bool(moved_before(run, x, 1, torch.randn_like(x))[:, 0].max() > 1e-5)


@wrong("leaks_future", "always")
def leaks_compares_all(run, x):
    return bool(moved_before(run, x, 3, torch.randn_like(x)).max() > 1e-5)


@wrong("leaks_future", "past-replaced")
def leaks_backwards(run, x):
    changed = x.clone()
    changed[:, :3] = torch.randn_like(changed[:, :3])
    return bool((run(changed) - run(x))[:, 3:].abs().max() > 1e-5)


@wrong("leaks_future", "exact")
def leaks_unless_equal(run, x):
    for cut in range(1, x.shape[1]):
        changed = x.clone()
        changed[:, cut:] = torch.randn_like(changed[:, cut:])
        if not torch.equal(run(changed)[:, :cut], run(x)[:, :cut]):
            return True
    return False


@wrong("leaks_future", "too-tolerant")
def leaks_if_obvious(run, x):
    for cut in range(1, x.shape[1]):
        if moved_before(run, x, cut, torch.randn_like(x))[:, :cut].max() > 0.02:
            return True
    return False


@wrong("leaks_future", "same-added")
def leaks_after_adding_one(run, x):
    gaps = [moved_before(run, x, c, x + 1)[:, :c].max() for c in range(1, x.shape[1])]
    return bool(max(gaps) > 1e-5)


@wrong("leaks_future", "scaled")
def leaks_after_scaling(run, x):
    gaps = [moved_before(run, x, c, 10 * x)[:, :c].max() for c in range(1, x.shape[1])]
    return bool(max(gaps) > 1e-5)


@wrong("leaks_future", "sign-flipped")
def leaks_after_flipping(run, x):
    gaps = [moved_before(run, x, c, -x)[:, :c].max() for c in range(1, x.shape[1])]
    return bool(max(gaps) > 1e-5)


@wrong("leaks_future", "first-sample-only")
def leaks_in_first_text(run, x):
    gaps = [moved_before(run, x, c, torch.randn_like(x))[0, :c].max() for c in range(1, x.shape[1])]
    return bool(max(gaps) > 1e-5)


@wrong("leaks_future", "first-feature-only")
def leaks_in_first_feature(run, x):
    gaps = [
        moved_before(run, x, c, torch.randn_like(x))[:, :c, 0].max() for c in range(1, x.shape[1])
    ]
    return bool(max(gaps) > 1e-5)


@wrong("leaks_future", "opposite")
def leaks_says_causal(run, x):
    return not leaks_at_any_cut(run, x)


@wrong("leaks_future", "never")
def leaks_forgets_to_change(run, x):
    changed = x
    changed = changed.clone()
    changed[:, 3:].add(torch.randn_like(changed[:, 3:]))
    return bool((run(changed) - run(x))[:, :3].abs().max() > 1e-5)


@wrong("leaks_future", "changes-inputs")
def leaks_in_place(run, x):
    for cut in range(x.shape[1] - 1, 0, -1):
        before = run(x)
        x[:, cut:] = torch.randn_like(x[:, cut:])
        if (run(x) - before)[:, :cut].abs().max() > 1e-5:
            return True
    return False


@wrong("leaks_future", "nan-filled")
def leaks_by_nan(run, x):
    for cut in range(1, x.shape[1]):
        changed = x.clone()
        changed[:, cut:] = float("nan")
        if run(changed)[:, :cut].isnan().any():
            return True
    return False


# -------------------------------------------------------------- reads_padding(run, x, real)


@right("reads_padding")
def reads_replaced(run, x, real):
    changed = x.clone()
    changed[~real] = torch.randn_like(changed[~real])
    return not torch.allclose(run(changed, real)[real], run(x, real)[real], rtol=1e-4, atol=1e-5)


@right("reads_padding")
def reads_text_by_text(run, x, real):
    before = run(x, real)
    for b in range(len(x)):
        changed = x.clone()
        changed[b, ~real[b]] += torch.tensor([2.0, -1.0, 3.0, -2.0])
        if (run(changed, real) - before)[b, real[b]].abs().max() > 1e-5:
            return True
    return False


@right("reads_padding")
def reads_place_by_place(run, x, real):
    worst = 0.0
    for b, t in (~real).nonzero().tolist():
        changed = x.clone()
        changed[b, t] = torch.rand(x.shape[-1]) - 3
        gap = (run(changed, real) - run(x, real)).abs() * real[:, :, None]
        worst = max(worst, gap.max().item())
    return worst > 1e-5


@right("reads_padding")
def reads_by_gradient(run, x, real):
    leaf = x.clone().requires_grad_()
    y = run(leaf, real)[real]
    (gradient,) = torch.autograd.grad((y * torch.randn_like(y)).sum(), leaf)
    return bool(gradient[~real].abs().max() > 1e-5)


def gap_with(run, x, real, new, where=None):
    where = ~real if where is None else where
    return (run(torch.where(where[..., None], new, x), real) - run(x, real)).abs()


@wrong("reads_padding", "zeroed")
def reads_zeroed(run, x, real):
    return bool(gap_with(run, x, real, torch.zeros_like(x))[real].max() > 1e-5)


@wrong("reads_padding", "scaled")
def reads_doubled(run, x, real):
    return bool(gap_with(run, x, real, 2 * x)[real].max() > 1e-5)


@wrong("reads_padding", "always")
def reads_compares_all(run, x, real):
    return bool(gap_with(run, x, real, torch.randn_like(x)).max() > 1e-5)


@wrong("reads_padding", "always")
def reads_replaces_text(run, x, real):
    return bool(gap_with(run, x, real, torch.randn_like(x), where=real)[real].max() > 1e-5)


@wrong("reads_padding", "last-place-only")
def reads_last_place(run, x, real):
    changed = x.clone()
    changed[:, -1] = torch.where(real[:, -1:], x[:, -1], torch.randn_like(x[:, -1]))
    return bool((run(changed, real) - run(x, real))[real].abs().max() > 1e-5)


@wrong("reads_padding", "first-text-only")
def reads_in_first_text(run, x, real):
    return bool(gap_with(run, x, real, torch.randn_like(x))[0, real[0]].max() > 1e-5)


@wrong("reads_padding", "first-token-only")
def reads_in_first_token(run, x, real):
    return bool(gap_with(run, x, real, torch.randn_like(x))[:, 0].max() > 1e-5)


@wrong("reads_padding", "exact")
def reads_unless_equal(run, x, real):
    changed = torch.where(real[..., None], x, torch.randn_like(x))
    return not torch.equal(run(changed, real)[real], run(x, real)[real])


@wrong("reads_padding", "too-tolerant")
def reads_if_obvious(run, x, real):
    return bool(gap_with(run, x, real, torch.randn_like(x))[real].max() > 0.05)


@wrong("reads_padding", "opposite")
def reads_says_invariant(run, x, real):
    return not reads_replaced(run, x, real)


@wrong("reads_padding", "never")
def reads_throws_the_change_away(run, x, real):
    changed = x.clone()
    changed.masked_fill(~real[..., None], 7.0)
    return not torch.allclose(run(changed, real)[real], run(x, real)[real])


@wrong("reads_padding", "mask-dropped")
def reads_without_mask(run, x, real):
    everything = torch.ones_like(real)
    return bool((run(x, everything) - run(x, real))[real].abs().max() > 1e-5)


@wrong("reads_padding", "nan-filled")
def reads_by_nan(run, x, real):
    changed = x.clone()
    changed[~real] = float("nan")
    return bool(run(changed, real)[real].isnan().any())


@wrong("reads_padding", "changes-inputs")
def reads_in_place(run, x, real):
    before = run(x, real)
    x[~real] = torch.randn_like(x[~real])
    return bool((run(x, real) - before)[real].abs().max() > 1e-5)


# ---------------------------------------------------------------------- mixes_batch(run, x)


@right("mixes_batch")
def mixes_each_alone(run, x):
    together = run(x)
    alone = torch.cat([run(x[b : b + 1]) for b in range(len(x))])
    return not torch.allclose(together, alone, rtol=1e-4, atol=1e-5)


@right("mixes_batch")
def mixes_one_replaced(run, x):
    before = run(x)
    for b in range(len(x)):
        changed = x.clone()
        changed[b] = torch.randn_like(x[b])
        others = torch.arange(len(x)) != b
        if (run(changed) - before)[others].abs().max() > 1e-5:
            return True
    return False


@right("mixes_batch")
def mixes_all_but_one(run, x):
    worst = 0.0
    for b in range(len(x)):
        changed = torch.randn_like(x)
        changed[b] = x[b]
        worst = max(worst, (run(changed)[b] - run(x)[b]).abs().max().item())
    return worst > 1e-5


@right("mixes_batch")
def mixes_by_gradient(run, x):
    leaf = x.clone().requires_grad_()
    y = run(leaf)
    for b in range(len(x)):
        mix = (y[b] * torch.randn_like(y[b])).sum()
        (gradient,) = torch.autograd.grad(mix, leaf, retain_graph=True)
        gradient[b] = 0
        if gradient.abs().max() > 1e-5:
            return True
    return False


@wrong("mixes_batch", "first-text-only")
def mixes_into_first(run, x):
    return not torch.allclose(run(x)[:1], run(x[:1]), atol=1e-5)


@wrong("mixes_batch", "last-text-only")
def mixes_into_last(run, x):
    return not torch.allclose(run(x)[-1:], run(x[-1:]), atol=1e-5)


@wrong("mixes_batch", "shuffled")
def mixes_by_order(run, x):
    order = torch.tensor([2, 0, 1])
    return not torch.allclose(run(x[order]), run(x)[order], atol=1e-5)


@wrong("mixes_batch", "always")
def mixes_compares_the_replaced(run, x):
    changed = x.clone()
    changed[1:] = torch.randn_like(changed[1:])
    return not torch.allclose(run(changed), run(x), atol=1e-5)


@wrong("mixes_batch", "first-token-only")
def mixes_first_token(run, x):
    alone = torch.stack([run(text[None])[0, 0] for text in x])
    return not torch.allclose(run(x)[:, 0], alone, atol=1e-5)


@wrong("mixes_batch", "exact")
def mixes_unless_equal(run, x):
    return not torch.equal(run(x), torch.cat([run(text[None]) for text in x]))


@wrong("mixes_batch", "too-tolerant")
def mixes_if_obvious(run, x):
    alone = torch.cat([run(text[None]) for text in x])
    return bool((run(x) - alone).abs().max() > 0.05)


@wrong("mixes_batch", "opposite")
def mixes_says_independent(run, x):
    return torch.allclose(run(x), torch.cat([run(text[None]) for text in x]), atol=1e-5)


@wrong("mixes_batch", "always")
def mixes_lets_the_replaced_count(run, x):
    gaps = [run(torch.cat([text[None], 0 * x[1:]])) - run(x) for text in x]
    return bool(torch.stack(gaps).abs().max() > 1e-5)


@wrong("mixes_batch", "never")
def mixes_compares_shapes(run, x):
    return run(x).shape[1:] != run(x[:1]).shape[1:]


@right("mixes_batch")
def mixes_copies(run, x):
    copies = torch.cat([run(text.repeat(3, 1, 1))[:1] for text in x])
    return not torch.allclose(run(x), copies, atol=1e-5)


@wrong("mixes_batch", "raises")
def mixes_loses_the_axis(run, x):
    return not torch.allclose(run(x)[0], run(x[0]), atol=1e-5)
