"""The float64 definition of LatentMemoryRouting against oracles of other projects, and its named rules."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from gaussport.plugins.latent_memory_routing.definition import latent_memory_routing, responsibilities

Array = NDArray[np.float64]
TOLERANCE = 1e-12  # float64 against float64; the oracles multiply in another order


def mixture(rng: np.random.Generator, P: int, K: int, dr: int, spread: float = 1.0) -> tuple[Array, Array, Array]:
    """Mean and variance [P, K, dr] and normalised log prior [P, K]."""
    prior = rng.uniform(0.1, 1, size=(P, K))
    return (
        rng.normal(size=(P, K, dr)) * spread,
        rng.uniform(0.05, 2, size=(P, K, dr)),
        np.log(prior / prior.sum(-1, keepdims=True)),
    )


def tokens(rng: np.random.Generator, B: int, N: int, P: int, dr: int, dv: int) -> tuple[Array, Array, Array]:
    """Query, key [B, N, P, dr] and value [B, N, P, dv]."""
    return rng.normal(size=(B, N, P, dr)), rng.normal(size=(B, N, P, dr)), rng.normal(size=(B, N, P, dv))


@settings(max_examples=40)
@given(K=st.integers(1, 64), dr=st.integers(1, 17), spread=st.floats(0, 20), seed=st.integers(0, 999))
def test_responsibilities_are_scikit_learns(K: int, dr: int, spread: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean, variance, log_prior = mixture(rng, 1, K, dr, spread)
    oracle = GaussianMixture(K, covariance_type="diag")
    oracle.weights_, oracle.means_, oracle.covariances_ = np.exp(log_prior[0]), mean[0], variance[0]
    oracle.precisions_cholesky_ = 1 / np.sqrt(variance[0])
    x = rng.normal(size=(9, dr)) * max(spread, 1)
    got = responsibilities(x[None, :, None], mean, variance, log_prior)[0, :, 0]
    # scikit-learn expands the square, so its own scores are rounded at 1e-16 · (spread² / variance) ≈ 1e-12
    np.testing.assert_allclose(got, oracle.predict_proba(x), atol=2e-11 if spread > 3 else TOLERANCE, rtol=0)
    np.testing.assert_allclose(got.sum(-1), 1, atol=1e-14)


@settings(max_examples=40)
@given(
    N=st.integers(1, 12),
    P=st.integers(1, 3),
    K=st.integers(1, 64),
    dr=st.integers(1, 9),
    dv=st.integers(1, 9),
    causal=st.booleans(),
    masked=st.booleans(),
    epsilon=st.sampled_from([1e-6, 0.5]),
    seed=st.integers(0, 999),
)
def test_output_is_torch_sdpa_with_log_affinity_times_the_row_sum(
    N: int, P: int, K: int, dr: int, dv: int, causal: bool, masked: bool, epsilon: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    query, key, value = tokens(rng, 2, N, P, dr, dv)
    gaussians = mixture(rng, P, K, dr)
    mask = (rng.uniform(size=(2, N)) > 0.4).astype(float) if masked else np.ones((2, N))
    mask[:, 0] = 1  # a row that nothing may answer is not defined for softmax
    read, write = responsibilities(query, *gaussians), responsibilities(key, *gaussians)
    affinity = np.einsum("bipk,bjpk->bpij", read, write * mask[:, :, None, None])
    if causal:
        affinity = np.tril(affinity)
    with np.errstate(divide="ignore"):
        bias = torch.from_numpy(np.log(affinity))
    zeros = torch.zeros(2, P, N, 1, dtype=torch.float64)
    mixed = torch.nn.functional.scaled_dot_product_attention(
        zeros, zeros, torch.from_numpy(value).transpose(1, 2), attn_mask=bias
    )
    mass = affinity.sum(-1)[..., None]
    wanted = (mixed.numpy() * (mass / (mass + epsilon))).transpose(0, 2, 1, 3)
    got = latent_memory_routing(query, key, value, *gaussians, mask if masked else None, epsilon=epsilon, causal=causal)
    np.testing.assert_allclose(got, wanted, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_constant_value_comes_out_as_its_row_sum_d_over_d_plus_epsilon(causal: bool) -> None:
    rng = np.random.default_rng(0)
    query, key, value = tokens(rng, 1, 7, 2, 3, 2)
    gaussians = mixture(rng, 2, 4, 3, spread=4)  # far apart, so that d is small
    read, write = responsibilities(query, *gaussians), responsibilities(key, *gaussians)
    affinity = np.einsum("bipk,bjpk->bpij", read, write)
    d = (np.tril(affinity) if causal else affinity).sum(-1).transpose(0, 2, 1)[..., None]
    got = latent_memory_routing(query, key, np.full_like(value, 3.0), *gaussians, epsilon=0.25, causal=causal)
    np.testing.assert_allclose(got, np.broadcast_to(3 * d / (d + 0.25), got.shape), atol=TOLERANCE)


def test_one_component_gives_the_mean_and_in_causal_order_the_running_mean() -> None:
    rng = np.random.default_rng(1)
    query, key, value = tokens(rng, 2, 6, 2, 3, 4)
    one = mixture(rng, 2, 1, 3)
    plain = latent_memory_routing(query, key, value, *one, epsilon=0)
    running = latent_memory_routing(query, key, value, *one, epsilon=0, causal=True)
    np.testing.assert_allclose(plain, np.broadcast_to(value.mean(1, keepdims=True), value.shape), atol=TOLERANCE)
    np.testing.assert_allclose(running, value.cumsum(1) / np.arange(1, 7)[:, None, None], atol=TOLERANCE)


def test_last_row_of_causal_is_the_last_row_of_bidirectional() -> None:
    rng = np.random.default_rng(2)
    operands = (*tokens(rng, 2, 6, 2, 3, 4), *mixture(rng, 2, 5, 3))
    plain, causal = (latent_memory_routing(*operands, causal=flag) for flag in (False, True))
    np.testing.assert_allclose(causal[:, -1], plain[:, -1], atol=TOLERANCE)


def test_masked_token_changes_nothing_for_the_others() -> None:
    rng = np.random.default_rng(3)
    query, key, value = tokens(rng, 1, 5, 2, 3, 4)
    gaussians = mixture(rng, 2, 5, 3)
    padded = latent_memory_routing(query, key, value, *gaussians, np.array([[1, 1, 1, 0, 0]]))[:, :3]
    alone = latent_memory_routing(query[:, :3], key[:, :3], value[:, :3], *gaussians)
    np.testing.assert_allclose(padded, alone, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("changed", "shape", "words"),
    [
        ("key", (2, 6, 2, 3), r"key has shape \[2, 6, 2, 3\] but should be \[B, N, P, dr\] = \[2, 5, 2, 3\]"),
        ("value", (2, 5, 4), r"value has shape \[2, 5, 4\] but should be \[B, N, P, dv\]"),
        ("mean", (2, 0, 3), r"mean has shape \[2, 0, 3\]; no axis may be empty"),
        ("variance", (2, 7, 4), r"variance has shape \[2, 7, 4\] but should be .* = \[2, 7, 3\]"),
        ("log_prior", (2, 8), r"log_prior has shape \[2, 8\] but should be \[P, K\] = \[2, 7\]"),
        ("key_mask", (2, 5, 1), r"key_mask has shape \[2, 5, 1\] but should be \[B, N\]"),
    ],
)
def test_misfit_names_the_operand_and_the_shape_it_should_have(changed: str, shape: tuple[int, ...], words: str) -> None:
    shapes: dict[str, tuple[int, ...]] = {"query": (2, 5, 2, 3), "key": (2, 5, 2, 3), "value": (2, 5, 2, 4)}
    shapes |= {"mean": (2, 7, 3), "variance": (2, 7, 3), "log_prior": (2, 7), "key_mask": (2, 5)}
    shapes[changed] = shape
    with pytest.raises(ValueError, match=words):
        latent_memory_routing(*(np.ones(shape) for shape in shapes.values()))


def test_variance_that_is_not_positive_is_refused() -> None:
    rng = np.random.default_rng(4)
    mean, variance, log_prior = mixture(rng, 1, 2, 3)
    variance[0, 1, 2] = 0
    with pytest.raises(ValueError, match="variance must be positive"):
        latent_memory_routing(*tokens(rng, 1, 2, 1, 3, 2), mean, variance, log_prior)
