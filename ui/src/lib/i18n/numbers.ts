/** The words that a number takes, by the plural categories of a language. */
export type Forms = Partial<Record<Intl.LDMLPluralRule, string>> & { other: string };

/** Writes numbers into the sentences of one language. */
export function numbersOf(locale: string) {
  const whole = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
  const rules = new Intl.PluralRules(locale);
  const count = (n: number) => whole.format(n);
  return {
    /** `3,120` */
    count,
    /** `1 page`, `12 pages` */
    plural: (n: number, forms: Forms) => `${count(n)} ${word(n, forms)}`,
    /** Only the word that goes with the number. */
    word,
  };

  function word(n: number, forms: Forms): string {
    return forms[rules.select(n)] ?? forms.other;
  }
}
