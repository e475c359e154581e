"""Explains in words for people why no answer came from an API server: without names of a library's
classes."""

from __future__ import annotations

import aiohttp

__all__ = ["why_no_answer"]


def why_no_answer(error: Exception, timeout_s: float) -> str:
    """Returns the reason for an error that a request of aiohttp raises."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is not accepted: {_reason(error.certificate_error)}"
        case aiohttp.ClientConnectorSSLError():
            return f"no TLS connection to {error.host}:{error.port} could be made: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorDNSError():
            return f"the name {error.host} cannot be resolved ({_reason(error.os_error)})"
        case aiohttp.ClientProxyConnectionError():
            return f"its proxy {error.host}:{error.port} cannot be reached: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"no connection to {error.host}:{error.port} could be made: {_reason(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection before it answered"
        case TimeoutError():
            return f"it did not answer within {timeout_s:g} s"
        case aiohttp.ClientError():
            return f"the connection failed: {str(error) or type(error).__name__}"
        case _:
            return f"the connection failed: {_reason(error)}"


def _reason(error: Exception) -> str:
    """Returns the system's text, without numbers and addresses that the message already has."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    verify = getattr(error, "verify_message", "")
    strerror = getattr(error, "strerror", "")
    return str(verify or strerror or str(error) or type(error).__name__)
