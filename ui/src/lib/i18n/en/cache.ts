import type { KvType, PrefillMode, Preset } from '../../ipc/types';

/** Sets of options for the cache, and each of them. One plain sentence for each. */
export const cache = {
  preset: {
    title: 'Set up for',
    what: 'What the cache is set up for',
    changed: 'changed',
    reset: 'reset',
    names: {
      conversation: 'Conversation',
      document: 'Document',
      code: 'Code',
    } satisfies Record<Preset, string> as Record<Preset, string>,
    says: {
      conversation: 'For talk: keeps the newest half and what got the most attention so far.',
      document: 'For many questions about long texts: keeps what any question may look at.',
      code: 'For code: three quarters of the budget hold what was written last.',
    } satisfies Record<Preset, string> as Record<Preset, string>,
  },
  advanced: {
    title: 'Advanced',
    when: 'What is changed here holds from the next question.',
    reset: 'Back to the preset’s values',
    prefill: {
      title: 'Reading',
      says: 'Exact reads layer by layer with everything in view; streaming cuts back as it reads.',
      names: {
        auto: 'Exact where it fits',
        exact: 'Exact',
        streaming: 'Streaming',
      } satisfies Record<PrefillMode, string> as Record<PrefillMode, string>,
    },
    kv: {
      title: 'Entries',
      says: 'How finely entries are held: 8 bits take half of the memory of 16.',
      names: { f16: '16 bits', q8_0: '8 bits', f32: '32 bits' } satisfies Record<
        KvType,
        string
      > as Record<KvType, string>,
    },
    fields: {
      sinks: {
        title: 'First tokens',
        says: 'So many tokens at the very start always stay; models lean on them.',
        empty: '',
      },
      recent: {
        title: 'Newest tokens',
        says: 'So many of the newest tokens always stay, never fewer than 16.',
        empty: 'by share',
      },
      recent_share: {
        title: 'Newest share',
        says: 'The same as a share of the budget, from 0 to 1.',
        empty: 'by policy',
      },
      chunk: {
        title: 'Chunk',
        says: 'So many tokens are read at once: more is faster and takes more memory.',
        empty: '',
      },
      evict_every: {
        title: 'Evict every',
        says: 'So many tokens are written over the budget before they are evicted together.',
        empty: '',
      },
      recall_share: {
        title: 'Recall share',
        says: 'A question may fill at most this share of the budget from the store.',
        empty: '',
      },
      recall_every: {
        title: 'Recall again',
        says: 'While an answer is written, the store is asked again after so many tokens.',
        empty: 'never',
      },
      store_limit: {
        title: 'Store, MiB',
        says: 'The store takes at most this much memory; 0 keeps no store, and evicted text is lost.',
        empty: 'half of free',
      },
    },
  },
};
