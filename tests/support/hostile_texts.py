"""Texts that break formats, one by one: what each may hold, `samples.hostile` holds many of."""

from __future__ import annotations

from hypothesis import strategies as st

from gradir.ir import Cut, Graph, Node, Producer, Ref, Saved, Scope, Source, TensorMeta

HOSTILE_TEXTS = {
    "cdata end": "a]]>b<![CDATA[c",
    "script end": "</script><script>alert(1)</script><!--",
    "entities": "&amp; &#0; &lt; &nosuch;",
    "quotes": "'\"`\\",
    "controls": "\x00\x01\x08\x0b\x0c\x1b[31m\x7f\x85\x9b",
    "newlines": "a\nb\r\nc\rd\te\u2028f\u2029g",
    "lone surrogates": "a\ud800b\udfffc\udc00",
    "noncharacters": "\ufffe\uffff\ufdd0\U0001ffff",
    "emoji": "🔥👩‍👩‍👧漢字",
    "right to left": "\u202eevil\u2066\u2069\u200f",
    "spaces": "  a  b  ",
    "long": "x" * 10_000,
    "prototype": "__proto__",
    "path": "../a/b;c\\/d..e.",
}

any_text = st.text(
    st.one_of(st.characters(), st.sampled_from(list("<>&\"'\\/;. \r\n\t\x00\ud800\uffff]"))), max_size=12
)


def graph_of(text: str) -> Graph:
    """A graph with the text wherever a graph can have one, but in its ids."""
    meta = TensorMeta(text, (text, 2), text, text)
    saved = (Saved(text, text, (text,), 3, Ref("x", 0), text, text), Saved(text))
    nodes = [
        Node("x", role=text, outputs=(meta,), scope=f"{text}.{text}"),
        Node("f:1", text, text, text, text, (text, text), (Ref("x", 0), None), (meta,), {text: (text, (text,))}, saved),
        Node(
            "output", role="output", inputs=(Ref("f:1", 0),), base="x", source=Source(text, 1, text), ext={text: text}
        ),
    ]
    scopes = [Scope(text, text, text, 1, 2, 3, 4, training=True)]
    place = Source(text, 2**63 - 1, text)
    cuts = [
        Cut(text, (text,), text, meta),
        Cut(text, (text, text), text, meta, text, place, place, text, text, "f:1", 1),
        Cut(text, source=place, at="f:1", into=text, slot=2**63 - 1),
    ]
    return Graph.of(nodes, scopes, cuts, Producer(text, text, text, {text: text}))
