import type { PolicyName } from '../../ipc/types';
import { numbersOf } from '../numbers';

const { count, plural } = numbersOf('en');

export const memory = {
  label: 'Memory',
  lossy:
    'Compression is lossy: what is evicted, the model cannot see until it is brought back. Before a medical, legal or financial decision, check its answers against the document.',
  nextQuestion: 'from the next question',
  gauge: {
    label: 'Memory of the device',
    vram: 'VRAM',
    ram: 'RAM',
    weights: 'Weights',
    hot: 'KV hot',
    store: 'Store',
    scratch: 'Scratch',
    other: 'Other programs',
    free: 'Free',
    fullBefore: 'A full cache would need ',
    fullAfter: '.',
    fullAfterTooMuch: ', which does not fit.',
    waiting: 'Waiting for the first reading…',
  },
  budget: {
    title: 'Budget',
    auto: 'auto',
    tokens: (n: number) => plural(n, { one: 'token', other: 'tokens' }),
    unit: 'tokens',
    ofContext: (share: string) => `${share} of the context`,
    ofChat: (share: string) => `${share} of this chat`,
    allOfChat: 'all of this chat',
    followsFree: 'follows the free memory',
    withModel: 'With the model:',
    hotEntries: 'In the hot cache',
    ofTokens: (n: number) => `of ${plural(n, { one: 'token', other: 'tokens' })}`,
    hotBytes: 'Hot bytes',
    peak: 'Peak',
    store: 'In store',
    nothingStored: 'nothing is stored',
    saysFull: 'The full policy keeps everything, so the budget does not bind.',
    saysAuto: 'Follows the free memory. Move the slider to set it yourself.',
    saysFits: 'The whole chat fits: nothing is evicted.',
    saysMoves:
      'Down evicts at once, also while an answer is written. Up brings back what the store holds.',
  },
  policy: {
    title: 'Policy',
    what: 'What decides which entries stay',
    more: 'More policies',
    chosen: 'is chosen',
    says: {
      h2o: 'Keeps the newest half and, of the rest, what got the most attention for its age.',
      expected:
        'Keeps what later questions are likely to look at: for a document with many questions.',
      kvzip:
        'Keeps what it takes to repeat the text: for documents too, but reading takes twice as long.',
      snapkv: 'Keeps what the end of the prompt looks at: for one question about one text.',
      pyramidkv: 'As snapkv, with more room in the lower layers of the model.',
      tova: 'Keeps what the newest token looks at, and the last few tokens.',
      'h2o-paper': 'As published: attention added up over time, which favours early text.',
      window: 'Keeps the first few tokens and the newest, and nothing between.',
      full: 'Keeps everything: nothing is lost, and memory grows with every token.',
      random: 'Keeps what chance decides: a control for measurements.',
    } satisfies Record<PolicyName, string> as Record<PolicyName, string>,
  },
  recall: {
    title: 'Recall',
    label: 'Bring back what a question asks for',
    says: 'What was evicted waits in the store; the parts that fit your question return before it is answered.',
  },
  pin: {
    keep: 'Keep in memory',
    keepNamed: (name: string) => `Keep ${name} in memory`,
    pinned: 'Pinned: never evicted',
    inPart: 'Pinned in part',
    own: 'Pinned by itself: answers need it',
    isPinned: 'pinned',
    isPinnedInPart: 'pinned in part',
  },
  sources: {
    title: 'By source',
    part: 'Part',
    tokens: 'Tokens',
    kept: 'Kept',
    keptTitle: 'Share that is in the hot cache',
    store: 'Store',
    storeTitle: 'Share that is only in the store',
    page: (page: number) => `page ${count(page)}`,
    forgotten: (n: number) => `${count(n)} forgotten`,
  },
};
