"""How many credentials do reports show? Plants drawn ones into logs in many ways, analyses them, reads every format.

usage: leaks.py [--every N] [--seed N] [--seams] [--list]

Each kind is planted in each way into a log whose finding quotes it: in the texts around the place where two prompts
diverge, in the path of a model, in an error. Shown is a credential of which eight drawn characters in a row (all of a
shorter part) are in the output, also after what the planting did to them is undone. Kinds are written from the
formats that services document, not from the table that hides them; {A20} are 20 characters drawn from an alphabet.
Without ``redact`` at most 2 % may be shown in any format and none of the large services, with ``redact`` none. Exits 1
when more are.
"""

from __future__ import annotations

import argparse
import html
import io
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote, unquote

import leaks_seams

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.event_stream import EventStream
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.report.base import FORMATS, Appearance, write

MOST = 0.02
RUN = 8
"""Drawn characters in a row that are a leak."""
SHORTEST = 6
"""Drawn parts that are shorter are not secret."""
_LOWER, _UPPER, _DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
ALPHABETS = {
    "A": _LOWER + _UPPER + _DIGITS,
    "W": _LOWER + _UPPER + _DIGITS + "-_",
    "B": _LOWER + _UPPER + _DIGITS + "+/",
    "H": _DIGITS + "abcdef",
    "X": _DIGITS + "ABCDEF",
    "L": _LOWER + _DIGITS,
    "U": _UPPER + _DIGITS,
    "T": _UPPER + "234567",
    "t": _LOWER + "234567",
    "Z": _LOWER + _UPPER,
    "p": _LOWER,
    "D": _DIGITS,
    "K": "qpzry9x8gf2tvdw0s3jn54khce6mua7l".upper(),
}
_WORDS = [
    "absorb", "cactus", "dolphin", "elegant", "fabric", "galaxy", "harvest", "island", "jacket", "kitten", "lumber",
    "magnet", "noodle", "olive",
]  # fmt: skip

_LARGE = """
OpenAI project                  sk-proj-{W74}T3BlbkFJ{W74}
OpenAI user, old                sk-{A20}T3BlbkFJ{A20}
OpenAI service account          sk-svcacct-{W58}T3BlbkFJ{W58}
OpenAI admin                    sk-admin-{W58}T3BlbkFJ{W58}
Anthropic                       sk-ant-api03-{W93}AA
Anthropic admin                 sk-ant-admin01-{W93}AA
Anthropic OAuth                 sk-ant-oat01-{W93}AA
Hugging Face                    hf_{Z34}
Hugging Face organization       api_org_{Z34}
AWS key id                      AKIA{T16}
AWS temporary key id            ASIA{T16}
AWS secret                      aws_secret_access_key = {B40}
AWS secret in the environment   AWS_SECRET_ACCESS_KEY={B40}
AWS session token               aws_session_token={B120}
AWS Bedrock                     ABSK{B120}
Google API                      AIza{W35}
Google OAuth client secret      GOCSPX-{W28}
Google access token             ya29.{W68}
Google refresh token            1//0{W60}
Firebase messaging              AAAA{A7}:APA91b{W134}
Google service account          "private_key_id": "{H40}"
GitHub classic                  ghp_{A36}
GitHub OAuth                    gho_{A36}
GitHub user to server           ghu_{A36}
GitHub server                   ghs_{A36}
GitHub refresh                  ghr_{A36}
GitHub fine-grained             github_pat_{A22}_{A59}
GitLab personal                 glpat-{W20}
GitLab routable                 glpat-{A27}.{L2}.{L9}
GitLab runner                   glrt-{W20}
GitLab deploy                   gldt-{W20}
GitLab pipeline                 glcbt-{A2}_{W20}
GitLab trigger                  glptt-{H40}
GitLab feed                     glft-{W20}
GitLab SCIM                     glsoat-{W20}
GitLab feature flag             glffct-{W20}
GitLab mail                     glimt-{L25}
GitLab agent                    glagent-{W50}
GitLab OAuth                    gloas-{H64}
GitLab registration             GR1348941{W20}
Slack bot                       xoxb-{D12}-{D13}-{A24}
Slack user                      xoxp-{D12}-{D12}-{D13}-{H32}
Slack app                       xapp-1-{U11}-{D13}-{H64}
Slack config                    xoxe.xoxp-1-{U163}
Slack refresh                   xoxe-1-{U146}
Slack hook                      https://hooks.slack.com/services/T{U10}/B{U10}/{A24}
Stripe secret                   sk_live_{A24}
Stripe test                     sk_test_{A99}
Stripe restricted               rk_live_{A99}
Stripe webhook                  whsec_{A32}
Azure AD                        {A3}8Q~{A34}
Azure storage                   AccountKey={B86}==
Azure bus                       SharedAccessKey={B43}=
Azure SAS                       sv=2024-08-04&se=2026-01-01&sig={A43}%3D
Azure OpenAI, old               api-key: {H32}
Azure of 84 characters          {A52}JQQJ99{A10}AAAB{A12}
Azure DevOps                    {t52}
Azure functions                 https://f.azurewebsites.net/api/x?code={W54}==
"""
_OTHERS = """
OpenRouter                      sk-or-v1-{H64}
DeepSeek                        sk-{H32}
Groq                            gsk_{A52}
xAI                             xai-{A80}
Perplexity                      pplx-{A48}
Replicate                       r8_{A37}
NVIDIA                          nvapi-{W64}
Cerebras                        csk-{L48}
Together                        TOGETHER_API_KEY={H64}
Together, new                   tgp_v1_{W43}
Fireworks                       fw_{A24}
Mistral                         MISTRAL_API_KEY={A32}
Mistral, bare                   {A32}
Cohere                          CO_API_KEY={A40}
Cohere, bare                    {A40}
ElevenLabs                      sk_{H48}
ElevenLabs header               xi-api-key: {H32}
Pinecone                        pcsk_{A5}_{A63}
Voyage                          pa-{W43}
Jina                            jina_{A32}{W28}
Tavily                          tvly-dev-{A32}
Firecrawl                       fc-{H32}
LangSmith                       lsv2_pt_{H32}_{H10}
Langfuse                        sk-lf-{H8}-{H4}-{H4}-{H4}-{H12}
Weights & Biases                WANDB_API_KEY={H40}
Weights & Biases, bare          {H40}
Deepgram                        Authorization: Token {H40}
AssemblyAI                      {H32}
Zhipu                           {H32}.{A16}
Baidu                           bce-v3/ALTAK-{A21}/{H40}
Alibaba                         LTAI{A20}
Alibaba secret                  ALIBABA_CLOUD_ACCESS_KEY_SECRET={A30}
Tencent                         AKID{A32}
Tencent secret                  SecretKey: {A32}
Volcengine                      AKLT{A43}
IBM                             ApiKey-{H8}-{H4}-{H4}-{H4}-{H12}
IBM Cloud                       IBMCLOUD_API_KEY={W44}
Yandex                          AQVN{W35}
DigitalOcean                    dop_v1_{H64}
DigitalOcean OAuth              doo_v1_{H64}
Scaleway                        SCW{U17}
Fly                             fm2_{B150}
Heroku                          HRKU-AA{W58}
Heroku, old                     HEROKU_API_KEY={H8}-{H4}-{H4}-{H4}-{H12}
Cloudflare                      CLOUDFLARE_API_TOKEN={W40}
Cloudflare origin CA            v1.0-{H24}-{H146}
Vercel                          VERCEL_TOKEN={A24}
Netlify                         nfp_{A36}
Render                          rnd_{A28}
Neon                            napi_{L64}
Tailscale                       tskey-auth-{A17}-{A32}
OpenShift                       sha256~{W43}
Supabase                        sbp_{H40}
Supabase secret                 sb_secret_{W31}
PlanetScale                     pscale_tkn_{W43}
Databricks                      dapi{H32}-2
Prefect                         pnu_{A36}
Aiven                           AVNS_{W19}
MongoDB                         mongodb+srv://app:{A20}@cluster0.abcde.mongodb.net/db
PostgreSQL                      postgresql://app:{A18}@db.internal:5432/app
Redis                           redis://:{A24}@cache.internal:6379/0
npm                             npm_{A36}
PyPI                            pypi-AgEIcHlwaS5vcmc{W120}
RubyGems                        rubygems_{H48}
NuGet                           oy2{L43}
crates.io                       cio{A32}
Clojars                         CLOJARS_{L60}
Docker                          dckr_pat_{W27}
Docker login                    docker login -u me -p {A20}
JFrog                           AKCp{A69}
JFrog reference                 cmVmd{A59}
SonarQube                       squ_{H40}
Sourcegraph                     sgp_{H16}_{H40}
Postman                         PMAK-{H24}-{H34}
ReadMe                          rdme_{L70}
Octopus                         API-{U26}
Bitbucket                       ATBB{A32}
Bitbucket repository            ATCTT3xFfG{A171}={X8}
Atlassian                       ATATT3xFfGF0{W174}={X8}
CircleCI                        CCIPAT_{A22}_{H40}
Harness                         pat.{W22}.{A24}.{A20}
Pulumi                          pul-{H40}
Terraform Cloud                 {A14}.atlasv1.{W67}
Doppler                         dp.pt.{A43}
Vault                           hvs.{W95}
Vault batch                     hvb.{W150}
Vault, old                      s.{A24}
1Password                       ops_eyJ{B250}
1Password key                   A3-{U6}-{U11}-{U5}-{U5}-{U5}
age                             AGE-SECRET-KEY-1{K58}
Sentry                          sntryu_{H64}
Grafana                         glsa_{A32}_{H8}
Grafana Cloud                   glc_{B80}
New Relic                       NRAK-{U27}
New Relic ingest                NRII-{W32}
Dynatrace                       dt0c01.{U24}.{U64}
Datadog                         DD_API_KEY={H32}
Datadog application             DD_APP_KEY: {H40}
Honeycomb                       hcaik_{L58}
PostHog                         phx_{A43}
LaunchDarkly                    sdk-{H8}-{H4}-{H4}-{H4}-{H12}
PagerDuty                       PAGERDUTY_TOKEN={W20}
SendGrid                        SG.{W22}.{W43}
Mailgun                         key-{H32}
Mailgun signing                 {H32}-{H8}-{H8}
Mailchimp                       {H32}-us12
Brevo                           xkeysib-{H64}-{A16}
Resend                          re_{A8}_{A24}
Postmark                        X-Postmark-Server-Token: {H8}-{H4}-{H4}-{H4}-{H12}
Twilio                          SK{H32}
Twilio token                    TWILIO_AUTH_TOKEN={H32}
Discord                         M{A23}.{A6}.{W38}
Discord hook                    https://discord.com/api/webhooks/{D18}/{W68}
Telegram                        {D10}:AA{W33}
Teams hook                      https://acme.webhook.office.com/webhookb2/{H8}-{H4}-{H4}-{H4}-{H12}
Facebook                        EAAM{A120}
Twitter                         AAAAAAAAAAAAAAAAAAAAAA{A80}
LinkedIn                        LINKEDIN_CLIENT_SECRET={A16}
Shopify                         shpat_{H32}
Shopify secret                  shpss_{H32}
Square                          sq0atp-{W22}
Square token                    EAAA{W60}
Braintree                       access_token$production${L16}${H32}
Razorpay                        rzp_live_{A14}
Plaid                           access-production-{H8}-{H4}-{H4}-{H4}-{H12}
Adyen                           AQE{A60}-{B40}
Flutterwave                     FLWSECK_TEST-{H32}-X
EasyPost                        EZAK{A54}
Shippo                          shippo_live_{H40}
Lob                             live_{H35}
Duffel                          duffel_live_{W43}
Notion                          ntn_{D11}{A35}
Notion, old                     secret_{A43}
Airtable                        pat{A14}.{H64}
Figma                           figd_{W40}
Linear                          lin_api_{A40}
HubSpot                         pat-na1-{H8}-{H4}-{H4}-{H4}-{H12}
Typeform                        tfp_{A40}_{A18}
Contentful                      CFPAT-{W43}
Asana                           1/{D16}:{H32}
Dropbox                         sl.{W135}
Mapbox                          sk.eyJ1Ijoi{A60}.{W22}
MaxMind                         {A6}_{A29}_mmk
Okta                            Authorization: SSWS 00{W40}
JWT                             eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ{A30}.{W43}
Bearer                          Authorization: Bearer {A40}
Basic                           Authorization: Basic {B40}
Cookie                          Cookie: sessionid={L32}
Django                          SECRET_KEY = '{A50}'
PEM                             -----BEGIN RSA PRIVATE KEY-----{B120}-----END RSA PRIVATE KEY-----
OpenSSH                         -----BEGIN OPENSSH PRIVATE KEY-----{B120}-----END OPENSSH PRIVATE KEY-----
PGP                             -----BEGIN PGP PRIVATE KEY BLOCK-----{B120}-----END PGP PRIVATE KEY BLOCK-----
WireGuard                       PrivateKey = {B43}=
curl                            curl -u admin:{A16} https://internal.example/
MySQL                           mysql -h db -u root -p{A16} app
sshpass                         sshpass -p {A14} ssh root@host
netrc                           machine api.example.com login me password {A14}
Password is                     the password is {A12}
Passwort ist                    das Passwort ist {A12}
Password for                    password for staging: {A12}
Password in JSON                "password": "{A12}"
Password in YAML                db_password: {A12}
Password of PostgreSQL          PGPASSWORD={A14} psql
Key is                          my api key is {A24}
Mnemonic                        seed phrase: {words}
Extended key                    xprv9s21ZrQH143K{A95}
Tokens in an address            https://{A24}@git.example.com/x.git
Signature                       https://s3.example.com/x?X-Amz-Signature={H64}
"""


class Kind(NamedTuple):
    """One kind of credential."""

    name: str
    pattern: str
    is_large: bool

    def draw(self, source: random.Random) -> tuple[str, list[str]]:
        """Return a credential with what says what it is, and its drawn parts."""
        parts: list[str] = []

        def part(found: re.Match[str]) -> str:
            if found[0] == "{words}":
                parts.append(" ".join(source.choices(_WORDS, k=12)))
            else:
                parts.append("".join(source.choices(ALPHABETS[found[1]], k=int(found[2]))))
            return parts[-1]

        return re.sub(r"\{([A-Za-z])(\d+)\}|\{words\}", part, self.pattern), parts


def _kinds(text: str, is_large: bool) -> Iterator[Kind]:
    for line in text.strip().splitlines():
        yield Kind(line[:32].strip(), line[32:], is_large)


KINDS = [*_kinds(_LARGE, True), *_kinds(_OTHERS, False)]


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _in_the_middle(text: str, put: str) -> str:
    return text[: len(text) // 2] + put + text[len(text) // 2 :]


def _coded(text: str) -> str:
    return "".join(char if char.isalnum() else f"%{ord(char):02X}" for char in text)


WAYS: dict[str, Callable[[str], str]] = {
    "plain": lambda t: f"see {t} there",
    "at the end of a sentence": lambda t: f"It was {t}. Then",
    "behind an escaped newline": lambda t: rf"one\n{t}\ntwo",
    "behind an escaped tab": lambda t: rf"one\t{t}\ttwo",
    "behind a twice escaped newline": lambda t: rf"one\\n{t}\\ntwo",
    "percent-encoded": lambda t: f"next={quote(t, safe='')}",
    "percent-encoded, all but letters": lambda t: f"x%20{_coded(t)}%20y",
    "percent-encoded twice": lambda t: f"x%2520{quote(quote(t, safe=''), safe='')}%2520y",
    "glued to _": lambda t: f"my_{t}",
    "behind Chinese": lambda t: f"密钥是{t}",
    "between Japanese": lambda t: f"鍵は{t}です",
    "behind Cyrillic": lambda t: f"ключ{t}",
    "zero-width space inside": lambda t: _in_the_middle(t, "\u200b"),
    "zero-width joiner in front": lambda t: f"a\u200d{t}",
    "soft hyphen inside": lambda t: _in_the_middle(t, "\u00ad"),
    "in JSON": lambda t: f'{{"role": "user", "content": "{_json(t)}"}}',
    "in JSON in JSON": lambda t: _json(f'{{"content": "{_json(t)}"}}'),
    "in an array": lambda t: f"['a', '{t}', 'b']",
    "escaped dashes": lambda t: t.replace("-", r"\u002d").replace("_", r"\u005f"),
    "in markup": lambda t: f"<b>{html.escape(t)}</b>",
    "in an address": lambda t: f"https://api.example.com/v1/x?next={t}&b=1",
    "in a header": lambda t: f"X-Custom: {t}",
    "in an assignment": lambda t: f"export CONFIG={t}",
    "in quotes": lambda t: f'say "{t}" now',
    "in backticks": lambda t: f"`{t}`",
    "as an argument": lambda t: f"tool --api-key {t} --verbose",
    "as an argument with =": lambda t: f"tool --config={t} -v",
    "in brackets": lambda t: f"[key]({t})",
    "behind an emoji": lambda t: f"\U0001f511{t}",
    "across the bar": lambda t: _in_the_middle(t, " | "),
}
"""How a credential is written."""
CUTS: dict[str, Callable[[str], tuple[str, str]]] = {
    "the server cut its begin": lambda t: (f"{t[len(t) // 2 :]} is all of it. Then the", "text goes on"),
    "the server cut its end": lambda t: ("Then the text", f"goes on with what it is {t[: len(t) // 2 + 1]}"),
}
"""What comes before the bar, and what after it, where the server cut a text that it prints."""

_LOG = """\
0.00.000.272 I srv          init: initializing ...
0.00.006.179 I srv    load_model: loading model '/models/{model}'
0.00.045.884 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 16384, kv_unified = 'false'
0.00.052.415 I srv          init: listening on http://127.0.0.1:8080
{first}0.00.371.357 I slot get_availabl: id  0 | task -1 |  - checking sim = 0.030 (58/2035) > 0.100
{second}0.03.829.031 E srv    send_error: task id = 9, error: {path}
"""
_TURN = """\
0.00.153.756 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = {task}
0.00.153.904 I slot launch_slot_: id  0 | task {task} | processing task, is_child = 0
0.00.153.920 I slot   operator(): id  0 | task {task} | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {tokens}
{diff}0.00.153.932 I slot   operator(): id  0 | task {task} | cached n_tokens = 0, memory_seq_rm [0, end)
0.00.343.870 I slot print_timing: id  0 | task {task} | prompt eval time =     183.08 ms /  {tokens} tokens (    0.10 ms per token, 10356.35 tokens per second)
0.00.343.903 I slot print_timing: id  0 | task {task} |        eval time =       6.86 ms /     6 tokens (    1.37 ms per token,   728.97 tokens per second)
0.00.344.040 I slot      release: id  0 | task {task} | stop processing: n_tokens = {tokens}, truncated = 0
"""  # noqa: E501
_SIDE = "0.00.637.407 W slot   operator(): id  0 | task 9 | {side}: ... {text}\n"


def log_of(old: str, new: str, path: str) -> bytes:
    """A log whose finding quotes ``old`` and ``new``, of a model with this path."""
    diff = _SIDE.format(side="old", text=old) + _SIDE.format(side="new", text=new)
    first, second = _TURN.format(task=0, tokens=1900, diff=""), _TURN.format(task=9, tokens=2035, diff=diff)
    model = "x.gguf" if "/" in path or "\\" in path else path  # of a path only what follows the last one is quoted
    return _LOG.format(model=model, path=path, first=first, second=second).encode()


def logs(text: str) -> Iterator[tuple[str, bytes]]:
    """The logs with a credential, by the way in which it is written."""
    for way, write_it in WAYS.items():
        planted = write_it(text)
        if " | " in planted:  # the server prints one
            yield way, log_of(f"Now {planted} or", f"Now {planted} and on", text)
        else:
            yield way, log_of(f"Now {planted} | 59 UTC", f"Now | {planted} and on", planted)
    for way, cut in CUTS.items():
        before, after = cut(text)
        yield way, log_of(f"{before} | {after}", f"{before} | x{after[1:]}", "x.gguf")


def outputs(log: bytes) -> Iterator[tuple[str, str]]:
    """What each format says of a log, and the redacted log."""
    listener = EventStream()
    analyzer = Analyzer(listener=listener)
    analyzer.open("server.log")
    analyzer.feed(log)
    report = analyzer.finish()
    if not any(finding.evidence for finding in report.findings):
        raise SystemExit("leaks.py: no finding quotes the log: nothing would be measured")
    yield "jsonl", b"".join(listener.close(report)).decode()
    for name in FORMATS:
        if name != "jsonl":
            out = io.BytesIO()
            write(name, report, out, Appearance(width=200))
            yield name, out.getvalue().decode()
    redactor = Redactor()
    yield "redact", (redactor.feed(log) + redactor.finish()).decode()


_UNSEEN = dict.fromkeys(map(ord, "\u200b\u200d\u00ad"))


class Output:
    """What a format says of a log, as it is written, and without what the ways of writing do."""

    def __init__(self, text: str, always: set[str]) -> None:
        """``always``: lines that the format writes whatever is planted."""
        written = "\n".join(line for line in text.split("\n") if line not in always)
        plain = html.unescape(html.unescape(written)).replace("\\", "\0")
        plain = re.sub(r"\0+u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), plain).replace("\0", "")
        self._texts = written, unquote(unquote(unquote(plain))).translate(_UNSEEN).replace(" | ", "")

    def shows(self, part: str) -> bool:
        """Whether eight characters in a row of a drawn part are in it, or all of a shorter one."""
        run = min(RUN, len(part))
        for text in self._texts:
            hints = (at for at in range(0, len(part) - 4, 4) if part[at : at + 5] in text)  # eight in a row hold one
            if any(
                part[s : s + run] in text
                for at in hints
                for s in range(max(0, at - 3), min(at + 1, len(part) - run + 1))
            ):
                return True
        return False


class Leak(NamedTuple):
    """A credential that is shown."""

    kind: Kind
    way: str
    format: str


def leaks(kinds: list[Kind], seed: int) -> tuple[Counter[str], list[Leak]]:
    """How often each format was asked, and what it showed."""
    source = random.Random(seed)  # nothing here has to be kept secret
    asked: Counter[str] = Counter()
    found = []
    always = {name: set(output.split("\n")) for name, output in outputs(log_of("a | b", "a | c", "x"))}
    for kind in kinds:
        text, parts = kind.draw(source)
        for way, log in logs(text):
            for name, output in outputs(log):
                asked[name] += 1
                shown = Output(output, always[name])
                if any(shown.shows(part) for part in parts if len(part) >= SHORTEST):
                    found.append(Leak(kind, way, name))
    return asked, found


def seam_leaks(kinds: list[Kind], seed: int) -> tuple[Counter[str], list[Leak]]:
    """The same of what diff, lint and the proxy show of prompts and requests."""
    asked: Counter[str] = Counter()
    found = []
    for kind in kinds:
        source = random.Random(f"{kind.name} {seed}")
        (text, parts), (other, others) = kind.draw(source), kind.draw(source)
        for way, name, output in (*leaks_seams.diffs(text, other), *leaks_seams.passed(text, other)):
            asked[name] += 1
            shown = Output(output, set())
            if any(shown.shows(part) for part in (*parts, *others) if len(part) >= SHORTEST):
                found.append(Leak(kind, way, name))
    return asked, found


def main() -> int:
    """Count, and say what is shown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth kind")
    parser.add_argument("--seed", type=int, default=int(time.time()), metavar="N")
    parser.add_argument("--seams", action="store_true", help="diffs, lint and the proxy alone")
    parser.add_argument("--list", action="store_true", help="each kind and way that is shown")
    options = parser.parse_args()
    kinds = KINDS[:: options.every]
    asked, found = seam_leaks(kinds, options.seed)
    if not options.seams:
        more, others = leaks(kinds, options.seed)
        asked, found = asked + more, [*found, *others]
    shown = Counter(leak.format for leak in found)
    print(f"{len(kinds)} kinds, {len(WAYS) + len(CUTS)} ways, seed {options.seed}")
    for name, times in asked.items():
        print(f"{name:10} {shown[name]:6,} of {times:6,} shown  {shown[name] / times:7.2%}")
    large = sorted({(leak.kind.name, leak.way) for leak in found if leak.kind.is_large})
    pairs = Counter((leak.kind.name, leak.way) for leak in found)
    for name, way in sorted(pairs) if options.list else large:
        print(f"shown: {name}: {way} ({', '.join(x.format for x in found if (x.kind.name, x.way) == (name, way))})")
    bad = bool(large) or shown["redact"] > 0 or any(shown[name] > MOST * times for name, times in asked.items())
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
