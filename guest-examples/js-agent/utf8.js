// UTF-8 for a runtime that has no TextEncoder.

/** The bytes of a string. A lone surrogate becomes U+FFFD, as TextEncoder has it. */
export function encode(text) {
  const bytes = [];
  for (const character of text) {
    let code = character.codePointAt(0);
    if (code >= 0xd800 && code <= 0xdfff) code = 0xfffd;
    if (code < 0x80) bytes.push(code);
    else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63));
    else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    else
      bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
  }
  return new Uint8Array(bytes);
}

/** The string that some bytes spell. Throws a URIError where they are not UTF-8. */
export function decode(bytes) {
  let escaped = "";
  for (const byte of bytes) escaped += "%" + byte.toString(16).padStart(2, "0");
  return decodeURIComponent(escaped);
}
