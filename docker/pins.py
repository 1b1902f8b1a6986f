"""Pin the images of compose.yaml and docker/Dockerfile by the digests that their registries give for their tags now.

`python docker/pins.py` writes them, `python docker/pins.py --check` fails where one differs. It asks the registries by
`docker buildx imagetools inspect` or `skopeo inspect`: the digest is that of the index of all platforms.
"""

import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (ROOT / "compose.yaml", ROOT / "docker/Dockerfile")
IMAGE = re.compile(r"(docker\.io/[\w./-]+:[\w.-]+)(?:@(sha256:[0-9a-f]{64}))?")


def digest(image: str) -> str:
    """Return the digest of an image's index; raises `subprocess.CalledProcessError` where the registry has none."""
    if shutil.which("docker"):
        command = ["docker", "buildx", "imagetools", "inspect", "--raw", image]
    else:
        command = ["skopeo", "inspect", "--raw", f"docker://{image}"]
    return f"sha256:{sha256(subprocess.run(command, check=True, capture_output=True).stdout).hexdigest()}"


def main() -> None:
    """Write the digests, or fail where one differs."""
    wrong = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for image, pinned in set(IMAGE.findall(text)):
            if (found := digest(image)) != pinned:
                wrong.append(f"{image}@{found}")
                text = re.sub(rf"{re.escape(image)}(@sha256:[0-9a-f]+)?(?![\w.@-])", f"{image}@{found}", text)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
    if wrong and "--check" in sys.argv[1:]:
        sys.exit("the registries have " + ", ".join(wrong))


if __name__ == "__main__":
    main()
