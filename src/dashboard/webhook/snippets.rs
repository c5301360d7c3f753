//! How a receiver checks a signature, as programs that run as they stand: with the secret in `WEBHOOK_SECRET`, the
//! header in `SIGNATURE` and the body as it came in the file `body.json`. Each prints `genuine` or `forged`.

pub(super) const SNIPPETS: &[(&str, &str)] = &[
    (
        "Python",
        r#"import hashlib, hmac, os

def is_genuine(body: bytes, signature: str, secret: str) -> bool:
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode())

with open("body.json", "rb") as file:
    body = file.read()
print("genuine" if is_genuine(body, os.environ["SIGNATURE"], os.environ["WEBHOOK_SECRET"]) else "forged")
"#,
    ),
    (
        "JavaScript",
        r#"const { createHmac, timingSafeEqual } = require("node:crypto");
const { readFileSync } = require("node:fs");

function isGenuine(body, signature, secret) {
  const expected = Buffer.from(createHmac("sha256", secret).update(body).digest("hex"));
  const given = Buffer.from(signature);
  return given.length === expected.length && timingSafeEqual(given, expected);
}

const { SIGNATURE, WEBHOOK_SECRET } = process.env;
console.log(isGenuine(readFileSync("body.json"), SIGNATURE, WEBHOOK_SECRET) ? "genuine" : "forged");
"#,
    ),
    (
        "Shell",
        r#"expected=$(openssl dgst -sha256 -hmac "$WEBHOOK_SECRET" -r body.json | cut -d ' ' -f 1)
if [ "$expected" = "$SIGNATURE" ]; then echo genuine; else echo forged; fi
"#,
    ),
];
