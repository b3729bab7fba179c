#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""reference.py - logits of a deepseek2 model in float64, to hold the engine against.

    reference.py MODEL.gguf --tokens 1,2,3 [-o OUT.npy] [--compare GOT.npy --limit 1e-4]

Nothing here is shared with the engine: its own reader, its own decoding, every sum in double
precision, attention in expanded form over all positions at once.  It follows the published
arithmetic of the family and is as slow as that; models of a few MB take a second.

Types decoded here are those of BUILTIN; --dequant FILE.py adds a module with TYPES, {id: (name,
values, bytes, header, rows of a group)}, and decode(id, data, columns), which returns rows.

--compare prints the relative error over all logits, the median and the worst of single tokens,
and how near the worst token was to choosing other experts.  A token on such an edge may go
either way and then differs by percents: --median holds the median to --limit instead.  Exit
status 1: beyond the limit.

--int8 rounds what quantised matrices multiply as the engine does without --exact-math (keys
apart): the distance of that from exact logits is what int8 activations cost by themselves.

Reading order: the file; decoding; what the keys mean; rope; attention; experts; the program.
"""
import argparse
import importlib.util
import math
import re
import struct
import sys

import numpy as np

# ---- The file ------------------------------------------------------------------------------

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
SCALARS[12] = "d"
STRING, ARRAY = 8, 9


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, code):
        values = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return values[0]

    def string(self):
        size = self.take("Q")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, count = self.take("I"), self.take("Q")
            return [self.value(of) for _ in range(count)]
        return self.take(SCALARS[kind])


class Tensor:
    def __init__(self, shape, kind, data):
        self.shape, self.kind, self.data = shape, kind, data  # shape as in the file: ne0 first


def read_part(path, keys, tensors):
    data = memoryview(np.memmap(path, np.uint8, "r"))
    c = Cursor(data)
    assert c.take("I") == 0x46554747 and c.take("I") in (2, 3), f"{path}: not GGUF"
    n_tensors, n_keys = c.take("Q"), c.take("Q")
    for _ in range(n_keys):
        name = c.string()
        keys.setdefault(name, c.value(c.take("I")))
    found = []
    for _ in range(n_tensors):
        name, n_dims = c.string(), c.take("I")
        shape = [c.take("Q") for _ in range(n_dims)]
        found.append((name, shape, c.take("I"), c.take("Q")))
    step = keys.get("general.alignment", 32)
    begin = (c.at + step - 1) // step * step
    for name, shape, kind, offset in found:
        assert name not in tensors, f"{path}: {name} twice"
        tensors[name] = Tensor(shape, kind, data[begin + offset :])


def read_model(path):
    keys, tensors = {}, {}
    split = re.fullmatch(r"(.*-)(\d{5})-of-(\d{5})\.gguf", path)
    if split:
        for part in range(int(split[3])):
            read_part(f"{split[1]}{part + 1:05}-of-{split[3]}.gguf", keys, tensors)
    else:
        read_part(path, keys, tensors)
    return keys, tensors


# ---- Decoding ------------------------------------------------------------------------------


def halves(block, at):
    return block[:, at : at + 2].copy().view("<f2").astype(np.float64)


def nibbles(codes):
    return np.concatenate([codes & 15, codes >> 4], axis=-1).astype(np.float64)


def q8_0(b):
    return halves(b, 0) * b[:, 2:].view(np.int8)


def q4_0(b):
    return halves(b, 0) * (nibbles(b[:, 2:]) - 8)


def scaled(b, codes):
    """Eight sub-blocks: d and dmin, then twelve bytes of 6-bit scales and minima."""
    s = b[:, 4:16].astype(np.int64)
    low, mid, high = s[:, :4], s[:, 4:8], s[:, 8:]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=1)
    least = np.concatenate([mid & 63, high >> 4 | (mid >> 6) << 4], axis=1)
    codes = codes.reshape(-1, 8, 32)
    values = (halves(b, 0) * scale)[:, :, None] * codes - (halves(b, 2) * least)[:, :, None]
    return values.reshape(-1, 256)


def q4_k(b):
    return scaled(b, nibbles(b[:, 16:].reshape(-1, 4, 32)))


def q5_k(b):
    """A bit of each byte of 32 is the fifth of one sub-block's codes."""
    top = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return scaled(b, nibbles(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) + 16.0 * top)


def q6_k(b):
    """128 bytes of low nibbles, 64 of two high bits, 16 int8 scales, d."""
    low = b[:, :128].reshape(-1, 2, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).astype(np.int64)
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    codes = low + (high.reshape(-1, 2, 128).astype(np.int64) << 4) - 32
    scales = b[:, 192:208].view(np.int8).astype(np.float64)
    return np.repeat(halves(b, 208) * scales, 16, axis=1) * codes.reshape(-1, 256)


def bf16(b):
    return (b.reshape(-1, 2).copy().view("<u2").astype(np.uint32) << 16).view(np.float32)


BUILTIN = {  # id: values and bytes of a block, decoder
    0: (1, 4, lambda b: b.reshape(-1, 4).copy().view("<f4")),
    1: (1, 2, lambda b: b.reshape(-1, 2).copy().view("<f2")),
    30: (1, 2, bf16),
    2: (32, 18, q4_0),
    8: (32, 34, q8_0),
    12: (256, 144, q4_k),
    13: (256, 176, q5_k),
    14: (256, 210, q6_k),
}
FLOATS = (0, 1, 30)


class Weights:
    def __init__(self, tensors, decoder):
        self.tensors, self.decoder, self.kept = tensors, decoder, {}

    def __contains__(self, name):
        return name in self.tensors

    def shape(self, name):
        return self.tensors[name].shape

    def get(self, name):
        """The tensor with rows first: [ne2][ne1][ne0], as far as it has those."""
        if name not in self.kept:
            self.kept[name] = self.decode(self.tensors[name])
        return self.kept[name]

    def decode(self, t):
        columns, rows = t.shape[0], math.prod(t.shape[1:])
        if t.kind in BUILTIN:
            values, size, decode = BUILTIN[t.kind]
            count = rows * (columns // values)
            blocks = np.frombuffer(t.data, np.uint8, count * size).reshape(count, size)
            out = decode(blocks).astype(np.float64)
        else:
            assert self.decoder, f"type {t.kind} is not decoded here; see --dequant"
            _, values, size, header, group = self.decoder.TYPES[t.kind]
            step = group * (header + columns // values * size)
            out = []
            for at in range(0, rows // group * step, step):
                out += self.decoder.decode(t.kind, bytes(t.data[at : at + step]), columns)
            out = np.array(out, np.float64)
        return out.reshape(t.shape[::-1])


# ---- What the keys mean --------------------------------------------------------------------


class Shape:
    """Hyper-parameters, completed where a file lacks them."""

    def __init__(self, keys, w, groups):
        arch = keys["general.architecture"]
        assert arch == "deepseek2", arch
        key = lambda name, default=None: keys.get(f"{arch}.{name}", default)
        n_blocks = key("block_count")
        nextn = key("nextn_predict_layers")
        if nextn is None:
            nextn = int(f"blk.{n_blocks - 1}.nextn.eh_proj.weight" in w)
        self.n_layers = n_blocks - nextn
        self.heads = key("attention.head_count")
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.has_q_lora = "blk.0.attn_q_a.weight" in w
        query = "blk.0.attn_q_b.weight" if self.has_q_lora else "blk.0.attn_q.weight"
        self.d_c = w.shape("blk.0.attn_kv_a_norm.weight")[0]
        self.d_r = w.shape("blk.0.attn_kv_a_mqa.weight")[1] - self.d_c
        self.d_n = w.shape(query)[1] // self.heads - self.d_r
        self.d_v = w.shape("blk.0.attn_output.weight")[0] // self.heads
        self.temperature = key("attention.temperature_scale", 0.0)
        self.temperature_length = key("attention.temperature_length", 0)
        self.read_router(key, w, groups)
        self.read_rope(key)

    def read_router(self, key, w, groups):
        moe = [n for n in range(self.n_layers) if f"blk.{n}.ffn_gate_inp.weight" in w]
        has_bias = bool(moe) and f"blk.{moe[0]}.exp_probs_b.bias" in w
        self.n_experts = w.shape(f"blk.{moe[0]}.ffn_gate_inp.weight")[1] if moe else 0
        self.n_used = key("expert_used_count", 0)
        self.gating = key("expert_gating_func", 0) or (2 if has_bias else 1)
        self.norm = key("expert_weights_norm", False)
        self.scale = key("expert_weights_scale", 0.0) or 1.0
        default = (0, 0)
        if self.n_experts == 160:
            default = (8, 3)
        elif self.n_experts == 256 and self.gating == 2:
            default = (8, 4)
        self.n_groups = key("expert_group_count", default[0]) if groups else 0
        self.n_groups_used = key("expert_group_used_count", default[1])
        self.group_best = 2 if has_bias else 1

    def read_rope(self, key):
        base, s = key("rope.freq_base", 10000.0), key("rope.scaling.factor", 0.0)
        s = s or key("rope.scale_linear", 0.0)
        kind = key("rope.scaling.type", "linear")
        mu = 1.0
        self.frequencies = base ** (-2.0 * np.arange(self.d_r // 2) / self.d_r)
        if kind == "yarn" and s > 1:
            kimi = self.heads == 64 and self.n_experts == 384
            fast = key("rope.scaling.yarn_beta_fast", 1.0 if kimi else 32.0)
            slow = key("rope.scaling.yarn_beta_slow", 1.0)
            context = key("rope.scaling.original_context_length", key("context_length"))
            lite = not self.has_q_lora and self.group_best == 1
            lm = key("rope.scaling.yarn_log_multiplier", 0.0707 if lite else 0.1)
            mu = 1 + lm * math.log(s)
            dim = lambda r: self.d_r * math.log(context / (2 * math.pi * r)) / (2 * math.log(base))
            low, high = max(0, math.floor(dim(fast))), min(self.d_r - 1, math.ceil(dim(slow)))
            ramp = (np.arange(self.d_r // 2) - low) / max(0.001, high - low)
            ramp = np.clip(ramp, 0, 1)
            self.frequencies = self.frequencies * (1 - ramp + ramp / s)
        elif kind == "linear" and s > 0:
            self.frequencies = self.frequencies / s
        self.softmax_scale = mu * mu / math.sqrt(self.d_n + self.d_r)


# ---- The forward pass ----------------------------------------------------------------------


def rms_norm(x, weight, eps):
    return weight * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def to_int8(x):
    """x as int8 with a scale per 32 columns, and back."""
    parts = x.reshape(x.shape[:-1] + (-1, 32))
    step = np.abs(parts).max(axis=-1, keepdims=True) / 127
    codes = np.rint(parts / np.where(step == 0, 1, step))
    return (codes * step).reshape(x.shape)


class Reference:
    def __init__(self, keys, tensors, decoder=None, groups=True, int8=False):
        self.w = Weights(tensors, decoder)
        self.s = Shape(keys, self.w, groups)
        self.int8 = int8

    def rounded(self, x, name):
        """x as the product with this tensor takes it."""
        t = self.w.tensors[name]
        return to_int8(x) if self.int8 and t.kind not in FLOATS and t.shape[0] % 32 == 0 else x

    def times(self, x, name, expert=None):
        weights = self.w.get(name)
        return self.rounded(x, name) @ (weights if expert is None else weights[expert]).T

    def logits(self, tokens):
        """[len(tokens)][vocabulary].  Also sets margin: for every token how little more the
        router's weakest choice had than the best of those that lost, over all layers."""
        w = self.w
        self.positions = np.arange(len(tokens))
        self.margin = np.full(len(tokens), np.inf)
        x = w.get("token_embd.weight")[tokens]
        for n in range(self.s.n_layers):
            block = Block(self, n)
            x = x + self.attention(block, block.norm(x, "attn_norm"))
            h = block.norm(x, "ffn_norm")
            x = x + (self.experts(block, h) if "ffn_gate_inp" in block else self.ffn(block, h, ""))
        x = rms_norm(x, w.get("output_norm.weight"), self.s.eps)
        return self.times(x, "output.weight" if "output.weight" in w else "token_embd.weight")

    def rope(self, x):
        """x: [tokens][...][d_r], pairs (2i, 2i + 1)."""
        angle = self.positions[:, None] * self.s.frequencies
        angle = angle.reshape(angle.shape[:1] + (1,) * (x.ndim - 2) + angle.shape[1:])
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    def expand(self, block, latent):
        """Keys [heads][tokens][d_n] and values [heads][tokens][d_v] from what the layout has."""
        s = self.s
        if "attn_kv_b" in block:
            both = block["attn_kv_b"].reshape(s.heads, s.d_n + s.d_v, s.d_c)
            up_k, up_v, of_values = both[:, : s.d_n], both[:, s.d_n :], "attn_kv_b"
        else:
            up_k = block["attn_k_b"].reshape(s.heads, s.d_c, s.d_n).swapaxes(1, 2)
            up_v = block["attn_v_b"].reshape(s.heads, s.d_v, s.d_c)
            of_values = "attn_v_b"
        taken = self.rounded(latent, block.name(of_values))
        return latent @ up_k.swapaxes(1, 2), taken @ up_v.swapaxes(1, 2)

    def attention(self, block, h):
        s, n = self.s, len(h)
        if s.has_q_lora:
            q = block.times(block.norm(block.times(h, "attn_q_a"), "attn_q_a_norm"), "attn_q_b")
        else:
            q = block.times(h, "attn_q")
        q = q.reshape(n, s.heads, s.d_n + s.d_r)
        q = np.concatenate([q[..., : s.d_n], self.rope(q[..., s.d_n :])], axis=-1)
        if s.temperature:
            warm = np.floor(self.positions / s.temperature_length)
            q = q * (1 + s.temperature * np.log1p(warm))[:, None, None]
        row = block.times(h, "attn_kv_a_mqa")
        key_rope = self.rope(row[:, s.d_c :])
        key_nope, value = self.expand(block, block.norm(row[:, : s.d_c], "attn_kv_a_norm"))
        unseen = np.triu(np.ones((n, n), bool), 1)
        out = np.empty((n, s.heads, s.d_v))
        for head in range(s.heads):
            key = np.concatenate([key_nope[head], key_rope], axis=1)
            score = s.softmax_scale * (q[:, head] @ key.T)
            score[unseen] = -np.inf
            out[:, head] = softmax(score) @ value[head]
        return block.times(out.reshape(n, -1), "attn_output")

    @staticmethod
    def ffn(block, h, suffix, expert=None):
        if "ffn_gate_up" + suffix in block:
            gate, up = np.split(block.times(h, "ffn_gate_up" + suffix, expert), 2, axis=1)
        else:
            gate = block.times(h, "ffn_gate" + suffix, expert)
            up = block.times(h, "ffn_up" + suffix, expert)
        return block.times(silu(gate) * up, "ffn_down" + suffix, expert)

    def route(self, block, h):
        """The experts of every token and their weights, [tokens][used] each."""
        s, score = self.s, block.times(h, "ffn_gate_inp")
        if s.gating == 1:
            score = softmax(score)
        elif s.gating == 2:
            score = 1 / (1 + np.exp(-score))
        else:
            assert s.gating == 3, f"gating {s.gating}"
        choice = score
        bias = block.prefix + "exp_probs_b.bias"
        if bias in self.w:
            choice = score + self.w.get(bias)
        if s.n_groups > 1:
            grouped = choice.reshape(len(h), s.n_groups, -1)
            best = np.sort(grouped, axis=-1)[..., -s.group_best :].sum(axis=-1)
            kept = self.largest(best, s.n_groups_used)
            lost = np.ones(best.shape, bool)
            np.put_along_axis(lost, kept, False, axis=1)
            choice = np.where(lost[..., None], -np.inf, grouped).reshape(choice.shape)
        chosen = self.largest(choice, s.n_used)
        weight = np.take_along_axis(score, chosen, axis=1)
        if s.gating == 3:
            weight = softmax(weight)
        if s.norm:
            weight = weight / (weight.sum(axis=1, keepdims=True) + 1e-20)
        return chosen, weight * s.scale

    def largest(self, values, k):
        order = np.argsort(-values, axis=1, kind="stable")
        if k < values.shape[1]:
            ranked = np.take_along_axis(values, order[:, k - 1 : k + 1], axis=1)
            with np.errstate(invalid="ignore"):
                gap = ranked[:, 0] - ranked[:, 1]
            self.margin = np.fmin(self.margin, gap)
        return order[:, :k]

    def experts(self, block, h):
        chosen, weight = self.route(block, h)
        out = np.zeros_like(h)
        for expert in np.unique(chosen):
            token, place = np.nonzero(chosen == expert)
            part = self.ffn(block, h[token], "_exps", expert)
            out[token] += weight[token, place][:, None] * part
        return out + self.ffn(block, h, "_shexp") if "ffn_gate_shexp" in block else out


class Block:
    """The tensors of one layer by their short names."""

    def __init__(self, model, n):
        self.model, self.prefix = model, f"blk.{n}."

    def name(self, short):
        return self.prefix + short + ".weight"

    def __contains__(self, short):
        return self.name(short) in self.model.w

    def __getitem__(self, short):
        return self.model.w.get(self.name(short))

    def times(self, x, short, expert=None):
        return self.model.times(x, self.name(short), expert)

    def norm(self, x, short):
        return rms_norm(x, self[short], self.model.s.eps)


# ---- The program ---------------------------------------------------------------------------


def relative(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def compare(got, want, margin, args):
    """Whether the limit is kept.  GOT may hold only the last rows."""
    want, margin = want[-len(got) :], margin[-len(got) :]
    each = np.array([relative(g, r) for g, r in zip(got, want)])
    worst = int(np.argmax(np.where(np.isfinite(each), each, np.inf)))
    error, median = relative(got, want), float(np.median(each))
    print(f"error {error:.3g}, median of a token {median:.3g}, worst {each[worst]:.3g} "
          f"(row {worst}, margin of its experts {margin[worst]:.2g})")
    return (median if args.median else error) <= args.limit


def load_module(path):
    spec = importlib.util.spec_from_file_location("decoder", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    p = argparse.ArgumentParser(description="logits of a deepseek2 model in float64")
    p.add_argument("model")
    p.add_argument("--tokens", required=True, help="token ids, separated by commas")
    p.add_argument("-o", help="write the logits, float64 .npy")
    p.add_argument("--compare", nargs="+", default=[], help="files to compare, float32 .npy")
    p.add_argument("--limit", type=float, default=math.inf, help="largest relative error")
    p.add_argument("--median", action="store_true", help="the limit is for the median of tokens")
    p.add_argument("--no-groups", action="store_true", help="route as with --router-groups off")
    p.add_argument("--int8", action="store_true", help="activations as int8")
    p.add_argument("--dequant", help="module that decodes more types")
    args = p.parse_args()
    decoder = load_module(args.dequant) if args.dequant else None
    reference = Reference(*read_model(args.model), decoder, not args.no_groups, args.int8)
    want = reference.logits([int(t) for t in args.tokens.split(",")])
    if args.o:
        np.save(args.o, want)
    kept = [compare(np.load(path), want, reference.margin, args) for path in args.compare]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
