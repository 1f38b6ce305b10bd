"""Clients that people use ask for a decision and report what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.servers import Server, config

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.2, 0.1, 0.0, 0.3, 0.1]]
QUESTION = json.dumps({"arms": ARMS})
REPORT = '[{"id": "%s", "rewards": {"clicks": 1, "minutes": 3.5}}]'

JAVA = """
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpResponse.BodyHandlers;

public class Shop {
    static final HttpClient CLIENT = HttpClient.newHttpClient();  // tries to upgrade to HTTP/2

    static String post(String url, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
            .header("content-type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> answer = CLIENT.send(request, BodyHandlers.ofString());
        if (answer.statusCode() != 200) throw new RuntimeException(answer.body());
        return answer.body();
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < 5; i++) {
            String decision = post(args[0] + "/decide", args[1]);
            String id = decision.replaceAll(".*\\"id\\":\\"([^\\"]+)\\".*", "$1");
            System.out.println(post(args[0] + "/feedback", String.format(args[2], id)));
        }
    }
}
"""

NODE = """
const [url, question, report] = process.argv.slice(2);
const post = async (path, body) => {
  const headers = {"content-type": "application/json"};
  const answer = await fetch(url + path, {method: "POST", headers, body});
  if (answer.status !== 200) throw new Error(await answer.text());
  return answer.json();
};
for (let i = 0; i < 5; i++) {
  const {id} = await post("/decide", question);
  console.log(JSON.stringify(await post("/feedback", report.replace("%s", id))));
}
"""

GO = """
package main

import ("encoding/json"; "fmt"; "io"; "net/http"; "os"; "strings")

func post(path string, body string) []byte {
	answer, err := http.Post(os.Args[1]+path, "application/json", strings.NewReader(body))
	if err != nil || answer.StatusCode != 200 { panic(fmt.Sprint(answer, err)) }
	defer answer.Body.Close()
	data, _ := io.ReadAll(answer.Body)
	return data
}

func main() {
	for i := 0; i < 5; i++ {
		var decision struct{ Id string }
		json.Unmarshal(post("/decide", os.Args[2]), &decision)
		fmt.Println(string(post("/feedback", strings.Replace(os.Args[3], "%s", decision.Id, 1))))
	}
}
"""

PYTHON = """
import sys
url, question, report = sys.argv[1:]
headers = {"content-type": "application/json"}
for _ in range(5):
    decision = client.post(url + "/decide", %s=question, headers=headers)
    assert decision.status_code == 200, decision.text
    answer = client.post(url + "/feedback", %s=report %% decision.json()["id"], headers=headers)
    print(answer.text)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Server(tmp_path_factory.mktemp("clients"), config("60 s", both=False)) as server:
        yield f"{server.url}/v1/models/router"


def ran(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_java(folder: Path, url: str) -> str:
    (folder / "Shop.java").write_text(JAVA)
    return ran("java", str(folder / "Shop.java"), url, QUESTION, REPORT)


def of_node(folder: Path, url: str) -> str:
    (folder / "shop.mjs").write_text(NODE)
    return ran("node", str(folder / "shop.mjs"), url, QUESTION, REPORT)


def of_go(folder: Path, url: str) -> str:
    (folder / "shop.go").write_text(GO)
    return ran("go", "run", str(folder / "shop.go"), url, QUESTION, REPORT)


def of_requests(folder: Path, url: str) -> str:
    text = "import requests\nclient = requests.Session()\n" + PYTHON % ("data", "data")
    return ran(sys.executable, "-c", text, url, QUESTION, REPORT)


def of_httpx(folder: Path, url: str) -> str:
    text = "import httpx\nclient = httpx.Client()\n" + PYTHON % ("content", "content")
    return ran(sys.executable, "-c", text, url, QUESTION, REPORT)


def of_curl(*options: str) -> Callable[[Path, str], str]:
    def told(folder: Path, url: str) -> str:
        def post(path: str, body: str) -> str:
            how = ("--silent", "--show-error", "--fail-with-body", "--max-time", "20", *options)
            head = ("--header", "content-type: application/json")
            return ran("curl", *how, *head, "--data", body, url + path)

        answers = []
        for _ in range(5):
            decision = json.loads(post("/decide", QUESTION))
            answers.append(post("/feedback", REPORT % decision["id"]))
        return "\n".join(answers)

    return told


CLIENTS: dict[str, tuple[str, Callable[[Path, str], str]]] = {
    "Java's HttpClient": ("jdk", of_java),
    "Node's fetch": ("node", of_node),
    "Go's net/http": ("go", of_go),
    "requests": ("requests", of_requests),
    "httpx": ("httpx", of_httpx),
    "curl": ("curl", of_curl()),
    "curl --http2": ("curl", of_curl("--http2")),
    "curl in chunks": ("curl", of_curl("--header", "transfer-encoding: chunked")),
    "curl with Expect": ("curl", of_curl("--header", "expect: 100-continue")),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(CLIENTS[name][0])) for name in CLIENTS]
)
def test_a_client_decides_and_reports(name: str, url: str, tmp_path: Path) -> None:
    told = CLIENTS[name][1](tmp_path, url).splitlines()
    assert [json.loads(line)[0]["outcome"] for line in told] == ["joined"] * 5
