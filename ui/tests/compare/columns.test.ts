import { expect, test } from 'vitest';
import { columnsOf, title } from '../../src/lib/compare/columns';

test('the first comparison is everything against what the slider says', () => {
  expect(columnsOf('everything', 4000, { policy: 'expected', budget: 512 })).toEqual([
    { policy: 'full', budget: 512 },
    { policy: 'expected', budget: 512 },
  ]);
});

test('where the budget follows the memory, one is taken at which something is left out', () => {
  const [, mine] = columnsOf('everything', 4000, { policy: 'h2o', budget: null });
  expect(mine).toEqual({ policy: 'h2o', budget: 1024 });
  expect(columnsOf('everything', 100, { policy: 'h2o', budget: null })[1]?.budget).toBe(64);
});

test('three budgets stand around the chosen one and never under the least', () => {
  const budgets = (budget: number) =>
    columnsOf('budgets', 0, { policy: 'full', budget }).map((column) => column.budget);
  expect(budgets(1024)).toEqual([4096, 1024, 256]);
  expect(budgets(64)).toEqual([256, 64, 64]);
});

test('titles name policy and budget', () => {
  expect(title({ policy: 'full', budget: 64 })).toBe('full');
  expect(title({ policy: 'h2o', budget: 1024 })).toBe('h2o · 1,024 tokens');
  expect(title({ policy: 'snapkv', budget: null })).toBe('snapkv · auto');
});
