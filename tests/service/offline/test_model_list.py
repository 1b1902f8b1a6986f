"""`softserve models`."""

import json
import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from models.signing import Signer
from service.cli import inspect
from service.offline.model_list import models
from service.offline.options import UsageError
from service.settings import BUNDLED


def test_models_are_listed(capsys):
    assert models("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["model", "task", "commands", "description"]
    assert {line.split(":")[0] for line in lines[1:]} == {"next-word", "de-en", "intents"}
    with pytest.raises(UsageError, match="list takes no names"):
        models("list", ("intents",))


def test_one_is_shown(capsys):
    assert models("show", ("intents",)) == 0
    assert "output layer" in capsys.readouterr().out


def test_damage_is_found(tmp_path, capsys):
    shutil.copytree(BUNDLED / "intents", tmp_path / "intents")
    assert models("verify", model_dirs=(tmp_path,)) == 0
    assert "all checksums match" in capsys.readouterr().out
    (version,) = (tmp_path / "intents").iterdir()
    with (version / "weights.bin").open("r+b") as file:
        file.write(b"\xff\x00")
    assert models("verify", ("intents",), (tmp_path,)) == 1
    assert models("show", ("intents",), (tmp_path,)) == 1
    assert "weights.bin" in capsys.readouterr().out


def test_what_a_bundle_says_does_not_control_the_terminal(tmp_path, capsys):
    shutil.copytree(BUNDLED / "intents", tmp_path / "intents")
    (version,) = (tmp_path / "intents").iterdir()
    manifest = json.loads((version / "manifest.json").read_text())
    manifest |= {"description": "harmless\x1b]0;title\x07\x1b[2J\nlicence MIT", "licence": "\x9b31mred"}
    manifest["quality"][0]["dataset"] = "\u202edata"
    (version / "manifest.json").write_text(json.dumps(manifest))
    assert inspect(version) == 0
    assert models("list", model_dirs=(tmp_path,)) == 0
    assert models("show", ("intents",), (tmp_path,)) == 0
    assert models("verify", ("intents",), (tmp_path,)) == 0
    manifest["\x1b[1mfield"] = manifest["name"] = "\x1b[31m"
    (version / "manifest.json").write_text(json.dumps(manifest))
    assert inspect(version) == 1
    assert models("verify", model_dirs=(tmp_path,)) == 1
    shown = capsys.readouterr().out
    assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert "harmless\\x1b]0;title\\x07\\x1b[2J\\nlicence MIT" in shown


def test_entries_that_hold_no_bundle_are_named(tmp_path, capsys):
    shutil.copytree(BUNDLED / "intents", tmp_path / "intents")
    (tmp_path / "intents" / "9").symlink_to("nothing")
    for action, status in (("list", 0), ("verify", 1), ("show", 0)):
        assert models(action, model_dirs=(tmp_path,)) == status
        assert capsys.readouterr().err == f"skipped: {tmp_path / 'intents' / '9'}: it is a link to nothing\n"
    assert models("verify", ("intents",), (tmp_path,)) == 0
    assert capsys.readouterr().err == ""


def test_signatures_are_verified(tmp_path, capsys):
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = tmp_path / "key.pub"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    shutil.copytree(BUNDLED / "intents", tmp_path / "models" / "intents")
    (version,) = (tmp_path / "models" / "intents").iterdir()
    assert models("verify", (str(version),), public_key=public) == 1
    assert "it is not signed: model.sig is missing" in capsys.readouterr().out
    Signer(private_key=tmp_path / "key").sign(version)
    assert models("verify", ("intents",), (tmp_path / "models",), public_key=public) == 0
    assert "all checksums match; the signature is valid" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--public-key is for verify"):
        models("show", ("intents",), public_key=public)


def test_a_bill_of_materials_is_of_one_model(capsys):
    assert models("bom", ("intents",)) == 0
    bill = json.loads(capsys.readouterr().out)
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "intents")
    with pytest.raises(UsageError, match="name one model"):
        models("bom")
