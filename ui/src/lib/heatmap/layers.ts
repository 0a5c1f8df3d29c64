import type { Event } from '../ipc/types';
import { mix, type Palette } from './draw';

/** What each layer holds of each part of the context. */
export interface LayerMap {
  seen: number;
  layers: number;
  bins: number;
  /** One byte for each bin of each layer, layer by layer. */
  shares: Uint8Array;
}

export function layerShares(event: Extract<Event, { type: 'layers' }>): LayerMap {
  const binary = atob(event.shares);
  const shares = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  return { seen: event.n_seen, layers: event.layers, bins: event.bins, shares };
}

/** The first layer on top, the first position at the left; the more is held, the further from the ground. */
export function drawLayers(
  ctx: CanvasRenderingContext2D,
  { layers, bins, shares }: LayerMap,
  palette: Palette,
  width: number,
  row: number,
  dpr: number,
): void {
  const { canvas } = ctx;
  const pixels = [Math.round(width * dpr), Math.round(layers * row * dpr)] as const;
  if (canvas.width !== pixels[0]) canvas.width = pixels[0];
  if (canvas.height !== pixels[1]) canvas.height = pixels[1];
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.fillStyle = palette.track;
  ctx.fillRect(0, 0, width, layers * row);
  const shades = Array.from({ length: 17 }, (_, i) => mix(palette.track, palette.keptHigh, i / 16));
  for (let layer = 0; layer < layers; layer += 1) {
    for (let from = 0; from < bins;) {
      const share = shares[layer * bins + from] ?? 0;
      const level = share === 0 ? 0 : Math.max(1, Math.round((share * 16) / 255));
      let to = from + 1;
      while (to < bins && (shares[layer * bins + to] ?? 0) === share) to += 1;
      const x = Math.round((from * width) / bins);
      ctx.fillStyle = shades[level] ?? palette.keptHigh;
      if (level > 0) ctx.fillRect(x, layer * row, Math.round((to * width) / bins) - x, row - 1);
      from = to;
    }
  }
}
