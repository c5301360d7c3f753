expected=$(openssl dgst -sha256 -hmac "$WEBHOOK_SECRET" -r body.json | cut -d ' ' -f 1)
if [ "$expected" = "$SIGNATURE" ]; then echo genuine; else echo forged; fi
