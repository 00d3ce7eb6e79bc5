ALTER TABLE "drizzle_accounts" ADD COLUMN "notes" jsonb DEFAULT '{}'::jsonb;
