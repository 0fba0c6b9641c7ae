"""`colligate token`: named tokens for `colligate serve`, each with its rights."""

from __future__ import annotations

from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import make_table, note, print_json, print_result
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
) -> int:
    """Make a token and print it. It is shown only now: the file holds its digest.

    Examples:
        colligate token make ada --tokens tokens.json --right ask
    """
    token = TokenFile(tokens).make(name, right or [Right.READ, Right.ASK])
    note(f"{name} sends it as: Authorization: Bearer TOKEN")
    print_result(token)
    return ANSWERED


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
    rows = [(each.name, ", ".join(each.rights), each.made.isoformat()) for each in found]
    print_result(make_table(["name", "rights", "made"], rows))
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
