import { MIN_BUDGET } from '../cache/budget';
import type { PolicyName } from '../ipc/types';
import { t } from '../i18n';

/** What a column is to be answered with; a budget of `null` follows the free memory. */
export interface Setup {
  policy: PolicyName;
  budget: number | null;
}

export const MOST_COLUMNS = 3;
export const FEWEST_COLUMNS = 2;

/** `A`, `B`, `C` */
export function letter(column: number): string {
  return String.fromCharCode(65 + column);
}

/** `full`, `h2o · 1,024 tokens`, `h2o · auto` */
export function title({ policy, budget }: Setup): string {
  if (policy === 'full') return policy;
  return `${policy} · ${budget === null ? t.compare.auto : t.compare.budget(budget)}`;
}

export type Preset = 'everything' | 'policies' | 'budgets';

export const PRESETS: Preset[] = ['everything', 'policies', 'budgets'];

/** The columns of a preset, for a chat of so many tokens and what the slider says. */
export function columnsOf(preset: Preset, tokens: number, chosen: Setup): Setup[] {
  const budget = chosen.budget ?? telling(tokens);
  const policy = chosen.policy === 'full' ? 'h2o' : chosen.policy;
  switch (preset) {
    case 'everything':
      return [
        { policy: 'full', budget },
        { policy, budget },
      ];
    case 'policies':
      return [
        { policy: 'full', budget },
        { policy: 'h2o', budget },
        { policy: 'snapkv', budget },
      ];
    case 'budgets':
      return [4, 1, 0.25].map((share) => ({
        policy,
        budget: Math.max(MIN_BUDGET, Math.round((budget * share) / 16) * 16),
      }));
  }
}

/** A budget at which something is left out: a quarter of the text, where the slider says nothing. */
function telling(tokens: number): number {
  const quarter = Math.round(tokens / 4 / 64) * 64;
  return tokens === 0 ? 1024 : Math.max(MIN_BUDGET, quarter);
}
