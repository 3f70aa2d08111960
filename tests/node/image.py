"""The one image of the node test, made by hand around a static program: there is no registry that it could come from."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Final

# Of no registry that exists, so that nothing is ever asked for it; pods name it with imagePullPolicy Never.
IMAGE: Final = "apportion.invalid/pause:1"
PROGRAM: Final = "/pause"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}  # the kernel's names -> Go's
_SOURCE: Final = Path(__file__).with_name("pause.c")


def write_image(directory: Path) -> Path:
    """Build the program with gcc and return an archive as `docker save` writes it, which containerd imports."""
    program, archive = directory / "pause", directory / "pause.tar"
    subprocess.run(["gcc", "-Wall", "-Werror", "-O1", "-static", "-o", program, _SOURCE], check=True)
    layer = _tar({PROGRAM[1:]: program.read_bytes()}, mode=0o755)
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [PROGRAM]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    archive.write_bytes(_tar(files, mode=0o644))
    return archive


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return content.getvalue()
