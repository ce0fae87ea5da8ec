"""Passes on finished models change what they say and nothing else."""

import numpy as np
import onnx
import onnx.checker
import onnx.parser

from gaussport.export.passes import drop_bodies, fold_constants, keep_bodies, operate, tag_plugins, untag_plugins
from gaussport.export.passes.folding import LARGEST_BYTES
from gaussport.plugins import DOMAIN
from tests.precision.subjects import Zoo, run


def tags(model: onnx.ModelProto) -> list[dict[str, bytes]]:
    custom = [node for node in model.graph.node if node.domain == DOMAIN]
    return [{a.name: a.s for a in node.attribute if a.name.startswith("plugin_")} for node in custom]


def test_tags_name_the_plugin_and_change_no_answer(each: Zoo) -> None:
    tagged = operate(each.model, tag_plugins)
    assert tags(tagged) == [{"plugin_namespace": b"gaussport", "plugin_version": b"1"}] * 4
    assert np.array_equal(run(tagged, each.digits[:4]), run(each.model, each.digits[:4]))
    assert tags(operate(tagged, untag_plugins)) == [{}] * 4
    assert tags(each.model) == [{}] * 4


def test_surgery_keeps_bodies_byte_for_byte_and_their_overloads(each: Zoo) -> None:
    named = onnx.ModelProto()
    named.CopyFrom(each.model)
    for item in (*named.functions, *(node for node in named.graph.node if node.domain == DOMAIN)):
        item.overload = "variant"
    after = operate(named, tag_plugins)
    assert [f.SerializeToString() for f in after.functions] == [f.SerializeToString() for f in named.functions]
    assert {node.overload for node in after.graph.node if node.domain == DOMAIN} == {"variant"}
    assert np.array_equal(run(after, each.digits[:2]), run(each.model, each.digits[:2]))


def test_bodies_go_and_come_back(each: Zoo) -> None:
    bare = drop_bodies(each.model)
    assert not bare.functions
    whole = keep_bodies(bare)
    onnx.checker.check_model(whole, full_check=True)
    assert [f.SerializeToString() for f in whole.functions] == [f.SerializeToString() for f in each.model.functions]


def test_constants_are_folded_unless_the_result_is_large() -> None:
    side = int((LARGEST_BYTES / 4) ** 0.5) + 1
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[N, 2] x) => (float[N, 2] y, float[N, {side}, {side}] z)
        <float[2] a = {{1, 2}}, float[2] b = {{3, 4}}, int64[2] wide = {{{side}, {side}}}, float[1] one = {{1}},
         int64[1] front = {{0}}> {{
          sum = Add (a, b)
          y = Mul (x, sum)
          table = Expand (one, wide)
          batch = Unsqueeze (table, front)
          first = ReduceMean <keepdims = 1> (x)
          z = Add (batch, first)
        }}""")
    folded = operate(model, fold_constants)
    kinds = [node.op_type for node in folded.graph.node]
    assert "Expand" in kinds
    assert kinds.count("Add") == 1
    assert len(folded.SerializeToString()) < 10_000
