"""`gguf:ORG/REPO[:FILE]`: what the hub says of a file at first is pinned, and holds."""

import hashlib
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from colligate.core.events import Trace
from colligate.errors import ColligateError, UnknownModel, WeightsUnavailable
from colligate.lab.jobs.identity import weights_digest
from colligate.models.download import hash_file
from colligate.models.llama.api import Model
from colligate.models.names import anchor_name, open_model, split_adapter
from colligate.models.weights import (
    PINNED,
    home,
    list_weights,
    pull,
    resolve_weights,
    verify_weights,
)
from colligate.reporting import report_pull
from support.hub import COMMIT, CONTENT, HubServer
from support.models import ask

REPOSITORY = "Owner/Model-GGUF"
Q4, Q8, DEEP = "m-Q4_K_M.gguf", "m-Q8_0.gguf", "deep er/m-F16.gguf"


def path_of(file: str) -> str:
    return f"/{REPOSITORY}/resolve/{COMMIT}/{file}"


@pytest.fixture(autouse=True)
def hub(server: HubServer, own_home, tmp_path, monkeypatch) -> HubServer:
    """The only hub: it has three models in one repository, each with bytes of its own."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "llama").symlink_to(own_home / "llama")
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    for file in (Q4, Q8, DEEP.replace(" ", "%20"), "README.md"):
        server.files[path_of(file)] = CONTENT + file.encode()
    return server


@pytest.mark.parametrize(
    ("asked", "file"), [("", Q4), (f":{Q4}", Q4), (":q8_0", Q8), (f":{Q8}", Q8), (f":{DEEP}", DEEP)]
)
def test_one_file_is_taken_and_kept(hub, monkeypatch, asked, file):
    name = resolve_weights(REPOSITORY + asked)
    assert name == f"{REPOSITORY}:{file}"
    path = pull(name)["model"]
    assert path.read_bytes() == hub.files[path_of(file.replace(" ", "%20"))]
    entry = list_weights()[-1]
    assert (entry.name, entry.licence, entry.present) == (name, "apache-2.0", True)
    assert weights_digest(f"gguf:{REPOSITORY}{asked}") == hash_file(path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert pull(resolve_weights(REPOSITORY + asked)) == {"model": path}
    path.write_bytes(b"!" + path.read_bytes()[1:])
    assert verify_weights(name) == [path]


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        (f"{REPOSITORY}:Q", UnknownModel, f"2 files of that name; the repository has .*{Q4}, {Q8}"),
        (f"{REPOSITORY}:Q5_K_M", UnknownModel, f"the repository has .*{Q4}, {Q8}"),
        (f"{REPOSITORY}:Q4_K_M.gguf", UnknownModel, "name one of its files: gguf:ORG/REPO:FILE"),
        (f"{REPOSITORY}:../{Q4}", UnknownModel, "the repository has"),
        ("Owner/Text", UnknownModel, "the repository has no GGUF file"),
        ("Owner/Parts", UnknownModel, "b-Q4_K_M-00001-of-00002.gguf is a part of a model"),
        ("Owner/Gone", WeightsUnavailable, "no such file is here, and the hub: 127.0.0.1 .* 404"),
    ],
)
def test_names_without_one_whole_file(hub, asked, error, said):
    hub.files[f"/Owner/Text/resolve/{COMMIT}/model.safetensors"] = CONTENT
    hub.files[f"/Owner/Parts/resolve/{COMMIT}/b-Q4_K_M-00001-of-00002.gguf"] = CONTENT
    with pytest.raises(error, match=said) as caught:
        open_model(f"gguf:{asked}")
    assert "\n" not in str(caught.value)
    assert not list(home().rglob("*.gguf"))


def test_a_private_repository_needs_a_token(hub, monkeypatch):
    hub.token = "right"
    with pytest.raises(WeightsUnavailable, match=r"answered 401: .* is private.*no token in HF_TO"):
        resolve_weights(REPOSITORY)
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(WeightsUnavailable, match=r"answered 403: .*your token may not read it"):
        resolve_weights(REPOSITORY)
    monkeypatch.setenv("HF_TOKEN", "right")
    with closing(HubServer()) as store:  # what the hub leads on to, as it does
        hub.store, store.files = store.url, hub.files
        assert pull(resolve_weights(REPOSITORY))["model"].is_file()
        assert store.tokens_seen == {None}


def test_offline_and_unreachable(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WeightsUnavailable, match="HF_HUB_OFFLINE is set"):
        resolve_weights(REPOSITORY)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://name:secret@127.0.0.1:9")
    with pytest.raises(WeightsUnavailable, match=r"127\.0\.0\.1 cannot be reached") as caught:
        resolve_weights(REPOSITORY)
    assert "secret" not in str(caught.value)


def test_a_cut_download_goes_on_at_the_same_commit(hub, monkeypatch):
    name = resolve_weights(REPOSITORY)
    hub.cut_after = [200_000]

    def stop(done: int, total: int, what: str) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(name, stop)
    hub.files[f"/{REPOSITORY}/resolve/main/{Q4}"] = b"a newer one"
    assert pull(resolve_weights(REPOSITORY))["model"].read_bytes() == hub.files[path_of(Q4)]
    assert [each is None for each in hub.ranges_asked(path_of(Q4))] == [True, False]


def test_bytes_that_the_hub_does_not_state_are_not_used(hub):
    hub.stated[path_of(Q4)] = "0" * 64
    name = resolve_weights(REPOSITORY)
    with pytest.raises(WeightsUnavailable, match="it sent other bytes than those pinned"):
        pull(name)
    hub.stated[path_of(Q4)] = "1" * 64  # it changes its mind: what it said first is pinned
    with pytest.raises(WeightsUnavailable, match=r"SHA-256 of the file is 1{64}, the pinned .*0"):
        pull(name)
    assert not list(home().rglob("*.partial"))


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000, b'{"sha": "../x", "siblings": []}'])
def test_answers_that_are_none(hub, body):
    hub.answers["Owner/Odd"] = body
    with pytest.raises(WeightsUnavailable, match=r"the hub: it(s answer about| gives no commit)"):
        resolve_weights("Owner/Odd")


def test_a_damaged_record_is_said_so(hub):
    folder = pull(resolve_weights(REPOSITORY))["model"].parent
    (folder / "pinned.json").write_text("{")
    with pytest.raises(WeightsUnavailable, match="is damaged; remove"):
        pull(f"{REPOSITORY}:{Q4}")


def test_a_path_stays_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"gguf:{REPOSITORY}"
    assert anchor_name(name, tmp_path) == name
    assert split_adapter(f"{name}+own.gguf") == (name, "own.gguf")
    with pytest.raises(ColligateError, match="there is no file models/own"):
        open_model("gguf:models/own.gguf")
    (tmp_path / REPOSITORY).parent.mkdir()
    (tmp_path / REPOSITORY).write_bytes(b"no model")
    assert anchor_name(name, tmp_path) == f"gguf:{tmp_path / REPOSITORY}"
    with pytest.raises(WeightsUnavailable, match="it is not a GGUF file"):
        open_model(name)


@pytest.mark.parametrize("name", [f"gguf:{REPOSITORY}", "qwen3-4b"])
async def test_it_answers(hub, tiny_gguf, monkeypatch, name):
    content = tiny_gguf("llama").read_bytes()
    real = PINNED["qwen3-4b"].files["model"]
    place = f"/{real.hub}".replace(real.name, f"resolve/{real.revision}/{real.name}")
    hub.files[path_of(Q4)] = hub.files[place] = content
    with pytest.raises(WeightsUnavailable, match=f"the pinned one {real.sha256}"):
        open_model("qwen3-4b")
    file = replace(real, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(PINNED, "qwen3-4b", replace(PINNED["qwen3-4b"], files={"model": file}))
    template = "{{ messages[0].content }}{% if enable_thinking is defined %}{off}{% endif %}"
    monkeypatch.setattr(Model, "template", lambda self: template.replace("{off}", "off " * 99))
    seen: list[Any] = []
    options = {"context_tokens": 512, "threads": 1}
    model = open_model(name, options=options, on_progress=report_pull(Trace([seen.append])))
    assert "which states the pinned SHA-256" in seen[-1].text
    assert model.name == f"gguf:{name.removeprefix('gguf:')}"
    used = (await ask(model, max_tokens=2)).usage
    assert used.output_tokens
    assert (used.input_tokens > 99) == (name == "qwen3-4b"), "what we recommend does not think"
    await model.aclose()
