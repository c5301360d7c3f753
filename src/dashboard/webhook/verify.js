const { createHmac, timingSafeEqual } = require("node:crypto");
const { readFileSync } = require("node:fs");

function isGenuine(body, signature, secret) {
  const expected = Buffer.from(createHmac("sha256", secret).update(body).digest("hex"));
  const given = Buffer.from(signature);
  return given.length === expected.length && timingSafeEqual(given, expected);
}

const { SIGNATURE, WEBHOOK_SECRET } = process.env;
console.log(isGenuine(readFileSync("body.json"), SIGNATURE, WEBHOOK_SECRET) ? "genuine" : "forged");
