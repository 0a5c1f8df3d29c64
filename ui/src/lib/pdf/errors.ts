/** Why a PDF gave no text. `message` is for the person. */
export class PdfError extends Error {
  constructor(
    readonly code: 'cancelled' | 'password' | 'broken' | 'no_text',
    message: string,
  ) {
    super(message);
    this.name = 'PdfError';
  }
}
