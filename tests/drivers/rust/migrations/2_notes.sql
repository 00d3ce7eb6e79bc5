ALTER TABLE sqlx_accounts ADD COLUMN notes text DEFAULT '{}';
ALTER TABLE sqlx_accounts ALTER COLUMN notes DROP DEFAULT, ALTER COLUMN notes TYPE jsonb USING notes::jsonb,
    ALTER COLUMN notes SET DEFAULT '{}';
