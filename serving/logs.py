"""How log lines look: a sentence for people, or one JSON object a line for machines. All go to standard error."""

import logging
import sys
import warnings
from datetime import UTC, datetime
from typing import TextIO

import orjson

from gaussport.serving.settings import Settings


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "logger", "message", …}`, with the request's id and facts where there are some."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        facts = getattr(record, "facts", None)
        if facts is None:
            line["message"] = record.getMessage()
        if request_id := getattr(record, "request_id", None):
            line["request_id"] = request_id
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line | (facts or {}), default=str).decode()


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure(settings: Settings) -> None:
    """Set up logging for a serving process, and keep what Pillow has to say of odd pictures off standard error: the
    answer's `warnings` say what their sender needs to know."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(handler)
    handler = _Handler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else plain)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    for chatty in ("PIL", "asyncio", "uvicorn", "urllib3", "opentelemetry"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    silence_pillow()


def silence_pillow() -> None:
    """Pillow warns on standard error, once for each kind; a process that decodes strangers' pictures does not repeat it."""
    warnings.filterwarnings("ignore", module=r"PIL\.")
