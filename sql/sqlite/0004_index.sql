-- Which paths of a dataset get a leaf whatever its versions contain, and which get none, as JSON:
-- {"always":["a.b"],"never":["c"]}. Null: the profile of each version decides.
ALTER TABLE datasets ADD COLUMN index_paths TEXT;
