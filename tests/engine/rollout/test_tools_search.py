"""The search tool: the almanac, uploaded corpora, and MediaWiki endpoints that answer, fail, or take their time."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from engine import almanac
from engine.blobs import BlobStore
from engine.environment_spec import SearchEndpoint, SearchSpec, UploadedCorpus
from engine.ports import PortError
from engine.rollout.tools import BAD_ANSWER, UNAVAILABLE, ToolFailed
from engine.rollout.tools_index import Index
from engine.rollout.tools_search import Searches
from engine.rollout.tools_wiki import Wiki


def test_the_almanac_is_the_same_everywhere_and_its_titles_are_unique():
    articles = almanac.articles()

    assert (len(articles), articles[0].title, articles[-1].title) == (124, "Jorira", "The Broken Tide")
    assert len({article.title for article in articles}) == 124


def test_each_question_needs_two_articles_of_which_it_names_one():
    texts = {article.title: article.text for article in almanac.articles()}

    for question in almanac.questions():
        first, second = question.needs
        assert first in question.question
        assert second not in question.question
        assert second in texts[first]
        assert question.answer in texts[second]
        assert question.answer not in texts[first]


def test_two_searches_answer_each_question_of_the_almanac():
    index = Index.in_memory(almanac.articles())

    for question in almanac.questions():
        hops = [[article.text for article in index.search(words, results=3)] for words in question.needs]
        assert question.needs[1] in " ".join(hops[0])
        assert question.answer in " ".join(hops[1])


@pytest.mark.parametrize("words", ['"', "NEAR(", "title: *", "a OR", "'; DROP TABLE articles", "ß \x00 ﷽", "", "-", "x" * 5000])
def test_no_query_breaks_the_index(words):
    index = Index.in_memory(almanac.articles())
    index.search(words, results=3)

    assert index.search("river", results=1)


def corpus(*lines: str) -> bytes:
    return "\n".join(lines).encode()


def upload(tmp_path, content: bytes) -> tuple[Searches, SearchSpec]:
    blobs = BlobStore(tmp_path / "blobs")
    searches = Searches(blob_path=blobs.path, folder=tmp_path / "search", endpoints={})
    return searches, SearchSpec(source=UploadedCorpus(type="corpus", blob=blobs.put(content)), results=1)


async def test_an_uploaded_corpus_is_searched_and_indexed_once(tmp_path):
    lines = [json.dumps({"title": "Moss", "text": "grows on stones"}), json.dumps({"item": {"title": "Fern", "text": "unrolls"}})]
    searches, spec = upload(tmp_path, corpus(*lines))

    assert [await (await searches.tool(spec))(words) for words in ("stone", "ferns")] == ["Moss: grows on stones", "Fern: unrolls"]
    (index,) = (tmp_path / "search").iterdir()
    again = Searches(blob_path=BlobStore(tmp_path / "blobs").path, folder=tmp_path / "search", endpoints={})
    made = index.stat().st_mtime_ns
    assert await (await again.tool(spec))("stone") == "Moss: grows on stones"
    assert index.stat().st_mtime_ns == made


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"title": "a", "text": "b"}\n{', "line 2 of the corpus is no JSON"),
        (b'{"title": "a"}', "line 1 of the corpus has no title and text"),
        (b"[1]", "line 1 of the corpus has no title and text"),
        (b"\xff", "no UTF-8"),
    ],
)
async def test_a_bad_corpus_is_the_users_fault_and_leaves_no_index_behind(tmp_path, content, message):
    searches, spec = upload(tmp_path, content)

    with pytest.raises(PortError, match=message) as failed:
        await searches.tool(spec)

    assert failed.value.attribution == "user"
    assert list((tmp_path / "search").iterdir()) == []


async def test_nothing_found_is_said():
    assert await (await Searches.bundled().tool(SearchSpec()))("zzz") == "nothing found"


HITS = {
    "query": {"search": [{"title": "Moss", "snippet": 'grows on <span class="searchmatch">stones</span> &amp; walls'}, {"title": "Fern"}]}
}


class Stub:
    """A MediaWiki endpoint that gives one answer after the other: a status, a body, an exception, or an event to wait for."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer) if isinstance(answer, int) else httpx.Response(200, content=answer)


async def search(stub: Stub, words: str = "moss") -> str:
    async def no_pause(seconds: float) -> None:
        pass

    wiki = Wiki("http://wiki.example/w/api.php", transport=httpx.MockTransport(stub), sleep=no_pause)
    searches = Searches(blob_path=lambda ref: None, folder=None, endpoints={"wiki": wiki})
    return await (await searches.tool(SearchSpec(source=SearchEndpoint(type="endpoint", name="wiki"), results=2)))(words)


async def test_an_endpoint_is_asked_as_mediawiki_wants_and_its_marks_are_removed():
    stub = Stub(json.dumps(HITS))

    assert await search(stub, "moss & stone") == "Moss: grows on stones & walls\nFern: "
    asked = dict(stub.asked[0].url.params)
    assert asked == {"action": "query", "list": "search", "srsearch": "moss & stone", "srlimit": "2", "srprop": "snippet", "format": "json"}


@pytest.mark.parametrize("first", [500, 429, httpx.ConnectError("refused"), httpx.RemoteProtocolError("cut")])
async def test_a_failure_that_passes_is_tried_once_more(first):
    assert (await search(Stub(first, json.dumps(HITS)))).startswith("Moss")


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ((503, 503), UNAVAILABLE),
        ((httpx.ConnectError("refused"), 500), UNAVAILABLE),
        ((404,), UNAVAILABLE),
        ((302,), UNAVAILABLE),
        ((b"<html>",), BAD_ANSWER),
        ((b"[]",), BAD_ANSWER),
        ((b'{"query": {"search": [7]}}',), BAD_ANSWER),
        ((b"[" * 100_000,), BAD_ANSWER),
        ((b'{"pad": "' + b"x" * 2**20 + b'"}',), BAD_ANSWER),
        ((b'{"error": {"code": "maxlag", "info": "waiting"}}',), UNAVAILABLE),
    ],
)
async def test_a_failing_endpoint_is_a_failure_of_its_kind(answers, kind):
    stub = Stub(*answers)
    with pytest.raises(ToolFailed) as failed:
        await search(stub)

    assert failed.value.kind == kind
    assert len(stub.asked) == len(answers)


async def test_an_endpoint_that_the_operator_does_not_list_is_the_platforms_fault():
    with pytest.raises(PortError, match="lists no search endpoint wiki") as failed:
        await Searches.bundled().tool(SearchSpec(source=SearchEndpoint(type="endpoint", name="wiki")))

    assert failed.value.attribution == "platform"
