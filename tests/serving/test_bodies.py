"""Bodies as clients really send them: the good but odd are answered like their plain twins, the bad with a 4xx of ours."""

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from PIL import Image


@pytest.fixture
def png(make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]) -> bytes:
    return encode(make_picture(3))


@pytest.fixture
def plain(http: httpx.Client, png: bytes) -> Any:
    return http.post("/v1/classify", content=png, headers={"content-type": "image/png"}).json()["results"]


def refused(response: httpx.Response, status: int, code: str) -> None:
    content = response.json()
    assert (response.status_code, content["code"]) == (status, code), response.text
    assert set(content) == {"error", "code", "request_id"}
    assert content["request_id"] == response.headers["x-request-id"]
    assert "\n" not in content["error"]


def multipart(head: bytes, content: bytes, end: bytes = b"\r\n--B--\r\n") -> bytes:
    return b"--B\r\n" + head + b"\r\n\r\n" + content + end


def post_multipart(http: httpx.Client, body: bytes) -> httpx.Response:
    return http.post("/v1/classify", content=body, headers={"content-type": "multipart/form-data; boundary=B"})


@pytest.mark.parametrize(
    "disposition",
    [
        b'name="file"; filename="a.jpg"',
        b'name="file"; filename=""',
        b'name="file"',
        b'name=file; filename="a%0d%0aX-Evil: 1.jpg"',
        b"name=\"file\"; filename*=UTF-8''%E6%9D%B1.jpg",
        b'name="file"; filename="../../../etc/cron.d/x.jpg"',
        'name="file"; filename="東京, é 🐱.jpg"'.encode(),
    ],
)
def test_the_file_name_of_a_part_does_not_matter(http: httpx.Client, png: bytes, plain: Any, disposition: bytes) -> None:
    response = post_multipart(http, multipart(b"Content-Disposition: form-data; " + disposition, png))
    assert response.status_code == 200, response.text
    assert response.json()["results"] == plain
    assert "evil" not in str(response.headers).lower()


def test_a_nul_in_a_file_name_is_refused_or_harmless(http: httpx.Client, png: bytes) -> None:
    response = post_multipart(http, multipart(b'Content-Disposition: form-data; name="file"; filename="a\0b.jpg"', png))
    assert response.status_code in (200, 400)


def test_the_declared_type_of_a_part_is_not_believed(http: httpx.Client, png: bytes, plain: Any) -> None:
    head = b'Content-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain'
    assert post_multipart(http, multipart(head, png)).json()["results"] == plain


def test_other_form_fields_are_ignored(http: httpx.Client, png: bytes, plain: Any) -> None:
    response = http.post("/v1/classify", files={"file": ("a.png", png)}, data={"note": "x"})
    assert response.json()["results"] == plain


@pytest.mark.parametrize(
    "body",
    [
        multipart(b'Content-Disposition: form-data; filename="x.jpg"', b"x"),
        multipart(b'Content-Disposition: form-data; name="other"', b"x"),
        multipart(b'Content-Disposition: form-data; name="file"; filename="a.jpg"', b"x", end=b""),
        b"".join(b'--B\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nx\r\n' % n for n in range(5000)) + b"--B--\r\n",
        b"no boundary at all",
        b"--B--\r\n",
    ],
    ids=["no name", "no part named file", "unterminated", "5000 parts", "no boundary", "no parts"],
)
def test_malformed_multipart_is_refused(http: httpx.Client, body: bytes) -> None:
    refused(post_multipart(http, body), 400, "malformed_multipart")


@pytest.mark.parametrize("content_type", ["multipart/form-data", 'multipart/form-data; boundary=""'])
def test_multipart_without_a_boundary_is_refused(http: httpx.Client, content_type: str) -> None:
    refused(http.post("/v1/classify", content=b"x", headers={"content-type": content_type}), 400, "malformed_multipart")


def test_an_empty_file_is_refused(http: httpx.Client) -> None:
    refused(http.post("/v1/classify", files={"file": ("e.jpg", b"")}), 400, "empty_image")


def test_a_part_full_of_dashes_is_no_boundary(http: httpx.Client) -> None:
    content = b"\xff\xd8\xff" + b"\r\n--" * 200_000
    refused(http.post("/v1/classify", files={"file": ("a.jpg", content)}), 422, "image_damaged")


@pytest.mark.parametrize("content_type", ["image/png", "application/json", "multipart/form-data; boundary=B", None])
def test_an_empty_body_is_refused(http: httpx.Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    refused(http.post("/v1/classify", headers=headers), 400, "empty_body")


def test_a_type_that_carries_no_picture_is_refused(http: httpx.Client) -> None:
    refused(http.post("/v1/classify", content=b"a,b", headers={"content-type": "text/csv"}), 415, "unsupported_media_type")


def test_bytes_that_are_no_picture_are_refused(http: httpx.Client) -> None:
    for kind in ("image/png", "application/octet-stream"):
        refused(http.post("/v1/classify", content=b"%!PS", headers={"content-type": kind}), 415, "unsupported_format")
        refused(http.post("/v1/classify", content=b"hello", headers={"content-type": kind}), 415, "not_an_image")


def test_a_bomb_is_refused_from_its_header(http: httpx.Client, png: bytes) -> None:
    wide = bytearray(png)
    wide[16:24] = b"\0\0\x32\xc8" * 2  # 13,000 × 13,000, and the checksum is now wrong as well
    response = http.post("/v1/classify", content=bytes(wide), headers={"content-type": "image/png"})
    assert response.status_code == 422


def mime(text: str) -> str:
    return "".join(f"{text[start : start + 76]}\r\n" for start in range(0, len(text), 76))


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text,
        lambda text: f"data:image/png;base64,{text}",
        lambda text: f"DATA:image/jpeg;charset=x;BASE64,{text}",
        mime,
        lambda text: text.rstrip("="),
        lambda text: text.replace("+", "-").replace("/", "_"),
    ],
    ids=["plain", "data uri", "another case and type", "mime lines", "unpadded", "url-safe"],
)
def test_forms_of_base64_are_one_picture(http: httpx.Client, png: bytes, plain: Any, form: Callable[[str], str]) -> None:
    text = form(base64.b64encode(png + b"\0").decode())
    assert http.post("/v1/classify", json={"image": text}).json()["results"] == plain


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("iVBORw0KGgo!@#$%AAAA", 400, "malformed_base64"),
        ("iVBOR", 400, "malformed_base64"),
        ("iV=BORw0", 400, "malformed_base64"),
        ("é", 400, "malformed_base64"),
        ("data:image/png;base64", 400, "malformed_base64"),
        (7, 400, "malformed_base64"),
        (None, 400, "malformed_base64"),
        ("", 400, "empty_image"),
        ("data:,", 400, "empty_image"),
        ("data:image/png;base64,", 400, "empty_image"),
        ("data:image/svg+xml;base64,PHN2Zy8+", 415, "unsupported_format"),
        ("data:text/plain,hello", 415, "not_an_image"),
    ],
)
def test_bad_base64_is_refused(http: httpx.Client, text: Any, status: int, code: str) -> None:
    refused(http.post("/v1/classify", json={"image": text}), status, code)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[" * 100_000, b'{"image": NaN}', b'{"image": "\xff"}', b'{"image": "\\ud800"}', b"\xef\xbb\xbf{}"],
)
def test_broken_json_is_refused(http: httpx.Client, body: bytes) -> None:
    response = http.post("/v1/classify", content=body, headers={"content-type": "application/json"})
    refused(response, 400, "malformed_json")


@pytest.mark.parametrize(
    "content",
    [[], "x", 1, None, {}, {"images": []}, {"images": "abc"}, {"image": "a", "images": ["b"]}, {"picture": "a"}],
)
def test_json_of_another_shape_is_refused(http: httpx.Client, content: Any) -> None:
    response = http.post("/v1/classify", content=json.dumps(content), headers={"content-type": "application/json"})
    refused(response, 400, "malformed_request")


def test_a_broken_picture_among_good_ones_fails_alone(http: httpx.Client, png: bytes, plain: Any) -> None:
    text = base64.b64encode(png).decode()
    answer = http.post("/v1/classify", json={"images": [text, "!", base64.b64encode(png[:50]).decode(), text, ""]})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [entry.get("error", {}).get("code") for entry in results] == [
        None, "malformed_base64", "image_damaged", None, "empty_image",
    ]  # fmt: skip
    for index in (0, 3):
        probability = results[index]["predictions"][0]["probability"]
        assert probability == pytest.approx(plain[0]["predictions"][0]["probability"], abs=1e-6)


def test_multipart_pictures_are_answered_in_order(
    http: httpx.Client, make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]
) -> None:
    pictures = [encode(make_picture(seed)) for seed in range(20)]
    solo = [http.post("/v1/classify", content=data).json()["results"][0] for data in pictures]
    together = http.post("/v1/classify", files=[("file", (f"{n}.png", data)) for n, data in enumerate(pictures)]).json()
    for one, other in zip(solo, together["results"], strict=True):
        assert [entry["index"] for entry in one["predictions"]] == [entry["index"] for entry in other["predictions"]]
        assert one["predictions"][0]["probability"] == pytest.approx(other["predictions"][0]["probability"], abs=1e-6)


def test_too_many_pictures_are_refused(http: httpx.Client) -> None:
    refused(http.post("/v1/classify", json={"images": ["AAAA"] * 33}), 400, "too_many_images")


def test_top_k_is_capped_at_the_labels(http: httpx.Client, png: bytes) -> None:
    for top_k, count in ((1, 1), (10, 10), (1000, 10)):
        answer = http.post("/v1/classify", params={"top_k": top_k}, content=png).json()
        assert len(answer["results"][0]["predictions"]) == count


@pytest.mark.parametrize(
    "query", ["top_k=0", "top_k=x", "top_k=1e400", "timeout_ms=-1", "timeout_ms=nan", "timeout_ms=inf", "priority=-1"]
)
def test_bad_parameters_are_refused_without_echo(http: httpx.Client, png: bytes, query: str) -> None:
    refused(http.post(f"/v1/classify?{query}", content=png), 400, "bad_parameter")


def test_an_unknown_model_is_refused(http: httpx.Client, png: bytes) -> None:
    refused(http.post("/v1/classify?model=nobody", content=png), 404, "unknown_model")


def test_paths_and_methods_that_are_not_there(http: httpx.Client) -> None:
    refused(http.get("/v1/classify"), 405, "method_not_allowed")
    refused(http.get("/v1/nothing"), 404, "not_found")
    refused(http.post("/v1/classify/"), 404, "not_found")


def test_a_harmless_request_id_is_kept_and_another_replaced(http: httpx.Client) -> None:
    assert http.get("/v2", headers={"x-request-id": "abc-1.2_3"}).headers["x-request-id"] == "abc-1.2_3"
    assert len(http.get("/v2", headers={"x-request-id": "a b<script>"}).headers["x-request-id"]) == 32


def test_the_answer_has_its_documented_form(http: httpx.Client, png: bytes) -> None:
    answer = http.post("/v1/classify?top_k=2&model=tiny&priority=1&timeout_ms=20000", content=png).json()
    assert set(answer) == {"model", "version", "request_id", "results", "timing_ms"}
    assert set(answer["timing_ms"]) == {"queue", "decode", "inference", "total"}
    assert all(value >= 0 for value in answer["timing_ms"].values())
    assert set(answer["results"][0]) == {"predictions", "warnings"}


def test_the_service_describes_itself(http: httpx.Client) -> None:
    assert http.get("/v1/models").json()["models"][0]["name"] == "tiny"
    assert "/v1/classify" in http.get("/openapi.json").json()["paths"]
    assert http.get("/docs").status_code == 200
    assert http.get("/v2/health/live").json() == {"live": True}
    assert http.get("/v2/health/ready").json() == {"ready": True}
