interface ImportMetaEnv {
  /** Folder of the PDFs that the preview attaches. */
  readonly PREVIEW_PDFS: string;
}
