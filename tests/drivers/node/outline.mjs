// What the programs in JavaScript share: phases in their order, and expectations.
import assert from "node:assert";
import fs from "node:fs";

const PHASES = ["login", "migration", "crud", "prepared", "batch", "copy", "retry", "cancel", "pool", "together"];
// Workers that change one row, and how often each does.
export const WORKERS = 8, ROUNDS = 10;
export const POOL_SIZE = 4;

// What node-postgres doesn't take from libpq's environment variables; an authority makes it check the certificate.
export const trusting = (variable) => ({ ssl: { ca: fs.readFileSync(process.env[variable], "utf8") } });
export const settings = trusting("PGSSLROOTCERT");

export const equal = assert.deepStrictEqual;
export const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
export const range = (number) => [...Array(number).keys()];

// The promise must fail, with this SQLSTATE or code of Node's.
export async function refused(promise, code) {
  const failure = await promise.then(() => null, (error) => error);
  // Drizzle tells the driver's error as the cause of its own.
  equal((failure?.cause ?? failure)?.code, code, failure ?? "it was not refused");
}

// Runs the phases; one may return what it found worth telling.
export async function run(phases) {
  for (const name of PHASES) {
    const told = await phases[name]();
    console.log(`${name}: ${told ?? "as expected"}`);
  }
}
