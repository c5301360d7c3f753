-- What a dataset is, for those who look for data, and whether it is among the public datasets that the service lists.
ALTER TABLE datasets ADD COLUMN description TEXT;
ALTER TABLE datasets ADD COLUMN licence TEXT;
ALTER TABLE datasets ADD COLUMN listed BOOLEAN NOT NULL DEFAULT FALSE;
-- Name and description, folded: what a search of the listed datasets looks at. Empty in rows from before, of which none
-- is listed; written by whatever lists a dataset.
ALTER TABLE datasets ADD COLUMN folded_name TEXT NOT NULL DEFAULT '';
ALTER TABLE datasets ADD COLUMN folded_description TEXT;
-- Whether cells of csv and tsv become numbers, booleans and nulls.
ALTER TABLE datasets ADD COLUMN infer_types BOOLEAN NOT NULL DEFAULT FALSE;

-- The listed datasets: public, served, and with a version.
CREATE INDEX datasets_listed ON datasets (dataset_id)
    WHERE listed AND private_key IS NULL AND NOT frozen AND latest_version IS NOT NULL;
