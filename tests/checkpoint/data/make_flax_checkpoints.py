# mypy: ignore-errors
# ruff: noqa: C408
"""Writes the Flax checkpoints in this folder and their logits: a classifier of the published formulas in plain JAX.

    python -m venv /tmp/jax && /tmp/jax/bin/pip install flax==0.12.8 orbax-checkpoint==0.12.8
    JAX_PLATFORMS=cpu /tmp/jax/bin/python tests/checkpoint/data/make_flax_checkpoints.py

Nothing of gaussport is used: attention is written with the N×N arrays that the definitions speak of.
"""

import shutil
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import serialization

HERE = Path(__file__).parent
DIM, DEPTH, HEADS, ATOMS, PATCH, SIDE, CLASSES = 8, 2, 2, 3, 4, 12, 5
COMPONENTS, ROUTING = 4, 3
CELLS = SIDE // PATCH


class SSOG(nn.Module):
    """Steered separable sum of Gaussians."""

    @nn.compact
    def __call__(self, x):  # [B, N, dim]
        B, N = x.shape[:2]
        normal = nn.initializers.normal
        mu = self.param("mu", normal(1.0), (HEADS, ATOMS, 2))
        sigma = nn.softplus(self.param("raw_sigma", normal(0.5), (HEADS, ATOMS, 2))) + 1e-4 + 0.25
        log_lambda = self.param("log_lambda", normal(0.5), (HEADS, ATOMS))
        tau = nn.softplus(self.param("raw_temperature", normal(0.5), ())) + 0.5
        scales = [
            nn.softplus(self.param(f"raw_{name}_scale", normal(0.5), ())) + 1e-4
            for name in ("mu_delta", "sigma_delta", "lambda_gate")
        ]
        noisy = dict(bias_init=normal(0.5))
        steps = (CELLS, CELLS, HEADS, ATOMS)
        d_mu = jnp.tanh(nn.Dense(HEADS * ATOMS * 2, name="mu_delta", **noisy)(x)).reshape(B, *steps, 2)
        d_sigma = jnp.tanh(nn.Dense(HEADS * ATOMS * 2, name="sigma_delta", **noisy)(x)).reshape(B, *steps, 2)
        gate = jnp.tanh(nn.Dense(HEADS * ATOMS, name="lambda_gate", **noisy)(x)).reshape(B, *steps)
        offset = mu + scales[0] * 4.0 * d_mu
        width = sigma * jnp.exp(scales[1] * d_sigma) * jnp.sqrt(tau)
        weight = nn.softmax(log_lambda + scales[2] * gate, axis=-1)
        cells = jnp.arange(CELLS)
        distance = cells[:, None] - cells[None, :]  # query − key
        rows = distance[None, :, None, None, None, :] - offset[..., 0, None]
        columns = distance[None, None, :, None, None, :] - offset[..., 1, None]
        row = nn.softmax(-(rows**2) / (2 * width[..., 0, None] ** 2), axis=-1)  # of the intermediate token
        column = nn.softmax(-(columns**2) / (2 * width[..., 1, None] ** 2), axis=-1)
        value = nn.Dense(DIM, use_bias=False, name="v")(x).reshape(B, CELLS, CELLS, HEADS, DIM // HEADS)
        mixed = jnp.einsum("biwpr,biwprk,bikprj,bjkpd->biwpd", weight, column, row, value)
        return nn.Dense(DIM, use_bias=False, name="out")(mixed.reshape(B, N, DIM))


class GMA(nn.Module):
    """Routing through a mixture of Gaussians."""

    @nn.compact
    def __call__(self, x):  # [B, N, dim]
        B, N = x.shape[:2]
        split = (B, N, HEADS, -1)
        query = nn.Dense(HEADS * ROUTING, use_bias=False, name="q_proj")(x).reshape(split)
        key = nn.Dense(HEADS * ROUTING, use_bias=False, name="k_proj")(x).reshape(split)
        value = nn.Dense(DIM, use_bias=False, name="v_proj")(x).reshape(split)
        normal = nn.initializers.normal(1.0)
        mu = self.param("mu", normal, (HEADS, COMPONENTS, ROUTING))
        variance = nn.softplus(self.param("omega", normal, (HEADS, COMPONENTS, ROUTING))) + 1e-4
        log_prior = nn.log_softmax(self.param("alpha", normal, (HEADS, COMPONENTS)))

        def responsibilities(y):  # [B, N, P, K]
            exponent = jnp.log(2 * jnp.pi * variance) + (y[:, :, :, None] - mu) ** 2 / variance
            return nn.softmax(log_prior - 0.5 * exponent.sum(-1), axis=-1)

        read, written = responsibilities(query), responsibilities(key)
        memory, mass = jnp.einsum("bnpk,bnpd->bpkd", written, value), written.sum(1)
        mixed = jnp.einsum("bnpk,bpkd->bnpd", read, memory) / (jnp.einsum("bnpk,bpk->bnp", read, mass) + 1e-6)[..., None]
        return nn.Dense(DIM, use_bias=False, name="out_proj")(mixed.reshape(B, N, DIM))


class Block(nn.Module):
    attention: type

    @nn.compact
    def __call__(self, x):
        x = x + self.attention(name="attn")(nn.LayerNorm(name="norm1")(x))
        y = nn.Dense(2 * DIM, name="mlp_0")(nn.LayerNorm(name="norm2")(x))
        return x + nn.Dense(DIM, name="mlp_2")(nn.gelu(y))  # LayerNorm 1e-6 and the tanh form are Flax's defaults


class Twin(nn.Module):
    attention: type

    @nn.compact
    def __call__(self, pixels):  # [B, height, width, C]
        B = len(pixels)
        patches = pixels.reshape(B, CELLS, PATCH, CELLS, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
        x = nn.Dense(DIM, name="patch_embed")(patches.reshape(B, CELLS**2, PATCH * PATCH * 3))
        x = x + self.param("pos_embed", nn.initializers.normal(0.5), (1, CELLS**2, DIM))
        for index in range(DEPTH):
            x = Block(self.attention, name=f"blocks_{index}")(x)
        return nn.Dense(CLASSES, name="head")(nn.LayerNorm(name="norm")(x).mean(1))


def main() -> None:
    jax.config.update("jax_enable_x64", False)
    pixels = np.random.default_rng(0).standard_normal((4, SIDE, SIDE, 3), dtype=np.float32)
    answers = {"pixels": pixels.transpose(0, 3, 1, 2)}
    for name, attention in (("ssog", SSOG), ("gma", GMA)):
        twin = Twin(attention)
        params = twin.init(jax.random.key(1), pixels)["params"]
        # Norms away from one and zero, so that a lost scale or bias shows.
        params = jax.tree.map(lambda leaf: leaf + 0.1 * np.random.default_rng(leaf.size).standard_normal(leaf.shape), params)
        # Small tokens and large logits: another epsilon under the variance, or another GELU, shows in them.
        for quiet in ("patch_embed", "pos_embed"):
            params[quiet] = jax.tree.map(lambda leaf: 0.005 * leaf, params[quiet])
        params["head"] = jax.tree.map(lambda leaf: 4 * leaf, params["head"])
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
        answers[name] = np.asarray(jax.jit(twin.apply)({"params": params}, pixels))
        (HERE / f"{name}.msgpack").write_bytes(serialization.to_bytes({"params": params, "step": 7}))
        if name == "ssog":
            small = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
            (HERE / "ssog-bf16.msgpack").write_bytes(serialization.to_bytes(small))
            folder = HERE / "ssog-orbax"
            shutil.rmtree(folder, ignore_errors=True)
            with ocp.PyTreeCheckpointer() as writer:
                writer.save(folder.absolute(), {"params": params, "opt_state": {"mu": params}, "step": 7})
            (folder / "commit_success.txt").unlink()  # it names the folder of the machine that wrote it
    np.savez(HERE / "logits.npz", **answers)


main()
