"""The store in an S3 bucket, through Arrow's file systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .errors import RondoError, missing, too_large
from .multipart import PART, Parts
from .source import PIECE, Source

__all__ = ["Bucket"]


class Bucket:
    """A store in a bucket, or under a prefix of one."""

    def __init__(self, system: Any, prefix: str, parts: Parts) -> None:
        self._system, self._prefix, self._parts = system, prefix, parts

    @classmethod
    def open(cls, location: str) -> Bucket:
        """Open s3://bucket/prefix?endpoint=http://host:port&region=name with the credentials of the environment."""
        from pyarrow import fs

        # The location may hold credentials in the wrong place, so no error here repeats it.
        url = urlsplit(location)
        options = parse_qs(url.query, keep_blank_values=True)
        if unknown := set(options) - {"endpoint", "region", "create"}:
            raise RondoError(f"S3 URL: unknown parameter {min(unknown)[:40]!r} (known: endpoint, region, create)")
        if url.username is not None or "@" in url.netloc:
            raise RondoError("an S3 URL with credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
        key, secret = os.environ.get("AWS_ACCESS_KEY_ID", ""), os.environ.get("AWS_SECRET_ACCESS_KEY", "")
        if not key or not secret:
            raise RondoError("no credentials for the bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        arguments: dict[str, Any] = {
            "access_key": key,
            "secret_key": secret,
            "session_token": os.environ.get("AWS_SESSION_TOKEN") or None,
            "region": options.get("region", [""])[0] or os.environ.get("AWS_REGION") or "us-east-1",
            "background_writes": False,
            "allow_delayed_open": True,  # what is small goes up in one request
        }
        host, secure = f"s3.{arguments['region']}.amazonaws.com", True
        if endpoint := options.get("endpoint", [""])[0]:
            place = urlsplit(endpoint)
            if place.scheme not in ("http", "https") or not place.netloc or "@" in place.netloc:
                raise RondoError("the endpoint in the S3 URL is not of the form http://host:port or https://host")
            arguments |= {"endpoint_override": place.netloc, "scheme": place.scheme}
            host, secure = place.netloc, place.scheme == "https"
        # Gateways misread the checksums that newer SDKs put behind a body. What is read is verified by its digest anyway.
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        path = url.path.strip("/")
        parts = Parts(host, secure, arguments["region"], key, secret, arguments["session_token"] or "")
        return cls(fs.S3FileSystem(**arguments), f"{url.netloc}/{path}/" if path else f"{url.netloc}/", parts)

    def get(self, key: str, limit: int) -> bytes:
        """Read an object of at most limit bytes."""
        try:
            with self._system.open_input_file(self._prefix + key) as file:
                size = file.size()
                if size > limit:
                    raise too_large(key, size, limit)
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            raise missing(key) from None

    def pieces(self, key: str, limit: int) -> Iterator[bytes]:
        """Read an object of at most limit bytes from front to end."""
        try:
            with self._system.open_input_file(self._prefix + key) as file:
                size = file.size()
                if size > limit:
                    raise too_large(key, size, limit)
                while piece := file.read(PIECE):
                    yield piece
        except FileNotFoundError:
            raise missing(key) from None

    def stat(self, key: str) -> tuple[int, float] | None:
        """Bytes of an object, and when it was written; None where there is none."""
        # get_file_info would also list what lies below the key, which takes a right that keys of a prefix do not have.
        try:
            with self._system.open_input_file(self._prefix + key) as file:
                written = file.metadata()["Last-Modified"].decode().replace("Z", "+00:00")
                return int(file.size()), datetime.fromisoformat(written).timestamp()
        except FileNotFoundError:
            return None

    def put(self, key: str, data: bytes) -> None:
        """Write an object; S3 shows it when it is whole."""
        with self._system.open_output_stream(self._prefix + key) as file:
            file.write(data)

    def upload(self, key: str, source: Source, absent: bool) -> None:
        """Write a source of any size. Arrow's streams show what was written of it when the writing fails, so only small ones use them."""
        if source.size <= PART:
            self.put(key, b"".join(source.pieces()))
        else:
            self._parts.upload(self._prefix + key, source, absent)
