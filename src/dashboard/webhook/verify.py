import hashlib, hmac, os

def is_genuine(body: bytes, signature: str, secret: str) -> bool:
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode())

with open("body.json", "rb") as file:
    body = file.read()
print("genuine" if is_genuine(body, os.environ["SIGNATURE"], os.environ["WEBHOOK_SECRET"]) else "forged")
