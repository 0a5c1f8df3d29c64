/** A run of text as PDF.js reports it: the fields of its `TextItem` that say what and where. */
export interface RawItem {
  str: string;
  /** `ltr`, `rtl` or `ttb`. */
  dir: string;
  /** Text space to page space: `[a, b, c, d, e, f]`. */
  transform: number[];
  width: number;
  height: number;
}

/**
 * A run of text in the frame of its own writing direction: `u` grows along the line, `v` grows from
 * one line to the next. So upright, rotated and vertical text are all read by the same rules.
 */
export interface Box {
  str: string;
  u0: number;
  u1: number;
  /** The baseline. */
  v: number;
  /** Size of the type. */
  size: number;
  /** Place in the content stream. */
  order: number;
  rtl: boolean;
}

/** The boxes of one writing direction. */
export interface Frame {
  boxes: Box[];
  /** Lines run from top to bottom, as in vertical CJK. */
  vertical: boolean;
}

/** Groups runs by writing direction, the one that carries most text first. */
export function frames(items: RawItem[]): Frame[] {
  const byDirection = new Map<string, Frame & { weight: number }>();
  items.forEach((item, order) => {
    // Gaps are seen in the geometry; the blanks that PDF.js puts in would hide them.
    if (item.str.trim() === '') return;
    const { direction, box } = place(item, order);
    let frame = byDirection.get(direction);
    if (!frame) {
      frame = { boxes: [], vertical: direction === 'ttb', weight: 0 };
      byDirection.set(direction, frame);
    }
    frame.boxes.push(box);
    frame.weight += item.str.length;
  });
  return [...byDirection.values()].sort((a, b) => b.weight - a.weight);
}

function place(item: RawItem, order: number): { direction: string; box: Box } {
  const [a = 1, b = 0, c = 0, d = 1, x = 0, y = 0] = item.transform;
  const size = Math.hypot(c, d) || Math.hypot(a, b) || item.height || 1;
  const common = { str: item.str, size, order, rtl: item.dir === 'rtl' };
  if (item.dir === 'ttb') {
    return { direction: 'ttb', box: { ...common, u0: -y, u1: -y + item.height, v: -x } };
  }
  const degrees = Math.round((Math.atan2(b, a) * 180) / Math.PI / 90) * 90;
  const turn = ((degrees % 360) + 360) % 360;
  const [u, v] = turn === 90 ? [y, x] : turn === 180 ? [-x, y] : turn === 270 ? [-y, -x] : [x, -y];
  return { direction: `${turn}`, box: { ...common, u0: u, u1: u + item.width, v } };
}
