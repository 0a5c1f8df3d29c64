import { numbersOf } from '../numbers';

const { count, plural } = numbersOf('en');

export const thread = {
  label: 'Conversation',
  opening: 'Opening the chat',
  toEnd: 'To the end',
  you: 'You',
  answer: 'Answer',
  thinking: 'Thinking…',
  thoughts: 'Thoughts',
  copyAnswer: 'Copy the answer',
  ttft: (seconds: string) => `${seconds} s to first token`,
  generated: (n: number) => plural(n, { one: 'token', other: 'tokens' }),
  prefilled: (n: number) => `${count(n)} read`,
  cameBack: (n: number) => `recalled ${n === 1 ? 'once' : `${count(n)} times`} while writing`,
  endedAtLimit: 'Ended at the limit of tokens',
  stopped: 'Stopped',
  cutOff: 'Cut off',
  continue: 'Continue',
  continueTitle: 'Write the rest of this answer',
  regenerate: 'Write another answer',
  copyQuestion: 'Copy the question',
  showAll: (characters: string) => `Show all ${characters} characters`,
  edit: 'Edit',
  editQuestion: 'Edit the question',
  editHint: 'Asks in a branch of its own; the answer so far is kept.',
  branches: 'Branches of the chat',
  ofQuestions: { previous: 'Previous question', next: 'Next question' },
  ofAnswers: { previous: 'Previous answer', next: 'Next answer' },
  prefill: {
    label: 'Reading the prompt',
    auto: 'Reading',
    exact: 'Reading exactly (layer by layer)',
    streaming: 'Reading in a stream (approximate)',
    waiting: 'Waiting for the model',
    queued: 'Waiting until another answer is written',
    restoring: 'Restoring what the model held of this chat',
    saving: 'Saving what the model holds of this chat, then reading',
    tokens: (done: number, all: number) => `${count(done)} / ${count(all)} tokens`,
  },
  lookedAgain: 'Looked again at',
  showOnHeatmap: (name: string) => `${name}: show it on the heatmap`,
  showIt: (name: string) => `${name}: show it`,
  andMore: (n: number) => `, and ${count(n)} more`,
  welcome: {
    modelTitle: 'First, a model',
    modelText:
      'Everything runs on this computer: nothing you ask or attach leaves it. Small models answer quickly on any machine, larger ones want a graphics card.',
    title: 'Ask a long document',
    steps: [
      {
        lead: 'Drop a PDF, text or Markdown file',
        rest: ' anywhere on this window. Its pages and tokens are shown before anything is sent.',
      },
      {
        lead: 'Ask.',
        rest: ' The whole text is read once; later questions go on from there.',
      },
      {
        lead: 'Watch and steer the memory',
        rest: ' on the right. The heatmap shows what the model still holds, the slider how much it may hold.',
      },
    ],
    choose: 'Choose a file…',
  },
};
