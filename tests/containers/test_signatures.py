"""docker/signatures.yaml: with its environment the service serves signed bundles, and ends where one was changed."""

import re
import shutil
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.containers.files import ROOT, SIGNATURES
from tests.service.process import Process
from tests.support.waiting import wait_until


@pytest.fixture
def signed(tmp_path):
    """A model directory with a bundle that `softserve-train sign` has signed, and the public key next to it."""
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "key.pub").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    bundle = shutil.copytree(ROOT / "models/bundled/next-word/5", tmp_path / "models" / "next-word" / "5")
    sign = [sys.executable, "-m", "training.cli", "sign", str(bundle), "--private-key", str(tmp_path / "key")]
    subprocess.run(sign, cwd=ROOT, check=True, timeout=120)
    return bundle


def environment(directory):
    """The environment of docker/signatures.yaml with the paths of its mounts on this machine."""
    service = SIGNATURES["services"]["softserve"]
    paths = {service["volumes"][0]["target"]: directory / "key.pub", "/models": directory / "models"}
    values = {name: re.sub(r"\$\{\w+:-(.+)\}", r"\1", value) for name, value in service["environment"].items()}
    for inside, path in paths.items():
        values = {name: value.replace(inside, str(path)) for name, value in values.items()}
    return values


def test_a_signed_bundle_is_served_and_a_changed_one_ends_the_service(signed, tmp_path):
    serving = Process(tmp_path / "log", settings=environment(tmp_path))
    try:
        wait_until(serving.ready)
        assert serving.post("thank you very") == "much"
    finally:
        serving.end()
    with (signed / "manifest.json").open("a") as manifest:
        manifest.write(" ")
    refusing = Process(tmp_path / "log", settings=environment(tmp_path))
    assert refusing.process.wait(60) == 1
    assert "next-word/5: model.sig is the signature of other files: manifest.json has changed" in refusing.text
