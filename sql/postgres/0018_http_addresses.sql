-- Where servers reach each other's HTTP. Only an addition: a former version has none.

-- host:port; null: none is configured.
ALTER TABLE nodes ADD COLUMN http_address TEXT;
