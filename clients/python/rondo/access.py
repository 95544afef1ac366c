"""Who the client is to a NATS server that is locked, and how the server is known to be the right one."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from dataclasses import dataclass
from typing import Any

from .errors import ConnectError

__all__ = ["Access"]

_JWT = re.compile(r"-----BEGIN NATS USER JWT-----\s+(\S+)\s")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Access:
    """Files: credentials as `rondo auth user` makes them, the server's certificate authority, and a client certificate with its key."""

    creds: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    @classmethod
    def of(cls, creds: str | os.PathLike[str] | None, ca: str | os.PathLike[str] | None) -> Access:
        """What is given, or else what RONDO_NATS_CREDS, RONDO_NATS_CA, RONDO_NATS_CERT and RONDO_NATS_KEY name."""
        get = os.environ.get
        return cls(
            str(creds or get("RONDO_NATS_CREDS", "")),
            str(ca or get("RONDO_NATS_CA", "")),
            get("RONDO_NATS_CERT", ""),
            get("RONDO_NATS_KEY", ""),
        )

    def options(self) -> dict[str, Any]:
        """Options of a connection. ConnectError names a file that is not what it should be, never what it holds."""
        options: dict[str, Any] = {}
        if self.creds:
            try:
                import nkeys  # noqa: F401
            except ImportError:
                raise ConnectError(
                    "credentials of a NATS server need the Python package nkeys, which is not installed: pip install nkeys"
                ) from None
            options |= {"user_credentials": self.creds, "inbox_prefix": inbox_prefix(self.creds)}
        if self.ca or self.cert:
            try:
                context = ssl.create_default_context(cafile=self.ca or None)
                if self.cert:
                    context.load_cert_chain(self.cert, self.key or None)
            except (OSError, ssl.SSLError) as error:
                raise ConnectError(
                    f"certificates {self.ca or '(none)'}, {self.cert or '(none)'}: {error.strerror or type(error).__name__}"
                ) from None
            options["tls"] = context
        return options


def inbox_prefix(creds: str) -> str:
    """Where a user may receive answers: the credentials say it, among what the user may subscribe to, or by the user's name."""
    try:
        with open(creds, encoding="utf-8") as file:
            found = _JWT.search(file.read(1 << 20))
        body = found.group(1).split(".")[1] if found else ""
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        granted = claims.get("nats", {})
        for subject in granted.get("sub", {}).get("allow", []):
            if subject.startswith("_INBOX.") and subject.endswith(".>"):
                return str(subject[:-2])
        scoped = not granted.get("pub") and not granted.get("sub") and "subs" not in granted  # its permissions are the account's
        return f"_INBOX.{claims['name']}" if scoped and _NAME.fullmatch(claims.get("name", "")) else "_INBOX"
    except OSError as error:
        raise ConnectError(f"credentials {creds}: {error.strerror}") from None
    except (ValueError, IndexError, AttributeError, TypeError):
        raise ConnectError(f"{creds} holds no credentials of a NATS user") from None
