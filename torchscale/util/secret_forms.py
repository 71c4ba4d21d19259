"""Secrets of a text: what is one by its form, or by the name before it.

Forms are those of well-known tokens and of what programs print: settings, options, addresses,
headers, files of logins.
"""

from __future__ import annotations

from torchscale.util.secret_names import NAME, NAME_WORDS, cut

_VALUE = (
    r"(?P<quote>\\{0,7}[\"'])?(?P<value>(?(quote)(?:\\(?P=quote)|(?!(?P=quote))[^\n]){3,}(?=(?P=quote))"
    r"|(?P<bare>)(?!<)[^\s,;&\"'<>(){}\[\]]{3,2048}(?<!:)))"
)
"""A value in quotes, or without; the colon behind one is of the sentence around it."""
_PLAIN = r"\s{0,3}:\s{0,3}[A-Za-z]+(?![^\s,;&\"'<>(){}\[\]])"
"""A word behind a name, as in messages about files (``/run/token: missing``) and tokens."""
_QUOTE = r"\\{0,7}[\"']?"
_END = rf"{_QUOTE}\s{{0,3}}"
"""What is between a name and the sign behind it."""
_RARE = (
    # On a command line, in files of logins, and in what programs say of a login that was refused.
    (
        ("sshpass", "mysql", "mariadb", "mongo", "login"),
        r"\b(?:sshpass|mysql\w*|mariadb|mongo\w*|(?:docker|podman|helm|az|oc)\b[^\n|;&]{0,80}?\slogin)\b"
        r"[^\n|;&]{0,400}?\s-p ?(?P<value>(?![-<])[^\s\"'<>]+)",
    ),
    (
        ("login",),
        r"(?:\bmachine\s+\S{1,200}\s+login\s+\S{1,200}\s+password\s+|\blogin\s+\S{1,200}\s+password\s+(?=\S*\d))"
        r"(?P<value>(?!<)\S+)",
    ),
    (
        ("username",),
        rf"\busername{_END}:\s{{0,3}}{_QUOTE}[^\s\"',\\]{{1,200}}{_QUOTE}[,\s]{{1,40}}{_QUOTE}key{_END}:\s{{0,3}}{_QUOTE}(?P<value>\w{{20,}})",
    ),
    (
        ("api key", "api_key", "api-key", "token", "password", "secret", "credential"),
        r"\b(?:api[ _-]key|(?:invalid|incorrect|wrong|bad|expired|refused)\s(?:token|password|secret|credentials?))"
        r"(?:\s(?:provided|given))?[\s:]{1,3}[\"'`]?(?P<value>(?=\S*\d)(?=\S*[a-z])[\w+/=~-]{8,})",
    ),
    (("secretstr", "secretbytes"), r"\bSecret(?:Str|Bytes)\(b?[\"'](?P<value>[^\"'\n*]{3,})"),
    # A variable in a manifest, a block of YAML, and a password with commas and brackets in it.
    (
        ("value",),
        rf"\bname{_END}:\s{{0,3}}{_QUOTE}{NAME}{_QUOTE}[,\s]{{1,40}}{_QUOTE}value{_END}:\s{{0,3}}(?={_VALUE})",
    ),
    (
        (": |", ": >"),
        rf"(?m:^)[ -]{{0,60}}{NAME}[\"']?: [|>][+-]?\n(?P<indent> +)(?=(?P<value>\S[^\n]*(?:\n(?P=indent)[^\n]*)*))",
    ),
    (
        ("passw", "secret"),
        rf"(?<![\w.])(?=[\w.-]{{0,100}}?(?:passw|secret)){NAME}=(?=(?P<value>(?![\"'<\\])[^\s\"<>]{{3,2048}}?)"
        rf"(?:[,;&]\s?[\w.-]{{1,100}}[=:]|[,;:)\]}}']*(?:[\s\"]|$)))",
    ),
)  # fmt: skip
"""Parts of texts, of which a text has at least one where the pattern behind them fits."""
_PATTERNS = (
    # Each part that can begin at many places of a line is bounded, or a line of a megabyte takes hours.
    # The longest passwords are signed tokens of a kilobyte.
    r"(?<=://)(?P<value>(?:[^/\s'\"<>]|<redacted>){1,2048}|[^/\s:@'\"<>]{0,2048}:(?!\d{1,5}/)[^\s@'\"<>]{1,2048})(?=@)",
    # Addresses that are secrets as a whole.
    r"(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/|"
    r"outlook\.office\.com/webhook/|api\.telegram\.org/bot)(?P<value>[^\s'\"<>]+)",
    r"(?:authorization|cookie|x-api-key|x-auth-token)(?:[\"']?\s*[:=]\s*|[\"'],\s{0,3}b?[\"'](?=[^\"']*[\s\d]))"
    r"(?P<value>(?![\s<])[^\r\n\"'<>]+)",
    r"\bBearer\s+(?P<value>[\w.~+/=-]{8,})",
    r"(?P<value>-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z))",
    r"\bcurl\b[^\n]{0,400}?\s(?:-u|--user)[ =]{0,3}[\"']?[^\s:\"']{1,100}:(?P<value>(?!<)[^\s\"']+)",
    r"\bwandb\s+login\s+(?:--\S+\s+){0,5}(?P<value>(?![-<])\S{16,})",
    # Tokens of services.
    r"\b(?P<value>(?-i:(?:gh[pousr]_|github_pat_|glpat-|sk-|[sr]k_(?:live|test)_|ya29\.|pypi-|nvapi-|dop_v1_|wandb_v1_|"
    r"dckr_[op]at_|tgp_v1_|ATATT3)[\w=-]{16,}|hf_[A-Za-z0-9]{16,}|xox[abeoprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|"
    r"AIza[\w-]{30,}|npm_\w{30,}|hv[sb]\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|gsk_\w{20,}|r8_\w{24,}|"
    r"dapi[0-9a-f]{32}(?:-\d)?|AGE-SECRET-KEY-1\w{20,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?))",
    # Settings: of an address, as an assignment, as JSON, also within JSON, and as an option, also in a list.
    r"[?&;#](?:[\w.-]*(?:token|secret|passw|credential|signature|key|auth|session)[\w.-]*|sig|pass|pwd|code|sas)="
    r"(?P<value>(?!<)[^\s&;#'\"<>]+)",
    rf"(?<![\w.])(?:(?<!/)(?<!-file[ =])(?<!-path[ =])(?<!-dir[ =])|(?![\w.-]+{_PLAIN}))(?![\w.-]*tokens{_PLAIN})"
    r"(?!(?:key|session|pass|pwd|sig|sas|pat|cookie|private)\\{0,7}[\"']?\s{0,3}:)"
    rf"{NAME}\\{{0,7}}[\"']?\s{{0,3}}[=:]\s{{0,3}}(?={_VALUE})",
    rf"(?<![\w-])--?{NAME}(?:\s+|\\{{0,7}}[\"'],\s{{0,20}})(?=\\{{0,7}}[\"'](?!-))(?={_VALUE})",
    rf"(?<![\w-])--?{NAME}\s+(?=(?P<value>(?![-<])[^\s\"'<>]{{3,2048}}(?<!:)))",
)  # fmt: skip
_HINTS = (
    f"{NAME_WORDS}|://|curl|wandb|login|mysql|mariadb|mongo|telegram|ghp_|gho_|ghu_|ghs_|ghr_|glpat|hf_|sk-|k_live|k_test|xox|"
    "akia|asia|aiza|ya29|npm_|pypi-|nvapi|hvs.|hvb.|dop_v1|sg.|dckr_|gsk_|tgp_|r8_|dapi|atatt|eyj|code="
).split("|")
"""Parts of texts that may be secrets: a text without any of these fits none of the patterns."""


def cut_forms(text: str) -> str:
    """``text`` without what its form or the name before it says to be a secret."""
    lowered = text.lower()
    if any(hint in lowered for hint in _HINTS):
        rare = [one for parts, one in _RARE if any(part in lowered for part in parts)]
        for pattern in (*rare, *_PATTERNS):
            text = cut(pattern, text)
    return text
