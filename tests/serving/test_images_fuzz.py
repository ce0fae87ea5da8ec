"""Pictures as disks, networks and attackers make them: an answer or a 4xx in our form, on every route the same one."""

import base64
import io
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

SEARCH = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")


def _seeds() -> dict[str, bytes]:
    """Small pictures in every format that is read, with what decoders go wrong on: palettes, alpha, EXIF, frames."""
    found = {}
    grey = Image.linear_gradient("L").resize((24, 17))
    colour = Image.merge("RGB", (grey, grey.transpose(Image.Transpose.FLIP_LEFT_RIGHT), grey))
    exif = Image.Exif()
    exif[0x0112] = 6
    for format in FORMATS:
        found[format] = _saved(colour, format)
    found["PNG 16 bits"] = _saved(grey.convert("I;16"), "PNG")
    found["PNG palette"] = _saved(colour.convert("P"), "PNG", transparency=3)
    found["PNG alpha"] = _saved(colour.convert("RGBA"), "PNG")
    found["PNG 1 bit"] = _saved(grey.convert("1"), "PNG")
    found["JPEG CMYK"] = _saved(colour.convert("CMYK"), "JPEG")
    found["JPEG turned"] = _saved(colour, "JPEG", exif=exif, progressive=True)
    found["GIF frames"] = _saved(colour.convert("P"), "GIF", save_all=True, append_images=[grey.convert("P")] * 2)
    return found


def _saved(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


SEEDS = _seeds()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A picture with some bytes changed, cut out, doubled or put in, most often in its head, where the sizes are."""
    data = bytearray(SEEDS[draw(st.sampled_from(sorted(SEEDS)))])
    for _ in range(draw(st.integers(0, 4))):
        reach = len(data) if draw(st.booleans()) else min(len(data), 64)
        at = draw(st.integers(0, max(0, reach - 1)))
        match draw(st.sampled_from(["change", "cut", "insert", "extreme", "double"])):
            case "change":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del data[at : at + draw(st.integers(1, len(data) + 1))]
            case "insert":
                data[at:at] = draw(st.binary(max_size=12))
            case "extreme":
                data[at : at + 4] = draw(
                    st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\x40\0"])
                )
            case "double":
                data[at:at] = data[at : at + 40]
    return bytes(data)


def raw(fuzzed: Any, picture: bytes) -> Any:
    return fuzzed.post("/v1/classify?top_k=10", picture, {"content-type": "image/png"})


def of_json(fuzzed: Any, picture: bytes) -> Any:
    return fuzzed.post("/v1/classify?top_k=10", json.dumps({"image": base64.b64encode(picture).decode()}).encode())


def multipart(fuzzed: Any, picture: bytes) -> Any:
    body = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + picture + b"\r\n--B--\r\n"
    return fuzzed.post("/v1/classify?top_k=10", body, {"content-type": "multipart/form-data; boundary=B"})


def v2(fuzzed: Any, picture: bytes) -> Any:
    element = len(picture).to_bytes(4, "little") + picture
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(element)}}
    head = json.dumps({"inputs": [tensor], "outputs": [{"name": "probabilities"}]}).encode()
    return fuzzed.post("/v2/models/tiny/infer", head + element, {"Inference-Header-Content-Length": str(len(head))})


def outcome(fuzzed: Any, response: httpx.Response) -> Any:
    """The probabilities by label, or the code of the refusal."""
    if response.status_code != 200:
        fuzzed.check_refusal(response)
        return response.json()["code"]
    content = response.json()
    if "outputs" in content:
        return pytest.approx(dict(enumerate(content["outputs"][0]["data"])), abs=1e-6)
    (result,) = content["results"]
    return {entry["index"]: entry["probability"] for entry in result["predictions"]}


@settings(SEARCH, max_examples=120)
@given(picture=damaged().filter(bool))
def test_damaged_pictures(fuzzed: Any, picture: bytes) -> None:
    expected = outcome(fuzzed, raw(fuzzed, picture))
    assert outcome(fuzzed, of_json(fuzzed, picture)) == expected
    assert outcome(fuzzed, v2(fuzzed, picture)) == expected
    if b"--B" not in picture:
        assert outcome(fuzzed, multipart(fuzzed, picture)) == expected


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_the_seeds_are_good_pictures(fuzzed: Any, name: str) -> None:
    """Else the fuzzer would damage what is refused anyhow."""
    for route in (raw, of_json, multipart, v2):
        assert route(fuzzed, SEEDS[name]).status_code == 200


@settings(SEARCH, max_examples=60)
@given(
    start=st.sampled_from(
        [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"BM", b"RIFF\0\0\0\0WEBP", b"II*\0", b"<svg", b"PK"]
    ),
    rest=st.binary(max_size=60),
)
def test_what_only_starts_like_a_picture(fuzzed: Any, start: bytes, rest: bytes) -> None:
    assert outcome(fuzzed, raw(fuzzed, start + rest)) == outcome(fuzzed, v2(fuzzed, start + rest))


PIECES = [b"--B", b"--B--", b"\r\n", b"\n", b"--", b"B", b": ", b"\0", b"a" * 5000, SEEDS["PNG"]]
PIECES += [b"Content-Disposition: form-data; ", b'name="file"', b'; filename="']


@settings(SEARCH, max_examples=60)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_multipart_in_pieces(fuzzed: Any, pieces: list[bytes]) -> None:
    response = fuzzed.post("/v1/classify", b"".join(pieces), {"content-type": "multipart/form-data; boundary=B"})
    if response.status_code != 200:
        fuzzed.check_refusal(response)
