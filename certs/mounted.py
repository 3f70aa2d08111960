"""Serve a certificate that someone else keeps (cert-manager): `tls.crt` and `tls.key` of a mounted Secret."""

from pathlib import Path

from certs.issue import KeyPair
from certs.sslcontext import ServerContext


class Mounted:
    """The certificates in one directory, read anew for each handshake; the counterpart of `certs.keeper.Keeper`.

    Whoever keeps them also writes the caBundle, so a pair that fits together is all that can be checked here.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.context = ServerContext(self.leaf)

    def leaf(self) -> KeyPair | None:
        """Return the pair as it is on disk; None in the middle of a swap, or before it is mounted."""
        try:
            return KeyPair((self._directory / "tls.crt").read_bytes(), (self._directory / "tls.key").read_bytes())
        except OSError:
            return None

    @property
    def fault(self) -> str | None:
        """Why nothing can be served; None if something can."""
        return None if self.context.current() else f"no certificate in {self._directory} yet"

    def start(self) -> None:
        """Do nothing: there is nothing to keep."""

    def stop(self) -> None:
        """Do nothing."""
