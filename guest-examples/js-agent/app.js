// A JavaScript agent that goes on where it stopped: open files, a Map, a closure and a generator
// survive a pause. `save` and `load` are for an upgrade to another version of the agent, and for nothing else.

import * as lifecycle from "dormouse:agent/lifecycle@0.1.0";
import * as clock from "wasi:clocks/monotonic-clock@0.2.0";
import * as random from "wasi:random/random@0.2.0";
import * as stderr from "wasi:cli/stderr@0.2.0";
import * as stdout from "wasi:cli/stdout@0.2.0";
import { reseed } from "./dice.js";
import { Appender, LineReader, entries, overwrite, readFile, writeFile } from "./files.js";
import { decode, encode } from "./utf8.js";

const JOURNAL = "/memory/episodic/journal.log";

// The most memory `grow` hands out, in MiB, so that a typing error stays harmless.
const MAX_GROW = 1024;
const PAGE = 4096;

// Starts that are remembered.
const MAX_STARTS = 100;

/** 0, 1, 1, 2, 3, 5, ... One number a turn; where it stands is nowhere but in this frame. */
function* fibonacci() {
  for (let [a, b] = [0n, 1n]; ; [a, b] = [b, a + b]) yield a;
}

/** Counts calls in a variable that only the closure can see. */
function counter() {
  let calls = 0;
  return () => ++calls;
}

const facts = new Map();
const numbers = fibonacci();
const count = counter();
const blocks = [];
let starts = [];
let turns = 0;
let journal;
let reader;
let folder;

/** Opens the journal twice, once: to append to it, and to read along behind. */
function openFiles() {
  journal ??= new Appender(JOURNAL);
  reader ??= new LineReader(JOURNAL);
}

/** What the host says about this agent. */
function who() {
  const me = lifecycle.identity();
  return (
    `id=${me.id} name=${me.name} generation=${lifecycle.generation()} ` +
    `cause=${lifecycle.cause()} parent=${lifecycle.parent() ?? "-"} turns=${turns}`
  );
}

/** Tries to overwrite what happened, which an episodic zone refuses. */
function forgetTry() {
  openFiles();
  try {
    overwrite(JOURNAL, "it never happened");
  } catch (error) {
    return `refused: ${error?.message ?? error}`;
  }
  throw new Error("the journal could be overwritten");
}

/** Takes memory and keeps it. */
function grow(mebibytes) {
  const size = Number(mebibytes);
  if (!(size >= 0 && size <= MAX_GROW)) throw new Error(`grow takes at most ${MAX_GROW}`);
  blocks.push(new Uint8Array(size << 20).fill(1));
  return `holding ${blocks.reduce((sum, block) => sum + (block.length >> 20), 0)} MiB`;
}

/** Writes to that many pages of the memory taken by `grow`. */
function touchPages(wanted) {
  let left = Number(wanted);
  for (const block of blocks) {
    for (let at = 0; at < block.length && left > 0; at += PAGE, left--) block[at]++;
  }
  if (left > 0) throw new Error(`only ${wanted - left} pages are held; grow first`);
  return `touched ${wanted} pages`;
}

// name: [function, number of arguments]; the last argument takes the rest of the line.
const commands = {
  remember: [
    (key, value) => {
      openFiles();
      facts.set(key, value);
      journal.write(`${key}=${value}\n`);
      return `remembered ${key} (${facts.size} known)`;
    },
    2,
  ],
  recall: [
    (key) => {
      if (!facts.has(key)) throw new Error(`nothing is known of '${key}'`);
      return facts.get(key);
    },
    1,
  ],
  next: [() => String(numbers.next().value), 0],
  count: [() => String(count()), 0],
  line: [
    () => {
      openFiles();
      return reader.next() ?? "(end)";
    },
    0,
  ],
  entry: [() => (folder ??= entries("/workspace")).next().value ?? "(end)", 0],
  who: [who, 0],
  starts: [() => starts.join("\n"), 0],
  write: [
    (path, text) => {
      writeFile(path, text);
      return `wrote ${text.length} characters`;
    },
    2,
  ],
  read: [readFile, 1],
  ls: [(path) => [...entries(path)].sort().join("\n"), 1],
  "forget-try": [forgetTry, 0],
  random: [
    () => {
      const host = [...random.getRandomBytes(8)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
      return `${host} ${Math.floor(Math.random() * 2 ** 32).toString(16).padStart(8, "0")}`;
    },
    0,
  ],
  time: [() => `${Date.now()}000000 ${clock.now()}`, 0],
  grow: [grow, 1],
  "touch-pages": [touchPages, 1],
  print: [
    (text) => {
      stdout.getStdout().blockingWriteAndFlush(encode(`${text}\n`));
      stderr.getStderr().blockingWriteAndFlush(encode(`${text}\n`));
      return "printed";
    },
    1,
  ],
};

/** Splits `rest` into `wanted` arguments, of which the last takes what is left. */
function split(rest, wanted) {
  const parts = rest === "" || wanted === 0 ? [] : rest.split(" ");
  return parts.length > wanted ? [...parts.slice(0, wanted - 1), parts.slice(wanted - 1).join(" ")] : parts;
}

/** One turn: a command as text, such as `remember colour blue`. */
export function handle(event) {
  if (event.kind !== "message") throw `events of kind '${event.kind}' are not understood`;
  try {
    const line = decode(event.payload).trim();
    const space = line.indexOf(" ");
    const name = space < 0 ? line : line.slice(0, space);
    if (!Object.hasOwn(commands, name)) {
      throw new Error(`'${name}' is not a command; there are: ${Object.keys(commands).join(" ")}`);
    }
    const [run, wanted] = commands[name];
    const args = split(space < 0 ? "" : line.slice(space + 1), wanted);
    if (args.length !== wanted) throw new Error(`${name} takes ${wanted} arguments`);
    turns += 1;
    return { payload: encode(run(...args)) };
  } catch (error) {
    throw String(error?.message ?? error);
  }
}

/** The memory has come to life. */
export function resumed(cause, generation) {
  reseed();
  starts = [...starts.slice(1 - MAX_STARTS), `${cause} ${generation}`];
}

/** What another version of this agent is to know. */
export function save() {
  return encode(JSON.stringify({ format: 1, turns, facts: Object.fromEntries(facts) }));
}

/** Takes over what another version knew. */
export function load(state) {
  let known;
  try {
    known = JSON.parse(decode(state));
  } catch (error) {
    throw `the state is not understood: ${error?.message ?? error}`;
  }
  if (known?.format !== 1) throw "the state is not of format 1";
  turns = Number(known.turns);
  facts.clear();
  for (const [key, value] of Object.entries(known.facts)) facts.set(key, value);
}
