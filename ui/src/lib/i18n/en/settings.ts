import { numbersOf } from '../numbers';

const { plural } = numbersOf('en');

export const settings = {
  title: 'Settings',
  openTitle: 'Settings (Ctrl+,)',
  theme: 'Theme',
  themes: { system: 'System', light: 'Light', dark: 'Dark' },
  language: 'Language',
  languageSystem: 'System',
  snapshots: {
    name: 'Memory of chats on the disk, in GiB',
    says: 'So that a chat need not be read again after a restart; 0 keeps none.',
    use: (bytes: string, chats: number) =>
      `Now ${bytes} in ${plural(chats, { one: 'chat', other: 'chats' })}.`,
  },
  fontSize: 'Type size',
  fontSizes: { small: 'Small', normal: 'Normal', large: 'Large', huge: 'Very large' },
  systemPrompt: {
    name: 'System prompt',
    example: 'For example: Answer briefly, and name the page.',
    says: 'Goes before the first question of every new chat. Chats that exist keep the one they began with; empty leaves it to the model.',
  },
  store: {
    name: 'Store of a chat, in GiB of memory',
    says: 'What is evicted waits here to be brought back. Empty follows the free memory; 0 keeps nothing, so that what is evicted is forgotten.',
    auto: 'auto',
  },
  data: {
    name: 'Data folder',
    open: 'Open',
    says: 'Chats and their documents. To keep them elsewhere: close Cistern, move this folder, and start Cistern with CISTERN_DATA set to its new place.',
  },
  resetDone: 'All settings are back to their defaults.',
  sampling: {
    title: 'Advanced: how tokens are chosen',
    random: 'random',
    temperature: { name: 'Temperature', says: '0 always takes the likeliest token' },
    top_p: { name: 'Top-p', says: '1 is off' },
    top_k: { name: 'Top-k', says: '0 is off' },
    min_p: { name: 'Min-p', says: '0 is off' },
    repetition_penalty: { name: 'Repetition penalty', says: '1 is off' },
    seed: { name: 'Seed', says: 'empty takes a new one each time' },
    max_tokens: { name: 'Longest answer', says: 'in tokens' },
  },
};
