"""Logging of our processes: one line per event, JSON, or readable where a person watches."""

import logging
import sys

import structlog


def configure(**always: object) -> None:
    """Send structlog's events and the standard library's (gunicorn, urllib3) to stderr, in one form.

    `always` are facts that each of them bears.
    """

    def add(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event.update(always)
        return event

    common: list[structlog.typing.Processor] = [
        add,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    # Tracebacks without local variables: among them are whole objects, with what their env holds.
    if sys.stderr.isatty():
        console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        rendering: list[structlog.typing.Processor] = [console]
    else:
        traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        rendering = [structlog.processors.ExceptionRenderer(traceback), structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*common, *rendering],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
