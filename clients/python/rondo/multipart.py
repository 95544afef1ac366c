"""Large objects of an S3 bucket: sent in parts, each of which is sent again alone when its connection breaks."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from html import unescape
from urllib.parse import quote, urlencode

from .errors import PermissionDenied, RondoError
from .source import Source

__all__ = ["PART", "Parts"]

#: Bytes of a part at least. S3 takes 10000 of them.
PART, MOST_PARTS = 16 << 20, 10_000

#: Parts that are in memory at once.
AT_ONCE = 4

#: Tries of one request, and the seconds that one may be silent.
TRIES, SILENCE = 6, 60.0


class _Refused(RondoError):
    """An answer that is none of success."""

    def __init__(self, what: str, status: int, body: bytes) -> None:
        code = re.search(rb"<Code>([^<]{1,80})</Code>", body)
        self.status, self.code = status, code.group(1).decode(errors="replace") if code else ""
        super().__init__(f"{what}: the server answers {status} {self.code}")


@dataclass(frozen=True)
class Parts:
    """Uploads in parts to a bucket, with the credentials that it was made with."""

    host: str
    secure: bool
    region: str
    access: str
    secret: str = field(repr=False)
    session: str = field(repr=False)

    def upload(self, path: str, source: Source, absent: bool) -> None:
        """Write bucket/key whole or not at all; absent: unless there is one, which then stays."""
        told, _ = self._ask("POST", path, {"uploads": ""}, b"", {})
        found = re.search(rb"<UploadId>([^<]+)</UploadId>", told)
        if found is None:
            raise RondoError(f"{path}: the server names no upload")
        upload = unescape(found.group(1).decode())
        try:
            etags = self._send(path, upload, source)
            self._complete(path, upload, etags, source.size, absent)
        except BaseException:
            # What cannot be removed now, `rondo gc` removes.
            with suppress(OSError, http.client.HTTPException, RondoError):
                self._ask("DELETE", path, {"uploadId": upload}, b"", {}, tries=1)
            raise

    def _send(self, path: str, upload: str, source: Source) -> list[str]:
        length = max(PART, -(-source.size // MOST_PARTS))
        whole, etags = hashlib.sha256(), []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            under_way: deque[Future[str]] = deque()
            for number, at in enumerate(range(0, source.size, length), 1):
                if len(under_way) == AT_ONCE - 1:
                    etags.append(under_way.popleft().result())
                part = source.read(at, min(length, source.size - at))
                whole.update(part)
                under_way.append(pool.submit(self._part, path, upload, number, part))
                del part
            etags += [sent.result() for sent in under_way]
        if whole.hexdigest() != source.sha256:
            raise source.changed()
        return etags

    def _part(self, path: str, upload: str, number: int, part: bytes) -> str:
        _, headers = self._ask("PUT", path, {"partNumber": str(number), "uploadId": upload}, part, {})
        return headers.get("etag", "")

    def _complete(self, path: str, upload: str, etags: list[str], size: int, absent: bool) -> None:
        listed = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>" for n, etag in enumerate(etags, 1))
        text = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        try:
            self._ask("POST", path, {"uploadId": upload}, text, {"if-none-match": "*"} if absent else {})
        except _Refused as refusal:
            # Another writer of the same content was first, or an answer was lost and this is the second try.
            if (refusal.status != 412 and refusal.code != "NoSuchUpload") or self._size(path) != size:
                raise

    def _size(self, path: str) -> int:
        _, headers = self._ask("HEAD", path, {}, b"", {})
        return int(headers.get("content-length", "-1"))

    def _ask(
        self, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str], tries: int = TRIES
    ) -> tuple[bytes, dict[str, str]]:
        """A request that may be repeated, until it is answered by something else than a wish for patience."""
        for attempt in range(1, tries + 1):
            try:
                return self._once(method, path, query, body, headers)
            except _Refused as refusal:
                if refusal.status == 403:
                    raise PermissionDenied(str(refusal)) from None
                patience = refusal.status >= 500 or refusal.status in (408, 429) or refusal.code == "ConditionalRequestConflict"
                if attempt == tries or not patience:
                    raise
            except (OSError, http.client.HTTPException) as error:
                if attempt == tries:
                    raise RondoError(f"{method} {path}: {type(error).__name__} {error}, {tries} times") from error
            time.sleep(min(0.1 * 2**attempt, 3.0))
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        connection = (http.client.HTTPSConnection if self.secure else http.client.HTTPConnection)(self.host, timeout=SILENCE)
        try:
            where = "/" + quote(path, safe="/-_.~")
            asked = urlencode(sorted(query.items()), quote_via=quote, safe="-_.~")
            signed = self._sign(method, where, asked, hashlib.sha256(body).hexdigest(), headers)
            connection.request(method, where + ("?" + asked if asked else ""), body, signed)
            answer = connection.getresponse()
            said = answer.read(1 << 20)
            # An upload that cannot be completed is said so behind a 200, too.
            if answer.status >= 300 or b"<Error>" in said:
                raise _Refused(f"{method} {path}", answer.status if answer.status >= 300 else 500, said)
            return said, {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def _sign(self, method: str, path: str, query: str, digest: str, more: dict[str, str]) -> dict[str, str]:
        """The headers of a request, with AWS's signature of version 4."""
        now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self.host, "x-amz-content-sha256": digest, "x-amz-date": now, **more}
        if self.session:
            headers["x-amz-security-token"] = self.session
        names = ";".join(sorted(headers))
        request = "\n".join([method, path, query, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, digest])
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self.secret}".encode()
        for step in scope.split("/"):
            key = hmac.digest(key, step.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={self.access}/{scope}, SignedHeaders={names}, Signature={signature}"
        return headers
