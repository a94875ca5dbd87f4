// Neither engine gives a way to seed its own `Math.random`, whose state lies in memory: forks would share it and draw
// the same numbers. So it is another one here, which is seeded anew after each start. It is no source of secrets.

import * as random from "wasi:random/random@0.2.0";

// undefined until the first draw after a start
let state;

/** The next draw takes a fresh seed. */
export function reseed() {
  state = undefined;
}

/** 64 bits of the host's. */
function seed() {
  return [...random.getRandomBytes(8)].reduce((bits, byte) => (bits << 8n) | BigInt(byte), 0n);
}

/** splitmix64 (Steele and others 2014), of which 53 bits are used. */
Math.random = () => {
  state = BigInt.asUintN(64, (state ?? seed()) + 0x9e3779b97f4a7c15n);
  let mixed = state;
  mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 30n)) * 0xbf58476d1ce4e5b9n);
  mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn);
  return Number((mixed ^ (mixed >> 31n)) >> 11n) / 2 ** 53;
};
