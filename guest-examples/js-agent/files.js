// Files of the agent's zones, straight on wasi:filesystem.

import * as clock from "wasi:clocks/monotonic-clock@0.2.0";
import * as preopens from "wasi:filesystem/preopens@0.2.0";
import { decode, encode } from "./utf8.js";

// How much one call asks of the host.
const BLOCK = 64 * 1024;
const FOLLOW = { symlinkFollow: true };

// Numbers of 64 bits are BigInts in componentize-js, and plain numbers in componentize-qjs: what a call of WASI
// gives tells which.
let wide;
const u64 = (number) => (wide ??= typeof clock.now() === "bigint" ? BigInt : Number)(number);

/** What the runtime throws for an error code of WASI, as a plain Error that says which path. */
function explain(path, error) {
  const code = error?.payload ?? error?.val ?? error;
  return new Error(`${path}: ${typeof code === "string" ? code : String(error?.message ?? error)}`);
}

// The zones, asked for once and kept.
let zones;

/** Splits a path into the zone that holds it and the rest. */
function locate(path) {
  zones ??= preopens.getDirectories();
  let best;
  for (const [descriptor, name] of zones) {
    const inside = path === name || path.startsWith(name + "/");
    if (inside && name.length > (best?.name.length ?? 0)) best = { descriptor, name };
  }
  if (!best) throw new Error(`${path}: in no zone`);
  return { folder: best.descriptor, rest: path.slice(best.name.length + 1) || "." };
}

/** Opens a path; `open` and `flags` are the flags of WASI's open-at. */
export function open(path, open, flags) {
  const { folder, rest } = locate(path);
  try {
    return folder.openAt(FOLLOW, rest, open, flags);
  } catch (error) {
    throw explain(path, error);
  }
}

/** Opens a path, lends it to `use`, and closes it. */
function lend(path, create, flags, use) {
  const file = open(path, create, flags);
  try {
    return use(file);
  } catch (error) {
    throw explain(path, error);
  } finally {
    file[Symbol.dispose]();
  }
}

/** Appends lines to a file that is created when missing and held open. */
export class Appender {
  constructor(path) {
    this.file = open(path, { create: true }, { write: true });
    this.stream = this.file.appendViaStream();
  }

  write(text) {
    this.stream.blockingWriteAndFlush(encode(text));
  }
}

/** Reads a file line by line; it stays open, and sees what is appended later. */
export class LineReader {
  constructor(path) {
    this.file = open(path, {}, { read: true });
    this.offset = 0;
  }

  /** The next full line, or null while there is none. */
  next() {
    const pending = [];
    for (let at = this.offset; ; ) {
      const [block, end] = this.file.read(u64(BLOCK), u64(at));
      const stop = block.indexOf(10);
      if (stop >= 0) {
        pending.push(...block.slice(0, stop));
        this.offset = at + stop + 1;
        return decode(pending);
      }
      if (end || block.length === 0) return null;
      pending.push(...block);
      at += block.length;
    }
  }
}

/** The whole of a file as text. */
export function readFile(path) {
  return lend(path, {}, { read: true }, (file) => {
    const bytes = [];
    for (;;) {
      const [block, end] = file.read(u64(BLOCK), u64(bytes.length));
      for (const byte of block) bytes.push(byte);
      if (end || block.length === 0) return decode(bytes);
    }
  });
}

/** Writes a whole file. */
export function writeFile(path, text) {
  lend(path, { create: true, truncate: true }, { write: true }, (file) => {
    for (let left = encode(text), at = 0; left.length > 0; ) {
      const written = Number(file.write(left.slice(0, BLOCK), u64(at)));
      at += written;
      left = left.slice(written);
    }
  });
}

/** Writes over the first bytes of a file, where its zone permits that. */
export function overwrite(path, text) {
  lend(path, {}, { write: true }, (file) => file.write(encode(text), u64(0)));
}

/** The names in a folder, one after the other, from a directory stream held open meanwhile. */
export function* entries(path) {
  const stream = lend(path, { directory: true }, { read: true }, (folder) => folder.readDirectory());
  try {
    for (let entry; (entry = stream.readDirectoryEntry()); ) yield entry.name;
  } finally {
    stream[Symbol.dispose]();
  }
}
