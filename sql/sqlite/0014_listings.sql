-- What a dataset is, for those who look for data, and whether it is among the public datasets that the service lists.
ALTER TABLE datasets ADD COLUMN description TEXT;
ALTER TABLE datasets ADD COLUMN licence TEXT;
ALTER TABLE datasets ADD COLUMN listed INTEGER NOT NULL DEFAULT 0 CHECK (listed IN (0, 1));
-- Name and description, folded: what a search of the listed datasets looks at. Empty in rows from before, of which none
-- is listed; written by whatever lists a dataset.
ALTER TABLE datasets ADD COLUMN folded_name TEXT NOT NULL DEFAULT '';
ALTER TABLE datasets ADD COLUMN folded_description TEXT;
-- Whether cells of csv and tsv become numbers, booleans and nulls.
ALTER TABLE datasets ADD COLUMN infer_types INTEGER NOT NULL DEFAULT 0 CHECK (infer_types IN (0, 1));

-- The listed datasets: public, served, and with a version.
CREATE INDEX datasets_listed ON datasets (dataset_id)
    WHERE listed AND private_key IS NULL AND NOT frozen AND latest_version IS NOT NULL;
