import { setTimeout as pause } from 'node:timers/promises';

/**
 * Asks again until `check` gives something true, and gives it back. A check that throws is asked again too: the
 * page may be in the middle of a change.
 */
export async function until(what, check, within = 60_000, every = 60) {
  const end = performance.now() + within;
  let last;
  for (;;) {
    try {
      last = await check();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    if (performance.now() > end) {
      const seen = last instanceof Error ? last.message : JSON.stringify(last);
      throw new Error(`Not within ${within / 1000} s: ${what} (last seen: ${seen})`);
    }
    await pause(every);
  }
}
