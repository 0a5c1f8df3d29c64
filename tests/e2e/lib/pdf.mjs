/** A PDF of that many pages, each with its number and some forty lines of words. */
export function longPdf(pages) {
  const parts = ['%PDF-1.4\n'];
  const offsets = [];
  let length = parts[0].length;
  const add = (body) => {
    offsets.push(length);
    parts.push(`${offsets.length} 0 obj\n${body}\nendobj\n`);
    length += parts.at(-1).length;
  };
  const kids = Array.from({ length: pages }, (_, i) => `${4 + 2 * i} 0 R`).join(' ');
  add('<< /Type /Catalog /Pages 2 0 R >>');
  add(`<< /Type /Pages /Kids [${kids}] /Count ${pages} >>`);
  add('<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>');
  for (let i = 0; i < pages; i += 1) {
    const lines = Array.from({ length: 40 }, (_, n) => `Page ${i + 1}, line ${n + 1} of its words`);
    const text = `BT /F1 10 Tf 50 800 Td 14 TL\n${lines.map((l) => `(${l}) Tj T*`).join('\n')}\nET`;
    const font = '/Resources << /Font << /F1 3 0 R >> >>';
    add(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] ${font} /Contents ${5 + 2 * i} 0 R >>`,
    );
    add(`<< /Length ${text.length} >>\nstream\n${text}\nendstream`);
  }
  const entries = offsets.map((at) => `${String(at).padStart(10, '0')} 00000 n \n`).join('');
  const size = offsets.length + 1;
  const end = `trailer << /Size ${size} /Root 1 0 R >>\nstartxref\n${length}\n%%EOF`;
  return Buffer.from(
    `${parts.join('')}xref\n0 ${size}\n0000000000 65535 f \n${entries}${end}`,
    'latin1',
  );
}
