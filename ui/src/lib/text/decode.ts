/** Text files come in more encodings than one: byte order marks first, then UTF-8, then Windows-1252. */
export function decodeText(data: ArrayBuffer): string {
  const head = new Uint8Array(data, 0, Math.min(3, data.byteLength));
  const encoding =
    head[0] === 0xff && head[1] === 0xfe
      ? 'utf-16le'
      : head[0] === 0xfe && head[1] === 0xff
        ? 'utf-16be'
        : 'utf-8';
  let text: string;
  try {
    text = new TextDecoder(encoding, { fatal: true }).decode(data);
  } catch {
    text = new TextDecoder('windows-1252').decode(data);
  }
  return text.replace(/\r\n?/g, '\n').replaceAll('\u0000', '').trim();
}
