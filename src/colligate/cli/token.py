"""`colligate token`: named tokens for `colligate serve`, each with its rights."""

from __future__ import annotations

from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import make_table, note, print_json, print_result, warn
from colligate.server.tokens import Right, TokenFile

app = typer.Typer(help="Make, list and revoke the tokens that `colligate serve` accepts.")

Tokens = Annotated[
    str,
    options.option(
        "The file of the tokens, as given to `colligate serve`.",
        "Options",
        "--tokens",
        metavar="FILE",
        envvar="COLLIGATE_TOKENS",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.", show_default=False)]


@command(app, "make")
def token_make_command(
    name: Name,
    *,
    tokens: Tokens,
    right: Annotated[
        list[Right] | None,
        options.option(
            "What it allows: read, ask, write or admin; may be repeated. Default: read and ask.",
            "Options",
        ),
    ] = None,
    library: Annotated[
        list[str] | None,
        options.option(
            "A library of the server that it sees, or one folder of documents in it; may be "
            "repeated. Default: all.",
            "Options",
            metavar="NAME[:FOLDER]",
        ),
    ] = None,
    no_secret: Annotated[
        bool,
        options.option(
            "Print no token: a proxy that the server trusts names who asks "
            "(`serve --proxy-user-header`).",
            "Options",
            "--no-secret",
        ),
    ] = False,
) -> int:
    """Make a token and print it. It is shown only now: the file holds its digest.

    Examples:
        colligate token make ada --tokens tokens.json --right ask
        colligate token make ben --tokens tokens.json --library contracts --library default:hr/2024
        colligate token make cy@example.org --tokens tokens.json --no-secret
    """
    libraries = None if library is None else [_resolve_folder(each) for each in library]
    token = TokenFile(tokens).make(name, right or [Right.READ, Right.ASK], libraries)
    if no_secret:
        print_result(f"made {name}")
        return ANSWERED
    note(f"{name} sends it as: Authorization: Bearer TOKEN")
    print_result(token)
    return ANSWERED


def _resolve_folder(given: str) -> str:
    """Return NAME:FOLDER with the path by which a library knows the folder."""
    library, _, folder = given.partition(":")
    if not folder:
        return given
    from colligate.library.catalogue import resolve_path

    path = resolve_path(folder)
    if not path.is_dir():
        warn(f"there is no folder {path} on this machine, so the token sees nothing in it")
    return f"{library}:{path}"


@command(app, "list")
def token_list_command(*, tokens: Tokens, as_json: options.AsJson = False) -> int:
    """List the tokens with their rights.

    Examples:
        colligate token list --tokens tokens.json
    """
    found = TokenFile(tokens).read()
    if as_json:
        print_json([each.model_dump(mode="json", exclude={"sha256"}) for each in found])
        return ANSWERED
    rows = []
    for each in found:
        libraries = "all" if each.libraries is None else ", ".join(each.libraries)
        rows.append((each.name, ", ".join(each.rights), libraries, each.made.isoformat()))
    print_result(make_table(["name", "rights", "libraries", "made"], rows))
    return ANSWERED


@command(app, "revoke")
def token_revoke_command(name: Name, *, tokens: Tokens) -> int:
    """Revoke a token; a running server refuses it from the next request on.

    Examples:
        colligate token revoke ada --tokens tokens.json
    """
    TokenFile(tokens).revoke(name)
    print_result(f"revoked {name}")
    return ANSWERED
