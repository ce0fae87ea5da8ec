"""Formats that we do not read, by their first bytes: their senders are told what they sent, not that it is no picture."""

_SIGNATURES = (
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"II+\0", "BigTIFF"),
    (0, b"MM\0+", "BigTIFF"),
    (0, b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"8BPS", "Photoshop"),
    (0, b"\0\0\1\0", "ICO"),
    (0, b"\0\0\2\0", "CUR"),
    (0, b"%!PS", "PostScript"),
    (0, b"\xc5\xd0\xd3\xc6", "PostScript"),
    (0, b"%PDF-", "PDF"),
    (0, b"DDS ", "DDS"),
    (0, b"qoif", "QOI"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"v/1\x01", "OpenEXR"),
    (0, b"\x0a\x05\x01\x08", "PCX"),
    (128, b"DICM", "DICOM"),
)
_BRANDS = {
    b"avif": "AVIF",
    b"avis": "AVIF",
    b"heic": "HEIC",
    b"heix": "HEIC",
    b"hevc": "HEIC",
    b"mif1": "HEIF",
    b"msf1": "HEIF",
}


def foreign_format(data: bytes) -> str | None:
    """The name of the picture format that this is, if it is a well-known one that we do not read."""
    if data[4:8] == b"ftyp":  # ISO media: the brand tells pictures from films
        return _BRANDS.get(data[8:12])
    for offset, signature, name in _SIGNATURES:
        if data.startswith(signature, offset):
            return name
    if data[:1] == b"P" and data[1:2] in b"1234567" and data[2:3].isspace():
        return "PNM"
    if data[:1].isspace() or data.startswith((b"<", b"\xef\xbb\xbf<")):
        return "SVG" if b"<svg" in data[:1024].lower() else None
    return None
