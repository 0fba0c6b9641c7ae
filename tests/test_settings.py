"""Names and options from the environment and one file."""

import json
import os
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from colligate.errors import UsageError
from colligate.models import Role
from colligate.models.names import anchor_name, may_send_key, redact_name, split_adapter
from colligate.settings import Named, Settings, json_schema

DOCS = Path(__file__).parents[1] / "docs"

VARIABLES = {
    "reader": "COLLIGATE_MODEL",
    "worker": "COLLIGATE_WORKER_MODEL",
    "scorer": "COLLIGATE_SCORER",
    "judge": "COLLIGATE_JUDGE",
    "embedder": "COLLIGATE_EMBEDDER",
    "reranker": "COLLIGATE_RERANKER",
}
PLAIN = {"pdf": "COLLIGATE_PDF", "chunker": "COLLIGATE_CHUNKER", "ocr": "COLLIGATE_OCR"}
PLAIN["risk"] = "COLLIGATE_RISK"


@pytest.fixture(autouse=True)
def no_library_is_named(here, monkeypatch):
    monkeypatch.delenv("COLLIGATE_LIBRARY")


def write(folder: Path, text: str, name: str = "colligate.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def models(**named: str) -> str:
    return "[models]\n" + "".join(f'{role} = "{name}"\n' for role, name in named.items())


@pytest.mark.parametrize("what", [*VARIABLES, *PLAIN])
def test_given_goes_before_environment_and_that_before_the_file(what, here, monkeypatch):
    variable = {**VARIABLES, **PLAIN}[what]
    plain = f'{what} = "openai:of-the-file"'
    write(here, plain if what in PLAIN else models(**{what: "openai:of-the-file"}))
    assert getattr(Settings.load(), what) == Named("openai:of-the-file", "colligate.toml")
    monkeypatch.setenv(variable, "openai:of-the-environment")
    named = getattr(Settings.load(), what)
    assert named == Named("openai:of-the-environment", variable)
    assert Settings.load().override(**{what: None}) == Settings.load()
    given = Settings.load().override(**{what: "openai:given"})
    assert getattr(given, what) == Named("openai:given")


def test_a_risk_is_a_number_or_a_word(here):
    write(here, "risk = 0.1")
    assert Settings.load().risk == Named("0.1", "colligate.toml")


def test_an_empty_variable_is_none(here, monkeypatch):
    write(here, models(reader="bundled"))
    for variable in [*VARIABLES.values(), "COLLIGATE_CONFIG", "COLLIGATE_LIBRARY"]:
        monkeypatch.setenv(variable, "")
    assert Settings.load().of(Role.READER) == Named("bundled", "colligate.toml")
    assert Settings.load().library is None


def test_one_file_is_read_the_nearest_first(here, tmp_path, monkeypatch):
    own = write(tmp_path / "configuration" / "colligate", models(reader="openai:own", judge="x"))
    assert (Settings.load().file, Settings.load().trusted) == (own, True)
    project = write(here, "[tool.other]\nreader = 3", "pyproject.toml")
    assert Settings.load().file == own
    write(here, '[tool.colligate.models]\nreader = "openai:project@http://h/v1"', project.name)
    found = Named("openai:project@http://h/v1", "pyproject.toml", with_key=False)
    assert (Settings.load().reader, Settings.load().trusted) == (found, False)
    chosen = Settings.load(project)
    assert (chosen.reader, chosen.trusted) == (Named(found.name, str(project)), True)
    write(here, models(reader="openai:here"))
    loaded = Settings.load()
    assert (loaded.reader, loaded.judge) == (Named("openai:here", "colligate.toml"), None)
    assert loaded.trusted is False
    named = write(tmp_path / "elsewhere", models(reader="openai:named"), "mine.toml")
    monkeypatch.setenv("COLLIGATE_CONFIG", str(named))
    assert Settings.load().reader == Named("openai:named", str(named))
    assert Settings.load().trusted is True
    flag = write(tmp_path / "elsewhere", models(reader="openai:flag"), "flag.toml")
    assert Settings.load(flag).reader == Named("openai:flag", str(flag))


def test_paths_in_a_file_start_from_its_folder(here, tmp_path):
    place = tmp_path / "project"
    (place / "models" / "reader").mkdir(parents=True)
    (place / "models" / "a+b").mkdir()
    (place / "models" / "adapter").mkdir()
    text = """
        library = "../lib"
        [models]
        reader = "hf:models/reader"
        worker = "hf:models/reader+models/adapter"
        scorer = "gguf:models/not-there.gguf"
        judge = "hf:models/a+b"
        embedder = "st:./models/reader"
        reranker = "cross-encoder:org/name"
        [options."gguf:models/not-there.gguf"]
        threads = 3
        """
    loaded = Settings.load(write(place, text))
    inside = place / "models"
    assert {what: getattr(loaded, what).name for what in VARIABLES} == {
        "reader": f"hf:{inside}/reader",
        "worker": f"hf:{inside}/reader+{inside}/adapter",
        "scorer": f"gguf:{inside}/not-there.gguf",
        "judge": f"hf:{inside}/a+b",
        "embedder": f"st:{inside}/reader",
        "reranker": "cross-encoder:org/name",
    }
    assert Path(loaded.library.name).resolve() == tmp_path / "lib"
    for name in ("bundled", "gguf:smollm2-135m", "hf:org/model", "hf:org/base+org/lora", "minilm",
                 "openai:models/x", "openai:m@http://h/v1", "none"):  # fmt: skip
        assert anchor_name(name, here) == name
    assert anchor_name("gguf:~/m.gguf", here) == f"gguf:{Path.home() / 'm.gguf'}"
    # Options count for the same model, however a flag writes its path.
    assert loaded.options_of("gguf:../project/models/not-there.gguf") == {"threads": 3}
    assert loaded.options_of("gguf:models/not-there.gguf") == {}


@pytest.mark.parametrize(
    ("written", "base_url", "same"),
    [
        ("openai:m", "", ["openai/m", "openai:m@https://api.openai.com/v1/"]),
        ("openai/m@http://h/v1/", "", ["openai:m@http://h/v1"]),
        ("openai:m", "http://h/v1", ["openai/m", "openai:m@http://h/v1"]),
        ("ollama:m", "", ["ollama/m", "openai:m@http://localhost:11434/v1"]),
    ],
)
def test_options_count_however_the_model_is_written(here, monkeypatch, written, base_url, same):
    monkeypatch.setenv("OPENAI_BASE_URL", base_url)
    loaded = Settings.load(write(here, f'[options."{written}"]\nin_flight = 3\n'))
    for name in (written, *same):
        assert loaded.options_of(name) == {"in_flight": 3}
    for name in ("openai:n", "openai:m@http://other/v1", "bundled"):
        assert loaded.options_of(name) == {}


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ('[models]\nraeder = "bundled"', "models.raeder", "did you mean models.reader?"),
        ("[modles]", "modles", "did you mean models?"),
        ('reader = "bundled"', "reader", "did you mean reading?"),
        ("models = 3", "models", "write [models] above its entries"),
        ("[models]\nreader = 3", "models.reader", "expected"),
        ('[models]\nreader = " "', "models.reader", "expected"),
        ("library = true", "library", "expected"),
        ("pdf = true", "pdf", "expected"),
        ("risk = true", "risk", "expected"),
        ("[options]\nbundled = 3", "options.bundled", "expected a table, got 3"),
        ("[options.bundled]\nthread = 3", 'options."bundled".thread', "there are context_tokens"),
        ('[options.bundled]\nthreads = "3"', 'options."bundled".threads', "whole number"),
        ("[options.bundled]\nthreads = true", 'options."bundled".threads', "whole number"),
        ("[options.bundled]\nthreads = 0", 'options."bundled".threads', "above 0"),
        ('[options."openai:m"]\ntimeout = nan', 'options."openai:m".timeout', "above 0"),
        ('[options."openai:m"]\ndtype = "x"', 'options."openai:m".dtype', "in_flight"),
        ('[options."openai:m"]\nthinking = 3', 'options."openai:m".thinking', "expected a text"),
        ('[options."openai:m"]\nextra_body=3', 'options."openai:m".extra_body', "expected a table"),
        ('[options."openai:m".extra_body]\ntools = []', "extra_body", "itself sends tools"),
        ('[options."openai:m".extra_body]\na = 2026-01-01', "extra_body", "sent as JSON"),
        ('[options."openai:m".extra_body]\na = 1', "extra_body is not used", "trusts it"),
        ('[options."openai:m"]\nkey_variable = "A"', "key_variable is not used", "--config"),
        ('[options."hf:m"]\ndtype = 16', 'options."hf:m".dtype', "expected a text"),
        ('[options."hf:m+a"]\ndtype = "x"', 'options."hf:m+a".dtype', "options to hf:m"),
        ("[options.minilm]\nthreads = 1", 'options."minilm".threads', "takes no options"),
        ("[models", "colligate.toml", "not valid TOML"),
        ("a = " + "[" * 5000, "colligate.toml", "not valid TOML"),
        ("a = '\udcff'", "colligate.toml", "not valid TOML"),
        ("#" * (1 << 20) + "\n", "colligate.toml", "larger"),
    ],
)
def test_a_wrong_file_is_one_line_with_file_and_key(here, text, key, says):
    (here / "colligate.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError) as caught:
        Settings.load()
    line = str(caught.value)
    assert "colligate.toml" in line
    assert key in line
    assert says in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool]\ncolligate = 3", "tool.colligate: expected a table, got 3"),
        ("[tool.colligate]\nreadin = ''", "tool.colligate.readin: unknown key; did you mean tool."),
        ("[tool.colligate.models]\njudge = 3", "tool.colligate.models.judge: "),
        ("[tool", "pyproject.toml is not valid TOML"),
        ("[project]", "tool.colligate: expected a table, got None"),
    ],
)
def test_a_wrong_table_of_a_project_is_one_line(here, text, says):
    chosen = write(here, text, "pyproject.toml")
    with pytest.raises(UsageError, match=re.escape(says)):
        Settings.load(chosen)


def test_the_schema_for_editors_is_that_of_the_file():
    schema = json.loads((DOCS / "colligate.schema.json").read_text("utf-8"))
    assert schema == json_schema(), "write json_schema() to docs/colligate.schema.json"
    shown = re.search(r"```toml\n(#:schema.*?)```", (DOCS / "guide.md").read_text("utf-8"), re.S)
    jsonschema.validate(tomllib.loads(shown[1]) | {"risk": 0.1}, schema)


def test_a_file_that_a_person_chose_may_say_what_an_endpoint_is_sent(tmp_path):
    text = '[options."openai:m"]\nkey_variable = "A"\nextra_body = { top_k = 1 }\n'
    loaded = Settings.load(write(tmp_path, text))
    assert loaded.options_of("openai:m") == {"key_variable": "A", "extra_body": {"top_k": 1}}


@pytest.mark.posix
def test_what_is_no_file_is_not_read(here):
    os.mkfifo(here / "colligate.toml")
    assert Settings.load().file is None


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://evil.example/v1",
        "https://evil.example/v1",
        "http://api.openai.com/v1",  # in the clear
        "https://api.openai.com.evil.example/v1",
        "https://api.openai.com@evil.example/v1",
        "https://evil.example\\@api.openai.com/v1",
        "https://evil.example#@api.openai.com/v1",
        "https://evil.example/@https://api.openai.com/v1",
        "https://api.openai.com:8443/v1",
        "http://box.example:9000/v1",
        "http://[api.openai.com]/v1",
    ],
)
def test_a_file_found_here_gets_no_key_for_an_address_of_its_own(here, monkeypatch, endpoint):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://box.example:8000/v1")
    kinds = {"reader": "openai:m", "embedder": "openai/e", "reranker": "http:r"}
    names = (f"{what} = '{kind}@{endpoint}'" for what, kind in kinds.items())
    file = write(here, "\n".join(("[models]", *names)))
    for settings, with_key in ((Settings.load(), False), (Settings.load(file), True)):
        assert {getattr(settings, what).with_key for what in kinds} == {with_key}


def test_the_keys_own_addresses_get_it(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://box:8000/v1")
    own = ("openai:m", "openai/m", "openai:m@https://api.openai.com/v1")
    for name in (*own, "openai:m@http://Box:8000/x", "bundled", "gguf:x.gguf", "hf:org/m"):
        assert may_send_key(name), name


def test_an_adapter_is_what_follows_the_last_plus(here):
    assert split_adapter("hf:a/b+c/d") == ("hf:a/b", "c/d")
    assert split_adapter("hf:a+b+c") == ("hf:a+b", "c")
    assert split_adapter("hf:a/b") == ("hf:a/b", None)
    assert split_adapter("hf:a+") == ("hf:a+", None)
    assert split_adapter("gguf:a+b.gguf") == ("gguf:a+b.gguf", None)
    assert split_adapter("gguf:a.gguf+b") == ("gguf:a.gguf", "b")
    assert split_adapter("gguf:smollm2-135m+b") == ("gguf:smollm2-135m", "b")
    assert split_adapter("bundled+b.gguf") == ("bundled", "b.gguf")
    (here / "a+b").mkdir()
    assert split_adapter("hf:a+b") == ("hf:a+b", None)
    assert split_adapter("hf:a+b+c") == ("hf:a+b", "c")


def test_passwords_in_names_are_not_shown():
    assert redact_name("openai:m@http://me:secret@h:1/v1?key=secret") == "openai:m@http://h:1/v1"
    assert "secret" not in redact_name("openai:m@http://me:secret@/v1")
    assert redact_name("hf:a+b") == "hf:a+b"
