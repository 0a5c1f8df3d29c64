/** The smallest budget the slider offers, in tokens. */
export const MIN_BUDGET = 64;

/** Steps of the slider. Its scale is logarithmic: halving the memory is the same way everywhere. */
export const SLIDER_STEPS = 1000;

/** The budget at a place of the slider, rounded to a figure one can remember. */
export function budgetAt(step: number, max: number): number {
  const top = Math.max(max, MIN_BUDGET * 2);
  if (step >= SLIDER_STEPS) return top;
  const exact = MIN_BUDGET * (top / MIN_BUDGET) ** (step / SLIDER_STEPS);
  const grain = exact < 512 ? 16 : exact < 4096 ? 64 : exact < 32_768 ? 256 : 1024;
  return Math.min(top, Math.max(MIN_BUDGET, Math.round(exact / grain) * grain));
}

/** The place of a budget on the slider. */
export function stepOf(budget: number, max: number): number {
  const top = Math.max(max, MIN_BUDGET * 2);
  const clamped = Math.min(top, Math.max(MIN_BUDGET, budget));
  return Math.round((SLIDER_STEPS * Math.log(clamped / MIN_BUDGET)) / Math.log(top / MIN_BUDGET));
}

/** Calls at most every `ms`, the last value always. */
export function throttle<T>(ms: number, call: (value: T) => void): (value: T) => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let pending: { value: T } | undefined;
  const tick = () => {
    timer = undefined;
    if (!pending) return;
    const { value } = pending;
    pending = undefined;
    call(value);
    timer = setTimeout(tick, ms);
  };
  return (value) => {
    pending = { value };
    if (timer === undefined) tick();
  };
}
