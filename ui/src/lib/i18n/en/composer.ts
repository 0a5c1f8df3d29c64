export const composer = {
  label: 'Your question',
  needsModel: 'Choose a model above to begin',
  ask: 'Ask something, or drop a document…',
  askDocument: 'Ask about the document…',
  attach: 'Attach a document',
  attached: 'Attached documents',
  send: 'Send',
  sendTitle: 'Send (Enter)',
  stop: 'Stop',
  stopTitle: 'Stop (Esc)',
  contextTitle: 'Tokens of this chat, and what the model was trained for',
  pastContext: (context: string) =>
    `Past the ${context} tokens of training: what is kept was moved together so that the chat can go on.`,
  tooLong: (context: string) =>
    `Longer than the ${context} tokens this model was trained for: answers may suffer.`,
  lossy:
    'Compression is lossy: evicted text is not seen. Check medical, legal and financial answers.',
};
