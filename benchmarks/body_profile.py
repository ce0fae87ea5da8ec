"""Where the ONNX bodies' time goes in ONNX Runtime on one thread, beside what this machine can do.

    python benchmarks/body_profile.py [--tokens 196 1024 4096] [--runs 30]

Milliseconds per node kind are from each node's least time over the runs, which other jobs on the machine lengthen least.
The floor is the flop at the rate of a 1024³ product plus the exponentials at the rate of Exp on an array in the cache.
Ratios are to torch's scaled dot-product attention with the same heads, its least time too: of the floor, of the bodies'
products as ONNX Runtime runs them, if all else were free, and of all nodes.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from operators import DR, OPSET, SHORT, D, K, P, R, backend, onnx_session, operands
from rich.console import Console

from gaussport.onnx_runtime import onnxruntime


def work(operator: str, tokens: int) -> tuple[float, float]:
    """Flop of the matrix products that OPS.md counts, and exponentials, of one run."""
    side = tokens**0.5
    if operator == "SeparableGaussianFilter":
        return 4 * P * R * D * tokens * side, 2 * P * R * tokens * side
    return P * tokens * (4 * K * 2 * DR + 4 * K * D), 2 * P * K * tokens


def node_milliseconds(operator: str, tokens: int, runs: int) -> dict[str, float]:
    """Milliseconds of one run by node kind, from each node's least time."""
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session, feed = onnx_session(operator, operands(operator, tokens), 1, options)
        for _ in range(runs):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
    taken: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and event["args"]["op_name"] != "Scan":
            taken[f"{event['args']['op_name']} {event['name']}"].append(event["dur"] / 1e3)
    kinds: dict[str, float] = defaultdict(float)
    for name, times in taken.items():
        kinds[name.split()[0]] += min(times) * len(times) / runs  # a node in a Scan runs many times
    return dict(kinds)


def rate(run: Callable[[], object], amount: float) -> float:
    """The best of several runs, in billions per second."""
    times = []
    for _ in range(20):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return amount / min(times) / 1e9


def machine_rates() -> tuple[float, float]:
    """GFLOP/s of torch's 1024³ product, and 10⁹ exponentials per second of ONNX Runtime on an array in the cache."""
    torch.set_num_threads(1)
    factor = torch.randn(1024, 1024)
    product = rate(lambda: factor @ factor, 2 * 1024**3)
    shape = [1 << 17]
    ends = [onnx.helper.make_tensor_value_info(name, 1, shape) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Exp", ["x"], ["y"])], "exp", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()  # `run` would copy the answer
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(-np.ones(shape, np.float32)))
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(np.empty(shape, np.float32)))
    return product, rate(lambda: session.run_with_iobinding(binding), float(shape[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[196, 1024, 4096], help="square numbers")
    parser.add_argument("--runs", type=int, default=30)
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    product, exponentials = machine_rates()
    console.print(f"sgemm {product:.0f} GFLOP/s, Exp {exponentials:.1f}·10⁹/s\n")
    console.print(
        "| operator | tokens | floor ms | products | Exp, Softmax | layout | rest | products' GFLOP/s "
        "| floor ÷ SDPA | products ÷ SDPA | all ÷ SDPA |"
    )
    console.print("|---|" + "---:|" * 10)
    for operator in SHORT:
        for tokens in arguments.tokens:
            kinds = node_milliseconds(operator, tokens, arguments.runs)
            flop, count = work(operator, tokens)
            products = sum(kinds.pop(kind, 0.0) for kind in ("MatMul", "FusedMatMul", "Gemm"))
            softmax = sum(kinds.pop(kind, 0.0) for kind in ("Exp", "Softmax"))
            layout = sum(kinds.pop(kind, 0.0) for kind in ("Transpose", "Concat", "Split", "Reshape", "Expand"))
            floor = flop / product / 1e6 + count / exponentials / 1e6
            rest = sum(kinds.values())
            sdpa = 1e3 / rate(backend("sdpa", operator, 1, tokens), 1e9)
            ratios = (x / sdpa for x in (floor, products, products + softmax + layout + rest))
            console.print(
                f"| {SHORT[operator]} | {tokens:,} | {floor:.2f} | {products:.2f} | {softmax:.2f} | {layout:.2f} "
                f"| {rest:.2f} | {flop / products / 1e6:.0f} | {' | '.join(f'{x:.2g}' for x in ratios)} |"
            )


if __name__ == "__main__":
    main()
