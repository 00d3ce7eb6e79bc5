CREATE TYPE "public"."drizzle_mood" AS ENUM('sad', 'happy');--> statement-breakpoint
CREATE TABLE "drizzle_accounts" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"owner" text NOT NULL,
	"balance" integer DEFAULT 0 NOT NULL,
	"mood" "drizzle_mood",
	CONSTRAINT "drizzle_accounts_owner_unique" UNIQUE("owner")
);
--> statement-breakpoint
CREATE INDEX "drizzle_accounts_balance" ON "drizzle_accounts" USING btree ("balance");
