"""Secrets known by their own shape or by what surrounds them: two tables, a row for each kind and place."""

from __future__ import annotations

from typing import Literal

import msgspec

MustBe = Literal["any", "drawn", "no word", "unlike", "mnemonic"]


class Context(msgspec.Struct, frozen=True):
    """One kind of place in which a secret occurs."""

    name: str
    needs: tuple[str, ...]
    """Texts in small letters, one of which occurs wherever the pattern fits."""
    pattern: str
    """Its groups ``hide``, or ``user`` and ``hide``, are what is hidden."""
    instead: str
    ignore_case: bool = True
    must_be: MustBe = "any"
    """Which values are hidden: those that look random; those that are not words; all except words that describe a state
    (``password is required``); as many words as a wallet has."""
    yields: bool = False
    """True if another row that matches the same text takes precedence."""
    is_of_lines: bool = False
    """Whether it may continue in further lines."""
    is_late: bool = False
    """True if a credential that is known by its own shape takes precedence."""
    also: tuple[str, ...] = ()
    """Texts, one of which must also occur; empty: no condition."""
    longest: int = 0
    """Minimum characters there without a space."""


_L = r"(?<![A-Za-z0-9<])"
"""Not after a letter of a word, nor inside a placeholder for redacted text."""
_QUOTE = r"[\"'`]"
_VALUE = r"(?P<hide>(?:[^\s\"',;\\]|\\(?![\"'])){4,})"
"""A value up to its end; in JSON that is quoted once more, the end is an escaped quote."""
_SCHEMES = r"bearer |basic |token |apikey |digest |negotiate "
_IS = r"\\{0,3}(?:[\"'`]\]?)?(?:\s{0,3}(?:=>|:=|[=:])\s{0,3})\\{0,3}[\"'`]?"
_NO = r"(?!<|" + _SCHEMES + r")"
_COUNT = r"(?!(?:\d{1,9}|true|false|null|none)\b)"
_PASS = r"(?<!<)(?:password|passwd|passphrase|passwort|kennwort|contrase[nñ]a|mot[ _]de[ _]passe|пароль|密码|密碼|パスワード|비밀번호)"
_STRONG = r"(?<!<)(?:api[-_ ]?key|access[-_ ]?key|account[-_ ]?key|private[-_ ]?key|signing[-_ ]?key|encryption[-_ ]?key" \
    r"|secret(?:[-_ ]?(?:access[-_ ]?)?key)?|auth[-_ ]?token|access[-_ ]?token|refresh[-_ ]?token|bot[-_ ]?token)"  # fmt: skip


def _assigned(*names: str) -> tuple[str, ...]:
    """Return the names with each text that begins an assignment, because most lines of a server contain ``tokens``
    alone."""
    return tuple(
        name + end for name in names for end in (*"=:\"'`\\]", " =", " :", *(" " + blank for blank in _BLANKS))
    )


_BLANKS = (
    " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028"
    "\u2029\u202f\u205f\u3000"
)


_KEYS = "key", *_assigned("token"), "secret", "authorization", "cookie", "pwd"
_PASSES = "pass", "wort", "contrase", "пароль", "密码", "密碼", "パスワード", "비밀번호", "pwd"
_AUTH = "bearer", "basic", "authorization"
_COMMAND = r"\b[^|;\n]{0,120}?\s"

CONTEXTS = (
    Context("private key", ("private key",),
            r"(?P<hide>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z))", "<key>", False,
            is_of_lines=True),
    Context("PuTTY key", ("private-lines",), r"Private-Lines: ?\d{1,4}(?P<hide>(?:\s[A-Za-z0-9+/=]{4,100}){1,60})", "<key>"),
    Context("scheme", ("authorization",), r"\bauthorization\b[^\w<]{1,4}(?:" + _SCHEMES + r")(?!<)(?P<hide>[^\s\"',;]{6,})", "<token>"),
    Context("bearer", ("bearer",), _L + r"bearer\s+(?!<)(?P<hide>[\w.~+/=-]{6,})", "<token>"),
    Context("basic", ("basic",), _L + r"basic\s+(?!<)(?P<hide>[A-Za-z0-9+/_-]{6,}={0,2})", "<token>", must_be="no word"),
    Context("password", _PASSES, _PASS + _IS + r"(?!<)" + _VALUE, "<secret>"),
    Context("named", _KEYS,
            r"(?:" + _STRONG + r"|(?:" + _L + r")(?:token|pwd|authorization|set-cookie|cookie)\b)" + _IS + _NO + _COUNT
            + _VALUE, "<secret>"),
    Context("named by words", ("key",), _L + r"(?:api[-_ ]?key|access[-_ ]?key|secret[-_ ]?key)\s" + _NO + _COUNT + _VALUE,
            "<secret>", must_be="unlike"),
    Context("named, with spaces", (*_KEYS, *_PASSES),
            r"(?:" + _PASS + r"|" + _STRONG + r"|" + _L + r"(?:token|pwd|authorization|set-cookie|cookie))"
            r"\\{0,3}[\"'`]?\s{0,3}[=:]\s{0,3}(?:\"(?P<user>[^\"\\\n<]{4,300})\"|'(?P<hide>[^'\\\n<]{4,300})')", "<secret>"),
    Context("setting", ("secret", "passw", "key", *_assigned("token", "_pass", "_pwd", "_auth", "_credential", "_credentials")),
            r"\b[A-Za-z]\w{0,40}(?:Secret|Password|Passwd|ApiKey|AccessKey|AccountKey|PrivateKey|[a-z]Token|PASSWORD|SECRET"
            r"|_TOKEN|_KEY|_key|_PASS|_PWD|_AUTH|_CREDENTIALS?)" + _IS + r"(?!\d{1,9}\b|<)" + _VALUE, "<secret>", False),
    Context("short setting", _assigned("key", "pwd", "pass", "passcode", "pat", "auth", "salt", "credential", "credentials", "license", "licence"),
            _L + r"(?:\w{0,40}[_-])?(?:key|pwd|pass|passcode|pat|auth|salt|credentials?|licen[sc]e)" + _IS + _NO
            + r"(?P<hide>[^\s\"',;<>\\&]{12,})", "<secret>", must_be="drawn"),
    Context("cookie of a session", ("_session=", "sid=", "sessionid=", "_id=", "-id=", "token="),
            _L + r"(?:[a-z_]{0,20}(?:sess(?:ion)?(?:id|[_-]id|[_-]token)|sid|csrf[_-]?token|_session))=(?!<)"
            r"(?P<hide>[A-Za-z0-9%_.+/=-]{12,})", "<secret>", must_be="drawn"),
    Context("said", (*_PASSES, "pin "),
            r"(?:" + _PASS + r"|" + _L + r"(?:pin|pwd))(?: (?:for|of|to) [^\s:=]{1,40}| [^\s:=]{1,20}){0,2}?(?: (?:is|was|ist|lautet|est|es|будет)\b:?| ?[:=])"
            r" {1,2}[\"'`]?(?!<)(?P<hide>[^\s\"'`,;<>]{4,})", "<secret>", must_be="unlike"),
    Context("key said", (*_KEYS, "token "),
            r"(?:" + _STRONG + r"|" + _L + r"(?:token|key))(?: (?:for|of|to) \S{1,40}| \S{1,20}){0,2}? (?:is|was|ist|lautet|est|es)"
            r":? {0,2}[\"'`]?(?!<)(?P<hide>[^\s\"'`,;<>]{8,})", "<secret>", must_be="drawn",
            also=(" is", " was", " lautet", " es")),
    Context("words of a wallet", ("mnemonic", "seed", "recovery"),
            r"(?:mnemonic|seed|recovery)(?:[ _-](?:phrase|words?|key))?[^\w<]{1,6}(?:is[^\w<]{1,3})?(?P<hide>(?:[a-z]{3,8}[ ,]{1,2}){9,23}[a-z]{3,8})",
            "<secret>", must_be="mnemonic"),
    Context("option", ("-token", "-pass", "-key", "-secret", "-pwd"), r"(?:--(?:[a-z]+-){0,4}(?:token|password|passwd|passphrase|api-key|secret|key|pass|pwd)(?:\s{1,3}|=)[\"'`]?)"
            r"(?![<-]|\d{1,9}\b)(?P<hide>[^\s\"'`,;]{4,})", "<secret>"),
    Context("short option", ("mysql", "mariadb", "sshpass", "redis-cli", "docker login", "mosquitto", "ldap"),
            _L + r"(?:mysql(?:dump|admin|sh)?|mariadb|sshpass|redis-cli|docker login|mosquitto_[ps]ub|ldap\w{3,8})"
            + _COMMAND + r"-(?:p|a|P|w)[ =]?[\"']?(?![<-])(?P<hide>[^\s\"'<-][^\s\"']{3,})", "<secret>", False),
    Context("user and password", ("-u", "--user"),
            r"\s(?:-u|-U|--user|--proxy-user)[ =]?[\"']?[^\s:\"'%]{1,64}[:%](?P<hide>[^\s\"'<]{3,})", "<secret>", False),
    Context("netrc", ("login",), r"\blogin\s+\S{1,64}\s+(?:password|passwd)\s+(?P<hide>[^\s<]{3,})", "<secret>"),
    Context("password beside", ("pass",), _PASS + r"\s{1,3}[\"'`]?(?P<hide>[^\s\"'`,;<>]{8,})", "<secret>", must_be="drawn"),
    Context("user in front", ("login", "user", "account"),
            r"\b(?:login|username|user|account)\b[^\w<]{1,4}[\w.@+-]{1,64}[^\w<]{1,4}(?:and |with |und )?(?:the )?(?:password|pass|pw)[^\w<]{1,4}(?P<hide>[^\s\"',;<>]{4,})",
            "<secret>", must_be="unlike"),
    Context("query", ("key=", "sig=", "signature=", "token=", "auth=", "code=", "secret="),
            r"[?&;](?:[a-z_-]{0,20}[_-])?(?:key|sig|signature|token|auth|code|secret|x-amz-signature)=(?!<)(?P<hide>[^\s&\"'<>]{4,})", "<secret>"),
    Context("address", ("@",), r"\b\w{1,20}://(?P<user>[^\s/@:]{0,200}):(?P<hide>[^\s\"'<>]{1,200}@)(?=[\w\[])", "<password>@"),
    Context("address with a key", ("@",), r"\b\w{1,20}://(?!<)(?P<hide>[^\s/@:\"'<>]{8,200})@(?=[\w\[])", "<user>"),
    Context("hook", ("hooks.", "webhook", "telegram"),
            r"\b(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/"
            r"|api\.telegram\.org/(?:file/)?bot|[\w.-]{1,80}\.office\.com/webhookb2/|hooks\.zapier\.com/hooks/catch/"
            r"|chat\.googleapis\.com/v1/spaces/|[\w.-]{1,80}\.logic\.azure\.com)(?!<)(?P<hide>[\w:/@?&=%.~-]{6,})", "<secret>"),
    Context("key beside", (*_KEYS, "token ", *_PASSES), r"(?:" + _PASS + r"|" + _STRONG + r"|" + _L + r"(?:token|keys?))[^\w<]{1,6}(?!<)"
            r"(?P<hide>[A-Za-z0-9_+/=.~!@#$%^&*-]{15,}[A-Za-z0-9=])", "<secret>", must_be="drawn", is_late=True, longest=16),
    Context("mail", ("@",), r"(?<![\w.+-])(?P<hide>[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})\b", "<mail>", False, yields=True),
    Context("home", ("/home/", "/users/"), r"(?:/home/|/Users/)(?!<)(?P<hide>[^/\s'\"]+(?: [^/\s'\"]+(?=/))*)", "<user>", False),
    Context("encoded home", ("%2fhome%2f", "%2fusers%2f"), r"%2F(?:home|Users)%2F(?!<)(?P<hide>(?:(?!%2F)[^\s'\"]){1,200})", "<user>"),
    Context("Windows home", ("users", "documents and"),
            r"\b[a-z]:(?:\\{1,2}|/)(?:users|documents and settings)(?:\\{1,2}|/)(?!<)(?P<hide>[^\\/'\"]+)", "<user>"),
)  # fmt: skip
"""In order of priority if two patterns hide the same text."""


class Credential(msgspec.Struct, frozen=True):
    """One kind of credential."""

    name: str
    begin: str
    """Pattern of the visible prefix: it shows which service the key is for."""
    rest: str
    """Pattern of the hidden part; only its minimum length and its alphabet are limited."""
    source: str
    must_be: Literal["any", "mixed", "drawn"] = "any"
    """Required form of ``rest`` if a program's word may begin like this key: not only lower-case letters, or random."""
    needs: tuple[str, ...] = ()
    """Texts, one of which occurs in every match, if ``begin`` does not start with a fixed text."""


_W, _A, _H, _B = "[A-Za-z0-9_-]", "[A-Za-z0-9]", "[0-9A-Fa-f]", "[A-Za-z0-9+/_=-]"
_ANY = _W + r"{6,}(?:\.[A-Za-z0-9_-]{1,200}){0,2}"
_UUID = _H + r"{8}-[0-9A-Fa-f-]{4,}"
_C = Credential

CREDENTIALS = (
    # ---- models and what is built with them
    _C("OpenAI, Anthropic, OpenRouter", r"sk-(?:ant|proj|or|svcacct|admin)-", _ANY, "gitleaks openai-api-key, anthropic-api-key"),
    _C("Langfuse", r"sk-lf-|pk-lf-", _H + r"{6,}[0-9a-f-]*", "langfuse.com/docs"),
    _C("OpenAI, DeepSeek, Moonshot, Stability", r"sk-", _ANY, "gitleaks openai-api-key", "mixed"),
    _C("Hugging Face", r"hf_", _ANY, "huggingface.co/docs/hub/security-tokens", "mixed"),
    _C("Hugging Face organization", r"api_org_", _A + r"{8,}", "gitleaks huggingface-organization-api-token", "drawn"),
    _C("Groq", r"gsk_", _ANY, "console.groq.com/docs", "mixed"),
    _C("Replicate", r"r8_", _ANY, "replicate.com/docs/topics/security/api-tokens", "mixed"),
    _C("NVIDIA", r"nvapi-", _ANY, "docs.api.nvidia.com", "mixed"),
    _C("xAI", r"xai-", _ANY, "docs.x.ai", "mixed"),
    _C("Perplexity", r"pplx-", _ANY, "gitleaks perplexity-api-key"),
    _C("Cerebras", r"csk-", _A + r"{8,}", "inference-docs.cerebras.ai"),
    _C("Fireworks", r"fw_", _A + r"{8,}", "docs.fireworks.ai", "drawn"),
    _C("Together", r"tgp_v1_", _W + r"{6,}", "docs.together.ai"),
    _C("ElevenLabs", r"sk_", _H + r"{12,}", "elevenlabs.io/docs"),
    _C("Pinecone", r"pcsk_", _W + r"{6,}", "docs.pinecone.io"),
    _C("Voyage", r"pa-|al-", _W + r"{16,}", "docs.voyageai.com", "drawn"),
    _C("Jina", r"jina_", _W + r"{8,}", "jina.ai", "drawn"),
    _C("Tavily", r"tvly-(?:dev-|prod-)?", _W + r"{6,}", "docs.tavily.com"),
    _C("Firecrawl", r"fc-", _H + r"{8,}", "docs.firecrawl.dev"),
    _C("LangSmith", r"lsv2_(?:pt|sk)_", _W + r"{6,}", "docs.langchain.com/langsmith"),
    _C("Weights & Biases", r"wandb_v\d_", _W + r"{8,}", "docs.wandb.ai", "drawn"),
    _C("Helicone", r"sk-helicone-|pk-helicone-", _W + r"{6,}", "docs.helicone.ai"),
    _C("Portkey, Composio, Anyscale, E2B, Modal, RunPod",
       r"pk-|ak_|esecret_|e2b_|ak-|as-|rpa_", _W + r"{16,}", "pages of each", "drawn"),
    _C("Bedrock", r"ABSK|bedrock-api-key-", r"[A-Za-z0-9+/]{8,}={0,2}", "gitleaks aws-amazon-bedrock-api-key-long-lived"),
    _C("Baidu", r"bce-v3/", r"[A-Z]{3,6}-[A-Za-z0-9/]{8,}", "cloud.baidu.com/doc"),
    _C("Zhipu", r"[0-9a-f]{4}(?=[0-9a-f]{28}\.[A-Za-z0-9])", r"[0-9a-f]{28}\.[A-Za-z0-9]{6,}", "open.bigmodel.cn"),
    # ---- clouds
    _C("AWS key id", r"AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9]", r"[0-9A-Z]{12,}", "gitleaks aws-access-token"),
    _C("Google API key", r"AIza", _W + r"{6,}", "gitleaks gcp-api-key"),
    _C("Google OAuth client", r"GOCSPX-", _W + r"{6,}", "developers.google.com/identity"),
    _C("Google OAuth", r"ya29\.", r"[A-Za-z0-9_.-]{6,}", "developers.google.com/identity"),
    _C("Google refresh token", r"1//0", _W + r"{20,}", "developers.google.com/identity", "drawn"),
    _C("Firebase messaging", r"AAAA(?=[A-Za-z0-9_-]{7}:APA91b)", r"[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{8,}", "firebase.google.com/docs"),
    _C("reCAPTCHA", r"6L[a-z]", _W + r"{30,}", "developers.google.com/recaptcha", "drawn"),
    _C("Azure AD", r"[A-Za-z0-9_~.]{3}\dQ~", r"[A-Za-z0-9_~.-]{8,}", "gitleaks azure-ad-client-secret", needs=("Q~",)),
    _C("Azure, of 84 characters", r"[A-Za-z0-9]{4}(?=[A-Za-z0-9]{44,56}(?:JQQJ99|AAAA|ACDB|AZDO))", _A + r"{40,}",
       "learn.microsoft.com/purview, Azure keys with a signature", needs=("JQQJ99", "AAAA", "ACDB", "AZDO")),
    _C("Azure DevOps", r"[a-z2-7]{4}(?=[a-z2-7]{48}(?![A-Za-z0-9]))", r"[a-z2-7]{48}", "learn.microsoft.com/purview", "drawn"),
    _C("Alibaba", r"LTAI", _A + r"{8,}", "gitleaks alibaba-access-key-id"),
    _C("Tencent", r"AKID", _A + r"{8,}", "cloud.tencent.com/document", "drawn"),
    _C("Volcengine", r"AKLT", _W + r"{12,}", "volcengine.com/docs"),
    _C("IBM", r"ApiKey-", _H + r"{8,}[0-9a-f-]*", "cloud.ibm.com/docs"),
    _C("Yandex", r"AQVN|YC(?=[AP])|t1\.(?=9eu)", r"[A-Za-z0-9_.=-]{12,}", "gitleaks yandex-api-key", "drawn"),
    _C("DigitalOcean", r"doo_v1_|dop_v1_|dor_v1_", _H + r"{6,}", "gitleaks digitalocean-pat"),
    _C("Scaleway", r"SCW", r"[A-Z0-9]{12,}", "scaleway.com/en/docs"),
    _C("Fly", r"fo1_|fm1[ar]_|fm2_|FlyV1 (?=fm)", _B + r"{8,}", "gitleaks flyio-access-token"),
    _C("Heroku", r"HRKU-", r"[A-Za-z0-9_-]{8,}", "gitleaks heroku-api-key-v2"),
    _C("Cloudflare origin CA", r"v1\.0-", _H + r"{10,}(?:-[0-9a-f]{1,200})?", "gitleaks cloudflare-origin-ca-key"),
    _C("Vercel", r"vc[pakir]_|vercel_blob_rw_", _W + r"{12,}", "vercel.com/docs", "drawn"),
    _C("Netlify", r"nf[pocu]_", _A + r"{8,}", "docs.netlify.com", "drawn"),
    _C("Render", r"rnd_", _A + r"{8,}", "render.com/docs", "drawn"),
    _C("Railway, Neon, Turso", r"napi_", _A + r"{8,}", "neon.tech/docs"),
    _C("Tailscale", r"tskey-(?:api|auth|client|scim|webhook)-", r"[A-Za-z0-9-]{6,}", "tailscale.com/kb"),
    _C("ngrok", r"ak_|cr_|2[A-Za-z0-9]{3}(?=[A-Za-z0-9]{20,32}_[0-9])", _A + r"{20,}(?:_[0-9A-Za-z]{6,})?", "ngrok.com/docs", "drawn",
       ("_",)),
    _C("OpenShift", r"sha256~", _W + r"{8,}", "gitleaks openshift-user-token"),
    _C("Supabase", r"sbp_(?:v\d_|oauth_)?|sb_(?:secret|publishable)_", _W + r"{6,}", "supabase.com/docs/guides/api/api-keys"),
    _C("PlanetScale", r"pscale_(?:tkn|oauth|pw)_", r"[A-Za-z0-9_=.-]{6,}", "gitleaks planetscale-api-token"),
    _C("Databricks", r"dapi|dkea|dose", r"[0-9a-f]{10,}(?:-\d)?", "gitleaks databricks-api-token"),
    _C("Prefect", r"pn[ub]_", _A + r"{8,}", "gitleaks prefect-api-token", "drawn"),
    _C("ClickHouse Cloud", r"4b1d", _A + r"{30,}", "gitleaks clickhouse-cloud-api-secret-key", "drawn"),
    _C("Algolia, Aiven, Upstash", r"AVNS_", _W + r"{8,}", "aiven.io/docs"),
    # ---- code, packages, builds
    _C("GitHub", r"ghp_|gho_|ghu_|ghs_|ghr_|github_pat_", _W + r"{6,}", "docs.github.com, about authentication"),
    _C("GitLab", r"gl(?:pat|rt|dt|cbt|ptt|ft|soat|ffct|imt|agent|oas|wt)-(?:t\d_)?", r"[A-Za-z0-9_.-]{6,}",
       "docs.gitlab.com/security/tokens"),
    _C("GitLab runner registration", r"GR1348941", _W + r"{6,}", "gitleaks gitlab-rrt"),
    _C("Bitbucket", r"ATBB|ATCTT3xFfG", r"[A-Za-z0-9_=-]{8,}", "support.atlassian.com/bitbucket-cloud"),
    _C("Atlassian", r"ATATT3xFfGF?0?|ATSTT|ATOAT", r"[A-Za-z0-9_=-]{8,}", "gitleaks atlassian-api-token"),
    _C("npm", r"npm_", _ANY, "docs.npmjs.com", "mixed"),
    _C("PyPI", r"pypi-", _ANY, "pypi.org/help", "mixed"),
    _C("RubyGems", r"rubygems_", _H + r"{6,}", "gitleaks rubygems-api-token"),
    _C("NuGet", r"oy2", r"[a-z0-9]{30,}", "learn.microsoft.com/purview", "drawn"),
    _C("crates.io", r"cio", _A + r"{20,}", "doc.rust-lang.org/cargo", "drawn"),
    _C("Clojars", r"CLOJARS_", _A + r"{8,}", "gitleaks clojars-api-token"),
    _C("Docker", r"dckr_(?:pat|oat)_", _W + r"{6,}", "docs.docker.com/security/access-tokens"),
    _C("JFrog", r"AKCp|cmVmd", _A + r"{16,}", "gitleaks artifactory-api-key"),
    _C("SonarQube", r"sq[aup]_", r"[0-9a-f]{8,}", "gitleaks sonar-api-token"),
    _C("Snyk", r"snyk_(?:uat|sat)\.", r"[A-Za-z0-9_.-]{6,}", "docs.snyk.io"),
    _C("Sourcegraph", r"sg[pdk]_(?:local_)?|sl[kc]_", r"[0-9A-Fa-f]{8,}(?:_[0-9A-Fa-f]{1,200})?", "gitleaks sourcegraph-access-token"),
    _C("Postman", r"PMAK-", r"[0-9a-f-]{8,}", "gitleaks postman-api-token"),
    _C("ReadMe", r"rdme_", r"[a-z0-9]{8,}", "gitleaks readme-api-token"),
    _C("Octopus", r"API-", r"[A-Z0-9]{20,}", "gitleaks octopus-deploy-api-key", "drawn"),
    _C("CircleCI", r"CCIP(?:AT|RJ)_", _W + r"{6,}", "circleci.com/docs"),
    _C("Buildkite", r"bk(?:ua|ct|at)_", _A + r"{8,}", "buildkite.com/docs"),
    _C("Harness", r"pat\.(?=[A-Za-z0-9_-]{22}\.)|sat\.(?=[A-Za-z0-9_-]{22}\.)", r"[A-Za-z0-9_.-]{22,}", "gitleaks harness-api-key"),
    _C("Pulumi", r"pul-", _H + r"{8,}", "gitleaks pulumi-api-token"),
    _C("Infracost", r"ico-", _A + r"{12,}", "gitleaks infracost-api-token", "drawn"),
    _C("Terraform Cloud", r"[A-Za-z0-9]{4}(?=[A-Za-z0-9]{10}\.atlasv1\.)", r"[A-Za-z0-9]{10}\.atlasv1\.[A-Za-z0-9_=-]{6,}", "gitleaks hashicorp-tf-api-token",
       needs=(".atlasv1.",)),
    _C("Doppler", r"dp\.(?:pt|st|ct|sa|scim|audit|said)\.(?:[a-z0-9_-]{2,35}\.)?", _A + r"{8,}", "gitleaks doppler-api-token"),
    _C("Vault", r"hv[sbr]\.", _W + r"{6,}", "gitleaks vault-service-token"),
    _C("Vault before 1.10", r"s\.", _A + r"{24}(?![A-Za-z0-9])", "gitleaks vault-service-token", "drawn"),
    _C("1Password", r"ops_eyJ|A3-(?=[A-Z0-9]{6}-)", r"[A-Za-z0-9+/=-]{12,}", "gitleaks 1password-secret-key"),
    _C("age", r"AGE-SECRET-KEY-(?:PQ-)?1", r"[0-9A-Z]{6,}", "gitleaks age-secret-key"),
    _C("Nostr, Stellar, extended private keys of wallets", r"nsec1|[xyz]prv(?=[A-Za-z0-9]{30})", _A + r"{20,}", "bips.dev/32", "drawn",
       ("nsec1", "prv")),
    _C("Sentry", r"sntry[su]_", r"[A-Za-z0-9+/_=]{6,}", "gitleaks sentry-org-token"),
    # ---- watching and mailing
    _C("Grafana", r"glsa_|glc_", r"[A-Za-z0-9+/_=]{6,}", "gitleaks grafana-service-account-token"),
    _C("New Relic", r"NR(?:AK|II|IQ|JS|RA|AA|BR)-", _W + r"{6,}", "gitleaks new-relic-user-api-key"),
    _C("New Relic licence", r"eu01xx|us01xx|[0-9a-f]{4}(?=[0-9a-f]{32}NRAL)", r"[0-9a-fA-F]{20,}(?:NRAL)?", "docs.newrelic.com",
       needs=("eu01xx", "us01xx", "NRAL")),
    _C("Dynatrace", r"dt0[cs]\d\d\.", r"[A-Z0-9a-z.]{8,}", "gitleaks dynatrace-api-token"),
    _C("Datadog", r"dd_|ddapikey_|ddappkey_|ddpub_", _A + r"{16,}", "docs.datadoghq.com", "drawn"),
    _C("Honeycomb", r"hc[abex][il][kc]_", _A + r"{8,}", "docs.honeycomb.io"),
    _C("PostHog", r"ph[cxsa]_", _A + r"{8,}", "posthog.com/docs/api", "drawn"),
    _C("LaunchDarkly", r"sdk-(?=[0-9a-f]{8}-)|api-(?=[0-9a-f]{8}-)|mob-(?=[0-9a-f]{8}-)", _UUID, "launchdarkly.com/docs"),
    _C("PagerDuty", r"pdus\+_", r"[A-Za-z0-9_+-]{6,}", "developer.pagerduty.com"),
    _C("SendGrid", r"SG\.", r"[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]{1,200})?", "gitleaks sendgrid-api-token"),
    _C("Mailgun", r"pubkey-|key-", _H + r"{12,}", "gitleaks mailgun-private-api-token"),
    _C("Mailgun signing key", r"[0-9a-f]{4}(?=[0-9a-f]{28}-[0-9a-f]{8}-[0-9a-f]{8}(?![0-9A-Za-z-]))", r"[0-9a-f-]{46}",
       "gitleaks mailgun-signing-key"),
    _C("Mailchimp", r"[0-9a-f]{4}(?=[0-9a-f]{28}-us\d)", r"[0-9a-f]{28}-us\d{1,2}", "gitleaks mailchimp-api-key", needs=("-us",)),
    _C("Brevo", r"xkeysib-|xsmtpsib-", r"[A-Za-z0-9-]{6,}", "gitleaks sendinblue-api-token"),
    _C("Resend", r"re_", r"[A-Za-z0-9]{6,}_[A-Za-z0-9]{8,}", "resend.com/docs", "drawn"),
    _C("Twilio", r"SK|AC", r"[0-9a-f]{16,}", "gitleaks twilio-api-key", "drawn"),
    # ---- people who talk
    _C("Slack", r"xox[a-z](?:\.xox[a-z])?-|xapp-|xwfp-", r"[A-Za-z0-9-]{6,}", "docs.slack.dev/authentication/tokens"),
    _C("Discord", r"[MNO][A-Za-z0-9_-]{5}(?=[A-Za-z0-9_-]{17,22}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{6})", r"[A-Za-z0-9_.-]{25,}",
       "discord.com/developers/docs/reference"),
    _C("Telegram", r"\d\d(?=\d{5,10}:A[A-Za-z0-9_-]{20})", r"\d{5,10}:A[A-Za-z0-9_-]{20,}", "core.telegram.org/bots/api", needs=(":A",)),
    _C("Facebook, Instagram", r"EAA[A-Za-z]|IG(?:QV|AA)", _A + r"{20,}", "gitleaks facebook-page-access-token", "drawn"),
    _C("Twitter", r"A{18,22}", r"[A-Za-z0-9%+=]{20,}", "gitleaks twitter-bearer-token", needs=("A" * 18,)),
    _C("LinkedIn", r"WPL_AP1\.|AQ[UVWX](?=[A-Za-z0-9_-]{60})", r"[A-Za-z0-9_.+/=-]{8,}", "learn.microsoft.com/linkedin", "drawn"),
    _C("Intercom", r"dG9r", r"[A-Za-z0-9+/=_-]{20,}", "developers.intercom.com", "drawn"),
    # ---- shops and money
    _C("Stripe, Clerk, Paystack", r"[srp]k_(?:live|test|prod)_", _W + r"{6,}", "docs.stripe.com/keys",
       needs=("k_live_", "k_test_", "k_prod_")),
    _C("Stripe webhook", r"whsec_", r"[A-Za-z0-9+/=_-]{6,}", "docs.stripe.com/webhooks"),
    _C("Shopify", r"shp(?:at|ca|pa|ss|tka|ua)_", _H + r"{6,}", "gitleaks shopify-access-token"),
    _C("Square", r"EAAA|sq0(?:atp|csp|idp)-", _W + r"{16,}", "gitleaks square-access-token", "drawn"),
    _C("PayPal, Braintree", r"access_token\$(?:production|sandbox)\$", r"[0-9a-z$]{8,}", "developer.paypal.com/braintree"),
    _C("Razorpay", r"rzp_(?:live|test)_", _A + r"{6,}", "razorpay.com/docs"),
    _C("Plaid", r"access-(?:sandbox|development|production)-|public-(?:sandbox|development|production)-", r"[0-9a-f-]{6,}", "gitleaks plaid-api-token"),
    _C("Adyen", r"AQE", r"[A-Za-z0-9+/=]{30,}(?:-[A-Za-z0-9+/=]{8,})?", "docs.adyen.com", "drawn"),
    _C("Flutterwave", r"FLW(?:SECK|PUBK)(?:_TEST)?-", r"[A-Za-z0-9-]{6,}", "gitleaks flutterwave-secret-key"),
    _C("EasyPost", r"EZ[AT]K", _A + r"{16,}", "gitleaks easypost-api-token"),
    _C("Shippo", r"shippo_(?:live|test)_", _H + r"{6,}", "gitleaks shippo-api-token"),
    _C("Lob", r"live_(?:pub_)?|test_(?:pub_)?", r"[0-9a-f]{16,}", "gitleaks lob-api-key"),
    _C("GoCardless", r"live_|sandbox_", _W + r"{30,}", "gitleaks gocardless-api-token", "drawn"),
    _C("Duffel", r"duffel_(?:test|live)_", _W + r"{6,}", "gitleaks duffel-api-token"),
    # ---- offices
    _C("Notion", r"ntn_|secret_", _A + r"{12,}", "gitleaks notion-api-token", "drawn"),
    _C("Airtable", r"pat(?=[A-Za-z0-9]{14}\.)|key(?=[A-Za-z0-9]{14}(?![A-Za-z0-9]))", r"[A-Za-z0-9]{14}(?:\.[0-9a-f]{6,})?",
       "gitleaks airtable-personnal-access-token", "drawn"),
    _C("Figma", r"fig[dopru]{1,2}_", _W + r"{8,}", "figma.com/developers/api", "drawn"),
    _C("Linear", r"lin_(?:api|oauth|wh)_", _A + r"{6,}", "gitleaks linear-api-key"),
    _C("HubSpot", r"pat-(?:na|eu|ap)\d-", r"[0-9a-f-]{6,}", "developers.hubspot.com"),
    _C("Typeform", r"tfp_", r"[A-Za-z0-9_.=-]{8,}", "gitleaks typeform-api-token", "drawn"),
    _C("Contentful", r"CFPAT-", _W + r"{6,}", "contentful.com/developers/docs"),
    _C("Asana", r"1/(?=\d{12})|2/(?=\d{12})", r"\d{12,20}[/:]?[0-9a-f/:]{0,64}", "developers.asana.com"),
    _C("Dropbox", r"sl\.(?:u\.)?", _W + r"{24,}", "gitleaks dropbox-short-lived-api-token", "drawn"),
    _C("Frame.io", r"fio-u-", r"[A-Za-z0-9_=-]{6,}", "gitleaks frameio-api-token"),
    _C("Mapbox", r"[pst]k\.(?=eyJ|[a-z0-9]{60})", r"[A-Za-z0-9_.-]{8,}", "gitleaks mapbox-api-token", needs=("k.",)),
    _C("MaxMind", r"[A-Za-z0-9]{2}(?=[A-Za-z0-9]{4}_[A-Za-z0-9]{29}_mmk)", r"[A-Za-z0-9]{4}_[A-Za-z0-9]{29}_mmk", "gitleaks maxmind-license-key",
       needs=("_mmk",)),
    _C("Okta", r"00", r"[A-Za-z0-9_-]{40}(?![A-Za-z0-9_-])", "gitleaks okta-access-token", "drawn"),
    _C("Authress", r"(?:sc|ext|scauth|authress)_(?=[a-z0-9]{5,30}\.)", r"[a-z0-9.]{5,40}acc[A-Za-z0-9+/_.=-]{10,}",
       "gitleaks authress-service-client-access-key", needs=("sc_", "ext_", "scauth_", "authress_")),
    _C("Adobe", r"p8e-", r"[a-z0-9]{8,}", "gitleaks adobe-client-secret"),
    _C("Defined Networking", r"dnkey-", r"[a-z0-9=_-]{6,}", "gitleaks defined-networking-api-token"),
    _C("SettleMint", r"sm_[aps]at_", _A + r"{6,}", "gitleaks settlemint-personal-access-token"),
    _C("Scalingo", r"tk-us-", _W + r"{6,}", "gitleaks scalingo-api-token"),
    _C("Intra 42", r"s-s4t2(?:ud|af)-", _H + r"{6,}", "gitleaks intra42-client-secret"),
    _C("Beamer", r"b_", r"[a-z0-9=_-]{40,}", "gitleaks beamer-api-token", "drawn"),
)  # fmt: skip
"""In the order in which they are tried; if two match, the first one applies."""
