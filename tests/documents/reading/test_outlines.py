"""Reading what has its structure in its own markup: Org, AsciiDoc, reST, LaTeX, XML."""

import pytest

from colligate.documents import Kind
from colligate.documents.reading import read_file
from support.documents import outline, texts_of, write_and_read

ORG = """\
#+TITLE: The mill at Sarn
#+AUTHOR: Ada Mercer
#+DATE: <2026-02-11 Wed>
#+OPTIONS: toc:nil

# the old rate was 77
The mill grinds rye.[fn:1]

* Rates
  :PROPERTIES:
  :CUSTOM_ID: rates
  :END:
A sack costs 14 euros; see [[https://example.org/x][the list]].

#+BEGIN_SRC sh
# no heading
* nor this
#+END_SRC

** Discounts
| Sacks | Euros |
|-------+-------|
|    10 |   130 |

- deep
  - deeper

#+INCLUDE: other.org
[fn:1] Since 2019 only.
"""

ADOC = """\
= The mill at Sarn
Ada Mercer <ada@example.org>
v2, 2026-02-11
:grain: rye

// the old rate was 77
The mill grinds {grain}.footnote:[Since 2019 only.]

[[rates]]
== Rates

A sack costs 14 euros; see https://example.org/x[the list].

[source,sh]
----
# no heading
* nor this
----

////
hidden 77
////

=== Discounts

[cols="1,1"]
|===
|Sacks |Euros

|10
|130
|===

* deep
** deeper

include::other.adoc[]
"""

RST = """\
.. the old rate was 77

================
The mill at Sarn
================

:Author: Ada Mercer
:Date: 2026-02-11

The mill grinds :grain:`rye` [1]_.

Rates
=====

A sack costs 14 euros; see `the list <https://example.org/x>`_::

   # no heading
   * nor this

Discounts
---------

+-------+-------+
| Sacks | Euros |
+=======+=======+
| 10    | 130   |
+-------+-------+

- deep

  - deeper

.. unknown:: Shown

   Kept in what nobody knows.

.. include:: other.rst
.. [1] Since 2019
   only.
"""

TEX = r"""
% the old rate was 77
\documentclass{article}
\newcommand{\grain}{rye}
\title{The mill at \emph{Sarn}}
\author{Ada Mercer}
\date{2026-02-11}
\begin{document}\maketitle
The mill grinds~\grain{}.\footnote{Since \textbf{2019} only.} % 77
\section{Rates}\label{r}
A sack costs 14 euros\iffalse 77 \fi; see \href{https://example.org/x}{the list}. Caf\'e, 5\,\%.
\begin{verbatim}
# no heading
* nor this
\end{verbatim}
\subsection*{Discounts}
\begin{tabular}{rr}
\hline Sacks & Euros \\ \hline
10 & 130 \\
\end{tabular}
\begin{itemize}
  \item deep
  \begin{itemize} \item deeper \end{itemize}
\end{itemize}
\begin{equation}\label{e} x_1 = \frac{1}{2} \end{equation}
\input{other}
\end{document}
"""


@pytest.mark.parametrize(
    ("name", "text", "inside"),
    [
        ("a.org", ORG, "see [the list](https://example.org/x)."),
        ("a.adoc", ADOC, "see [the list](https://example.org/x)."),
        ("a.rst", RST, "see [the list](https://example.org/x):"),
        ("a.tex", TEX, "see [the list](https://example.org/x). Café, 5%."),
    ],
)
def test_a_text_has_the_structure_that_its_markup_states(tmp_path, name, text, inside):
    document = write_and_read(tmp_path / name, text)
    headings = [(1, "The mill at Sarn"), (2, "Rates"), (3, "Discounts")]
    assert outline(document) == headings
    assert (document.title, document.date) == ("The mill at Sarn", "2026-02-11")
    assert document.authors.startswith("Ada Mercer")
    assert f"A sack costs 14 euros; {inside}" in document.text
    assert document.text.count("The mill grinds rye") == 1
    (table,) = texts_of(document, Kind.TABLE)
    assert table == "| Sacks | Euros |\n|---|---|\n| 10 | 130 |"
    (code,) = texts_of(document, Kind.CODE)
    assert code.strip("`\n") == "# no heading\n* nor this"
    outer, inner = texts_of(document, Kind.LIST_ITEM)
    assert (outer.endswith(inner), inner) == (True, "- deeper")
    assert "[^1]: Since 2019 only." in document.text
    assert "77" not in document.text
    assert [line.partition(": ")[2] for line in document.warnings] == [
        f"another file is not read as part of it: other{'' if name == 'a.tex' else name[1:]}"
    ]


@pytest.mark.parametrize(
    ("written", "rows"),
    [
        ('[cols="1,1,2"]\n.Cards\n|===\n|Card\n|Colour\n|Use\n\n|Staff\n|red\n|daily\n|===',
         ["Card | Colour | Use", "Staff | red | daily"]),
        ("[cols=2*]\n|====\n|A\n|B\n\n|x\n|y\\|\n|====", ["A | B", "x | y\\|"]),
    ],
)  # fmt: skip
def test_tables_of_asciidoc_have_their_rows(tmp_path, written, rows):
    document = write_and_read(tmp_path / "a.adoc", f"= Menu\n\n{written}\n\nEnd.\n")
    (table,) = texts_of(document, Kind.TABLE)
    found = [line[2:-2] for line in table.splitlines()]
    assert [found[0], *found[2:]] == rows
    assert document.text.endswith("\n\nEnd.\n")


@pytest.mark.parametrize("rows", ["Shop,Opens\nNorth,7", ".2+|North |7\n|8", "2+|none\n|North |7"])
def test_a_table_of_asciidoc_with_spans_or_commas_stays_as_written(tmp_path, rows):
    document = write_and_read(tmp_path / "a.adoc", f"= Menu\n\n|===\n{rows}\n|===\n")
    assert texts_of(document, Kind.CODE) == [f"```\n{rows}\n```"]


def test_directives_of_restructured_text_keep_their_words(tmp_path):
    text = "Head\n====\n\n.. note::\n\n   Shut it.\n\n   .. warning:: Never open it.\n\n"
    text += (
        "=====  ======\nPart   Price\n=====  ======\nLid    3.20\n       each\n=====  ======\n\n"
    )
    text += ".. image:: x.png\n   :alt: A lid.\n\n.. math:: a^2\n\n.. code-block:: sh\n\n   # x\n"
    document = write_and_read(tmp_path / "a.rst", text)
    for words in ("note:", "Shut it.", "warning: Never open it.", "A lid.", "a^2", "# x"):
        assert words in document.text
    assert "| Part | Price |\n|---|---|\n| Lid | 3.20 each |" in document.text
    assert outline(document) == [(1, "Head")]


def test_formulas_and_citations_of_latex_stay(tmp_path):
    document = write_and_read(tmp_path / "a.tex", TEX + r"\cite[p.~4]{lee}")
    assert r"$$ x_1 = \frac{1}{2} $$" in document.text
    text = r"\chapter{One} \begin{abstract} It costs \$5~\cite[p.~4]{lee2020}, $x_1 < 3$."
    text += r" \end{abstract}"
    document = write_and_read(tmp_path / "b.tex", text)
    assert "It costs $5 [lee2020, p. 4], $x_1 < 3$." in document.text
    assert outline(document) == [(2, "One"), (2, "Abstract")]


def test_macros_of_latex_write_their_arguments(tmp_path):
    text = r"""\newcommand{\range}[2]{#1 to \hours{#2}}\newcommand*\hours[1]{#1\,h}
\def\kg#1{#1 kg}\newcommand{\by}[2][Lee]{#2 by #1}\newcommand{\loop}{\loop\loop}
\newcommand{\either}[1]{\ifx#1\empty none\else #1\fi}\renewcommand{\section}[1]{\textbf{#1}}
\begin{document}\section{Load}
It takes \range{3}{4}, weighs \kg{41}, \by{sold} or \by[Orr]{made}; \either{x}\loop."""
    document = write_and_read(tmp_path / "a.tex", text)
    assert "It takes 3 to 4h, weighs 41 kg, sold by Lee or made by Orr; x." in document.text
    assert outline(document) == [(2, "Load")]


def test_quantities_of_latex_have_their_units(tmp_path):
    text = r"""\newcommand\turn{rpm}\newcommand{\price}[1]{\SI{#1}{\EUR}}\begin{document}
\SI{12.5}{\tonne}, \qty[per-mode=symbol]{3}{\metre\per\minute}, \SIrange{40}{60}{\celsius},
$p = \SI{210}{\bar}$, \si{\kilo\gram\per\cubic\metre}, \SI{9}{m.s^{-2}}, \qty{5}{\per\second},
\unit{\mega\metre\tothe{4}}, \ang{45}, \num{1e3},
\price{2890}, \SI{7}{\turn}, \qty{80}{\percent}, \SI{x}."""
    document = write_and_read(tmp_path / "a.tex", text)
    assert " ".join(document.text.split()) == (
        "12.5 tonne, 3 metre per minute, 40–60 celsius, $p = {210}{bar}$, "
        "kilo gram per cubic metre, 9 m.s^-2, 5 per second, mega metre tothe4, 45°, 1e3, "
        "2890 EUR, 7 rpm, 80 percent, x."
    )


def test_a_table_head_of_several_rows_in_latex_is_one(tmp_path):
    text = r"""\begin{tabular}{llll}\toprule
\multirow{2}{*}{Part} & \multicolumn{2}{c}{Winch} & \multirow{2}{*}{Weeks}\\ \cmidrule(lr){2-3}
 & Maker & {Price} & \\ \midrule
Shaft & Kern & 1240 & 6 \\ \addlinespace[2pt] Rope & \multicolumn{2}{c}{none} & 2\\ \bottomrule
\end{tabular}"""
    (table,) = texts_of(write_and_read(tmp_path / "a.tex", text), Kind.TABLE)
    head, _, *rows = table.splitlines()
    assert head == "| Part | Winch Maker | Winch Price | Weeks |"
    assert rows == ["| Shaft | Kern | 1240 | 6 |", "| Rope | none |  | 2 |"]
    for first in ("a & b", r"\multicolumn{2}{c}{a b}"):
        plain = rf"\begin{{tabular}}{{ll}}\hline {first} \\ c & d \\ \hline e & f \end{{tabular}}"
        (table,) = texts_of(write_and_read(tmp_path / "b.tex", plain), Kind.TABLE)
        assert table.endswith("|\n| c | d |\n| e | f |")


def test_slides_of_latex_have_titles_and_no_overlay_marks(tmp_path):
    text = r"""\begin{document}\begin{frame}<1->[fragile]{Battery \emph{pack}}{Facts}\begin{itemize}
\item<1-> It costs \only<2>{\textbf<1,3>{9} euros}, $a<3$ \end{itemize}\end{frame}
\begin{frame}[plain]
Cool.\end{frame}\begin{frame}\frametitle{Limits} {\large Stop} it.\end{frame}\end{document}"""
    document = write_and_read(tmp_path / "a.tex", text)
    assert outline(document) == [(3, "Battery pack"), (3, "Limits")]
    assert texts_of(document, Kind.LIST_ITEM) == ["- It costs 9 euros, $a<3$"]
    assert "\n\nFacts\n\n" in document.text
    assert "\n\nCool.\n\n" in document.text


JATS = """<!DOCTYPE article [<!ENTITY grain "rye">]><article><!-- 77 --><front><article-meta>
<title-group><article-title>The mill at <italic>Sarn</italic></article-title></title-group>
<contrib><name><surname>Mercer</surname><given-names>Ada</given-names></name></contrib>
<pub-date><day>3</day><month>2</month><year>2026</year></pub-date><aff>Hale College</aff>
<abstract><title>Abstract</title><p>A mill.</p></abstract></article-meta></front>
<body><sec><title>Rates</title><p>It grinds &grain;<xref ref-type="fn" rid="f">a</xref>.</p>
<sec><title>Discounts</title><table-wrap><label>Table 1</label><table><tr><th>Sacks</th></tr>
<tr><td>10</td></tr></table></table-wrap><list list-type="order"><list-item><p>Open.</p>
</list-item></list></sec></sec></body><back><fn-group><fn id="f"><p>Since 2019.</p></fn></fn-group>
</back></article>"""
TEI = """<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><fileDesc><titleStmt>
<title>The mill at Sarn</title><author>Ada Mercer</author></titleStmt><publicationStmt>
<date when="2026-02-03"/><p>Hale College</p></publicationStmt></fileDesc></teiHeader><text><body>
<div><head>Rates</head><p>It grinds rye<note place="foot">Since 2019.</note>.</p>
<div><head>Discounts</head><table><row><cell>Sacks</cell></row><row><cell>10</cell></row></table>
<list><item>Open.</item></list></div></div></body></text></TEI>"""
DOCBOOK = """<?xml version="1.0"?><book xmlns="http://docbook.org/ns/docbook"><info>
<title>The mill at Sarn</title><author><personname><firstname>Ada</firstname><surname>Mercer
</surname></personname></author><pubdate>2026-02-03</pubdate><address>Hale College</address></info>
<chapter><title>Rates</title><para>It grinds rye<footnote><para>Since 2019.</para></footnote>.
</para><section><info><title>Discounts</title></info><table><title>Table 1</title><tgroup cols="1">
<thead><row><entry>Sacks</entry></row></thead><tbody><row><entry>10</entry></row></tbody></tgroup>
</table><orderedlist><listitem><para>Open.</para></listitem></orderedlist></section></chapter>
</book>"""


@pytest.mark.parametrize("text", [JATS, TEI, DOCBOOK], ids=["JATS", "TEI", "DocBook"])
def test_articles_and_books_in_xml_have_their_sections(tmp_path, text):
    document = write_and_read(tmp_path / "a.xml", text)
    titles = [title for _, title in outline(document) if title != "Abstract"]
    assert titles == ["The mill at Sarn", "Rates", "Discounts"]
    facts = (document.title, document.authors, document.date)
    assert facts == ("The mill at Sarn", "Ada Mercer", "2026-02-03")
    assert "It grinds rye[^1]." in document.text
    assert "[^1]: Since 2019." in document.text
    assert "Hale College" in document.text
    (table,) = texts_of(document, Kind.TABLE)
    assert table.replace(" ", "") == "|Sacks|\n|---|\n|10|"
    assert texts_of(document, Kind.LIST_ITEM) in (["1. Open."], ["- Open."])
    assert "77" not in document.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.xml", "<config><port>7110</port></config>\n"),
        ("a.xml", "<article><p>not closed\n"),
        ("a.tex", "% nothing but a comment\n"),
        ("a.rst", ".. only a comment\n"),
    ],
)
def test_what_is_none_of_these_is_plain_text(tmp_path, name, text):
    assert write_and_read(tmp_path / name, text).text == text


@pytest.mark.parametrize(
    ("name", "piece"),
    [
        *(("a.tex", piece) for piece in (r"\def\a#1{\a{#1#1}\a{#1}}\a{b}", r"\def\a{\a\a}")),
        *(("a.tex", piece) for piece in (r"\newcommand\a{{b", r"\SI[", r"\SI{\a{")),
        *(("a.tex", piece) for piece in ("\\a{", "\\[ a ", "\\begin{verbatim}\n", "\\footnote{a}")),
        *(("a.rst", piece) for piece in (".. a::\n   ", "`a <", "=== ===\na b\n", "   .. b:: c\n")),
        *(("a.adoc", piece) for piece in (":a: {a}{a}\n", "|===\n|", "|===\n.9+|a ", "footnote:[")),
        *(("a.org", piece) for piece in ("[[a][", "#+begin_src\n", "| a ")),
    ],
)
def test_hostile_markup_is_read_in_time(tmp_path, name, piece):
    (tmp_path / name).write_text(piece * (60_000 // len(piece)))
    assert read_file(tmp_path / name).documents[0].text.strip()
