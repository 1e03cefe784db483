"""Secrets that are known by what stands around them: a table, one row for each place.

Knows names of settings, headers, addresses, commands and paths. Every pattern takes linear time: what repeats is
bounded, or ends where it can not go on.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MustBe = Literal["any", "drawn", "no word", "unlike", "mnemonic"]


class Context(NamedTuple):
    """One place in which a secret stands."""

    name: str
    needs: tuple[str, ...]
    """Texts in small letters, one of which occurs wherever the pattern fits."""
    pattern: str
    """Its groups ``hide``, or ``user`` and ``hide``, are what is hidden."""
    instead: str
    ignore_case: bool = True
    must_be: MustBe = "any"
    """Which values are hidden: those that look drawn; those that are no word; all but words that say how something is
    (``password is required``); as many words as a wallet has."""
    yields: bool = False
    """Whether another row that fits there is right, and this one is not."""
    is_of_lines: bool = False
    """Whether it may go on in further lines."""
    is_late: bool = False
    """Whether the shape of a credential says better what it is."""


_L = r"(?<![A-Za-z0-9<])"
"""Behind no letter of a word, nor in what stands for something hidden."""
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
    """Give what a name is followed by where it is given a value: most lines of a server hold ``tokens``."""
    return tuple(name + end for name in names for end in "=: \"'`\\]")


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
    Context("named, with blanks", (*_KEYS, *_PASSES),
            r"(?:" + _PASS + r"|" + _STRONG + r"|" + _L + r"(?:token|pwd|authorization|set-cookie|cookie))"
            r"\\{0,3}[\"'`]?\s{0,3}[=:]\s{0,3}(?:\"(?P<user>[^\"\\\n<]{4,300})\"|'(?P<hide>[^'\\\n<]{4,300})')", "<secret>"),
    Context("setting", ("secret", "passw", "key", *_assigned("token", "_pass", "_pwd", "_auth", "_credential", "_credentials")),
            r"\b[A-Za-z]\w{0,40}(?:Secret|Password|Passwd|ApiKey|AccessKey|AccountKey|PrivateKey|[a-z]Token|PASSWORD|SECRET"
            r"|_TOKEN|_KEY|_key|_PASS|_PWD|_AUTH|_CREDENTIALS?)" + _IS + r"(?!\d{1,9}\b|<)" + _VALUE, "<secret>", False),
    Context("short setting", _assigned("key", "pwd", "pass", "passcode", "pat", "auth", "salt", "credential", "credentials", "license", "licence"),
            _L + r"(?:\w{0,40}[_-])?(?:key|pwd|pass|passcode|pat|auth|salt|credentials?|licen[sc]e)" + _IS + _NO
            + r"(?P<hide>[^\s\"',;<>\\&]{12,})", "<secret>", must_be="drawn"),
    Context("cookie of a session", ("session=", "id=", "token="),
            _L + r"(?:[a-z_]{0,20}(?:sess(?:ion)?(?:id|[_-]id|[_-]token)|sid|csrf[_-]?token|_session))=(?!<)"
            r"(?P<hide>[A-Za-z0-9%_.+/=-]{12,})", "<secret>", must_be="drawn"),
    Context("said", (*_PASSES, "pin "),
            r"(?:" + _PASS + r"|" + _L + r"(?:pin|pwd))(?: (?:for|of|to) [^\s:=]{1,40}| [^\s:=]{1,20}){0,2}?(?: (?:is|was|ist|lautet|est|es|будет)\b:?| ?[:=])"
            r" {1,2}[\"'`]?(?!<)(?P<hide>[^\s\"'`,;<>]{4,})", "<secret>", must_be="unlike"),
    Context("key said", _KEYS,
            r"(?:" + _STRONG + r"|" + _L + r"(?:token|key))(?: (?:for|of|to) \S{1,40}| \S{1,20}){0,2}? (?:is|was|ist|lautet|est|es)"
            r":? {0,2}[\"'`]?(?!<)(?P<hide>[^\s\"'`,;<>]{8,})", "<secret>", must_be="drawn"),
    Context("words of a wallet", ("mnemonic", "seed", "recovery"),
            r"(?:mnemonic|seed|recovery)(?:[ _-](?:phrase|words?|key))?[^\w<]{1,6}(?:is[^\w<]{1,3})?(?P<hide>(?:[a-z]{3,8}[ ,]{1,2}){9,23}[a-z]{3,8})",
            "<secret>", must_be="mnemonic"),
    Context("option", ("--",), r"(?:--(?:[a-z]+-){0,4}(?:token|password|passwd|passphrase|api-key|secret|key|pass|pwd)(?:\s{1,3}|=)[\"'`]?)"
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
    Context("address", ("://",), r"\b\w{1,20}://(?P<user>[^\s/@:]{0,200}):(?P<hide>[^\s\"'<>]{1,200}@)(?=[\w\[])", "<password>@"),
    Context("address with a key", ("://",), r"\b\w{1,20}://(?!<)(?P<hide>[^\s/@:\"'<>]{8,200})@(?=[\w\[])", "<user>"),
    Context("hook", ("hooks.", "webhook", "telegram"),
            r"\b(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/"
            r"|api\.telegram\.org/(?:file/)?bot|[\w.-]{1,80}\.office\.com/webhookb2/|hooks\.zapier\.com/hooks/catch/"
            r"|chat\.googleapis\.com/v1/spaces/|[\w.-]{1,80}\.logic\.azure\.com)(?!<)(?P<hide>[\w:/@?&=%.~-]{6,})", "<secret>"),
    Context("key beside", (*_KEYS, *_PASSES), r"(?:" + _PASS + r"|" + _STRONG + r"|" + _L + r"(?:token|keys?))[^\w<]{1,6}(?!<)"
            r"(?P<hide>[A-Za-z0-9_+/=.~!@#$%^&*-]{15,}[A-Za-z0-9=])", "<secret>", must_be="drawn", is_late=True),
    Context("mail", ("@",), r"(?<![\w.+-])(?P<hide>[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})\b", "<mail>", False, yields=True),
    Context("home", ("/home/", "/users/"), r"(?:/home/|/Users/)(?!<)(?P<hide>[^/\s'\"]+(?: [^/\s'\"]+(?=/))*)", "<user>", False),
    Context("encoded home", ("%2fhome%2f", "%2fusers%2f"), r"%2F(?:home|Users)%2F(?!<)(?P<hide>(?:(?!%2F)[^\s'\"]){1,200})", "<user>"),
    Context("Windows home", ("users", "documents and"),
            r"\b[a-z]:(?:\\{1,2}|/)(?:users|documents and settings)(?:\\{1,2}|/)(?!<)(?P<hide>[^\\/'\"]+)", "<user>"),
)  # fmt: skip
"""In the order in which they count where two hide the same."""
